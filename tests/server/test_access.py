"""A token for a collection only gives access to that collection, on every route of the API."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi.routing import iter_route_contexts

from tests.conftest import write_pdf
from tests.server.service import (
    FINISHED,
    QUESTION,
    TOKEN,
    assert_problem,
    client,
    events,
    finished,
    send,
    serving,
    upload,
    wait_until,
)
from tests.server.walk import ENDLESS, PREFIX, UPLOAD, Operation, comparable, operations
from visar.client import Client
from visar.errors import NotInIndex, ReadOnlyIndex
from visar.index import Index
from visar.server import Settings, create_app

WAGES = {"question": "What are the wages?"}
FOR_OPERATORS = ("/metrics", "/ready")
OWN, FOREIGN, MISSING = "fleet", "harbour-council", "harbour-cabinets"


@dataclass
class SharedServer:
    """A server with two collections, and the names of what they contain."""

    index: Index
    address: str
    names: Mapping[str, Mapping[str, str]]
    """Ids of the document, job and conversation of each collection, and the collection's name."""
    shared: str
    """Id of a document that is in both collections."""

    def client(self, token: str) -> httpx2.Client:
        return client(self.address, headers={"Authorization": f"Bearer {token}"})

    def token(self, access: Any, collection: str | None = OWN) -> str:
        return self.index.tokens.create(access, collection=collection)[1]

    def secrets(self) -> list[str]:
        """Return texts of the other collection, which must stay hidden."""
        return [*self.names[FOREIGN].values(), "barnacle", "crane"]

    def state(self) -> Any:
        """Return everything that the operator can list."""
        with self.client(TOKEN) as http:
            wait_until(lambda: all_finished(http), "all jobs are finished")
            return [
                http.get(path).json() for path in ("documents", "collections", "jobs", "threads")
            ]


def all_finished(http: httpx2.Client) -> bool:
    return all(job["state"] in FINISHED for job in http.get("jobs").json())


