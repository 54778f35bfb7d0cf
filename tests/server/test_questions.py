"""The routes for searches, answers and explanations, over real connections."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest

from tests.conftest import write_pdf
from tests.server.service import QUESTION, ask, assert_problem, client, events, serving
from visar.explain import explanation
from visar.index import Index
from visar.retrieval.search import Searcher


def test_an_answer_quotes_the_page(http: httpx2.Client, document: str) -> None:
    answer = ask(http, "ask")
    assert "seven years" in answer["text"]
    assert answer["generator"] == "extractive"
    assert (answer["generation"], answer["citations"]) == (None, [])
    passage = answer["passages"][0]
    assert passage["document"] == document
    assert passage["page"] in (2, 4)
    assert passage["boxes"]
    search = answer["search"]
    assert {hit["page"] for hit in search["pages"]} <= {1, 2, 4}
    assert (search["pages_searched"], search["k"]) == (5, len(search["pages"]))
    assert f"{search['k']} of 5 pages" in search["summary"]


def test_options_restrict_a_search(http: httpx2.Client, document: str) -> None:
    one = ask(http, "search", documents=[document], method="top-k", k=1)
    assert len(one["pages"]) == 1
    assert one["query"] == {
        "question": QUESTION,
        "documents": [document],
        "collection": None,
        "where": None,
        "exact": False,
        "encoder": None,
        "method": "top-k",
        "k": 1,
        "max_k": None,
        "neighbors": 0,
    }
    assert one["decision"] is None
    assert len(ask(http, "search", max_k=1)["pages"]) == 1
    beside = ask(http, "search", method="top-k", k=1, neighbors=1)["pages"]
    assert {hit["beside"] for hit in beside} > {None}


def test_a_filter_restricts_the_documents_searched(http: httpx2.Client, document: str) -> None:
    question = {"question": "Where is the lighthouse?"}
    found = http.post("search", json={**question, "where": "missing is null"}).json()
    assert document in [one["id"] for one in found["documents"]]
    assert found["candidates"] is None or found["candidates"] <= found["pages_searched"]
    nothing = http.post("search", json={**question, "where": "missing = 3"})
    assert_problem(nothing, 404, "not_found")
    invalid = http.post("search", json={**question, "where": "missing ="})
    assert "filter" in assert_problem(invalid, 422, "invalid")


def test_a_streamed_answer_starts_with_its_pages(http: httpx2.Client) -> None:
    with http.stream("POST", "ask/stream", json={"question": QUESTION}) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        received = [(name, json.loads(data)) for name, data in events(response)]
    names = [name for name, _ in received]
    assert names == ["search", *["text"] * (len(names) - 2), "answer"]
    search, answer = received[0][1], received[-1][1]
    assert answer["search"]["pages"] == search["pages"]
    assert "".join(piece for name, piece in received if name == "text").strip() == answer["text"]
    assert answer["text"] == ask(http, "ask")["text"]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"question": "  "}, 422, "empty_question"),
        ({"documents": ["nothing.pdf"]}, 404, "not_found"),
        ({"collection": "nothing"}, 404, "not_found"),
        ({"documents": ["manual.pdf"], "collection": "all"}, 404, "not_found"),
        ({"documents": []}, 422, "invalid"),
        ({"question": "a" * 4001}, 422, "too_long"),
        ({"neighbors": 11}, 422, "invalid"),
        ({"encoder": "/etc/passwd"}, 422, "invalid"),
        ({"encoder": "http://127.0.0.1:1"}, 422, "invalid"),
        ({"generator": "openai:gpt"}, 422, "invalid"),
        ({"method": "os:system"}, 422, "invalid"),
        ({"method": "oracle"}, 422, "invalid"),
    ],
)
def test_invalid_questions_get_an_error(
    http: httpx2.Client, body: dict[str, Any], status: int, code: str
) -> None:
    body = {"question": QUESTION, **body}
    detail = assert_problem(http.post("ask", json=body), status, code)
    # In a stream, it is an event, since the status has been sent already.
    with http.stream("POST", "ask/stream", json=body) as response:
        assert response.status_code == 200
        ((name, data),) = events(response)
    problem = json.loads(data)
    assert name == "problem"
    assert (problem["status"], problem["code"], problem["detail"]) == (status, code, detail)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"question": 7},
        {"question": QUESTION, "base_url": "http://127.0.0.1:1"},
        {"question": QUESTION, "k": 0},
        {"question": QUESTION, "documents": "manual.pdf"},
        [],
    ],
)
@pytest.mark.parametrize("route", ["ask", "ask/stream", "search", "explain"])
def test_a_malformed_question_is_refused(http: httpx2.Client, route: str, body: Any) -> None:
    assert_problem(http.post(route, json=body), 422, "invalid")


def test_the_error_for_an_empty_index_has_no_local_path(tmp_path: Path) -> None:
    with (
        Index.open(tmp_path / "empty") as index,
        serving(index) as address,
        client(address) as http,
    ):
        assert http.get("documents").json() == []
        assert http.get("ready").json()["status"] == "ok"
        response = http.post("ask", json={"question": QUESTION})
        assert_problem(response, 404, "not_found")
        assert str(tmp_path) not in response.text
        with http.stream("POST", "ask/stream", json={"question": QUESTION}) as streamed:
            ((name, data),) = events(streamed)
        assert name == "problem"
        assert str(tmp_path) not in data


def test_an_explanation_has_words_cost_and_choices(http: httpx2.Client, document: str) -> None:
    explained = ask(http, "explain")
    assert " ".join(word["text"] for word in explained["words"]) == QUESTION
    influences = [word["influence"] for word in explained["words"]]
    assert max(influences) == pytest.approx(1)
    assert min(influences) >= 0
    assert [(page["document"], page["page"]) for page in explained["pages"]] == [
        (document, number) for number in range(1, 6)
    ]
    assert sorted(page["rank"] for page in explained["pages"]) == [1, 2, 3, 4, 5]
    assert max(page["activity"] for page in explained["pages"]) == pytest.approx(1)
    assert explained["cost"][explained["k_star"] - 1] is not None
    search = ask(http, "search")
    assert explained["k_star"] == search["decision"]["k_star"]
    choices = {one["method"]: one for one in explained["choices"]}
    assert {"visar", "visar-approx", "largest-gap", "top-k"} <= set(choices)
    chosen = [explained["pages"][position]["page"] for position in choices["visar"]["pages"]]
    assert chosen == [hit["page"] for hit in search["pages"]]
    assert choices["visar"]["tokens"] <= choices["top-k"]["tokens"]


def test_the_similarity_matrix_is_square_and_symmetric(http: httpx2.Client) -> None:
    matrix = np.array(ask(http, "explain")["similarity"])
    assert matrix.shape == (len(matrix), len(matrix))
    np.testing.assert_allclose(matrix, matrix.T, rtol=1e-5)
    assert (matrix >= 0).all()
    assert matrix.max() > 0


def test_patches_have_a_weight_and_a_cosine_with_every_vector(
    http: httpx2.Client, document: str
) -> None:
    patches = ask(http, "explain/patches", document=document, page=2)
    count = len(patches["boxes"])
    assert count == len(patches["weights"]) > 0
    vectors = [row for word in ask(http, "explain")["words"] for row in word["vectors"]]
    cosines = np.array(patches["cosines"])
    assert cosines.shape[1] == count
    assert max(vectors) < cosines.shape[0]
    assert np.abs(cosines).max() <= 1.001
    body = {"question": QUESTION, "document": document, "page": 6}
    assert_problem(http.post("explain/patches", json=body), 404, "not_found")
    body = {"question": QUESTION, "document": "0" * 64, "page": 1}
    assert_problem(http.post("explain/patches", json=body), 404, "not_found")


def test_the_matching_patches_of_two_pages_are_returned(http: httpx2.Client, document: str) -> None:
    def pair(first: int, second: int) -> httpx2.Response:
        pages = {
            name: {"document": document, "page": page}
            for name, page in (("first", first), ("second", second))
        }
        return http.post("explain/pair", json={"question": QUESTION, **pages})

    pairs = pair(2, 2).json()
    assert ["warranty", "warranty"] in [
        [word.strip(".").lower() for word in one["words"]] for one in pairs
    ]
    for one in pairs:
        for left, top, right, bottom in (one["first"], one["second"]):
            assert 0 <= left < right <= 1
            assert 0 <= top < bottom <= 1
    assert pair(2, 3).json() == []  # page 3 is about something else
    assert_problem(pair(2, 6), 404, "not_found")
    assert_problem(pair(2, 0), 422, "invalid")


def test_a_search_and_its_explanation_are_computed_once(
    index: Index,
    http: httpx2.Client,
    document: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    calls: list[str] = []

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            calls.append(real.__name__)
            return real(*args, **options)

        return call

    monkeypatch.setattr(Searcher, "search", counted(Searcher.search))
    monkeypatch.setattr(explanation, "explain", counted(explanation.explain))
    question = "Which cloth cleans the glass?"
    body = http.post("ask", json={"question": question}).json()["search"]["query"]
    for route in ("explain", "explain", "search", "ask"):
        assert http.post(route, json=body).status_code == 200
    http.post("explain/patches", json={**body, "document": document, "page": 3})
    assert calls == ["search", "explain"]
    # A change of the documents makes the cached results invalid.
    index.add(write_pdf(tmp_path / "cloth.pdf", "A dry cloth cleans the glass."))
    pages = http.post("explain", json=body).json()["pages"]
    assert calls == ["search", "explain"] * 2
    assert len(pages) == 6
    # Other options need another search.
    for option in ({"max_k": 1}, {"exact": True}, {"neighbors": 1}):
        http.post("search", json={**body, **option})
        http.post("explain", json={**body, **option})
    assert calls == ["search", "explain"] * 5
    http.delete("documents/cloth.pdf")


def test_an_explanation_only_covers_the_documents_searched(
    index: Index, http: httpx2.Client, document: str, tmp_path: Path
) -> None:
    """Search all documents, then a collection, those that match a filter, or one document."""
    added = index.add(
        write_pdf(tmp_path / "leaflet.pdf", "The warranty of the lantern.", "The end."),
        metadata={"kind": "leaflet"},
        collection="leaflets",
    )
    try:
        everything = ask(http, "explain")["pages"]
        assert {one["document"] for one in everything} == {document, added.id}
        for option in (
            {"collection": "leaflets"},
            {"where": 'kind = "leaflet"'},
            {"documents": ["leaflet.pdf"]},
        ):
            explained = ask(http, "explain", **option)["pages"]
            assert [(one["document"], one["page"]) for one in explained] == [
                (added.id, 1),
                (added.id, 2),
            ]
            body = {"question": QUESTION, "document": document, "page": 1, **option}
            assert_problem(http.post("explain/patches", json=body), 404, "not_found")
        nothing = {"question": QUESTION, "where": 'kind = "atlas"'}
        assert_problem(http.post("explain", json=nothing), 404, "not_found")
    finally:
        index.remove(added.id)
