"""What generators make of the pages that methods have chosen."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from visar.errors import GenerationError, VisarError
from visar.evaluation.records import KEYS, Answered, Retrieved, key_of
from visar.generation import extractive
from visar.generation.answering import BUDGETS, answer_from, gather_pages
from visar.generation.prompts import PromptName
from visar.generation.protocol import Generator
from visar.index import Index
from visar.results import SearchResult
from visar.retrieval.quotes import choose_quotes
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
    each encoder by: its name, or its address. ``concurrency`` threads share it; one if it quotes.
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

    def answer(self, task: AnswerTask) -> Answered:
        """Answer a task, from what is remembered if that is enough.

        Raises VisarError if the generator fails, or a page cannot be shown to it.
        """
        return self._known.get(task.input) or self._generate(task, task.blank)

    def _generate(self, task: AnswerTask, blank: Answered) -> Answered:
        if task.generator == extractive.NAME:
            text, seconds = self._quote(task, blank.pages)
            return replace(blank, text=text, raw=text, seconds=seconds)
        generator = self._generators[task.generator]
        pages = [(task.document, page) for page in blank.pages]
        given = gather_pages(self._index, generator, pages, [task.document])
        try:
            budget = BUDGETS[task.prompt]
            written = answer_from(task.question, given, generator, budget, prompt=task.prompt)
        except VisarError:
            raise
        except Exception as error:  # a foreign generator can fail in any way
            raise GenerationError(
                f"{generator.name} failed while answering: {type(error).__name__}: {error}."
            ) from error
        generation = written.generation
        return replace(
            blank,
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
        positions = [page - 1 for page in pages]
        weighted = searcher.weigh(task.question, found.selection, positions)
        passages, _ = choose_quotes(task.question, weighted)
        text = extractive.quote(passages) if found.strength != "none" else ""
        return text, time.perf_counter() - started


def _input(answered: Answered, question: str, document: str) -> tuple[object, ...]:
    """Return all that an answer depends on.

    Question ids are unique within a data set alone. Quotes depend on the encoder's weights; a
    model sees the pages alone.
    """
    encoder = answered.encoder if answered.generator == extractive.NAME else ""
    return answered.generator, answered.prompt, question, document, encoder, answered.pages
