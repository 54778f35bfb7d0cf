"""Tests of the Haystack component."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from haystack import Document, Pipeline

from haystack_integrations.components.retrievers.visar import VisarRetriever
from tests.integrations.conftest import QUESTION
from visar.errors import StoreError
from visar.index import Index
from visar.library import Library


def pipeline(retriever: VisarRetriever) -> Pipeline:
    made = Pipeline()
    made.add_component("retriever", retriever)
    return made


def run(made: Pipeline, **inputs: Any) -> list[Document]:
    found: list[Document] = made.run({"retriever": {"query": QUESTION, **inputs}})["retriever"][
        "documents"
    ]
    return found


def test_no_telemetry_is_sent_from_tests() -> None:
    from haystack.telemetry import _telemetry

    assert _telemetry.telemetry is None


def test_top_k_sets_the_number_of_pages(any_library: Library) -> None:
    made = pipeline(VisarRetriever(any_library))
    found = run(made)
    assert len(found) == found[0].meta["k"] == found[0].meta["k_star"]
    assert len(run(made, top_k=3)) == 3
    assert len(run(pipeline(VisarRetriever(any_library, top_k=2)))) == 2


def test_a_document_is_a_page_with_its_image_and_plain_metadata(index: Index) -> None:
    found = VisarRetriever(index).run(QUESTION)
    first = found["documents"][0]
    assert first.blob.data.startswith(b"\x89PNG")
    assert first.blob.mime_type == "image/png"
    assert (first.meta["name"], first.meta["page"]) == ("manual.pdf", 2)
    assert first.score == first.meta["score"]
    # What the framework stores and reads again is the same.
    assert Document.from_dict(json.loads(json.dumps(first.to_dict()))) == first
    assert len(found["image_contents"]) == len(found["documents"])
    text = VisarRetriever(index, images=False).run(QUESTION)
    assert text["documents"][0].blob is None
    assert text["image_contents"] == []


@pytest.mark.parametrize("given", ["object", "location"])
def test_a_pipeline_can_be_loaded_from_yaml(any_library: Library, given: str) -> None:
    """Haystack limits the packages that YAML files can refer to."""
    location = any_library.location
    retriever = VisarRetriever(
        any_library if given == "object" else location,
        dpi=36,
        search_kwargs={"max_k": 1, "documents": ["manual.pdf"]},
    )
    written = pipeline(retriever)
    loaded = Pipeline.loads(written.dumps())
    assert loaded.dumps() == written.dumps()
    assert f"index: {location}\n" in loaded.dumps()
    found = run(loaded)
    assert [document.meta["page"] for document in found] == [2]
    assert run(written) == found
    for made in (loaded, written):
        made.close()
    # It opens again what it had opened, and has left alone what it was given.
    assert run(loaded) == found
    loaded.close()
    assert any_library.search(QUESTION).pages


def test_async_finds_the_same_pages(index: Index) -> None:
    made = pipeline(VisarRetriever(index))
    inputs = {"retriever": {"query": QUESTION}}
    assert asyncio.run(made.run_async(inputs)) == made.run(inputs)


def test_a_missing_index_is_not_created(tmp_path: Path) -> None:
    retriever = VisarRetriever(str(tmp_path / "nowhere"))
    with pytest.raises(StoreError, match="nowhere"):
        retriever.warm_up()
    assert not (tmp_path / "nowhere").exists()
