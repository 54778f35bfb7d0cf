"""What generators make of the pages that methods have chosen."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from visar.errors import VisarError
from visar.evaluation.records import KEYS, Answered, Retrieved, key_of
from visar.generation import extractive
from visar.generation.answering import BUDGETS, GeneratedAnswer, answer_each, gather_pages
from visar.generation.prompts import GivenPage, PromptName
from visar.generation.protocol import Generator
from visar.index import Index
from visar.quotes.choice import find_quotes
from visar.results import SearchResult
from visar.retrieval.search import Searcher
from visar.text import encodable


@dataclass(frozen=True, slots=True)
class AnswerTask:
    """A question to a generator about the pages that a method has chosen."""

    question: str
    document: str
    """Its id in the index."""
    retrieved: Retrieved
    generator: str
    max_k: int
    prompt: PromptName = "default"

    @property
    def blank(self) -> Answered:
        """The record of its answer, without the answer."""
        found = self.retrieved
        return Answered(
            dataset=found.dataset,
            question=found.question,
            encoder=found.encoder,
            method=found.method,
            generator=self.generator,
            max_k=self.max_k,
            pages=found.pages[: self.max_k],
            text="",
            raw="",
            input_tokens=None,
            output_tokens=None,
            seconds=0.0,
            prompt=self.prompt,
        )

    @property
    def input(self) -> tuple[object, ...]:
        """All that its answer depends on."""
        return _input(self.blank, self.question, self.document)

    def record(self, answered: Answered) -> Answered:
        """The record of its answer, which may be that of another task with the same input."""
        return replace(answered, **dict(zip(KEYS[Answered], key_of(self.blank), strict=True)))


class Answerer:
    """Answers tasks; a question that was asked about the same pages before is not asked again.

    ``generators`` do not hold ``extractive``, which quotes. ``encoders`` is what the index knows
    each encoder by: its name, or its address. ``concurrency`` is how many tasks are under way at a
    time, in threads or together; one if it quotes.
    """

    def __init__(
        self,
        index: Index,
        generators: Mapping[str, Generator],
        encoders: Mapping[str, str],
        *,
        concurrency: int = 1,
    ) -> None:
        self._index = index
        self._concurrency = concurrency
        self._generators = generators
        self._encoders = encoders
        self._known: dict[tuple[object, ...], Answered] = {}
        self._last: tuple[tuple[str, str, str], Searcher, SearchResult] | None = None

    def remember(self, answered: Answered, question: str, document: str) -> None:
        """Take an answer for every task with the same question, document and pages."""
        self._known[_input(answered, question, document)] = answered

    def answer(self, tasks: Sequence[AnswerTask]) -> list[Answered | VisarError]:
        """Answer tasks of one generator and prompt, from what is remembered where that is enough.

        In place of an answer stands the error of a task whose pages cannot be shown, or to which
        the generator gives none. Raises VisarError if pages cannot be quoted.
        """
        done: dict[int, Answered | VisarError] = {}
        given: dict[int, tuple[str, list[GivenPage]]] = {}
        generator = self._generators.get(tasks[0].generator)
        for place, task in enumerate(tasks):
            if known := self._known.get(task.input):
                done[place] = known
            elif generator is None:
                text, seconds = self._quote(task, task.blank.pages)
                done[place] = replace(task.blank, text=text, raw=text, seconds=seconds)
            else:
                pages = [(task.document, page) for page in task.blank.pages]
                try:
                    shown = gather_pages(self._index, generator, pages, [task.document])
                except VisarError as error:
                    done[place] = error
                else:
                    given[place] = task.question, shown
        if given and generator is not None:
            prompt = tasks[0].prompt
            written = answer_each(list(given.values()), generator, BUDGETS[prompt], prompt=prompt)
            for place, one in zip(given, written, strict=True):
                done[place] = (
                    one if isinstance(one, VisarError) else self._record(tasks[place], one)
                )
        return [done[place] for place in range(len(tasks))]

    def _record(self, task: AnswerTask, written: GeneratedAnswer) -> Answered:
        generation = written.generation
        return replace(
            task.blank,
            text=encodable(written.text),
            raw=encodable(generation.raw),
            input_tokens=generation.input_tokens,
            output_tokens=generation.output_tokens,
            seconds=generation.seconds,
            model=generation.model,
            concurrency=self._concurrency,
        )

    def _quote(self, task: AnswerTask, pages: Sequence[int]) -> tuple[str, float]:
        """Return the best passages of some pages, and the seconds it took to find them there."""
        key = task.question, task.document, task.retrieved.encoder
        if self._last is None or self._last[0] != key:
            # Tasks of one question come one after another: it is searched for once.
            encoder = self._encoders[task.retrieved.encoder]
            searcher = self._index.searcher([task.document], encoder)
            self._last = key, searcher, searcher.search(task.question)
        _, searcher, found = self._last
        started = time.perf_counter()
        page_ids = [(task.document, page) for page in pages]
        passages = find_quotes(task.question, searcher.weigh(found, page_ids)).quotes(page_ids)
        text = extractive.quote(passages) if found.strength != "none" else ""
        return text, time.perf_counter() - started


def _input(answered: Answered, question: str, document: str) -> tuple[object, ...]:
    """Return all that an answer depends on.

    Question ids are unique within a data set alone. Quotes depend on the encoder's weights; a
    model sees the pages alone.
    """
    encoder = answered.encoder if answered.generator == extractive.NAME else ""
    return answered.generator, answered.prompt, question, document, encoder, answered.pages
