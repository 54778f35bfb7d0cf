"""Result types for searches: the pages that a question needs, their passages, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from visar.documents.page import Box, PageSource, Word
from visar.encoders.encoder import EncoderRef
from visar.errors import InvalidOption, NotInIndex
from visar.query import Query
from visar.results.library import Document
from visar.serialization import INTERNAL, Result
from visar.trace import Trace

if TYPE_CHECKING:
    from PIL.Image import Image

    from visar.core import Selection

Strength: TypeAlias = Literal["good", "weak", "none"]
Likelihood: TypeAlias = Literal["likely", "possible", "unlikely"]


@dataclass(frozen=True, slots=True)
class QuotedCell(Result):
    """A cell of a quoted table."""

    text: str
    row: int
    """Row in the quoted part, from 0; rows of column headers come first."""
    column: int
    """First column that it covers, from 0; row labels are in column 0."""
    span: int
    """Number of columns that it covers."""
    header: bool
    """True for a column header."""
    answer: bool
    """True if the question names both its row and its column."""
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
    """For a neighboring page: the selected page next to it."""
    source: Any = field(default=None, compare=False, metadata=INTERNAL)
    """`PageSource` of the image and words; None for a hit without a library."""

    def __repr__(self) -> str:
        chance = "" if self.likelihood is None else f", {self.likelihood}"
        return f"PageHit({self.name!r}, page {self.page}{chance})"

    @property
    def words(self) -> tuple[Word, ...]:
        """All words of the page with their boxes, loaded from the library."""
        return self._library().page(self.document, self.page).words

    def image(self, dpi: float = 144) -> Image:
        """Render the page as an image, from the document's file.

        Raises DocumentError if the file is gone, has changed, or needs a password.
        """
        return self._library().image(self.document, self.page, dpi)

    def _library(self) -> PageSource:
        if self.source is None:
            raise NotInIndex(f"{self!r} has no image or words: it doesn't come from a library.")
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
    """Cost J(1), J(2), … by number of pages; null where it was proved not to matter."""
    active_pages: int
    """Number of pages that are related to the question."""
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
    """Documents skipped because they have no vectors from the encoder. Add them again with it."""
    pages_searched: int
    """Number of pages searched."""
    candidates: int | None
    """Number of candidate pages from a large library; null if the method chose from all pages."""
    pages_invalid: int
    """Number of pages that couldn't be read or encoded, and so are never found."""
    k: int
    """Number of pages chosen, without neighbors."""
    match: float
    """Mean cosine of the question's words with their best match on the best page."""
    about: float | None
    """Probability that the documents are relevant; null without calibration."""
    strength: Strength
    """How well the documents match the question."""
    runner_up: PageHit | None
    """Best page by s_p or late interaction if it is not among ``pages``."""
    encoder: EncoderRef
    calibration: str | None
    """Data that the probabilities were fitted on; null if the encoder is not calibrated."""
    seconds: float
    summary: str
    """Number of pages and the reason for it, as a sentence."""
    decision: Decision | None = field(repr=False)
    """ViSAR's decision on the number of pages; null if another method chose them."""
    passages: tuple[Passage, ...] = field(repr=False)
    """Best passages of these pages, and of the first page if the question is about the document
    itself."""
    reader: str | None = None
    """Name of the reader that helped to rank pages and passages; null if none did."""
    trace: Trace | None = field(default=None, repr=False, metadata=INTERNAL)
    """Data for explanations; None for a result from a server."""

    @property
    def question(self) -> str:
        """Question that was searched."""
        return self.query.question

    @property
    def closest(self) -> PageHit:
        """Page with the highest probability. A reader may have put another one first."""
        return max(self.pages, key=lambda hit: hit.probability or 0.0)

    @property
    def method(self) -> str:
        """Name of the method that chose the pages."""
        return self.query.method

    @property
    def k_star(self) -> int | None:
        """Number of pages that ViSAR chose before the cap; None if another method chose."""
        return None if self.decision is None else self.decision.k_star

    @property
    def selection(self) -> Selection:
        """ViSAR's selection with its weights, scores and cost.

        Raises InvalidOption if the search ran on a server, or another method chose the pages.
        """
        from visar.core import Selection

        if self.trace is None or not isinstance(self.trace.relevance, Selection):
            raise InvalidOption(
                "This result has no selection: the search ran on a server or with another method. "
                "Use explain() instead."
            )
        return self.trace.relevance

    def _repr_html_(self) -> str:
        from visar.notebook import search_html

        return search_html(self)


