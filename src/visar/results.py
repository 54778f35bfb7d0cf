"""What a search and an answer are, and how they turn to JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np

from visar.core import Selection
from visar.core.notebook import selection_html
from visar.documents.page import Box, Page, Word
from visar.errors import NotInIndex
from visar.store.records import EncoderRef, StoredDocument

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL.Image import Image

Strength: TypeAlias = Literal["good", "weak", "none"]
Place: TypeAlias = tuple[str, int]
"""A page: the id of its document, and its number there from 1."""
Likelihood: TypeAlias = Literal["likely", "possible", "unlikely"]
LIKELY = 0.5
POSSIBLE = 0.15
"""The probabilities from which on a page is called likely, or possible."""

# Marks fields that JSON does not show.
_INTERNAL = {"internal": True}


class PageSource(Protocol):
    """Where pages can be read again; an `visar.Index` is one."""

    def page(self, document: str, number: int) -> Page:
        """Return a page of a document, by the document's id and its number from 1."""
        ...

    def image(self, document: str, number: int, dpi: float = 144) -> Image:
        """Return the picture of a page."""
        ...


@dataclass(frozen=True, slots=True, repr=False)
class PageHit:
    """A page that the question needs."""

    document: str
    """The document's id."""
    name: str
    page: int
    """1 for the first page."""
    label: str
    """The number printed on it if the file says so and it is another; else ""."""
    score: float
    """Self-similarity s_p: how much of the page answers the question, 0 to 1."""
    late_interaction: float
    """The MaxSim score (Eq. 1)."""
    snippet: str
    """The line that matches best."""
    boxes: tuple[Box, ...]
    """Where on the page the snippet stands."""
    probability: float | None = None
    """That it holds evidence for the answer; None if the encoder is not calibrated."""
    likelihood: Likelihood | None = None
    """The probability as a word; "unlikely" on every page if nothing speaks of the question."""
    beside: int | None = None
    """For a neighbour taken along: the selected page it stands beside."""
    source: PageSource | None = field(default=None, compare=False, metadata=_INTERNAL)
    """Where its image and words come from; None for a hit that was made without an index."""

    def __repr__(self) -> str:
        chance = "" if self.likelihood is None else f", {self.likelihood}"
        return f"PageHit({self.name!r}, page {self.page}{chance})"

    @property
    def words(self) -> tuple[Word, ...]:
        """All words of the page with their boxes, read from the index."""
        return self._from().page(self.document, self.page).words

    def image(self, dpi: float = 144) -> Image:
        """Return the page as a picture, drawn from the document's file.

        Raises
        ------
        DocumentError
            If the file is gone, has changed, or needs a password.
        """
        return self._from().image(self.document, self.page, dpi)

    def _from(self) -> PageSource:
        if self.source is None:
            raise NotInIndex(f"{self!r} does not come from an index: it has no image or words.")
        return self.source


@dataclass(frozen=True, slots=True, eq=False)
class SearchResult:
    """The pages a question needs, best first, and why so many."""

    question: str
    method: str
    pages: tuple[PageHit, ...]
    documents: tuple[StoredDocument, ...]
    """Those searched."""
    left_out: tuple[StoredDocument, ...]
    """Those asked for that have no vectors of the encoder: add them with it."""
    pages_searched: int
    """All pages of these documents."""
    candidates: int | None
    """Of several documents: the pages that the method chose from, the best by late interaction.
    None if it chose from all pages."""
    pages_invalid: int
    """Of those: pages the encoder could make nothing of, which are never found."""
    k: int
    k_star: int
    """What ViSAR asks for before the cap, whatever the method."""
    match: float
    """The mean cosine of the question's words with their best match on the best page."""
    about: float | None
    """The probability that the documents are about the question; None if the encoder is not
    calibrated."""
    strength: Strength
    """Whether the documents speak of it: by that probability, or without one by ``match``."""
    runner_up: PageHit | None
    """The first page by s_p or by late interaction where it is not among ``pages``."""
    encoder: EncoderRef
    calibration: str | None
    """What the probabilities were fitted on; None if the encoder is not calibrated."""
    seconds: float
    passages: tuple[Passage, ...] = field(repr=False, metadata=_INTERNAL)
    """The passages of these pages that match best; of the first page as well if the question is
    about the document itself."""
    query: NDArray[np.float32] = field(repr=False, metadata=_INTERNAL)
    """The vectors of the question."""
    places: tuple[Place, ...] = field(repr=False, metadata=_INTERNAL)
    """The pages that the method chose from, as ``selection`` counts them."""
    selection: Selection = field(repr=False)
    """Everything the method saw; pages counted from 0 in the order of ``places``."""
    spans: tuple[tuple[int, int], ...] | None = field(default=None, repr=False, metadata=_INTERNAL)
    """The characters of the question that each of its vectors stands for; None if the encoder does
    not tell."""

    def patch_weights(self, document: str, page: int) -> NDArray[np.float32] | None:
        """The weights of a page's vectors; None if the method did not choose from it."""
        if (document, page) not in self.places:
            return None
        return self.selection.patch_weights[self.places.index((document, page))]

    @property
    def sharpness(self) -> float | None:
        """By what share J gets worse with one page more or less than at its minimum, if known."""
        cost = self.selection.cost
        if not np.isfinite(cost).any():
            return None
        lowest = int(np.nanargmin(cost))
        beside = [cost[i] for i in (lowest - 1, lowest + 1) if 0 <= i < len(cost)]
        known = [value for value in beside if np.isfinite(value)]
        if not known or not cost[lowest]:
            return None
        return float((min(known) - cost[lowest]) / abs(cost[lowest]))

    def _repr_html_(self) -> str:
        return f"<p><b>{escape(self.question)}</b></p>{_pages_html(self)}"


