"""Tests of the LlamaIndex retriever; see also test_docs.py."""

from __future__ import annotations

import asyncio
import json

from llama_index.core.callbacks import CallbackManager, LlamaDebugHandler
from llama_index.core.callbacks.schema import CBEventType
from llama_index.core.schema import ImageNode, MetadataMode, TextNode

from tests.integrations.conftest import QUESTION
from visar.index import Index
from visar.integrations.llama_index import VisarRetriever
from visar.library import Library


def test_k_sets_the_number_of_pages(any_library: Library) -> None:
    found = VisarRetriever(any_library).retrieve(QUESTION)
    assert len(found) == found[0].metadata["k"] == found[0].metadata["k_star"]
    assert len(VisarRetriever(any_library, k=3).retrieve(QUESTION)) == 3
    capped = VisarRetriever(any_library, search_kwargs={"max_k": 1, "neighbors": 1})
    assert len(capped.retrieve(QUESTION)) == 3


def test_a_node_is_a_page_with_its_image_and_score(index: Index) -> None:
    found, *_ = VisarRetriever(index).retrieve(QUESTION)
    assert isinstance(found.node, ImageNode)
    assert found.node.resolve_image().read().startswith(b"\x89PNG")  # type: ignore[union-attr]
    assert found.score == found.metadata["score"]
    assert found.metadata["page"] == 2
    # What the framework stores and reads again is the same.
    again = ImageNode.from_dict(json.loads(json.dumps(found.node.to_dict())))
    assert again == found.node


def test_a_language_model_gets_name_page_number_and_text(index: Index) -> None:
    (found,) = VisarRetriever(index, k=1, images=False).retrieve(QUESTION)
    assert type(found.node) is TextNode
    told = found.node.get_content(MetadataMode.LLM)
    assert told.startswith("name: manual.pdf\npage: 2\n\nWarranty. The warranty")


def test_async_finds_the_same_pages_and_calls_callbacks(index: Index) -> None:
    heard = LlamaDebugHandler(print_trace_on_end=False)
    retriever = VisarRetriever(index, callback_manager=CallbackManager([heard]))
    found = retriever.retrieve(QUESTION)
    assert asyncio.run(retriever.aretrieve(QUESTION)) == found
    assert len(heard.get_event_pairs(CBEventType.RETRIEVE)) == 2
