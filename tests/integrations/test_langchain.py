"""Tests of the LangChain retriever, including LangChain's standard suite."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document

from tests.integrations.conftest import QUESTION, Run
from visar.errors import InvalidOption
from visar.index import Index
from visar.integrations.langchain import VisarRetriever
from visar.library import Library

PNG = b"\x89PNG"


def numbers(documents: Sequence[Document]) -> list[int]:
    return [document.metadata["page"] for document in documents]


def test_the_standard_suite_passes(index: Index, in_own_environment: Run) -> None:
    # As LangChain's template of an integration sets pytest up, and none of what ours brings.
    options = "-q --asyncio-mode=auto --noconftest --override-ini=addopts= -W default"
    suite = "tests/integrations/langchain_standard.py"
    ran = in_own_environment("-m", "pytest", *options.split(), suite, LIBRARY=index.location)
    assert "5 passed" in ran


def test_k_sets_the_number_of_pages(any_library: Library) -> None:
    adaptive = VisarRetriever(any_library)
    found = adaptive.invoke(QUESTION)
    assert len(found) == found[0].metadata["k"] == found[0].metadata["k_star"]
    assert len(VisarRetriever(any_library, k=3).invoke(QUESTION)) == 3
    assert len(adaptive.invoke(QUESTION, None, k=4)) == 4
    # None is a number too: for one call, that of ViSAR.
    assert VisarRetriever(any_library, k=3).invoke(QUESTION, k=None) == found
    assert len(adaptive.invoke(QUESTION)) == len(found)


def test_async_and_batch_find_the_same_pages(index: Index) -> None:
    retriever = VisarRetriever(index, search_kwargs={"max_k": 2})
    found = retriever.invoke(QUESTION)
    other = "Where is the harbour office?"

    async def ask() -> Any:
        return await asyncio.gather(
            retriever.ainvoke(QUESTION), retriever.ainvoke(QUESTION, k=3), retriever.abatch([other])
        )

    alone, three, several = asyncio.run(ask())
    assert alone == found
    assert len(three) == 2, "max_k holds for a fixed number too"
    assert retriever.batch([QUESTION, other]) == [found, *several]
    assert numbers(several[0])[0] == 5


def test_callbacks_get_pages_and_errors(index: Index) -> None:
    class Heard(BaseCallbackHandler):
        def __init__(self) -> None:
            self.events: list[Any] = []

        def on_retriever_start(self, serialized: Any, query: str, **_: Any) -> None:  # noqa: ARG002
            self.events.append(query)

        def on_retriever_end(self, documents: Sequence[Document], **_: Any) -> None:
            self.events.append(numbers(documents))

        def on_retriever_error(self, error: BaseException, **_: Any) -> None:
            self.events.append(type(error))

    heard = Heard()
    retriever = VisarRetriever(index)
    found = retriever.invoke(QUESTION, {"callbacks": [heard]})
    with pytest.raises(InvalidOption):
        retriever.invoke(QUESTION, {"callbacks": [heard]}, k=0)
    assert heard.events == [QUESTION, numbers(found), QUESTION, InvalidOption]


def test_images_are_base64_or_loaded_on_demand(any_library: Library) -> None:
    (inline,) = VisarRetriever(any_library, k=1).invoke(QUESTION)
    picture = base64.b64decode(inline.metadata["image"])
    assert picture.startswith(PNG)
    assert inline.metadata["mime_type"] == "image/png"
    json.dumps(inline.metadata)
    (lazy,) = VisarRetriever(any_library, k=1, images="loader").invoke(QUESTION)
    assert lazy.metadata["load_image"]() == picture
    assert lazy.id == inline.id
    (small,) = VisarRetriever(any_library, k=1, images="loader", dpi=36).invoke(QUESTION)
    assert len(small.metadata["load_image"]()) < len(picture)
    (none,) = VisarRetriever(any_library, k=1, images="none").invoke(QUESTION)
    assert not {"image", "load_image"} & none.metadata.keys()


@pytest.mark.parametrize("fields", [{"k": 0}, {"images": "gif"}, {"dpi": -1}])
def test_invalid_fields_raise_an_error(index: Index, fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(fields))):
        VisarRetriever(index, **fields)
