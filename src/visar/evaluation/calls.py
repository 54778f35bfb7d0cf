"""Concurrent calls to models, with counts of failures."""

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

MAX_FAILURES = 5
"""Number of consecutive failures after which a run stops calling a model."""

Job = TypeVar("Job")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Pace:
    """The number of jobs that a model gets at a time."""

    threads: int = 1
    """The number of concurrent calls."""
    batch: int = 1
    """The number of jobs per call."""


ONE_BY_ONE = Pace()


def group_by(jobs: Iterable[Job], key: Callable[[Job], Hashable]) -> list[list[Job]]:
    """Group jobs by key, in the order of each group's first job."""
    groups: dict[Hashable, list[Job]] = {}
    for job in jobs:
        groups.setdefault(key(job), []).append(job)
    return list(groups.values())


class ModelCalls:
    """Calls to models, with the number of failures of each model.

    ``progress`` is called with a stage, the number of completed jobs, and the number of all jobs.
    """

    def __init__(self, progress: Callable[[str, int, int], None]) -> None:
        self._progress = progress
        self._consecutive_failures: Counter[str] = Counter()
        self._total_failures: Counter[str] = Counter()
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
        """Call a model once per group of jobs, until all are done or it fails too often.

        All jobs of a group share one result. If this thread is interrupted, available results are
        kept and calls in progress are abandoned.

        Parameters
        ----------
        stage, model
            Names for progress and failures.
        groups
            Groups of jobs.
        call
            Function of a batch with the first job of some groups; returns a result or an error for
            each. It runs in threads if the pace has several.
        keep
            Function called in this thread with a group and its result, once it is available.
        question
            Function that returns the question id of a job, for the log.
        pace
            Number of jobs at a time.
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
            return self._consecutive_failures[model] < MAX_FAILURES

        if groups and self._consecutive_failures[model] < MAX_FAILURES:
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
        """Count a model's error on a question and suppress it."""
        try:
            yield
        except kind as error:
            _logger.warning("%s, %s: %s", model, question, error)
            self._total_failures[model] += 1
            self._reasons[model] = str(error)
            # A missing document isn't the model's failure.
            self._consecutive_failures[model] += not isinstance(error, DocumentError)
        else:
            self._consecutive_failures[model] = 0

    def failures(self) -> dict[str, str]:
        """Return the number of failed calls to each model, and the last reason."""
        return {
            model: f"{counted(times, 'time')}, last: {self._reasons[model]}"
            for model, times in self._total_failures.items()
        }


def _result_of(call: Callable[[Job], Result], job: Job) -> Result | Exception:
    try:
        return call(job)
    except Exception as error:  # raised again by the receiver
        return error


def _in_turn(
    jobs: Iterable[Job],
    call: Callable[[Job], Result],
    receive: Callable[[Job, Result | Exception], bool],
) -> None:
    """Run jobs one by one until ``receive`` returns False."""
    for job in jobs:
        if not receive(job, _result_of(call, job)):
            return


def _in_threads(
    jobs: Sequence[Job],
    call: Callable[[Job], Result],
    receive: Callable[[Job, Result | Exception], bool],
    concurrency: int,
) -> None:
    """Run jobs in threads until ``receive``, called in this thread, returns False.

    The threads are daemons, so that after Ctrl-C a call waiting for a server doesn't keep the
    process alive. Otherwise all calls are finished when this returns.
    """
    concurrency = min(concurrency, len(jobs))
    remaining = iter(jobs)
    pending: SimpleQueue[Job | None] = SimpleQueue()
    finished: SimpleQueue[tuple[Job, Result | Exception]] = SimpleQueue()

    def work() -> None:
        while (job := pending.get()) is not None:
            finished.put((job, _result_of(call, job)))

    def submit(count: int) -> int:
        jobs = list(islice(remaining, count))
        for job in jobs:
            pending.put(job)
        return len(jobs)

    for _ in range(concurrency):
        threading.Thread(target=work, daemon=True).start()
    try:
        running = submit(concurrency)
        proceed = True
        while running:
            result = finished.get()
            proceed = receive(*result) and proceed
            # Submit one job per finished job, so that a failing model gets no further calls.
            running += submit(1 if proceed else 0) - 1
    except BaseException:
        # Keep the results that are already available.
        for _ in range(finished.qsize()):
            receive(*finished.get())
        raise
    finally:
        for _ in range(concurrency):
            pending.put(None)
