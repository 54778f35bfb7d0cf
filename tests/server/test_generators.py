"""Generators of a server, and its answers if they fail."""

from __future__ import annotations

import json
from pathlib import Path

import httpx2
import pytest

from tests.generation.openai_samples import alone as alone
from tests.generation.scripted import Says, delta, refuses, replies, scripted, streams
from tests.server.service import QUESTION, client, events, serving
from visar.cli.serve import offered_generators
from visar.index import Index
from visar.server import Settings

pytestmark = pytest.mark.usefixtures("alone")


def test_configured_generators_come_before_quotes(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config.toml"
    monkeypatch.setenv("VISAR_CONFIG", str(config))
    assert list(offered_generators(index, None, None)) == ["extractive"]
    config.write_text('generators.fast = "openai-text:m@http://127.0.0.1:1/v1"\n')
    assert list(offered_generators(index, None, None)) == ["fast", "extractive"]
    offered = offered_generators(index, ["openai:x@http://127.0.0.1:2/v1"], None)
    # Addresses are hidden from clients.
    assert list(offered) == ["openai:x", "fast", "extractive"]
    assert next(iter(offered_generators(index, ["extractive"], None))) == "extractive"


def test_clients_can_choose_between_generators_at_different_addresses(index: Index) -> None:
    with (
        scripted(replies("Seven years [2].")) as one,
        scripted(replies("Eight years [2].")) as other,
        serving(
            index,
            Settings(
                generators={
                    "one": f"openai-text:m@{one.url}",
                    "other": f"openai-text:m@{other.url}",
                    "extractive": "extractive",
                }
            ),
        ) as address,
        client(address) as http,
    ):
        assert http.get("generators").json()["names"] == ["one", "other", "extractive"]
        body = {"question": QUESTION}
        first = http.post("ask", json=body).json()
        second = http.post("ask", json={**body, "generator": "other"}).json()
        quoted = http.post("ask", json={**body, "generator": "extractive"}).json()
    assert (first["text"], second["text"]) == ("Seven years [1].", "Eight years [1].")
    assert [one["verified"] for one in first["citations"]] == [True]
    assert [one["verified"] for one in second["citations"]] == [False]
    assert (quoted["generator"], quoted["citations"]) == ("extractive", [])


@pytest.mark.parametrize(
    "fails",
    [refuses(400, "out of order"), streams(delta(role="assistant", content="Seven ye"), cut=True)],
)
def test_an_answer_quotes_the_pages_if_the_model_fails(index: Index, fails: Says) -> None:
    with (
        scripted(fails) as server,
        serving(index, Settings(generators={"m": f"openai-text:m@{server.url}"})) as address,
        client(address) as http,
        http.stream("POST", "ask/stream", json={"question": QUESTION}) as response,
    ):
        received = list(events(response))
    answer = json.loads(received[-1][1])
    assert (received[0][0], received[-1][0]) == ("search", "answer")
    assert (answer["generator"], answer["text"] != "") == ("extractive", True)
    assert "seven years" in answer["text"]
    assert answer["problem"]


def test_a_conversation_and_a_history_cannot_be_combined(http: httpx2.Client) -> None:
    thread = http.post("threads", json={}).json()["id"]
    both = {"question": "And then?", "thread": thread, "history": [{"question": "What?"}]}
    assert http.post("ask", json=both).status_code == 422
    assert http.post("ask", json={"question": "x", "thread": "0" * 32}).status_code == 404
    assert http.post("threads", json={"name": "x" * 1_000}).status_code == 422
    assert http.delete(f"threads/{thread}").status_code == 204
    assert http.get(f"threads/{thread}/export").status_code == 404
