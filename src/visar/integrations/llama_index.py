"""A LlamaIndex retriever that decides per question how many pages are needed."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from typing import Any

from visar.errors import extra_needed
from visar.integrations.pages import DPI, PNG, RetrievedPage, Source, retrieve

with extra_needed("The LlamaIndex retriever", "llama-index"):
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import ImageNode, NodeWithScore, QueryBundle, TextNode

# What a language model is told of a page beside its text and picture.
_TOLD = {"name", "page"}


class VisarRetriever(BaseRetriever):
    """Finds the pages a question needs: as many as it needs, or exactly ``k``.

    A node is a page: its text, its picture in base64, its score, and as ``metadata`` everything a
    `PageHit` has (``name``, ``page``, ``boxes``, ``likelihood`` …) and why there are
    so many pages (``k``, ``k_star``, ``strength`` …). Models are told name and number alone.

    Parameters
    ----------
    index
        A `visar.Index`, or a `visar.client.Client` of a server.
    k
        How many pages. None lets ViSAR decide for every question.
    images
        Whether nodes are ``ImageNode`` with the page as PNG; otherwise they are ``TextNode``.
    dpi
        The resolution of the pictures.
    search_kwargs
        More options of `visar.Index.search`: ``documents``, ``max_k``, ``neighbors``,
        ``encoder``, ``method``.
    options
        Those of LlamaIndex's ``BaseRetriever``, such as ``callback_manager``.
    """

    def __init__(
        self,
        index: Source,
        k: int | None = None,
        *,
        images: bool = True,
        dpi: float = DPI,
        search_kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self._index = index
        self._k = k
        self._images = images
        self._dpi = dpi
        self._search_kwargs = search_kwargs
        super().__init__(**options)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        pages = retrieve(
            self._index,
            query_bundle.query_str,
            self._k,
            dpi=self._dpi,
            search_kwargs=self._search_kwargs,
        )
        return [NodeWithScore(node=self._node(page), score=page.score) for page in pages]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)

    def _node(self, page: RetrievedPage) -> TextNode:
        untold = sorted(page.metadata.keys() - _TOLD)
        parts: dict[str, Any] = {
            "id_": page.id,
            "text": page.text,
            "metadata": page.metadata,
            "excluded_llm_metadata_keys": untold,
            "excluded_embed_metadata_keys": untold,
        }
        if not self._images:
            return TextNode(**parts)
        image = base64.b64encode(page.load_png()).decode()
        return ImageNode(image=image, image_mimetype=PNG, **parts)
