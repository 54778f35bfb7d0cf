"""A LangChain retriever that returns as many pages as each question needs."""

from __future__ import annotations

import base64
from typing import Any, Literal

from visar.errors import extra_needed
from visar.integrations.pages import DPI, PNG, RetrievedPage, retrieve

with extra_needed("The LangChain retriever", "langchain"):
    from langchain_core.callbacks import (
        AsyncCallbackManagerForRetrieverRun,
        CallbackManagerForRetrieverRun,
    )
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.runnables import run_in_executor
    from pydantic import Field, PositiveFloat, PositiveInt


class VisarRetriever(BaseRetriever):
    """A retriever of the pages that a question needs, or of exactly ``k`` pages.

    Each document is a page: its text as ``page_content``; as ``metadata`` the fields of its
    `PageHit`, the reasons for the number of pages (``k``, ``k_star``, ``strength`` …), and its
    image.

    Parameters
    ----------
    index
        A library: a `visar.Index` or a `visar.Client`.
    k
        Number of pages; None lets ViSAR decide for each question.
    images
        "base64" adds each page as base64 PNG as ``metadata["image"]``, with its type as
        ``metadata["mime_type"]``; "loader" adds a function, ``metadata["load_image"]``, that
        returns the PNG; "none" leaves images out.
    dpi
        Resolution of the images.
    search_kwargs
        Further options of `visar.Index.search`, such as ``documents`` and ``max_k``.

    ``invoke``, ``ainvoke``, ``batch`` and ``abatch`` accept ``k`` and these options for one call.
    """

    index: Any
    k: PositiveInt | None = None
    images: Literal["base64", "loader", "none"] = "base64"
    dpi: PositiveFloat = DPI
    search_kwargs: dict[str, Any] = Field(default_factory=dict)

    def __init__(self, index: Any, **fields: Any) -> None:
        fields["index"] = index
        super().__init__(**fields)

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,  # noqa: ARG002 - part of the interface
        **options: Any,
    ) -> list[Document]:
        k = options.pop("k", self.k)
        options = {**self.search_kwargs, **options}
        pages = retrieve(self.index, query, k, dpi=self.dpi, search_kwargs=options)
        return [self._document(page) for page in pages]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **options: Any
    ) -> list[Document]:
        options["run_manager"] = run_manager.get_sync()
        return await run_in_executor(None, self._get_relevant_documents, query, **options)

    def _document(self, page: RetrievedPage) -> Document:
        metadata = page.metadata
        if self.images == "base64":
            metadata["image"] = base64.b64encode(page.load_png()).decode()
            metadata["mime_type"] = PNG
        elif self.images == "loader":
            metadata["load_image"] = page.load_png
        return Document(id=page.id, page_content=page.text, metadata=metadata)
