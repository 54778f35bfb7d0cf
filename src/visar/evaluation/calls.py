"""Concurrent calls to models, with counts of failures."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
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
            try:
                return call([group[0] for group in batch])
            except Exception as error:  # raised again by receive
                return [error] * len(batch)

        def receive(batch: Sequence[Sequence[Job]], results: Sequence[Result | Exception]) -> bool:
            nonlocal done
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
                for batch in batches:
                    if not receive(batch, call_with(batch)):
                        break
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


def _in_threads(
    jobs: Iterable[Job],
    call: Callable[[Job], Result],
    receive: Callable[[Job, Result], bool],
    concurrency: int,
) -> None:
    """Run jobs in threads until ``receive``, called in this thread, returns False.

    The threads are daemons, unlike those of an executor, so that after Ctrl-C a call waiting for a
    server doesn't keep the process alive. Otherwise all calls are finished when this returns.
    """
    remaining = iter(jobs)
    running: dict[Future[Result], Job] = {}

    def start(job: Job) -> None:
        future: Future[Result] = Future()
        running[future] = job
        threading.Thread(target=lambda: future.set_result(call(job)), daemon=True).start()

    proceed = True
    try:
        while True:
            for job in islice(remaining, concurrency - len(running) if proceed else 0):
                start(job)
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                proceed = receive(running.pop(future), future.result()) and proceed
    except BaseException:
        # Keep the results that are already available.
        for future in [future for future in running if future.done()]:
            receive(running[future], future.result())
        raise
