"""A LangChain retriever that decides per question how many pages are needed."""

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
    """Finds the pages a question needs: as many as it needs, or exactly ``k``.

    A document is a page: its text as ``page_content``, and as ``metadata`` everything a
    `PageHit` has (``name``, ``page``, ``score``, ``boxes``, ``likelihood`` …), why
    there are so many pages (``k``, ``k_star``, ``strength`` …), and its picture.

    Parameters
    ----------
    index
        A `visar.Index`, or a `visar.client.Client` of a server.
    k
        How many pages. None lets ViSAR decide for every question.
    images
        "base64" puts each page as PNG in base64 into ``metadata["image"]``, and its type into
        ``metadata["mime_type"]``; "loader" puts a function there, ``metadata["load_image"]``, that
        draws the PNG when it is called; "none" leaves pictures out.
    dpi
        The resolution of the pictures.
    search_kwargs
        More options of `visar.Index.search`: ``documents``, ``max_k``, ``neighbors``,
        ``encoder``, ``method``.

    ``invoke``, ``ainvoke``, ``batch`` and ``abatch`` take ``k`` and these options for one call.
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
        return await run_in_executor(
            None,
            self._get_relevant_documents,
            query,
            run_manager=run_manager.get_sync(),
            **options,
        )

    def _document(self, page: RetrievedPage) -> Document:
        metadata = page.metadata
        if self.images == "base64":
            metadata["image"] = base64.b64encode(page.load_png()).decode()
            metadata["mime_type"] = PNG
        elif self.images == "loader":
            metadata["load_image"] = page.load_png
        return Document(id=page.id, page_content=page.text, metadata=metadata)