@contextmanager
def shared_server(tmp_path: Path) -> Iterator[SharedServer]:
    """Serve two collections that share a document."""
    settings = Settings(token=TOKEN, requests_per_minute=1_000_000)
    with Index.open(tmp_path / "index") as index, serving(index, settings) as address:
        both = write_pdf(tmp_path / "rules.pdf", "Rules of the port. Wages are paid on Fridays.")
        texts = {OWN: "The wages of sailors are nine crowns.", FOREIGN: "Barnacle wages: a crane."}
        names = {}
        for collection, text in texts.items():
            path = write_pdf(tmp_path / f"{collection}-ledger.pdf", text, "A second page.")
            document = index.add(path, collection=collection)
            index.add(both, collection=collection)
            with client(address, headers={"Authorization": f"Bearer {TOKEN}"}) as http:
                job = send(http, UPLOAD, f"{collection}.pdf", collection=collection).json()["id"]
                finished(http, job)
                thread = http.post("threads", json={"collection": collection}).json()["id"]
                assert http.post("ask", json={**WAGES, "thread": thread}).json()["text"]
            names[collection] = {
                "document": document.id,
                "job": job,
                "thread": thread,
                "collection": collection,
            }
        yield SharedServer(index, address, names, index.get("rules.pdf").id)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedServer]:
    """A server for tests that don't change documents."""
    with shared_server(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[SharedServer]:
    """A server for a test that changes documents."""
    with shared_server(tmp_path) as server:
        yield server


def missing(name: str) -> str:
    """Return a similar name that nothing has."""
    swapped = "".join(chr(ord(letter) ^ 1) if letter.isalnum() else letter for letter in name)
    return {FOREIGN: MISSING}.get(name, swapped)


def test_every_route_hides_the_other_collection(
    own_server: SharedServer, subtests: pytest.Subtests
) -> None:
    """Its documents, jobs and conversations get the same responses as names that don't exist."""
    own, foreign = own_server.names[OWN], own_server.names[FOREIGN]
    before = own_server.state()
    tried = 0
    with own_server.client(own_server.token("write")) as http:
        for operation in operations(http):
            if operation.path == ENDLESS:  # see test_events_only_contain_visible_jobs
                continue
            with subtests.test(f"{operation.method} {operation.path}"):
                for slot in sorted(operation.slots()):
                    others = [foreign[slot]]
                    if slot == "thread":
                        others += [foreign[slot][:12]]
                    if slot == "document":
                        others += [f"{FOREIGN}-ledger.pdf", foreign[slot][:12]]
                    for other in others:
                        hidden = operation.send(http, {**own, slot: other})
                        unknown = operation.send(http, {**own, slot: missing(other)})
                        assert comparable(hidden, other) == comparable(unknown, missing(other))
                        # Not the status, which a stream has sent already.
                        is_refused = '"code":"not_found"' in hidden.text
                        assert is_refused or is_list(operation), hidden.text
                        assert_hidden(own_server, hidden, other)
                response = operation.send(http, own)
                # It may have been deleted before, or be a job that was just retried.
                allowed = {404, 409} if operation.method == "DELETE" else set()
                allowed |= {403} if operation.path.endswith(FOR_OPERATORS) else set()
                assert response.is_success or response.status_code in allowed, response.text
                assert_hidden(own_server, response)
                tried += 1
    assert tried > 25
    assert [hidden_in(part) for part in own_server.state()] == [hidden_in(part) for part in before]


def is_list(operation: Operation) -> bool:
    """Return whether a route responds to an unknown name with an empty list."""
    return (operation.method, operation.path) == ("GET", "/api/v1/documents")


def assert_hidden(server: SharedServer, response: httpx2.Response, sent: str | None = None) -> None:
    """Check that a response has no text of the other collection, except what the request sent."""
    text = f"{response.text} {dict(response.headers)}"
    if sent is not None:
        text = text.replace(sent, "")
    leaked = [secret for secret in server.secrets() if secret.lower() in text.lower()]
    assert not leaked, (leaked, response.text)


def hidden_in(items: list[Any]) -> list[Any]:
    """Return the items that are only in the other collection."""
    return [one for one in items if FOREIGN in json.dumps(one) and one["name"] != "rules.pdf"]


@pytest.mark.parametrize("collection", [OWN, None])
def test_no_route_changes_anything_for_a_read_only_token(
    server: SharedServer, collection: str | None, subtests: pytest.Subtests
) -> None:
    before = server.state()
    with server.client(server.token("read", collection)) as http:
        for operation in operations(http):
            if operation.path == ENDLESS:
                continue
            with subtests.test(f"{operation.method} {operation.path}"):
                names = dict(server.names[OWN])
                if operation.method == "POST":
                    del names["thread"]  # the answer would be saved to it
                response = operation.send(http, names)
                if operation.only_reads:
                    assert response.is_success or operation.path.endswith(FOR_OPERATORS)
                else:
                    assert_problem(response, 403, "read_only")
        question = {**WAGES, "thread": server.names[OWN]["thread"]}
        assert_problem(http.post("ask", json=question), 403, "read_only")
    assert server.state() == before


def test_only_the_operator_sees_the_state_of_the_server(server: SharedServer) -> None:
    for token in (server.token("write"), server.token("write", None)):
        with server.client(token) as http:
            assert http.get("health").status_code == 200
            for path in FOR_OPERATORS:
                assert_problem(http.get(path[1:]), 403, "operator")
    with server.client(TOKEN) as http:
        assert http.get("metrics").status_code == http.get("ready").status_code == 200


def test_a_collection_is_a_library_of_its_own(server: SharedServer) -> None:
    """Results are the same as for a library that contains nothing else."""
    with Client(server.address, token=server.token("read")) as library:
        documents = library.documents()
        assert [one.name for one in documents] == [f"{OWN}-ledger.pdf", "rules.pdf"]
        assert {one.collections for one in documents} == {(OWN,)}
        assert [(one.name, one.documents) for one in library.collections()] == [(OWN, 2)]
        assert {job.collection for job in library.jobs()} == {OWN}
        answer = library.ask("What are the wages of sailors?")
        assert "nine crowns" in answer.text
        found = answer.search
        assert (found.pages_searched, found.query.collection, found.query.documents) == (
            3,
            None,
            None,
        )
        assert {one.collections for one in found.documents} == {(OWN,)}
        stream = library.stream("What are the wages of sailors?", collection=OWN)
        assert stream.search.query.collection == OWN
        assert "nine crowns" in stream.answer.text
        assert len(library.explain(found).pages) == 3
        with pytest.raises(ReadOnlyIndex):
            library.remove("rules.pdf")
        for name in (FOREIGN, "nothing"):
            with pytest.raises(NotInIndex, match=name):
                library.ask("What are the wages?", collection=name)


def test_a_cached_result_does_not_reveal_the_query_of_others(server: SharedServer) -> None:
    """The cached result has the collection and the filter of another user's query."""
    question = {"question": QUESTION, "documents": [server.shared]}
    with server.client(TOKEN) as operator, server.client(server.token("read")) as http:
        query = {**question, "collection": FOREIGN, "where": 'kind != "secret"'}
        assert operator.post("search", json=query).status_code == 200
        response = http.post("search", json=question)
        assert response.json()["query"]["collection"] is None
        assert "secret" not in response.text
        assert_hidden(server, response)


def test_an_empty_collection_does_not_reveal_others(server: SharedServer) -> None:
    with server.client(server.token("write", "nobody")) as http:
        assert http.get("documents").json() == http.get("collections").json() == []
        response = http.post("search", json={"question": QUESTION})
        assert_problem(response, 404, "not_found")
        assert_hidden(server, response)


def test_uploads_are_added_to_the_collection(own_server: SharedServer, tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "anchor.pdf", "The anchor weighs a ton.")
    with own_server.client(own_server.token("write")) as http:
        job = finished(http, upload(http, path)["id"])
        assert (job["state"], job["collection"]) == ("done", OWN)
        assert http.get("documents/anchor.pdf").json()["collections"] == [OWN]
        refused = send(http, path.read_bytes(), "anchor.pdf", collection=FOREIGN)
        assert_problem(refused, 404, "not_found")


def test_a_document_is_removed_from_the_index_with_its_last_collection(
    own_server: SharedServer,
) -> None:
    with own_server.client(own_server.token("write")) as http, own_server.client(TOKEN) as operator:
        assert http.delete("documents/rules.pdf").json()["collections"] == [OWN]
        assert_problem(http.get("documents/rules.pdf"), 404, "not_found")
        assert operator.get("documents/rules.pdf").json()["collections"] == [FOREIGN]
        assert http.delete(f"documents/{OWN}-ledger.pdf").status_code == 200
        assert_problem(operator.get(f"documents/{OWN}-ledger.pdf"), 404, "not_found")


def test_events_only_contain_visible_jobs(server: SharedServer) -> None:
    with (
        server.client(server.token("read")) as http,
        server.client(TOKEN) as operator,
        http.stream("GET", "jobs/events") as response,
    ):
        foreign = send(operator, UPLOAD, "later.pdf", collection=FOREIGN).json()["id"]
        own = send(operator, UPLOAD, "later.pdf", collection=OWN).json()["id"]
        changes = (json.loads(data) for _, data in events(response))
        jobs = list(itertools.takewhile(lambda job: job["id"] != own, changes))
        assert {job["collection"] for job in jobs} == {OWN}
        assert foreign not in [job["id"] for job in jobs]


def test_events_end_when_the_token_is_revoked(server: SharedServer) -> None:
    token, secret = server.index.tokens.create("read", collection=OWN)
    server.state()  # wait until no job runs
    with (
        server.client(secret) as http,
        server.client(TOKEN) as operator,
        http.stream("GET", "jobs/events") as response,
    ):
        changes = events(response)
        for _ in http.get("jobs").json():
            next(changes)
        server.index.tokens.revoke(token.id)
        send(operator, UPLOAD, "later.pdf", collection=OWN)
        assert list(changes) == []


def test_all_undocumented_routes_are_known(server: SharedServer) -> None:
    """`operations` only returns routes in the OpenAPI description."""
    app = create_app(server.index, Settings(token=TOKEN))
    documented = set(app.openapi()["paths"])
    # The description names parameters without their types.
    paths = {str(one.path).replace(":collection}", "}") for one in iter_route_contexts(app.routes)}
    assert paths - documented == {
        *("", f"{PREFIX}openapi.json", "/api/{path:path}", "/v1/{path:path}"),
        *("/v1/models", "/v1/models/{name:path}", "/v1/chat/completions"),
    }


def test_the_openai_api_hides_the_other_collection(server: SharedServer) -> None:
    def chat(model: str) -> httpx2.Response:
        body = {"model": model, "messages": [{"role": "user", "content": WAGES["question"]}]}
        return http.post(f"{server.address}/v1/chat/completions", json=body)

    def describe(model: str) -> httpx2.Response:
        return http.get(f"{server.address}/v1/models/{model}")

    foreign, missing = f"visar/{FOREIGN}", f"visar/{MISSING}"
    with server.client(server.token("read")) as http:
        models = http.get(f"{server.address}/v1/models")
        assert [one["id"] for one in models.json()["data"]] == ["visar", f"visar/{OWN}"]
        for model in ("visar", f"visar/{OWN}"):
            response = chat(model)
            assert "nine crowns" in response.text
            assert_hidden(server, response)
        for send_model in (chat, describe):
            hidden, unknown = send_model(foreign), send_model(missing)
            assert hidden.status_code == unknown.status_code == 404
            assert hidden.text.replace(foreign, missing) == unknown.text
            assert_hidden(server, hidden, foreign)
    with client(server.address) as http:
        assert http.get(f"{server.address}/v1/models").status_code == 401


def test_a_conversation_stays_within_its_collection(server: SharedServer) -> None:
    """Even if the operator continues it, it contains nothing from other collections."""
    own = server.names[OWN]["thread"]
    query = {**WAGES, "thread": own}
    with server.client(TOKEN) as operator, server.client(server.token("write")) as http:
        assert_problem(operator.post("ask", json={**query, "collection": FOREIGN}), 422, "invalid")
        answer = operator.post("ask", json={**query, "question": "What is a crane?"}).json()
        assert answer["search"]["query"]["collection"] == OWN
        assert http.post("ask", json={**query, "standalone": True}).status_code == 200
        response = http.get(f"threads/{own}")
        assert [one["question"] for one in response.json()["exchanges"]] == [
            WAGES["question"],
            "What is a crane?",
            WAGES["question"],
        ]
        searched = [one["answer"]["search"]["documents"] for one in response.json()["exchanges"]]
        assert all(one["collections"] == [OWN] for documents in searched for one in documents)
        assert "barnacle" not in response.text.lower()
        mine = http.post("threads", json={"name": "Mine"}).json()
        assert mine["collection"] == OWN
        assert {one["id"] for one in http.get("threads").json()} == {own, mine["id"]}
