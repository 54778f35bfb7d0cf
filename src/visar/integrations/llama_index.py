"""A LlamaIndex retriever that returns as many pages as each question needs."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from functools import partial
from typing import Any

from visar.errors import extra_needed
from visar.integrations.pages import DPI, PNG, RetrievedPage, retrieve
from visar.library import Library

with extra_needed("The LlamaIndex retriever", "llama-index"):
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import ImageNode, NodeWithScore, QueryBundle, TextNode

# Metadata that language models get with a page's text and image.
_FOR_MODELS = {"name", "page"}


class VisarRetriever(BaseRetriever):
    """A retriever of the pages that a question needs, or of exactly ``k`` pages.

    Each node is a page: its text, its image in base64, its score, and as ``metadata`` the fields
    of its `PageHit` and the reasons for the number of pages (``k``, ``k_star``, ``strength`` …).
    Models only see name and page number.

    Parameters
    ----------
    index
        A library: a `visar.Index` or a `visar.Client`.
    k
        Number of pages; None lets ViSAR decide for each question.
    images, dpi
        Whether nodes are ``ImageNode`` with the page as PNG, or ``TextNode``; resolution of the
        images.
    search_kwargs
        Further options of `visar.Index.search`, such as ``documents`` and ``max_k``.
    options
        Options of LlamaIndex's ``BaseRetriever``, such as ``callback_manager``.
    """

    def __init__(
        self,
        index: Library,
        k: int | None = None,
        *,
        images: bool = True,
        dpi: float = DPI,
        search_kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self._find = partial(retrieve, index, k=k, dpi=dpi, search_kwargs=search_kwargs)
        self._images = images
        super().__init__(**options)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        pages = self._find(query_bundle.query_str)
        return [NodeWithScore(node=self._node(page), score=page.score) for page in pages]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)

    def _node(self, page: RetrievedPage) -> TextNode:
        hidden = sorted(page.metadata.keys() - _FOR_MODELS)
        parts: dict[str, Any] = {
            "id_": page.id,
            "text": page.text,
            "metadata": page.metadata,
            "excluded_llm_metadata_keys": hidden,
            "excluded_embed_metadata_keys": hidden,
        }
        if not self._images:
            return TextNode(**parts)
        image = base64.b64encode(page.load_png()).decode()
        return ImageNode(image=image, image_mimetype=PNG, **parts)
