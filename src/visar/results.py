"""Every result of a library, declared once: documents, pages found, answers, explanations, jobs.

An index makes them, a server sends them as JSON (`visar.serialization`), a client reads them back,
and the command line and notebooks show them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from visar.documents.page import Box, Word
from visar.documents.page import PageSource as PageSource
from visar.encoders.protocol import EncoderRef as EncoderRef
from visar.errors import InvalidOption, NotInIndex
from visar.query import Query
from visar.serialization import INTERNAL, LOCAL, Result
from visar.trace import Trace

if TYPE_CHECKING:
    from PIL.Image import Image

    from visar.core import Selection

Strength: TypeAlias = Literal["good", "weak", "none"]
Likelihood: TypeAlias = Literal["likely", "possible", "unlikely"]
JobState: TypeAlias = Literal["waiting", "running", "done", "failed", "cancelled"]
NO_TEXT = "no text was found"
"""Reason why an encoder of words has no vectors of a page, such as a blank one."""


@dataclass(frozen=True, slots=True)
class InvalidPage(Result):
    """A page that an encoder failed on or found no text on: its searches never find it."""

    encoder: str
    number: int
    """Page number, from 1."""
    reason: str


def all_without_text(pages: int, invalid: Sequence[InvalidPage]) -> bool:
    """Return whether no text was found on any page of a document."""
    return pages == len({one.number for one in invalid if one.reason == NO_TEXT})


@dataclass(frozen=True, slots=True)
class Document(Result):
    """A document of a library."""

    id: str
    """Hash of the content: the same content has the same id."""
    name: str
    pages: int
    """Number of pages."""
    size: int
    """Size of the file in bytes."""
    added: datetime = field(default_factory=lambda: datetime.now(UTC))
    encoders: tuple[EncoderRef, ...] = ()
    """Encoders whose vectors it has, by name."""
    source: str = field(default="", metadata=LOCAL)
    """Location of the file; adding other content from there replaces the document."""
    invalid: tuple[InvalidPage, ...] = ()
    """Pages without vectors because an encoder failed on them, or found no text."""
    no_text: bool = False
    """Whether no text was found on any page, also by OCR: questions find nothing then."""
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Values for filters: text, numbers, booleans or null by name."""
    collections: tuple[str, ...] = ()

    def has(self, encoder: EncoderRef) -> bool:
        """Return whether it has vectors of exactly this version of an encoder."""
        return encoder in self.encoders

    def count_invalid(self, encoder: str) -> int:
        """Return the number of pages that the encoder of that name failed on."""
        return sum(one.encoder == encoder and one.reason != NO_TEXT for one in self.invalid)


@dataclass(frozen=True, slots=True)
class Collection(Result):
    """A named group of documents."""

    name: str
    documents: int
    """Number of documents in it."""


@dataclass(frozen=True, slots=True)
class Refusal(Result):
    """A document that was not added."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Additions(Result):
    """The result of adding several documents."""

    added: tuple[Document, ...]
    refused: tuple[Refusal, ...]


@dataclass(frozen=True, slots=True)
class QuotedCell(Result):
    """A cell of a quoted table."""

    text: str
    row: int
    """Row of the quoted part, from 0; rows of column headers come first."""
    column: int
    """First column that it covers, from 0; row labels stand in column 0."""
    span: int
    """Number of columns that it covers."""
    header: bool
    """Whether it names a column."""
    answer: bool
    """Whether the question names both its row and its column."""
    box: Box


@dataclass(frozen=True, slots=True)
class Passage(Result):
    """A sentence, a list item or rows of a table that answer the question."""

    text: str
    document: str
    page: int
    weight: float
    """Score among the passages of the same question: higher is better."""
    boxes: tuple[Box, ...]
    """Position of its words on the page."""
    cells: tuple[QuotedCell, ...] = ()
    """Cells of the rows quoted from a table, with their column headers; otherwise empty."""


@dataclass(frozen=True, slots=True, repr=False)
class PageHit(Result):
    """A page that the question needs."""

    document: str
    """Id of the document."""
    name: str
    """Name of the document."""
    page: int
    """Page number, from 1."""
    label: str
    """Printed page number if it differs, otherwise empty."""
    score: float
    """Self-similarity s_p: how much of the page answers the question, 0 to 1."""
    late_interaction: float
    """MaxSim score (Eq. 1)."""
    snippet: str
    """Best matching line."""
    boxes: tuple[Box, ...]
    """Position of the snippet on the page."""
    probability: float | None = None
    """Probability that the page holds evidence; null if the encoder is not calibrated."""
    likelihood: Likelihood | None = None
    """Probability as a word; "unlikely" on every page if the documents don't match at all."""
    beside: int | None = None
    """For a neighbor: the selected page next to it."""
    source: Any = field(default=None, compare=False, metadata=INTERNAL)
    """`PageSource` that the image and words are read from; None for a hit without a library."""

    def __repr__(self) -> str:
        chance = "" if self.likelihood is None else f", {self.likelihood}"
        return f"PageHit({self.name!r}, page {self.page}{chance})"

    @property
    def words(self) -> tuple[Word, ...]:
        """All words of the page with their boxes, read from the library."""
        return self._library().page(self.document, self.page).words

    def image(self, dpi: float = 144) -> Image:
        """Return the page as a picture, drawn from the document's file.

        Raises
        ------
        DocumentError
            If the file is gone, has changed, or needs a password.
        """
        return self._library().image(self.document, self.page, dpi)

    def _library(self) -> PageSource:
        if self.source is None:
            raise NotInIndex(f"{self!r} doesn't come from a library: it has no image or words.")
        library: PageSource = self.source
        return library