@dataclass(frozen=True, slots=True)
class QuestionWord(Result):
    """A word of the question."""

    text: str
    influence: float
    """Share in the weight of the chosen pages, relative to the most influential word, 0 to 1."""
    vectors: tuple[int, ...]
    """Positions of its vectors among those of the question, from 0."""
    is_stop_word: bool = False
    """Whether it is a word without meaning of its own, such as "the" or "and"."""


@dataclass(frozen=True, slots=True)
class SearchedPage(Result):
    """A page that the method chose from."""

    document: str
    page: int
    """Page number, from 1."""
    activity: float
    """Self-similarity s_p relative to the largest, 0 to 1."""
    late_interaction: float
    """MaxSim score (Eq. 1)."""
    rank: int
    """Rank of the page, from 1 for the best."""


@dataclass(frozen=True, slots=True)
class MethodChoice(Result):
    """The pages that a method chooses for the question."""

    method: str
    """Name of the method; "top-k" chooses a fixed number of pages."""
    label: str
    """Name of the method for display."""
    adaptive: bool
    """True if the method decides the number of pages itself."""
    pages: tuple[int, ...]
    """Positions in `Explanation.pages`, from 0, the method's best page first."""
    seconds: float
    """Time to choose the pages, without encoding the question."""
    tokens: int | None
    """Estimated tokens of their text, at 4 characters each; null for more than 50 pages."""

    @property
    def k(self) -> int:
        """Number of pages."""
        return len(self.pages)


@dataclass(frozen=True, slots=True, eq=False)
class Explanation(Result):
    """An explanation of a search: words, pages, cost, similarities and choices of methods."""

    words: tuple[QuestionWord, ...]
    """Words of the question; empty if the encoder doesn't say which vectors belong to a word."""
    pages: tuple[SearchedPage, ...]
    """Pages that the method chose from, in the order of their documents."""
    cost: tuple[float | None, ...]
    """Cost J(1), J(2), … by number of pages; null where it was proved not to matter."""
    k_star: int
    """Number of pages that ViSAR chose before the cap."""
    similarity: tuple[tuple[float, ...], ...]
    """Sim(p, q) between the best active pages, at most 200, in rank order."""
    choices: tuple[MethodChoice, ...]
    """Choices of all methods: ViSAR first, a fixed top-k last."""

    @property
    def cuts(self) -> dict[str, int]:
        """Number of pages that each adaptive method chooses."""
        return {one.method: one.k for one in self.choices if one.adaptive}


@dataclass(frozen=True, slots=True, eq=False)
class Patches(Result):
    """The patches of a page, for its heat map."""

    boxes: tuple[Box, ...]
    """Position of each patch on the page."""
    weights: tuple[float, ...]
    """Weight of each patch; 0 if the method didn't choose from the page."""
    cosines: tuple[tuple[float, ...], ...]
    """Cosines of each of the question's vectors with the patches."""


@dataclass(frozen=True, slots=True)
class PatchPair(Result):
    """A patch of one page, and the patch of another page that shares the most with it."""

    first: Box
    second: Box
    words: tuple[str, str]
    """Word in each patch; empty for a patch that isn't a single word."""
    shared: float
    """S_j of Eq. 10: the product of their weights and their cosine."""
