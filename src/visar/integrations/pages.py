"""What the adapters share: a question in, pages as text, picture and plain metadata out."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from visar.generation.answering import page_text
from visar.serialization import to_plain

if TYPE_CHECKING:
    from visar.client import Client
    from visar.index import Index

Source: TypeAlias = "Index | Client"
"""Where pages are looked for: an index on this machine, or a server that has one."""
DPI = 144.0
PNG = "image/png"
_WHY = ("method", "k", "k_star", "pages_searched", "strength", "about")


@dataclass(frozen=True, slots=True)
class RetrievedPage:
    """A page that a question needs, in the parts that frameworks keep apart."""

    id: str
    """Made of the document's id and the page's number: the same page always has the same."""
    text: str
    """The words of the page, line by line."""
    score: float
    """What the pages are ranked by: s_p, or the late-interaction score if not ViSAR chose them."""
    metadata: dict[str, Any]
    """What JSON knows: the fields of a `PageHit`, and why there are so many pages."""
    load_png: Callable[[], bytes] = field(repr=False, compare=False)
    """Draws the page."""


def open_source(location: str) -> Source:
    """Open the index at a location, or a client of the server at an http(s) address.

    Raises StoreError if there is no index.
    """
    if location.startswith(("http://", "https://")):
        from visar.client import Client

        return Client(location)
    from visar.index import Index

    return Index.open(location, create=False)


def retrieve(
    source: Source,
    question: str,
    k: int | None = None,
    *,
    dpi: float = DPI,
    search_kwargs: Mapping[str, Any] | None = None,
) -> list[RetrievedPage]:
    """Find the pages a question needs, best first.

    Parameters
    ----------
    source
        An index, or a client of a server.
    question
        In plain words.
    k
        Exactly so many pages, the best by late interaction; None lets ViSAR decide.
    dpi
        The resolution of the pictures.
    search_kwargs
        More options of `visar.Index.search`, such as ``documents``, ``max_k`` and
        ``encoder``; for a client those of ``POST /search``.
    """
    options = dict(search_kwargs or {})
    if k is not None:
        options |= {"method": "top-k", "k": k}
    found = source.search(question, **options)
    why = {name: getattr(found, name) for name in _WHY}
    ranked_by = "score" if why["method"].startswith("visar") else "late_interaction"
    return [
        RetrievedPage(
            id=f"{hit.document}-{hit.page}",
            text=page_text(source.page(hit.document, hit.page)),
            score=getattr(hit, ranked_by),
            metadata={**to_plain(hit), **why},
            load_png=partial(_draw, source, hit.document, hit.page, dpi),
        )
        for hit in found.pages
    ]


def _draw(source: Source, document: str, number: int, dpi: float) -> bytes:
    image = source.image(document, number, dpi)
    if isinstance(image, bytes):
        return image
    encoded = io.BytesIO()
    image.save(encoded, "PNG")
    return encoded.getvalue()