@dataclass(frozen=True, slots=True)
class Decision(Result):
    """How ViSAR decided the number of pages."""

    k_star: int
    """Number of pages before the cap."""
    exact: bool
    """False if the cap ended the search early: then k_star is a lower bound."""
    cost: tuple[float | None, ...]
    """J(1), J(2), …; null where it was proved not to matter."""
    active_pages: int
    """Number of pages that have anything to do with the question."""
    considered_pages: int
    """Number of pages that ViSAR chose from."""
    fallback: str | None
    """Reason why the method fell back to the best page by late interaction, if it did."""
    timings: Mapping[str, float] = field(hash=False)
    """Seconds by stage."""

    @property
    def sparsity(self) -> float:
        """Share of inactive pages: how localized the question is."""
        return 1 - self.active_pages / self.considered_pages

    @property
    def sharpness(self) -> float | None:
        """Relative increase of J with one page more or fewer than at its minimum, if known."""
        known = {at: value for at, value in enumerate(self.cost) if value is not None}
        if not known:
            return None
        lowest = min(known, key=lambda at: known[at])
        beside = [known[at] for at in (lowest - 1, lowest + 1) if at in known]
        if not beside or not known[lowest]:
            return None
        return (min(beside) - known[lowest]) / abs(known[lowest])


@dataclass(frozen=True, slots=True, eq=False)
class SearchResult(Result):
    """The pages a question needs, best first, and the reason for their number."""

    query: Query
    pages: tuple[PageHit, ...]
    documents: tuple[Document, ...]
    """Documents searched."""
    left_out: tuple[Document, ...]
    """Documents that have no vectors of the encoder: add them with it."""
    pages_searched: int
    candidates: int | None
    """Number of pages that the method chose from in a library, the best by late interaction; null
    if it chose from all pages."""
    pages_invalid: int
    """Number of pages that the encoder failed on; they are never found."""
    k: int
    """Number of pages chosen, without neighbors."""
    match: float
    """Mean cosine of the question's words with their best match on the best page."""
    about: float | None
    """Probability that the documents are about the question; null if the encoder is not
    calibrated."""
    strength: Strength
    """How well the documents match the question."""
    runner_up: PageHit | None
    """Best page by s_p or late interaction if it is not among ``pages``."""
    encoder: EncoderRef
    calibration: str | None
    """Data that the probabilities were fitted on; null if the encoder is not calibrated."""
    seconds: float
    summary: str
    """Number of pages and the reason for it, in a sentence."""
    decision: Decision | None = field(repr=False)
    """Null if another method than ViSAR chose the pages."""
    passages: tuple[Passage, ...] = field(repr=False)
    """Best passages of these pages, and of the first page if the question is about the document
    itself."""
    reader: str | None = None
    """Name of the reader that helped to order pages and passages; null if none did."""
    trace: Trace | None = field(default=None, repr=False, metadata=INTERNAL)
    """None for a result that came from a server."""

    @property
    def question(self) -> str:
        return self.query.question

    @property
    def method(self) -> str:
        """Name of the method that chose the pages."""
        return self.query.method

    @property
    def k_star(self) -> int | None:
        """Number of pages that ViSAR asked for before the cap; None if another method chose."""
        return None if self.decision is None else self.decision.k_star

    @property
    def selection(self) -> Selection:
        """Everything ViSAR saw: weights, scores, cost.

        Raises InvalidOption if the search ran on a server, or another method chose the pages.
        """
        from visar.core import Selection

        if self.trace is None or not isinstance(self.trace.relevance, Selection):
            raise InvalidOption("Only ViSAR on this machine keeps its selection: use explain().")
        return self.trace.relevance

    def _repr_html_(self) -> str:
        from visar.notebook import search_html

        return search_html(self)


@dataclass(frozen=True, slots=True)
class Citation(Result):
    """A page that an answer says it was read from."""

    label: str
    """The page as the answer names it."""
    document: str | None
    """Id of the document; null if the generator was given no such page."""
    page: int | None

    @property
    def was_given(self) -> bool:
        return self.document is not None