@dataclass(frozen=True, slots=True)
class Passage:
    """A sentence or table row of a page that speaks of what was asked."""

    text: str
    document: str
    page: int
    weight: float
    """How well it answers, compared with the other passages of the same question."""
    boxes: tuple[Box, ...]
    answer: tuple[int, int] | None = None
    """The characters of the text, from the first to before the last, that have the form asked for:
    the number with its unit, the date, the name. None if the question asks for no such form."""


@dataclass(frozen=True, slots=True)
class Citation:
    """A page that an answer says it was read from."""

    label: str
    """As the answer names it."""
    document: str | None
    """The document's id; None when no page of that name was given."""
    page: int | None

    @property
    def was_given(self) -> bool:
        return self.document is not None


@dataclass(frozen=True, slots=True)
class Generation:
    """What was sent to a generator, and what came back."""

    model: str
    prompt_sha256: str
    """Of everything sent, texts and pixels."""
    pages: tuple[str, ...]
    """The labels of the pages sent."""
    pixels: int
    text_tokens: int
    """Of the texts sent, counted here."""
    input_tokens: int | None
    """Of all that was sent, images included, as the generator counts; None if it does not say."""
    output_tokens: int | None
    seconds: float
    raw: str
    """The reply as it was written."""
    complete: bool
    """Whether it came to an end before the limit."""
    well_formed: bool
    """Whether it was the JSON asked for; otherwise the answer is all of it."""


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """An answer with the pages it rests on."""

    question: str
    text: str
    """Empty when the documents do not hold an answer."""
    generator: str
    passages: tuple[Passage, ...]
    """The passages that match best: what an extractive answer quotes, or what comes nearest."""
    search: SearchResult
    citations: tuple[Citation, ...] = ()
    """The pages that a generator says it has read the answer from."""
    generation: Generation | None = None
    """None for an extractive answer."""

    @property
    def found(self) -> bool:
        return bool(self.text)

    @property
    def pages(self) -> tuple[PageHit, ...]:
        """The pages it rests on, best first, each with its document."""
        return self.search.pages

    def _repr_html_(self) -> str:
        said = [f"<p>{escape(self.text)}</p>"]
        if not self.found:
            said = ["<p>Nothing there speaks of this. What comes nearest, unlikely to help:</p>"]
        elif self.generation is None:
            said = [_passage_html(passage) for passage in self.passages]
        return f"<p><b>{escape(self.question)}</b></p>{''.join(said)}{_pages_html(self.search)}"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A document that was not added, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Additions:
    """The result of adding several documents."""

    added: tuple[StoredDocument, ...]
    refused: tuple[Refusal, ...]


def _pages_html(found: SearchResult) -> str:
    """The chosen pages as a table, and how they were chosen, for notebooks."""
    rows = "".join(
        f"<tr><td>{escape(hit.name)}</td><td>{hit.page}</td><td>{hit.likelihood or ''}</td>"
        f'<td style="text-align:left">{escape(hit.snippet)}</td></tr>'
        for hit in found.pages
    )
    heading = (
        '<tr><th>document</th><th>page</th><th></th><th style="text-align:left">match</th></tr>'
    )
    return f"<table>{heading}{rows}</table>{selection_html(found.selection)}"


def _passage_html(passage: Passage) -> str:
    first, last = passage.answer or (0, 0)
    before, marked, after = (
        escape(part)
        for part in (passage.text[:first], passage.text[first:last], passage.text[last:])
    )
    quoted = f"{before}<mark>{marked}</mark>{after}" if marked else after
    return f"<p>{quoted} <small>page {passage.page}</small></p>"


def likelihood(probability: float | None, strength: Strength = "good") -> Likelihood | None:
    """The word for a probability. No page is possible where nothing speaks of the question.

    >>> likelihood(0.6), likelihood(0.2), likelihood(0.01), likelihood(None)
    ('likely', 'possible', 'unlikely', None)
    >>> likelihood(0.2, "none")
    'unlikely'
    """
    if probability is None:
        return None
    if strength == "none":
        return "unlikely"
    if probability >= LIKELY:
        return "likely"
    return "possible" if probability >= POSSIBLE else "unlikely"


def to_plain(value: Any) -> Any:
    """Turn any result to what JSON knows. NaN becomes null; a selection its small parts."""
    if isinstance(value, Selection):
        names = ("k", "k_star", "k_star_exact", "cost", "sparsity", "fallback", "timings")
        return {name: to_plain(getattr(value, name)) for name in names}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        shown = [f.name for f in dataclasses.fields(value) if not f.metadata.get("internal")]
        return {name: to_plain(getattr(value, name)) for name in shown}
    if isinstance(value, np.ndarray):
        return to_plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [to_plain(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, datetime | Path):
        return value.isoformat() if isinstance(value, datetime) else str(value)
    return value
