"""Concurrent calls to models: no results are lost, and failures don't stop the run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visar.errors import DocumentError, GenerationError
from visar.evaluation.calls import MAX_FAILURES, ModelCalls, Pace


def fail_at(failing: Sequence[int], job: int) -> int:
    if job in failing:
        raise GenerationError(f"no answer to {job}.")
    return 10 * job


def each(call: Callable[[int], Any]) -> Callable[[Sequence[int]], list[Any]]:
    """Return a batch function that calls a function for each job."""
    return lambda jobs: [call(job) for job in jobs]


def make(
    calls: ModelCalls, jobs: Sequence[int], call: Callable[[int], int], threads: int
) -> dict[int, int]:
    """Run a call for each job; return the results that were kept."""
    kept: dict[int, int] = {}

    def keep(group: Sequence[int], result: int) -> None:
        kept.update(dict.fromkeys(group, result))

    groups = [[job] for job in jobs]
    pace = Pace(threads=threads)
    calls.make("answers", "m", groups, each(call), keep, question=str, pace=pace)
    return kept


@given(
    st.integers(1, 30), st.sets(st.integers(0, 29), max_size=MAX_FAILURES - 1), st.integers(1, 6)
)
def test_every_job_is_kept_or_fails(jobs: int, failing: set[int], concurrency: int) -> None:
    told: list[tuple[int, int]] = []
    calls = ModelCalls(lambda _, done, total: told.append((done, total)))
    kept = make(calls, range(jobs), lambda job: fail_at(list(failing), job), concurrency)
    fails = [job for job in range(jobs) if job in failing]
    assert kept == {job: 10 * job for job in range(jobs) if job not in failing}
    assert [reason.split(",")[0].split(" ")[0] for reason in calls.failures().values()] == (
        [str(len(fails))] if fails else []
    )
    assert told[0] == (0, jobs)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1] == (jobs, jobs)


def test_a_group_of_jobs_is_one_call() -> None:
    groups = [[1, 11], [12, 2], [3]]
    called: list[int] = []
    kept: list[list[int]] = []
    ModelCalls(lambda *_: None).make(
        *("answers", "m", groups, each(called.append)),
        lambda group, _: kept.append(list(group)),
        question=str,
        pace=Pace(threads=3),
    )
    assert sorted(called) == [1, 3, 12]
    assert sorted(kept) == sorted(groups)


def test_the_requested_number_of_calls_run_concurrently() -> None:
    # No call proceeds before three have started.
    barrier = threading.Barrier(3)

    def call(job: int) -> int:
        barrier.wait(60)
        return job

    assert len(make(ModelCalls(lambda *_: None), range(6), call, 3)) == 6


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_model_that_always_fails_is_no_longer_called(concurrency: int) -> None:
    called: list[int] = []

    def call(job: int) -> int:
        called.append(job)
        raise GenerationError("never.")

    calls = ModelCalls(lambda *_: None)
    assert make(calls, range(50), call, concurrency) == {}
    # Calls that were already running may also have failed.
    assert MAX_FAILURES <= len(called) < MAX_FAILURES + concurrency
    assert make(calls, range(50), call, concurrency) == {}
    assert len(called) < MAX_FAILURES + concurrency


def test_missing_documents_do_not_count_as_failures_of_the_model() -> None:
    def call(job: int) -> int:
        if job < 2 * MAX_FAILURES:
            raise DocumentError("gone.pdf", "does not exist any more")
        return job

    kept = make(ModelCalls(lambda *_: None), range(12), call, 2)
    assert sorted(kept) == [10, 11]


def test_an_interruption_keeps_available_results_without_waiting() -> None:
    answered, over = threading.Semaphore(0), threading.Event()
    late: list[int] = []
    kept: list[int] = []

    def call(job: int) -> int:
        if job == 2:
            over.wait(60)
            late.append(job)
        answered.release()
        return job

    def progress(_: str, done: int, __: int) -> None:
        if done == 1:
            # Both 0 and 1 are finished: one was kept, the other is in the queue.
            answered.acquire(timeout=60)
            answered.acquire(timeout=60)
            time.sleep(0.5)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ModelCalls(progress).make(
            *("answers", "m", [[0], [1], [2], [3]], each(call)),
            lambda group, _: kept.extend(group),
            question=str,
            pace=Pace(threads=3),
        )
    assert late == []
    over.set()
    assert sorted(kept) == [0, 1]


@pytest.mark.parametrize("concurrency", [1, 3])
def test_an_error_of_the_program_is_raised(concurrency: int) -> None:
    def call(job: int) -> int:
        return [0, 1][job]

    with pytest.raises(IndexError):
        make(ModelCalls(lambda *_: None), range(4), call, concurrency)


@given(st.integers(1, 30), st.sets(st.integers(0, 29)), st.integers(2, 6))
def test_one_job_of_a_batch_fails_alone(jobs: int, failing: set[int], batch: int) -> None:
    sizes: list[int] = []
    failing -= set(range(0, 30, 3))  # never five in a row

    def call(batch: Sequence[int]) -> list[int | Exception]:
        sizes.append(len(batch))
        return [GenerationError("no.") if job in failing else 10 * job for job in batch]

    kept: list[int] = []
    groups = [[job] for job in range(jobs)]
    calls = ModelCalls(lambda *_: None)
    calls.make(
        *("answers", "m", groups, call),
        lambda group, result: kept.append(result - 9 * group[0]),
        question=str,
        pace=Pace(batch=batch),
    )
    assert kept == [job for job in range(jobs) if job not in failing]
    assert sizes == [batch] * (jobs // batch) + [jobs % batch] * bool(jobs % batch)


def test_a_failing_batch_counts_as_a_failure_of_each_job() -> None:
    called: list[list[int]] = []

    def call(batch: Sequence[int]) -> list[int]:
        called.append(list(batch))
        raise GenerationError("never.")

    calls = ModelCalls(lambda *_: None)
    groups = [[job] for job in range(20)]
    calls.make(*("judging", "m", groups, call), lambda *_: None, question=str, pace=Pace(batch=3))
    assert called == [[0, 1, 2], [3, 4, 5]]
    assert calls.failures() == {"m": "6 times, last: never."}