@dataclass(frozen=True, slots=True)
class Generation(Result):
    """What was sent to a generator, and what came back."""

    model: str
    prompt_sha256: str
    """Hash of everything sent, texts and pixels."""
    pages: tuple[str, ...]
    """Labels of the pages sent."""
    pixels: int
    text_tokens: int
    """Number of tokens of the texts sent, counted here."""
    input_tokens: int | None
    """Number of tokens sent, images included, as the generator counts; null if it doesn't say."""
    output_tokens: int | None
    seconds: float
    raw: str
    """The reply as it was written."""
    finish: Literal["complete", "length", "interrupted"]
    """Whether the reply is complete, reached its maximum length, or broke off."""
    well_formed: bool
    """Whether the reply was the JSON asked for; otherwise the answer is all of it."""
    note: str | None = None
    """What was left out to fit the model's context; null if nothing was."""


@dataclass(frozen=True, slots=True, eq=False)
class Answer(Result):
    """An answer with the pages it rests on."""

    text: str
    """Empty if the documents don't hold an answer."""
    generator: str
    passages: tuple[Passage, ...]
    """Best passages: what an extractive answer quotes, or the closest ones."""
    search: SearchResult
    citations: tuple[Citation, ...] = ()
    """Pages that a generator says it read the answer from."""
    generation: Generation | None = None
    """Null for an extractive answer."""

    @property
    def question(self) -> str:
        return self.search.question

    @property
    def found(self) -> bool:
        return bool(self.text)

    @property
    def pages(self) -> tuple[PageHit, ...]:
        """Pages that the answer rests on, best first."""
        return self.search.pages

    def _repr_html_(self) -> str:
        from visar.notebook import answer_html

        return answer_html(self)


@dataclass(frozen=True, slots=True)
class QuestionWord(Result):
    """A word of the question."""

    text: str
    influence: float
    """Share in the weight of the chosen pages, 0 to 1 relative to the most influential word."""
    vectors: tuple[int, ...]
    """Positions of its vectors among those of the question."""


@dataclass(frozen=True, slots=True)
class SearchedPage(Result):
    """A page that the method chose from."""

    document: str
    page: int
    """Page number, from 1."""
    activity: float
    """s_p relative to the largest, 0 to 1."""
    late_interaction: float
    rank: int
    """1 for the best page."""


@dataclass(frozen=True, slots=True)
class MethodChoice(Result):
    """The pages that one method takes for the question."""

    method: str
    """Name of the method; "top-k" takes a fixed number."""
    label: str
    adaptive: bool
    """Whether the method decides the number of pages itself."""
    pages: tuple[int, ...]
    """Positions in `Explanation.pages` from 0, the method's best first."""
    seconds: float
    """Time to choose them, without encoding the question."""
    tokens: int | None
    """Approximate number of tokens of their text, at 4 characters each; null for more than 50
    pages."""

    @property
    def k(self) -> int:
        return len(self.pages)


@dataclass(frozen=True, slots=True, eq=False)
class Explanation(Result):
    """Everything the method saw of a question, for people to look at."""

    words: tuple[QuestionWord, ...]
    """Empty if the encoder doesn't tell which vectors belong to which word."""
    pages: tuple[SearchedPage, ...]
    """Pages that the method chose from, in the order of their documents."""
    cost: tuple[float | None, ...]
    """J(1), J(2), …; null where it was proved not to matter."""
    k_star: int
    similarity: tuple[tuple[float, ...], ...]
    """Sim(p, q) between the best active pages, at most 200, in rank order."""
    choices: tuple[MethodChoice, ...]
    """Pages that each method takes: ViSAR first, a fixed top-k last."""

    @property
    def cuts(self) -> dict[str, int]:
        """Number of pages that each adaptive method takes."""
        return {one.method: one.k for one in self.choices if one.adaptive}


@dataclass(frozen=True, slots=True, eq=False)
class Patches(Result):
    """The patches of a page, for its heat map."""

    boxes: tuple[Box, ...]
    weights: tuple[float, ...]
    """Weight of each patch, 0 if the method didn't choose from the page."""
    cosines: tuple[tuple[float, ...], ...]
    """Cosines of each of the question's vectors with the patches."""


@dataclass(frozen=True, slots=True)
class PatchPair(Result):
    """A patch of one page, and the patch of another page that shares most with it."""

    first: Box
    second: Box
    words: tuple[str, str]
    """The words there; empty where a patch is not one word."""
    shared: float
    """S_j of Eq. 10: the product of their weights and their cosine."""


@dataclass(frozen=True, slots=True)
class Job(Result):
    """A document on its way into a library behind a server."""

    id: str
    name: str
    """Name of the document, as it was uploaded."""
    encoder: str
    created: datetime
    state: JobState = "waiting"
    stage: str | None = None
    """Current stage of a running job: reading, ocr or encoding."""
    pages_done: int = 0
    pages: int = 0
    """Number of pages; 0 while it is not known."""
    collection: str | None = None
    """Collection that the document is put into."""
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    document: str | None = None
    """Id of the document once it is in the library."""
    code: str | None = None
    """Reason for a failure, for programs: "password", "document", "failed", or "upload" if the
    upload was deleted and has to be sent again."""
    reason: str | None = None
    """Reason for a failure, for people."""

    @property
    def is_finished(self) -> bool:
        return self.state in ("done", "failed", "cancelled")
