"""Turns found pages into an answer: the prompt, the reply, and the pages it cites."""

from __future__ import annotations

import time
from collections import abc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from visar.documents.page import Page
from visar.errors import GenerationError, InvalidOption, NotInIndex, PromptTooLong, VisarError
from visar.generation import extractive
from visar.generation.citing import CitedText, cite
from visar.generation.generator import (
    Generator,
    OnText,
    Prompt,
    Reply,
    change_pieces,
    generate_each,
    ignore_text,
    read_pieces,
    stream_reply,
)
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
from visar.generation.registry import model_class_of
from visar.results import Answer, Citation, Generation, PageSource, SearchResult
from visar.telemetry import Span, span
from visar.text import counted

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits for a generator's input and output. Values below 1 raise `InvalidOption`."""

    pixels: int = MAX_PIXELS
    """Maximum number of pixels of all page images together."""
    tokens: int = MAX_TOKENS
    """Maximum number of tokens of all page texts together, for generators that read text."""
    answer_tokens: int = 512
    """Maximum number of tokens of the reply."""

    def __post_init__(self) -> None:
        for name in ("pixels", "tokens", "answer_tokens"):
            if (value := getattr(self, name)) < 1:
                raise InvalidOption(f"The budget of {name} must be at least 1, not {value}.")


USUAL_BUDGET = Budget()
# Share of the tokens that fit into the context: question and instructions need room too.
_CUT_TO = 0.9
BUDGETS: Mapping[PromptName, Budget] = {
    "cited": USUAL_BUDGET,
    "default": USUAL_BUDGET,
    "paper": Budget(answer_tokens=2048),
}
"""Budgets of evaluations, by prompt."""


@dataclass(frozen=True, slots=True)
class GeneratedAnswer:
    """An answer that a generator wrote."""

    text: str
    """The answer; empty if the generator found none on the pages."""
    citations: tuple[Citation, ...]
    """Pages that it cites."""
    generation: Generation
    """Details of prompt and reply."""


def answer_from(
    question: str,
    pages: Sequence[GivenPage],
    generator: Generator,
    budget: Budget = USUAL_BUDGET,
    on_text: OnText = ignore_text,
    *,
    prompt: PromptName = "default",
) -> GeneratedAnswer:
    """Answer a question with a generator, from as much of the pages as the budget allows.

    Pages hold images or texts, depending on ``generator.reads``. ``on_text`` is called with each
    piece of the answer's text as soon as it can be shown. The prompt "paper" is that of the paper's
    evaluation. Raises GenerationError if the generator gave no reply.
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
    """Yield the pieces of an answer and return the whole; otherwise the same as `answer_from`.

    Closing the iterator stops the generator.
    """
    request = _Request(question, pages, budget, prompt)
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": generator.name,
        "gen_ai.request.max_tokens": budget.answer_tokens,
    }
    with span(f"chat {generator.name}", attributes) as chat:
        pieces = chat.follow(_stream_request(request, generator, budget, chat))
    return (yield from pieces)


def _stream_request(
    request: _Request, generator: Generator, budget: Budget, chat: Span
) -> abc.Generator[str, None, GeneratedAnswer]:
    started = time.perf_counter()
    answer = AnswerPieces()
    while True:
        sent = request.prompt(generator)
        pieces = stream_reply(generator, sent, max_tokens=budget.answer_tokens)
        try:
            reply = yield from change_pieces(pieces, answer.add)
            break
        except PromptTooLong as error:
            request = request.shortened(error, generator)
    seconds = time.perf_counter() - started
    written = request.answer(sent, reply, generator, seconds)
    chat.set(
        {
            "gen_ai.response.model": reply.model,
            "gen_ai.response.finish_reasons": [written.generation.finish],
            "gen_ai.usage.input_tokens": reply.input_tokens,
            "gen_ai.usage.output_tokens": reply.output_tokens,
        }
    )
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
    """Answer questions, each from its own pages, in batches if the generator supports it.

    A question that fails has its error in place of an answer. All answers have the same
    ``seconds``: the time of the whole call. A prompt that exceeds the model's context is cut, and
    the answer has a note about it.
    """
    requests = [_Request(question, pages, budget, prompt) for question, pages in questions]
    sent = [request.prompt(generator) for request in requests]
    started = time.perf_counter()
    replies = generate_each(generator, sent, max_tokens=budget.answer_tokens)
    for position, reply in enumerate(replies):
        while isinstance(reply, PromptTooLong):
            try:
                requests[position] = requests[position].shortened(reply, generator)
            except PromptTooLong:
                break
            sent[position] = requests[position].prompt(generator)
            (reply,) = generate_each(generator, [sent[position]], max_tokens=budget.answer_tokens)
        replies[position] = reply
    seconds = time.perf_counter() - started
    return [
        request.answer(prompt_sent, reply, generator, seconds)
        if isinstance(reply, Reply)
        else reply
        for request, prompt_sent, reply in zip(requests, sent, replies, strict=True)
    ]


def _compose(
    question: str, pages: Iterable[GivenPage], generator: Generator, name: PromptName
) -> Prompt:
    if name == "paper":
        return paper_prompt(question, pages, generator.reads, model_class_of(generator))
    return answer_prompt(question, pages, cited=name == "cited")


def prompt_digest(generator: Generator, name: PromptName) -> str:
    """Return a digest of a generator's prompt and budget, independent of question and pages."""
    from PIL import Image

    content = Image.new("RGB", (1, 1)) if generator.reads == "images" else ""
    empty = _compose("", [GivenPage("1", "", 1, content)], generator, name)
    return f"{empty.digest} {BUDGETS[name]}"


