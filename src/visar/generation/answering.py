"""From found pages to an answer: the prompt, the reply, and the pages it cites."""

from __future__ import annotations

import time
from collections import abc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, cast

from visar.documents.page import Page
from visar.errors import InvalidOption, NotInIndex, PromptTooLong, VisarError
from visar.generation import extractive
from visar.generation.parsing import AnswerPieces, parse_answer
from visar.generation.prompts import (
    MAX_PIXELS,
    MAX_TOKENS,
    GivenPage,
    PromptName,
    answer_prompt,
    fit_pixels,
    fit_tokens,
    page_label,
    paper_prompt,
)
from visar.generation.protocol import (
    Generator,
    OnText,
    Prompt,
    Reply,
    generate_each,
    ignore_text,
    read_pieces,
    stream_reply,
)
from visar.generation.registry import model_class_of
from visar.results import Answer, Citation, Generation, PageSource, SearchResult
from visar.text import counted

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
# Of the tokens that would fit: question and instructions take room too.
_CUT_TO = 0.9
BUDGETS: Mapping[PromptName, Budget] = {
    "default": USUAL_BUDGET,
    "paper": Budget(answer_tokens=2048),
}
"""What evaluations allow with each prompt."""


@dataclass(frozen=True, slots=True)
class GeneratedAnswer:
    """An answer that a generator wrote."""

    text: str
    """Empty if it says, as our own prompt asks for, that the pages do not hold the answer."""
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
    *,
    prompt: PromptName = "default",
) -> GeneratedAnswer:
    """Let a generator answer a question from pages, as much of them as the budget allows.

    Parameters
    ----------
    question, pages
        Pages hold images or texts, as ``generator.reads`` says.
    on_text
        Called with each piece of the answer's text as soon as it can be shown.
    prompt
        "paper" asks as the paper's evaluation did.

    Raises
    ------
    GenerationError
        If there is no reply.
    """
    return read_pieces(stream_answer(question, pages, generator, budget, prompt=prompt), on_text)


def stream_answer(
    question: str,
    pages: Sequence[GivenPage],
    generator: Generator,
    budget: Budget = USUAL_BUDGET,
    *,
    prompt: PromptName = "default",
) -> abc.Generator[str, None, GeneratedAnswer]:
    """Do the same as `answer_from`, but yield the pieces of the answer and return the whole.

    Closing the iterator ends the work.
    """
    asked = _Asked(question, pages, budget, prompt)
    started = time.perf_counter()
    answer = AnswerPieces()
    while True:
        sent = asked.prompt(generator)
        with closing(stream_reply(generator, sent, max_tokens=budget.answer_tokens)) as pieces:
            try:
                while True:
                    if shown := answer.add(next(pieces)):
                        yield shown
            except StopIteration as end:
                reply: Reply = end.value
                break
            except PromptTooLong as error:
                asked = asked.shortened(error, generator)
    seconds = time.perf_counter() - started
    written = asked.answer(sent, reply, generator, seconds)
    if rest := answer.end(written.text):
        yield rest
    return written


def answer_each(
    questions: Sequence[tuple[str, Sequence[GivenPage]]],
    generator: Generator,
    budget: Budget = USUAL_BUDGET,
    *,
    prompt: PromptName = "default",
) -> list[GeneratedAnswer | VisarError]:
    """Let a generator answer questions, each from its own pages, several at a time if it can.

    In place of an answer stands the error of a question that has none. The seconds of an answer
    are those of all. A prompt beyond the model's context is cut, which the answer notes.
    """
    asked = [_Asked(question, pages, budget, prompt) for question, pages in questions]
    sent = [one.prompt(generator) for one in asked]
    started = time.perf_counter()
    replies = generate_each(generator, sent, max_tokens=budget.answer_tokens)
    for place, reply in enumerate(replies):
        while isinstance(reply, PromptTooLong):
            try:
                asked[place] = asked[place].shortened(reply, generator)
            except PromptTooLong:
                break
            sent[place] = asked[place].prompt(generator)
            (reply,) = generate_each(generator, [sent[place]], max_tokens=budget.answer_tokens)
        replies[place] = reply
    seconds = time.perf_counter() - started
    return [
        one.answer(given, reply, generator, seconds) if isinstance(reply, Reply) else reply
        for one, given, reply in zip(asked, sent, replies, strict=True)
    ]


def _compose(
    question: str, pages: Iterable[GivenPage], generator: Generator, name: PromptName
) -> Prompt:
    if name == "paper":
        return paper_prompt(question, pages, generator.reads, model_class_of(generator))
    return answer_prompt(question, pages)


