"""A Haystack component that decides per question how many pages are needed."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

from visar.client import Client
from visar.errors import extra_needed
from visar.integrations.pages import DPI, PNG, RetrievedPage, Source, open_source, retrieve

with extra_needed("The Haystack retriever", "haystack"):
    from haystack import Document, component, default_to_dict
    from haystack.dataclasses import ByteStream, ImageContent


@component
class VisarRetriever:
    """Finds the pages a question needs: as many as it needs, or exactly ``top_k``.

    A document is a page: its text as ``content``, its picture as ``blob``, its score, and as
    ``meta`` everything a `PageHit` has (``name``, ``page``, ``boxes``,
    ``likelihood`` …) and why there are so many pages (``k``, ``k_star``, ``strength`` …). The
    pictures alone are the second output, ready for a ``ChatPromptBuilder``.

    Parameters
    ----------
    index
        Where the index is, or the http(s) address of a ViSAR server, which is given the token in
        ``VISAR_TOKEN``; or a `visar.Index` or `visar.client.Client`, which whoever
        made it closes.
    top_k
        How many pages. None lets ViSAR decide for every question.
    images
        Whether documents have the page as PNG in their ``blob``.
    dpi
        The resolution of the pictures.
    search_kwargs
        More options of `visar.Index.search`: ``documents``, ``max_k``, ``neighbors``,
        ``encoder``, ``method``. In a YAML file they are plain values.
    """

    def __init__(
        self,
        index: str | Source,
        top_k: int | None = None,
        images: bool = True,
        dpi: float = DPI,
        search_kwargs: dict[str, Any] | None = None,
    ) -> None:
        self.index = index
        self._opened: Source | None = None
        self.top_k = top_k
        self.images = images
        self.dpi = dpi
        self.search_kwargs = search_kwargs

    def to_dict(self) -> dict[str, Any]:
        """Return the component as plain values; an index as where it is."""
        described: dict[str, Any] = default_to_dict(
            self,
            index=_location(self.index),
            top_k=self.top_k,
            images=self.images,
            dpi=self.dpi,
            search_kwargs=self.search_kwargs,
        )
        return described

    def warm_up(self) -> None:
        """Open the index; the first run does it otherwise."""
        self._source()

    def close(self) -> None:
        """Close the index if it was opened here; the next run opens it again."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    @component.output_types(documents=list[Document], image_contents=list[ImageContent])
    def run(self, query: str, top_k: int | None = None) -> dict[str, Any]:
        """Find the pages a question needs.

        Parameters
        ----------
        query
            The question.
        top_k
            How many pages, instead of the component's own number.

        Returns
        -------
        dict
            ``documents``, and their pictures as ``image_contents``, which a prompt takes.
        """
        pages = retrieve(
            self._source(),
            query,
            self.top_k if top_k is None else top_k,
            dpi=self.dpi,
            search_kwargs=self.search_kwargs,
        )
        documents = [self._document(page) for page in pages]
        return {
            "documents": documents,
            "image_contents": [
                ImageContent(base64.b64encode(one.blob.data).decode(), PNG)
                for one in documents
                if one.blob is not None
            ],
        }

    @component.output_types(documents=list[Document], image_contents=list[ImageContent])
    async def run_async(self, query: str, top_k: int | None = None) -> dict[str, Any]:
        """The same as `run`, in a thread."""
        found: dict[str, Any] = await asyncio.to_thread(self.run, query, top_k)
        return found

    def _source(self) -> Source:
        if not isinstance(self.index, str):
            return self.index
        if self._opened is None:
            self._opened = open_source(self.index)
        return self._opened

    def _document(self, page: RetrievedPage) -> Document:
        blob = ByteStream(page.load_png(), mime_type=PNG) if self.images else None
        return Document(
            id=page.id, content=page.text, blob=blob, meta=page.metadata, score=page.score
        )


def _location(index: str | Source) -> str:
    if isinstance(index, str):
        return index
    return index.address if isinstance(index, Client) else index.location