@dataclass(frozen=True, slots=True)
class _Request:
    """A question about pages, as much of them as a budget and the model's context allow."""

    question: str
    pages: Sequence[GivenPage]
    budget: Budget
    prompt_name: PromptName
    note: str | None = None
    """Note about what was left out to fit the model's context."""

    def prompt(self, generator: Generator) -> Prompt:
        fitted = _fitted(self.pages, generator, self.budget)
        return _compose(self.question, fitted, generator, self.prompt_name)

    def shortened(self, error: PromptTooLong, generator: Generator) -> _Request:
        """Return a copy with less text, or with fewer of the last images.

        Raises the given error if nothing more can be left out.
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
        parsed = parse_answer(reply.text, may_refuse=self.prompt_name != "paper")
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
                finish="complete"
                if reply.complete
                else ("interrupted" if reply.interrupted else "length"),
                well_formed=parsed.well_formed,
                note=self.note,
            ),
        )


def _fitted(
    pages: Sequence[GivenPage], generator: Generator, budget: Budget
) -> Iterator[GivenPage]:
    """Yield pages, cut or scaled to the budget."""
    fitted: Sequence[Image] | Sequence[str]
    if generator.reads == "images":
        images = cast("list[Image]", [page.content for page in pages])
        fitted = fit_pixels(images, budget.pixels)
    else:
        fitted = fit_tokens(_texts(pages), generator.count_tokens, budget.tokens)
    for position, page in enumerate(pages):
        yield replace(page, content=fitted[position])


def _texts(pages: Sequence[GivenPage]) -> list[str]:
    return [str(page.content) for page in pages]


def gather_pages(
    source: PageSource,
    generator: Generator,
    pages: Sequence[tuple[str, int]],
    documents: Sequence[str],
) -> list[GivenPage]:
    """Return pages in the form that a generator reads: text or images.

    ``pages`` has document ids and page numbers from 1. ``documents`` has the ids of all documents
    searched; labels number them in this order. Raises DocumentError if an image is needed and the
    document's file is gone.
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
    """Return the words of a page in reading order, line by line."""
    return "\n".join(" ".join(page.words[i].text for i in line) for line in page.lines())


def quoted_answer(
    found: SearchResult, *, problem: str | None = None, generation: Generation | None = None
) -> abc.Generator[str, None, Answer]:
    """Yield the quotes of an extractive answer, and return the answer.

    If quotes replace a generator's answer, ``problem`` has the reason and ``generation`` the
    details.
    """
    if text := extractive.quote(found.passages) if found.strength != "none" else "":
        yield text
    return Answer(
        text, extractive.NAME, found.passages, found, generation=generation, problem=problem
    )


def written_answer(
    source: PageSource, found: SearchResult, generator: Generator, budget: Budget
) -> abc.Generator[str, None, Answer]:
    """Yield the pieces of a generator's answer from the pages found, and return the answer.

    If the generator fails or its reply breaks off, the answer has quotes instead, and names the
    problem.
    """
    documents = [document.id for document in found.documents]
    given: list[GivenPage] = []
    for hit in found.pages:
        # A document may be removed after the search: answer from the others.
        with suppress(NotInIndex):
            given += gather_pages(source, generator, [(hit.document, hit.page)], documents)
    if not given:
        raise NotInIndex("The documents with these pages have just been removed. Ask again.")
    shown = CitedText()
    try:
        pieces = stream_answer(found.question, given, generator, budget, prompt="cited")
        written = yield from change_pieces(pieces, shown.add)
        if rest := shown.end():
            yield rest
    except GenerationError as error:
        return read_pieces(quoted_answer(found, problem=str(error)), ignore_text)
    if written.generation.finish == "interrupted":
        problem = f"The reply of {generator.name} broke off. Ask again for all of it."
        quotes = quoted_answer(found, problem=problem, generation=written.generation)
        return read_pieces(quotes, ignore_text)
    text = written.text
    if not any(f"[{cited.label}]" in text for cited in written.citations):
        # Some models reply in JSON without being asked to, with a list of pages.
        text += "".join(f" [{cited.label}]" for cited in written.citations)
    labels = {page.label: (page.document, page.number) for page in given}
    numbered, citations = cite(text, labels, source.page)
    return Answer(
        text=numbered,
        generator=generator.name,
        passages=found.passages,
        search=found,
        citations=citations,
        generation=written.generation,
    )
