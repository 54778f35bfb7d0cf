"""Spans of questions, exported with the real OpenTelemetry SDK."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextvars import copy_context
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.conftest import write_pdf
from tests.generation.scripted import refuses, replies, scripted
from visar.errors import NotInIndex
from visar.generation.openai_server import OpenAIGenerator
from visar.index import Index
from visar.results import Turn

QUESTION = "How long is the warranty of the Aurora lantern?"
EXPORTER = InMemorySpanExporter()


@pytest.fixture(scope="module", autouse=True)
def _provider() -> Iterator[None]:
    # The SDK only allows this once per process.
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(EXPORTER))
    trace.set_tracer_provider(provider)
    yield
    provider.shutdown()


@pytest.fixture(autouse=True)
def _no_spans() -> None:
    EXPORTER.clear()


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    folder = tmp_path_factory.mktemp("telemetry")
    pages = "The warranty of the Aurora lantern is seven years.", "Wipe the glass every month."
    with Index.open(folder / "index") as index:
        index.add(write_pdf(folder / "manual.pdf", *pages))
        index.add(write_pdf(folder / "other.pdf", "The harbour is in Whitby."))
        yield index


def finished() -> dict[str, ReadableSpan]:
    """Return the finished spans by name."""
    spans = {one.name: one for one in EXPORTER.get_finished_spans()}
    assert len(spans) == len(EXPORTER.get_finished_spans())
    return spans


def parent(spans: dict[str, ReadableSpan], name: str) -> str | None:
    """Return the name of a span's parent, if it has one."""
    context = spans[name].parent
    if context is None:
        return None
    return next(one.name for one in spans.values() if one.context.span_id == context.span_id)


def test_the_steps_of_a_question_are_nested_spans(index: Index) -> None:
    with trace.get_tracer("test").start_as_current_span("request"):
        answer = index.ask(QUESTION)
    spans = finished()
    parts = ["visar.encode", "visar.candidates", "visar.select", "visar.read"]
    assert set(spans) == {"request", "visar.ask", "visar.search", *parts}
    assert parent(spans, "visar.ask") == "request"
    assert parent(spans, "visar.search") == "visar.ask"
    assert {parent(spans, part) for part in parts} == {"visar.search"}
    found = answer.search
    assert dict(spans["visar.select"].attributes or {}) == {
        "visar.method": "visar",
        "visar.k": found.k,
        "visar.k_star": found.k_star,
        "visar.pages_searched": 3,
        "visar.pages_saved": 3 - found.k,
    }


def test_the_span_of_a_generator_has_tokens_and_no_text(index: Index) -> None:
    with scripted(replies("Seven years [1]. ")) as server:
        generator = OpenAIGenerator("m", reads="text", base_url=server.url)
        answer = index.ask(QUESTION, generator=generator)
    assert answer.text.startswith("Seven years")
    spans = finished()
    name = f"chat {generator.name}"
    assert parent(spans, name) == "visar.ask"
    assert dict(spans[name].attributes or {}) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": generator.name,
        "gen_ai.request.max_tokens": 512,
        "gen_ai.response.model": "m-1",
        "gen_ai.response.finish_reasons": ("complete",),
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 1,
    }
    exported = "".join(one.to_json() for one in spans.values())
    assert "Aurora" not in exported
    assert "Seven" not in exported


@pytest.mark.parametrize("pieces", [0, 1])
def test_closing_a_stream_early_ends_its_spans(index: Index, pieces: int) -> None:
    with scripted(replies(*("Seven years. " * 20))) as server:
        generator = OpenAIGenerator("m", reads="text", base_url=server.url)
        with index.stream(QUESTION, generator=generator) as stream:
            for _ in range(pieces):
                next(stream)
            assert "visar.ask" not in finished()
        spans = finished()
    assert parent(spans, "visar.ask") is None
    assert (f"chat {generator.name}" in spans) == bool(pieces)
    assert all(one.status.is_ok or one.status.is_unset for one in spans.values())


def test_a_failure_is_marked_without_its_message(index: Index) -> None:
    with scripted(refuses(400, "The Aurora model is not served.")) as server:
        generator = OpenAIGenerator("m", reads="text", base_url=server.url, retries=0)
        assert index.ask(QUESTION, generator=generator).problem is not None
    failed = finished()[f"chat {generator.name}"]
    assert not failed.status.is_ok
    assert not failed.status.is_unset
    assert (failed.attributes or {})["error.type"] == "GenerationError"
    with pytest.raises(NotInIndex):
        index.ask(QUESTION, documents=["Aurora.pdf"])
    assert [
        (one.attributes or {})["error.type"]
        for one in EXPORTER.get_finished_spans()
        if not one.status.is_ok and not one.status.is_unset
    ] == ["GenerationError", "NotInIndex"]
    assert "Aurora" not in "".join(one.to_json() for one in EXPORTER.get_finished_spans())


def test_rewriting_a_follow_up_is_a_child_of_the_question(index: Index) -> None:
    before = [Turn(QUESTION, "Seven years.")]
    with scripted(
        replies('{"question": "How is the glass cleaned?"}'), replies("Wipe it.")
    ) as server:
        generator = OpenAIGenerator("m", reads="text", base_url=server.url)
        index.ask("And how is it cleaned?", generator=generator, history=before)
    spans = finished()
    for name in ("visar.rewrite", "visar.search", f"chat {generator.name}"):
        assert parent(spans, name) == "visar.ask"


def test_pieces_can_be_read_in_other_threads(index: Index) -> None:
    """A server reads each piece in a copy of another context."""
    with scripted(replies("Seven ", "years ", "and more.")) as server:
        generator = OpenAIGenerator("m", reads="text", base_url=server.url)
        stream = index.stream(QUESTION, generator=generator)
        while copy_context().run(next, stream, None) is not None:
            assert not trace.get_current_span().is_recording()
    spans = finished()
    assert parent(spans, f"chat {generator.name}") == "visar.ask"


def test_questions_are_answered_without_opentelemetry(index: Index, tmp_path: Path) -> None:
    """Both if it isn't installed, and if the program doesn't import it."""
    program = """
import sys
if {blocked}:
    sys.modules["opentelemetry"] = None
import visar
with visar.Index.open({location!r}) as index:
    assert "seven years" in index.ask({question!r}).text
assert "opentelemetry.trace" not in sys.modules
"""
    for blocked in (True, False):
        source = program.format(blocked=blocked, location=index.location, question=QUESTION)
        subprocess.run([sys.executable, "-c", source], check=True, cwd=tmp_path)
