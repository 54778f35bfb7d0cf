"""From found pages to an answer: the prompt, the reply, and the pages it cites."""

from __future__ import annotations

import time
from collections import abc
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from visar.documents.page import Page
from visar.errors import InvalidOption
from visar.generation import extractive
from visar.generation.parsing import AnswerPieces, parse_answer
from visar.generation.prompts import (
    MAX_PIXELS,
    MAX_TOKENS,
    GivenPage,
    answer_prompt,
    fit_pixels,
    fit_tokens,
    page_label,
)
from visar.generation.protocol import Generator, OnText, Prompt, Reply, ignore_text, stream_reply
from visar.results import Answer, Citation, Generation, PageSource, SearchResult

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How much a generator is given and may write. Values below 1 raise `InvalidOption`."""

    pixels: int = MAX_PIXELS
    """Of all page images together."""
    tokens: int = MAX_TOKENS
    """Of all page texts together, for generators that read text."""
    answer_tokens: int = 512
    """Of the reply."""

    def __post_init__(self) -> None:
        for name in ("pixels", "tokens", "answer_tokens"):
            if (value := getattr(self, name)) < 1:
                raise InvalidOption(f"The budget of {name} must be at least 1, not {value}.")


USUAL_BUDGET = Budget()


@dataclass(frozen=True, slots=True)
class GeneratedAnswer:
    """An answer that a generator wrote."""

    text: str
    """Empty if it says that the pages do not hold the answer."""
    citations: tuple[Citation, ...]
    """The pages that it names."""
    generation: Generation
    """What was sent and what came back."""


def answer_from(
    question: str,
    pages: Sequence[GivenPage],
    generator: Generator,
    budget: Budget = USUAL_BUDGET,
    on_text: OnText = ignore_text,
) -> GeneratedAnswer:
    """Let a generator answer a question from pages, as much of them as the budget allows.

    Parameters
    ----------
    question, pages
        Pages hold images or texts, as ``generator.reads`` says.
    on_text
        Called with each piece of the answer's text as soon as it can be shown.

    Raises
    ------
    GenerationError
        If there is no reply.
    """
    asked = _Asked(question, pages, generator, budget)
    answer = AnswerPieces()

    def show(piece: str) -> None:
        if shown := answer.add(piece):
            on_text(shown)

    limit = budget.answer_tokens
    written = asked.answer(generator.generate(asked.prompt, max_tokens=limit, on_text=show))
    if rest := answer.end(written.text):
        on_text(rest)
    return written


def stream_answer(
    question: str,
    pages: Sequence[GivenPage],
    generator: Generator,
    budget: Budget = USUAL_BUDGET,
) -> abc.Generator[str, None, GeneratedAnswer]:
    """Do the same as `answer_from`, but yield the pieces of the answer and return the whole.

    Closing the iterator ends the work.
    """
    asked = _Asked(question, pages, generator, budget)
    answer = AnswerPieces()
    limit = budget.answer_tokens
    with closing(stream_reply(generator, asked.prompt, max_tokens=limit)) as pieces:
        while True:
            try:
                piece = next(pieces)
            except StopIteration as end:
                written = asked.answer(end.value)
                break
            if shown := answer.add(piece):
                yield shown
    if rest := answer.end(written.text):
        yield rest
    return written


def gather_pages(
    source: PageSource,
    generator: Generator,
    pages: Sequence[tuple[str, int]],
    documents: Sequence[str],
) -> list[GivenPage]:
    """Return pages in the form that a generator reads: their texts or their pictures.

    ``pages`` are documents' ids and numbers from 1; ``documents`` the ids of all documents that
    were searched, which labels count. Raises DocumentError if a picture is wanted of a document
    whose file is gone.
    """
    return [
        GivenPage(
            label=page_label(number, documents.index(document) + 1, len(documents)),
            document=document,
            number=number,
            content=page_text(source.page(document, number))
            if generator.reads == "text"
            else source.image(document, number),
        )
        for document, number in pages
    ]


def page_text(page: Page) -> str:
    """Return a page's words in reading order, each line of the page on a line."""
    return "\n".join(" ".join(page.words[i].text for i in line) for line in page.lines())


