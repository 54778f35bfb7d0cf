"""A Haystack component that returns as many pages as each question needs."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

from visar.errors import extra_needed
from visar.integrations.pages import DPI, PNG, RetrievedPage, open_library, retrieve
from visar.library import Library

with extra_needed("The Haystack retriever", "haystack"):
    from haystack import Document, component, default_to_dict
    from haystack.dataclasses import ByteStream, ImageContent


@component
class VisarRetriever:
    """A retriever of the pages that a question needs, or of exactly ``top_k`` pages.

    Each document is a page: its text as ``content``, its image as ``blob``, its score, and as
    ``meta`` the fields of its `PageHit` and the reasons for the number of pages (``k``,
    ``k_star``, ``strength`` …). ``image_contents`` has the images for a ``ChatPromptBuilder``.

    Parameters
    ----------
    index
        Location of an index, or http(s) address of a ViSAR server, which gets the token in
        ``VISAR_TOKEN``; or a `visar.Index` or `visar.Client`, which you close yourself.
    top_k
        Number of pages; None lets ViSAR decide for each question.
    images, dpi
        Whether documents have the page as PNG in their ``blob``; resolution of the images.
    search_kwargs
        Further options of `visar.Index.search`, such as ``documents`` and ``max_k``.
    """

    def __init__(
        self,
        index: str | Library,
        top_k: int | None = None,
        images: bool = True,
        dpi: float = DPI,
        search_kwargs: dict[str, Any] | None = None,
    ) -> None:
        self.index = index
        self._opened: Library | None = None
        self.top_k = top_k
        self.images = images
        self.dpi = dpi
        self.search_kwargs = search_kwargs

    def to_dict(self) -> dict[str, Any]:
        """Serialize the component; a library becomes its location."""
        serialized: dict[str, Any] = default_to_dict(
            self,
            index=self.index if isinstance(self.index, str) else self.index.location,
            top_k=self.top_k,
            images=self.images,
            dpi=self.dpi,
            search_kwargs=self.search_kwargs,
        )
        return serialized

    def warm_up(self) -> None:
        """Open the library now instead of in the first run."""
        self._library()

    def close(self) -> None:
        """Close a library that the component opened; the next run opens it again."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    @component.output_types(documents=list[Document], image_contents=list[ImageContent])
    def run(self, query: str, top_k: int | None = None) -> dict[str, Any]:
        """Find the pages a question needs; ``top_k`` overrides the component's."""
        k = self.top_k if top_k is None else top_k
        pages = retrieve(self._library(), query, k, dpi=self.dpi, search_kwargs=self.search_kwargs)
        documents = [self._document(page) for page in pages]
        blobs = [one.blob for one in documents if one.blob is not None]
        images = [ImageContent(base64.b64encode(blob.data).decode(), PNG) for blob in blobs]
        return {"documents": documents, "image_contents": images}

    @component.output_types(documents=list[Document], image_contents=list[ImageContent])
    async def run_async(self, query: str, top_k: int | None = None) -> dict[str, Any]:
        """Call `run` in a thread."""
        found: dict[str, Any] = await asyncio.to_thread(self.run, query, top_k)
        return found

    def _library(self) -> Library:
        if not isinstance(self.index, str):
            return self.index
        if self._opened is None:
            self._opened = open_library(self.index)
        return self._opened

    def _document(self, page: RetrievedPage) -> Document:
        blob = ByteStream(page.load_png(), mime_type=PNG) if self.images else None
        return Document(
            id=page.id, content=page.text, blob=blob, meta=page.metadata, score=page.score
        )
