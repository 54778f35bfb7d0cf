"""Answers from the pages that methods have chosen: quotes, or those a generator writes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from visar.errors import VisarError
from visar.evaluation.records import Answered
from visar.evaluation.workers import Searched
from visar.generation import extractive
from visar.generation.answering import BUDGETS, GeneratedAnswer, answer_each, gather_pages
from visar.generation.prompts import GivenPage, PromptName
from visar.generation.protocol import Generator
from visar.index import Index
from visar.quotes.choice import find_quotes
from visar.retrieval.search import Searcher
from visar.text import encodable


@dataclass(frozen=True, slots=True)
class AnswerTask:
    """A question to answer from the pages that a method has chosen."""

    question: str
    document: str
    """The document's id in the index."""
    blank: Answered
    """The record of its answer, without the answer."""
    prompt: PromptName = "default"


def write_answers(
    tasks: Sequence[AnswerTask], index: Index, generator: Generator, *, concurrency: int = 1
) -> list[Answered | VisarError]:
    """Have a generator answer tasks with the same prompt.

    In place of an answer stands the error of a task whose pages cannot be shown, or which the
    generator fails to answer. ``concurrency`` is the number of tasks under way at a time.
    """
    done: dict[int, Answered | VisarError] = {}
    given: dict[int, tuple[str, list[GivenPage]]] = {}
    for position, task in enumerate(tasks):
        pages = [(task.document, page) for page in task.blank.pages]
        try:
            shown = gather_pages(index, generator, pages, [task.document])
        except VisarError as error:
            done[position] = error
        else:
            given[position] = task.question, shown
    if given:
        prompt = tasks[0].prompt
        written = answer_each(list(given.values()), generator, BUDGETS[prompt], prompt=prompt)
        for position, one in zip(given, written, strict=True):
            blank = tasks[position].blank
            done[position] = (
                one if isinstance(one, VisarError) else _written(blank, one, concurrency)
            )
    return [done[position] for position in range(len(tasks))]


def _written(blank: Answered, answer: GeneratedAnswer, concurrency: int) -> Answered:
    generation = answer.generation
    return replace(
        blank,
        text=encodable(answer.text),
        raw=encodable(generation.raw),
        input_tokens=generation.input_tokens,
        output_tokens=generation.output_tokens,
        seconds=generation.seconds,
        model=generation.model,
        concurrency=concurrency,
    )


def quote_answer(task: AnswerTask, searcher: Searcher, searched: Searched) -> Answered:
    """Answer a task with the best passages of its pages."""
    started = time.perf_counter()
    page_ids = [(task.document, page) for page in task.blank.pages]
    weighted = searcher.weigh(searched.query, searched.token_weights, page_ids)
    passages = find_quotes(task.question, weighted).quotes(page_ids)
    pages = [one.page for one in weighted]
    strength = searcher.strength(task.question, searched.match, pages, quoted=bool(passages))
    text = extractive.quote(passages) if strength != "none" else ""
    return replace(task.blank, text=text, raw=text, seconds=time.perf_counter() - started)
