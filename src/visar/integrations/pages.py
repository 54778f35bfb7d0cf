"""Retrieval for all framework adapters: returns pages as text, image and metadata."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from visar.generation.answering import page_text
from visar.library import Library, SearchOptions, limit_pages
from visar.serialization import to_plain

DPI = 144.0
PNG = "image/png"
_REASONS = ("method", "k", "k_star", "pages_searched", "strength", "about")


@dataclass(frozen=True, slots=True)
class RetrievedPage:
    """A page with its text, metadata and image as separate parts."""

    id: str
    """Stable id of the page: document id and page number."""
    text: str
    """Words of the page, line by line."""
    score: float
    """Score of the ranking: s_p for ViSAR, late interaction for other methods."""
    metadata: dict[str, Any]
    """JSON values: fields of the `PageHit`, and reasons for the number of pages."""
    load_png: Callable[[], bytes] = field(repr=False, compare=False)
    """Function that renders the page as PNG."""


def open_library(location: str) -> Library:
    """Open an index, or connect to the server at an http(s) address.

    Raises StoreError if there is no index.
    """
    if location.startswith(("http://", "https://")):
        from visar.client import Client

        return Client(location)
    from visar.index import Index

    return Index.open(location, create=False)


def retrieve(
    library: Library,
    question: str,
    k: int | None = None,
    *,
    dpi: float = DPI,
    search_kwargs: Mapping[str, Any] | None = None,
) -> list[RetrievedPage]:
    """Return the pages a question needs, or the ``k`` best by late interaction, best first.

    ``search_kwargs`` are further options of `Library.search`. Without ``k`` and ``max_k``, the
    maximum is 10 pages, as for `Library.ask`.
    """
    options = cast("SearchOptions", dict(search_kwargs or {}))
    if k is not None:
        options |= {"method": "top-k", "k": k}
    found = library.search(question, **limit_pages(options))
    reasons = {name: getattr(found, name) for name in _REASONS}
    ranked_by = "score" if found.method.startswith("visar") else "late_interaction"
    return [
        RetrievedPage(
            id=f"{hit.document}-{hit.page}",
            text=page_text(library.page(hit.document, hit.page)),
            score=getattr(hit, ranked_by),
            metadata={**to_plain(hit), **reasons},
            load_png=partial(_png, library, hit.document, hit.page, dpi),
        )
        for hit in found.pages
    ]


def _png(library: Library, document: str, number: int, dpi: float) -> bytes:
    encoded = io.BytesIO()
    library.image(document, number, dpi).save(encoded, "PNG")
    return encoded.getvalue()
