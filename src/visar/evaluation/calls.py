"""Calls to models: some at a time, their results kept one by one, their failures counted."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from queue import SimpleQueue
from typing import TypeVar

from visar.errors import DocumentError, VisarError
from visar.text import counted

_logger = logging.getLogger(__name__)

MOST_FAILURES = 5
"""A model that fails this often in a row is not called again by the same run."""

Job = TypeVar("Job")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Pace:
    """How many jobs a model is given at a time."""

    threads: int = 1
    """Calls that run at a time."""
    batch: int = 1
    """Jobs of one call."""


ONE_BY_ONE = Pace()


def group_by(jobs: Iterable[Job], key: Callable[[Job], Hashable]) -> list[list[Job]]:
    """Return jobs with the same key together, in the order of the first of each."""
    groups: dict[Hashable, list[Job]] = {}
    for job in jobs:
        groups.setdefault(key(job), []).append(job)
    return list(groups.values())


class ModelCalls:
    """Calls models and counts, for each, the calls that fail.

    ``progress`` is called with a stage, how many of its jobs are done, and how many there are.
    """

    def __init__(self, progress: Callable[[str, int, int], None]) -> None:
        self._progress = progress
        self._in_a_row: Counter[str] = Counter()
        self._in_all: Counter[str] = Counter()
        self._reasons: dict[str, str] = {}

    def make(
        self,
        stage: str,
        model: str,
        groups: Sequence[Sequence[Job]],
        call: Callable[[Sequence[Job]], Sequence[Result | Exception]],
        keep: Callable[[Sequence[Job], Result], None],
        *,
        question: Callable[[Job], str],
        pace: Pace = ONE_BY_ONE,
    ) -> None:
        """Call a model once for each group of jobs, until all are done or it fails too often.

        Parameters
        ----------
        stage, model
            For progress and failures.
        groups
            Jobs to which the model's result is the same.
        call
            Calls the model with the first jobs of some groups; returns a result or an error for
            each. Runs in threads if the pace has several.
        keep
            Called in this thread with a group and its result, as soon as that is there. If this
            thread is interrupted, what has arrived is kept, and nobody waits for the rest.
        question
            Gives the id of a job's question, for the log.
        pace
            How many groups are under way at a time.
        """
        total = sum(map(len, groups))
        done = 0

        def call_with(batch: Sequence[Sequence[Job]]) -> Sequence[Result | Exception]:
            return call([group[0] for group in batch])

        def receive(
            batch: Sequence[Sequence[Job]], results: Sequence[Result | Exception] | Exception
        ) -> bool:
            nonlocal done
            if isinstance(results, Exception):
                results = [results] * len(batch)
            for group, result in zip(batch, results, strict=True):
                with self.caught(model, question(group[0])):
                    if isinstance(result, Exception):
                        raise result
                    keep(group, result)
                done += len(group)
            self._progress(stage, done, total)
            return self._in_a_row[model] < MOST_FAILURES

        if groups and self._in_a_row[model] < MOST_FAILURES:
            self._progress(stage, 0, total)
            batches = [groups[at : at + pace.batch] for at in range(0, len(groups), pace.batch)]
            if pace.threads == 1:
                _in_turn(batches, call_with, receive)
            else:
                _in_threads(batches, call_with, receive, pace.threads)
            self._progress(stage, total, total)

    @contextmanager
    def caught(
        self, model: str, question: str, kind: type[VisarError] = VisarError
    ) -> Iterator[None]:
        """Count an error that a model meets with a question, and go on."""
        try:
            yield
        except kind as error:
            _logger.warning("%s, %s: %s", model, question, error)
            self._in_all[model] += 1
            self._reasons[model] = str(error)
            # A document whose file is gone says nothing about the model.
            self._in_a_row[model] += not isinstance(error, DocumentError)
        else:
            self._in_a_row[model] = 0

    def failures(self) -> dict[str, str]:
        """Return how often calls to each model failed, and the last reason."""
        return {
            model: f"{counted(times, 'time')}, last: {self._reasons[model]}"
            for model, times in self._in_all.items()
        }


def _result_of(call: Callable[[Job], Result], job: Job) -> Result | Exception:
    try:
        return call(job)
    except Exception as error:  # raised again where it is received
        return error


def _in_turn(
    jobs: Iterable[Job],
    call: Callable[[Job], Result],
    receive: Callable[[Job, Result | Exception], bool],
) -> None:
    """Call with one job after another, until ``receive`` returns False."""
    for job in jobs:
        if not receive(job, _result_of(call, job)):
            return


def _in_threads(
    jobs: Sequence[Job],
    call: Callable[[Job], Result],
    receive: Callable[[Job, Result | Exception], bool],
    concurrency: int,
) -> None:
    """Call with some jobs at a time, until ``receive``, called in this thread, returns False.

    The threads are daemons: after Ctrl-C a call that waits for a server does not keep the process
    from ending. Otherwise no call is under way when this returns.
    """
    concurrency = min(concurrency, len(jobs))
    remaining = iter(jobs)
    given: SimpleQueue[Job | None] = SimpleQueue()
    arrived: SimpleQueue[tuple[Job, Result | Exception]] = SimpleQueue()

    def work() -> None:
        while (job := given.get()) is not None:
            arrived.put((job, _result_of(call, job)))

    def give(most: int) -> int:
        jobs = list(islice(remaining, most))
        for job in jobs:
            given.put(job)
        return len(jobs)

    for _ in range(concurrency):
        threading.Thread(target=work, daemon=True).start()
    try:
        under_way = give(concurrency)
        more = True
        while under_way:
            found = arrived.get()
            more = receive(*found) and more
            # One for each that came back: a model that fails is asked no more than that.
            under_way += give(1 if more else 0) - 1
    except BaseException:
        # What has arrived meanwhile is kept.
        for _ in range(arrived.qsize()):
            receive(*arrived.get())
        raise
    finally:
        for _ in range(concurrency):
            given.put(None)