@dataclass(slots=True)
class _Asked:
    """A question about pages, as it is put to a generator."""

    question: str
    pages: Sequence[GivenPage]
    generator: Generator
    budget: Budget
    prompt: Prompt = field(init=False)
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.prompt = answer_prompt(self.question, self._fitted())
        self.started = time.perf_counter()

    def answer(self, reply: Reply) -> GeneratedAnswer:
        seconds = time.perf_counter() - self.started
        parsed = parse_answer(reply.text)
        return GeneratedAnswer(
            text=parsed.text,
            citations=tuple(map(self._citation, parsed.pages)),
            generation=Generation(
                model=reply.model,
                prompt_sha256=self.prompt.digest,
                pages=tuple(page.label for page in self.pages),
                pixels=self.prompt.pixels,
                text_tokens=self._text_tokens(),
                input_tokens=reply.input_tokens,
                output_tokens=reply.output_tokens,
                seconds=seconds,
                raw=reply.text,
                complete=reply.complete,
                well_formed=parsed.well_formed,
            ),
        )

    def _fitted(self) -> list[GivenPage]:
        contents = [page.content for page in self.pages]
        fitted: Sequence[Image] | Sequence[str]
        if self.generator.reads == "images":
            fitted = fit_pixels(cast("list[Image]", contents), self.budget.pixels)
        else:
            count = self.generator.count_tokens
            fitted = fit_tokens(cast("list[str]", contents), count, self.budget.tokens)
        return [replace(page, content=fitted[place]) for place, page in enumerate(self.pages)]

    def _text_tokens(self) -> int:
        texts = [part for part in self.prompt.parts if isinstance(part, str)]
        return sum(self.generator.count_tokens(text) for text in (self.prompt.system, *texts))

    def _citation(self, label: str) -> Citation:
        for page in self.pages:
            if page.label == label:
                return Citation(label, page.document, page.number)
        return Citation(label, None, None)


class AnswerStream(Iterator[str]):
    """An answer while it is written: iterate over its pieces, then take :attr:`answer`.

    The pages are known before the first piece (:attr:`search`). Closing it stops the generator.
    """

    def __init__(self, search: SearchResult, pieces: abc.Generator[str, None, Answer]) -> None:
        self.search = search
        self._pieces = pieces
        self._answer: Answer | None = None

    def __next__(self) -> str:
        try:
            return next(self._pieces)
        except StopIteration as end:
            self._answer = end.value or self._answer
            raise StopIteration from None

    @property
    def answer(self) -> Answer:
        """The whole answer; waits for what is still to be written."""
        for _ in self:
            pass
        assert self._answer is not None  # noqa: S101 - the pieces end with it
        return self._answer

    def close(self) -> None:
        """Stop writing."""
        self._pieces.close()


def quoted_answer(found: SearchResult) -> abc.Generator[str, None, Answer]:
    """Yield the quotations of an extractive answer, and return the answer."""
    text = extractive.quote(found.passages) if found.strength != "none" else ""
    if text:
        yield text
    return Answer(found.question, text, extractive.NAME, found.passages, found)


def written_answer(
    source: PageSource, found: SearchResult, generator: Generator, budget: Budget
) -> abc.Generator[str, None, Answer]:
    """Yield the pieces of a generator's answer from the pages found, and return the answer."""
    pages = [(hit.document, hit.page) for hit in found.pages]
    documents = [document.id for document in found.documents]
    given = gather_pages(source, generator, pages, documents)
    written = yield from stream_answer(found.question, given, generator, budget)
    return Answer(
        question=found.question,
        text=written.text,
        generator=generator.name,
        passages=found.passages,
        search=found,
        citations=written.citations,
        generation=written.generation,
    )