def prompt_digest(generator: Generator, name: PromptName) -> str:
    """Return a digest of a generator's prompt and budget that no question or page changes."""
    from PIL import Image

    content = Image.new("RGB", (1, 1)) if generator.reads == "images" else ""
    empty = _compose("", [GivenPage("1", "", 1, content)], generator, name)
    return f"{empty.digest} {BUDGETS[name]}"


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question about pages, as much of them as a budget and the model's context allow."""

    question: str
    pages: Sequence[GivenPage]
    budget: Budget
    prompt_name: PromptName
    note: str | None = None
    """What was left out to fit the model's context."""

    def prompt(self, generator: Generator) -> Prompt:
        fitted = _fitted(self.pages, generator, self.budget)
        return _compose(self.question, fitted, generator, self.prompt_name)

    def shortened(self, error: PromptTooLong, generator: Generator) -> _Asked:
        """Return the question with less text of its pages, or with fewer of its last images.

        Raises the error if nothing more can be left out.
        """
        if generator.reads == "text":
            texts = fit_tokens(_texts(self.pages), generator.count_tokens, self.budget.tokens)
            tokens = int(_CUT_TO * error.share * sum(map(generator.count_tokens, texts)))
            if tokens < 1:
                raise error
            note = f"The pages' text was cut to {tokens} tokens to fit the model's context."
            return replace(self, budget=replace(self.budget, tokens=tokens), note=note)
        kept = min(len(self.pages) - 1, max(1, int(error.share * len(self.pages))))
        if kept < 1:
            raise error
        note = f"Only the first {counted(kept, 'page')} fit into the model's context."
        return replace(self, pages=self.pages[:kept], note=note)

    def answer(
        self, sent: Prompt, reply: Reply, generator: Generator, seconds: float
    ) -> GeneratedAnswer:
        parsed = parse_answer(reply.text, may_refuse=self.prompt_name == "default")
        given = {page.label: (page.document, page.number) for page in self.pages}
        texts = [sent.system, *(part for part in sent.parts if isinstance(part, str))]
        return GeneratedAnswer(
            text=parsed.text,
            citations=tuple(
                Citation(cited, *given.get(cited, (None, None))) for cited in parsed.pages
            ),
            generation=Generation(
                model=reply.model,
                prompt_sha256=sent.digest,
                pages=tuple(page.label for page in self.pages),
                pixels=sent.pixels,
                text_tokens=sum(map(generator.count_tokens, texts)),
                input_tokens=reply.input_tokens,
                output_tokens=reply.output_tokens,
                seconds=seconds,
                raw=reply.text,
                finish=_finish(reply),
                well_formed=parsed.well_formed,
                note=self.note,
            ),
        )


def _finish(reply: Reply) -> Literal["complete", "length", "interrupted"]:
    if reply.complete:
        return "complete"
    return "interrupted" if reply.interrupted else "length"


def _fitted(
    pages: Sequence[GivenPage], generator: Generator, budget: Budget
) -> Iterator[GivenPage]:
    """Yield pages, as much of them as the budget allows."""
    fitted: Sequence[Image] | Sequence[str]
    if generator.reads == "images":
        images = cast("list[Image]", [page.content for page in pages])
        fitted = fit_pixels(images, budget.pixels)
    else:
        fitted = fit_tokens(_texts(pages), generator.count_tokens, budget.tokens)
    for place, page in enumerate(pages):
        yield replace(page, content=fitted[place])


def _texts(pages: Sequence[GivenPage]) -> list[str]:
    return [str(page.content) for page in pages]


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


def quoted_answer(found: SearchResult) -> abc.Generator[str, None, Answer]:
    """Yield the quotations of an extractive answer, and return the answer."""
    text = extractive.quote(found.passages) if found.strength != "none" else ""
    if text:
        yield text
    return Answer(text, extractive.NAME, found.passages, found)


def written_answer(
    source: PageSource, found: SearchResult, generator: Generator, budget: Budget
) -> abc.Generator[str, None, Answer]:
    """Yield the pieces of a generator's answer from the pages found, and return the answer."""
    documents = [document.id for document in found.documents]
    given: list[GivenPage] = []
    for hit in found.pages:
        # A document may be removed after the search: the others still answer.
        with suppress(NotInIndex):
            given += gather_pages(source, generator, [(hit.document, hit.page)], documents)
    if not given:
        raise NotInIndex("The documents with these pages were removed meanwhile: ask again.")
    written = yield from stream_answer(found.question, given, generator, budget)
    return Answer(
        text=written.text,
        generator=generator.name,
        passages=found.passages,
        search=found,
        citations=written.citations,
        generation=written.generation,
    )
