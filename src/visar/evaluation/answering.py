"""The third step of a run: what generators make of the pages that were chosen."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from visar.evaluation.methods import METHODS
from visar.evaluation.records import KEYS, Answered, Retrieved, key_of
from visar.generation import extractive
from visar.generation.answering import answer_from
from visar.generation.protocol import Generator
from visar.index import Index
from visar.results import SearchResult
from visar.retrieval.passages import best_passages
from visar.retrieval.search import Searcher
from visar.store import StoredDocument


def is_answered(method: str) -> bool:
    """Whether answers from a method's pages are in any of the paper's tables.

    The oracle knows the evidence, the approximation chooses the same pages, and sweeps and weights
    are about ranking.
    """
    known = METHODS[method]
    if known.group == "ablation":
        return known.scores == "s_p"
    return known.group == "main" and method not in ("oracle", "visar-approx")


@dataclass(frozen=True, slots=True)
class AnswerTask:
    """A question to a generator about the pages that a method has chosen."""

    text: str
    document: StoredDocument
    retrieved: Retrieved
    generator: str
    max_k: int

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
        )


class Answers:
    """Answers tasks; what was asked with the same pages before is not asked again."""

    def __init__(
        self, index: Index, generators: Mapping[str, Generator], known: Iterable[Answered]
    ) -> None:
        """``generators`` by their names; ``extractive`` is none of them, and quotes."""
        self._index = index
        self._generators = generators
        self._quoter = _Quoter(index)
        self._known = {_what_decides(answered): answered for answered in known}

    def answer(self, task: AnswerTask) -> Answered:
        """Answer a task, from what is known if it decides it."""
        blank = task.blank
        key = _what_decides(blank)
        if key not in self._known:
            self._known[key] = self._anew(task, blank)
        known = self._known[key]
        return replace(known, **dict(zip(KEYS[Answered], key_of(blank), strict=True)))

    def _anew(self, task: AnswerTask, blank: Answered) -> Answered:
        if task.generator == extractive.NAME:
            text, seconds = self._quoter.quote(task, blank.pages)
            return replace(blank, text=text, raw=text, seconds=seconds)
        generator = self._generators[task.generator]
        document = task.document.id
        pages = [(document, page) for page in blank.pages]
        given = self._index.given_pages(generator, pages, [document])
        written = answer_from(task.text, given, generator)
        sent = written.generation
        return replace(
            blank,
            text=written.text,
            raw=sent.raw,
            input_tokens=sent.input_tokens,
            output_tokens=sent.output_tokens,
            seconds=sent.seconds,
            model=sent.model,
        )


class _Quoter:
    """Quotes pages. Tasks of one question come one after another: it is searched for once."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._last: tuple[tuple[str, str, str], Searcher, SearchResult] | None = None

    def quote(self, task: AnswerTask, pages: Sequence[int]) -> tuple[str, float]:
        """The best passages of some pages, and the seconds it took to find them there."""
        key = task.text, task.document.id, task.retrieved.encoder
        if self._last is None or self._last[0] != key:
            searcher = self._index.searcher([task.document.id], task.retrieved.encoder)
            self._last = key, searcher, searcher.search(task.text)
        _, searcher, found = self._last
        started = time.perf_counter()
        positions = [page - 1 for page in pages]
        passages = best_passages(searcher.weigh(found.selection, positions))
        text = extractive.quote(passages) if found.strength != "none" else ""
        return text, time.perf_counter() - started


def _what_decides(answered: Answered) -> tuple[object, ...]:
    """Quotes depend on the encoder's weights; a model sees the pages alone."""
    encoder = answered.encoder if answered.generator == extractive.NAME else ""
    return answered.generator, answered.question, encoder, answered.pages
