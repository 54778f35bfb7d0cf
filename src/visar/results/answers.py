"""Result types for answers and conversations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, TypeVar

from visar.documents.page import Box, PageSource
from visar.results.search import PageHit, Passage, SearchResult
from visar.serialization import Result

T = TypeVar("T")
NO_CITATION = "No page is cited. Check the answer."
"""Warning for an answer that a generator wrote without citing a page."""


@dataclass(frozen=True, slots=True)
class Citation(Result):
    """A page that an answer cites as its source.

    An answer has one citation for each marker ``[1]``, ``[2]``, … in its text, in the same order.
    """

    label: str
    """Page label that the generator wrote."""
    document: str | None
    """Id of the document; null if the generator wasn't given this page."""
    page: int | None
    """Page number, from 1; null if the generator wasn't given this page."""
    number: int = 0
    """Number in the marker; citations of the same page have the same number."""
    claim: str = ""
    """Text before the marker, which the page should support."""
    quote: str = ""
    """Passage on the page that is closest to the claim."""
    boxes: tuple[Box, ...] = ()
    """Position of the quote on the page."""
    verified: bool = False
    """True if the words and numbers of the claim are on the page."""

    @property
    def was_given(self) -> bool:
        """True if the generator was given the page."""
        return self.document is not None

    @property
    def doubt(self) -> str:
        """Reason why the claim is unverified; empty if it is verified."""
        if not self.was_given:
            return "unverified: the model wasn't given this page"
        return "" if self.verified else "unverified: not found on this page"


@dataclass(frozen=True, slots=True)
class Generation(Result):
    """A record of what was sent to a generator and what it replied."""

    model: str
    prompt_sha256: str
    """SHA-256 hash of everything sent, text and pixels."""
    pages: tuple[str, ...]
    """Labels of the pages sent."""
    pixels: int
    text_tokens: int
    """Number of text tokens sent, counted before sending."""
    input_tokens: int | None
    """Number of tokens sent, including images, as reported by the generator; null if unknown."""
    output_tokens: int | None
    """Number of tokens of the reply, as reported by the generator; null if unknown."""
    seconds: float
    raw: str
    """Unparsed reply."""
    finish: Literal["complete", "length", "interrupted"]
    """Reason why the reply ended: it was complete, reached the maximum length, or broke off."""
    well_formed: bool
    """True if the reply was the requested JSON. Otherwise, all of it is used as the answer."""
    note: str | None = None
    """Note on what was left out to fit the model's context; null if nothing was."""


@dataclass(frozen=True, slots=True, eq=False)
class Answer(Result):
    """An answer and the pages it is based on."""

    text: str
    """Text of the answer; empty if the documents don't contain one. Generators write Markdown, with
    markers such as ``[1]`` for the ``citations``."""
    generator: str
    """Name of the generator; "extractive" for quotes."""
    passages: tuple[Passage, ...]
    """Best passages. An extractive answer quotes them; without an answer, they are the closest."""
    search: SearchResult
    citations: tuple[Citation, ...] = ()
    """Pages that the generator cites, in the order of their markers."""
    generation: Generation | None = None
    """Record of the generator's reply; null for an extractive answer."""
    problem: str | None = None
    """Error message if the generator failed and the answer quotes the pages instead, or null."""

    @property
    def question(self) -> str:
        """Question that was searched."""
        return self.search.question

    @property
    def found(self) -> bool:
        """True if there is an answer."""
        return bool(self.text)

    @property
    def pages(self) -> tuple[PageHit, ...]:
        """Pages that the answer is based on, best first."""
        return self.search.pages

    @property
    def lacks_citations(self) -> bool:
        """True if a generator wrote the answer and cites no page."""
        is_written = self.generation is not None and self.problem is None
        return is_written and self.found and not self.citations

    def sources(self) -> list[str]:
        """Return a line for each page that the answer cites or quotes, and each doubt."""
        names = {hit.document: hit.name for hit in self.pages}
        if self.lacks_citations:
            return [NO_CITATION]
        if not self.citations:
            pages = dict.fromkeys((one.document, one.page) for one in self.passages if self.found)
            return [f"{names.get(document, document)}, page {page}" for document, page in pages]
        lines: dict[str, None] = {}
        for one in self.citations:
            name = f"{names.get(one.document, one.document)}, " if one.document is not None else ""
            page = one.label if one.page is None else one.page
            doubt = f" ({one.doubt}): {one.claim}" if one.doubt else ""
            lines[f"[{one.number}] {name}page {page}{doubt}"] = None
        return list(lines)

    def _repr_html_(self) -> str:
        from visar.notebook import answer_html

        return answer_html(self)


@dataclass(frozen=True, slots=True)
class Turn(Result):
    """A question and answer of a conversation, as context for later questions."""

    question: str
    answer: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Exchange(Result):
    """A question of a saved conversation with its answer."""

    question: str
    """Question as typed. For a follow-up, ``answer.question`` is the question that was searched."""
    answer: Answer
    asked: datetime
    """Time of the question."""


@dataclass(frozen=True, slots=True, eq=False)
class Thread(Result):
    """A saved conversation."""

    id: str
    name: str
    created: datetime
    updated: datetime
    collection: str | None = None
    """The only collection that the conversation searches; null for the whole library."""
    length: int = 0
    """Number of exchanges."""
    exchanges: tuple[Exchange, ...] = ()
    """Questions with their answers; empty in a list of conversations."""


def with_source(result: T, source: PageSource) -> T:
    """Return a result whose pages load their images and words from a library."""
    if isinstance(result, Thread):
        answers = [with_source(one.answer, source) for one in result.exchanges]
        both = zip(result.exchanges, answers, strict=True)
        return replace(result, exchanges=tuple(replace(one, answer=new) for one, new in both))
    if isinstance(result, Answer):
        return replace(result, search=with_source(result.search, source))
    if isinstance(result, SearchResult):
        runner_up = result.runner_up and replace(result.runner_up, source=source)
        pages = tuple(replace(hit, source=source) for hit in result.pages)
        return replace(result, pages=pages, runner_up=runner_up)
    return result
