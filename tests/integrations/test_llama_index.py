"""The LlamaIndex retriever; docs/frameworks.md has it in a query engine with a vision model."""

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


def test_without_k_the_question_decides_and_a_number_is_exact(any_library: Library) -> None:
    found = VisarRetriever(any_library).retrieve(QUESTION)
    assert len(found) == found[0].metadata["k"] == found[0].metadata["k_star"]
    assert len(VisarRetriever(any_library, k=3).retrieve(QUESTION)) == 3
    capped = VisarRetriever(any_library, search_kwargs={"max_k": 1, "neighbors": 1})
    assert len(capped.retrieve(QUESTION)) == 3


def test_a_node_is_a_page_with_its_picture_and_score(index: Index) -> None:
    found, *_ = VisarRetriever(index).retrieve(QUESTION)
    assert isinstance(found.node, ImageNode)
    assert found.node.resolve_image().read().startswith(b"\x89PNG")  # type: ignore[union-attr]
    assert found.score == found.metadata["score"]
    assert found.metadata["page"] == 2
    # What the framework stores and reads again is the same.
    again = ImageNode.from_dict(json.loads(json.dumps(found.node.to_dict())))
    assert again == found.node


def test_a_language_model_is_told_where_the_page_is_and_its_words(index: Index) -> None:
    (found,) = VisarRetriever(index, k=1, images=False).retrieve(QUESTION)
    assert type(found.node) is TextNode
    told = found.node.get_content(MetadataMode.LLM)
    assert told.startswith("name: manual.pdf\npage: 2\n\nWarranty. The warranty")


def test_async_finds_the_same_and_callbacks_hear_of_it(index: Index) -> None:
    heard = LlamaDebugHandler(print_trace_on_end=False)
    retriever = VisarRetriever(index, callback_manager=CallbackManager([heard]))
    found = retriever.retrieve(QUESTION)
    assert asyncio.run(retriever.aretrieve(QUESTION)) == found
    assert len(heard.get_event_pairs(CBEventType.RETRIEVE)) == 2
