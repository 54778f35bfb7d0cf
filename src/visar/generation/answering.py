"""From found pages to an answer: what is sent, what came back, and what it cites."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from visar.documents.page import Page
from visar.errors import InvalidOption
from visar.generation.budgets import MAX_PIXELS, MAX_TOKENS, fit_pixels, fit_tokens
from visar.generation.parsing import ParsedAnswer, parse_answer
from visar.generation.prompts import GivenPage, answer_prompt
from visar.generation.protocol import Generator, OnText, Prompt, unheard
from visar.results import Citation, Generation

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How much a generator is given and may write."""

    pixels: int = MAX_PIXELS
    """Of all page images together."""
    tokens: int = MAX_TOKENS
    """Of all page texts together, for generators that read text."""
    answer_tokens: int = 512

    def __post_init__(self) -> None:
        for name in ("pixels", "tokens", "answer_tokens"):
            if (value := getattr(self, name)) < 1:
                raise InvalidOption(f"The budget of {name} must be at least 1, not {value}.")


USUAL_BUDGET = Budget()


@dataclass(frozen=True, slots=True)
class GeneratedAnswer:
    """What a generator made of pages and a question."""

    text: str
    """Empty if it says that the pages do not hold the answer."""
    citations: tuple[Citation, ...]
    generation: Generation


def answer_from(
    question: str,
    pages: Sequence[GivenPage],
    generator: Generator,
    budget: Budget = USUAL_BUDGET,
    on_text: OnText = unheard,
) -> GeneratedAnswer:
    """Ask a generator about pages, as much of them as the budget allows."""
    prompt = answer_prompt(question, _within(budget, pages, generator))
    started = time.perf_counter()
    reply = generator.generate(prompt, max_tokens=budget.answer_tokens, on_text=on_text)
    seconds = time.perf_counter() - started
    parsed = parse_answer(reply.text)
    return GeneratedAnswer(
        text=parsed.text,
        citations=_citations(parsed, pages),
        generation=Generation(
            model=reply.model,
            prompt_sha256=prompt.digest,
            pages=tuple(page.label for page in pages),
            pixels=prompt.pixels,
            text_tokens=_text_tokens(prompt, generator),
            input_tokens=reply.input_tokens,
            output_tokens=reply.output_tokens,
            seconds=seconds,
            raw=reply.text,
            complete=reply.complete,
            well_formed=parsed.well_formed,
        ),
    )


def page_text(page: Page) -> str:
    """A page's words, a line of the page on a line, in reading order."""
    return "\n".join(" ".join(page.words[i].text for i in line) for line in page.lines())


def _within(budget: Budget, pages: Sequence[GivenPage], generator: Generator) -> list[GivenPage]:
    contents = [page.content for page in pages]
    if generator.reads == "images":
        images = fit_pixels(cast("list[Image]", contents), budget.pixels)
        return [replace(page, content=image) for page, image in zip(pages, images, strict=True)]
    texts = fit_tokens(cast("list[str]", contents), generator.count_tokens, budget.tokens)
    return [replace(page, content=text) for page, text in zip(pages, texts, strict=True)]


def _text_tokens(prompt: Prompt, generator: Generator) -> int:
    texts = [part for part in prompt.parts if isinstance(part, str)]
    return sum(generator.count_tokens(text) for text in (prompt.system, *texts))


def _citations(parsed: ParsedAnswer, pages: Sequence[GivenPage]) -> tuple[Citation, ...]:
    """The pages an answer names; one that it was not given is marked as such."""
    given = {page.label: page for page in pages}
    return tuple(
        Citation(label, given[label].document, given[label].number)
        if label in given
        else Citation(label, None, None)
        for label in parsed.pages
    )
