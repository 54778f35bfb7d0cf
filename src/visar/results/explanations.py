"""Result types for explanations of a search."""

from __future__ import annotations

from dataclasses import dataclass

from visar.documents.page import Box
from visar.serialization import Result


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
