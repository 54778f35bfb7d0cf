"""Run methods on the questions of a run, in parallel on all cores."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import groupby
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait

from threadpoolctl import threadpool_limits

from visar.core import PageVectors
from visar.core.vectors import Float32, Float64, Integers
from visar.errors import VisarError
from visar.evaluation.methods import TimedPages, find_methods
from visar.evaluation.records import QuestionRecord, RetrievalRecord
from visar.models.devices import usable_cores
from visar.results import EncoderRef
from visar.retrieval.calibration import best_cosine, find_calibration
from visar.retrieval.methods import DocumentPages, Method
from visar.store import Store, open_store, storage_options

# Up to this many tasks finish faster without starting other processes.
FEW = 8
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class Task:
    """A question for which methods choose pages."""

    asked: QuestionRecord
    document: str
    """The document's id in the index."""
    encoder: EncoderRef
    query: Float32
    methods: tuple[str, ...]
    depth: int
    """The number of pages of a ranking to store."""
    invalid_pages: int = 0
    """The number of pages without vectors."""
    alone: bool = False
    """True to run it with all cores and no concurrent tasks, to measure latencies."""


@dataclass(frozen=True, slots=True, eq=False)
class SearchResult:
    """The pages that methods chose for a question, and the values needed for quotes."""

    asked: QuestionRecord
    retrieved: list[RetrievalRecord]
    query: Float32
    token_weights: Float64
    match: float
    """The cosine of the question with its best page."""


def run_tasks(
    location: str,
    tasks: Sequence[Task],
    keep: Callable[[SearchResult], None],
    *,
    ray: str | None = None,
) -> None:
    """Run methods on the documents of an index, using all cores.

    Raises VisarError if a method fails. Completed tasks are kept.

    Parameters
    ----------
    location
        Location of the index.
    tasks
        Tasks, sorted by document, because each process caches the current document.
    keep
        Function called with each result as soon as it is available.
    ray
        Address of a cluster to run the tasks on.
    """
    if len(tasks) <= FEW or tasks[0].alone:
        _open(location)
        try:
            _run_here(tasks, keep)
        finally:
            _close()
    elif ray is not None:
        _run_on_cluster(ray, location, tasks, keep)
    else:
        _run_in_processes(location, tasks, keep)


def _run_here(tasks: Sequence[Task], keep: Callable[[SearchResult], None]) -> None:
    document = None
    for task in tasks:
        if task.alone and task.document != document:
            # Warm up: the first call fills caches and may import packages.
            _run_task(task)
            document = task.document
        keep(_run_task(task))


def _run_in_processes(
    location: str, tasks: Sequence[Task], keep: Callable[[SearchResult], None]
) -> None:
    context = get_context("spawn")
    with ProcessPoolExecutor(usable_cores(), context, _start_worker, (location,)) as pool:
        futures = [pool.submit(_run_task, task) for task in tasks]
        try:
            for future in as_completed(futures):
                keep(future.result())
        except BrokenProcessPool as error:
            raise VisarError(
                "A worker process died, probably because memory ran out. Results so far are kept. "
                "Re-run the same command to resume, with fewer cores (taskset) if it happens again."
            ) from error
        except BaseException:
            workers = list((pool._processes or {}).values())  # noqa: SLF001 - there is no public API
            pool.shutdown(wait=False, cancel_futures=True)
            for process in workers:
                process.terminate()
            raise


def _run_on_cluster(
    ray: str, location: str, tasks: Sequence[Task], keep: Callable[[SearchResult], None]
) -> None:
    from visar.ingest.ray_cluster import RayCluster

    groups: list[Sequence[Task]] = []
    for _, group in groupby(tasks, key=lambda task: task.document):
        of_document = tuple(group)
        groups += [of_document[start : start + FEW] for start in range(0, len(of_document), FEW)]
    # Pass storage options explicitly, because other machines have a different environment.
    run = partial(_run_group, location, storage_options())
    with RayCluster(ray) as cluster:
        cluster.check_location(location)
        for results in cluster.map(run, groups):
            for result in results:
                keep(result)


def _run_group(
    location: str, options: Mapping[str, str], tasks: Sequence[Task]
) -> list[SearchResult]:
    """Run tasks about one document on another machine."""
    if _store is None or _store.location != location:
        threadpool_limits(1)
        _open(location, options)
    return [_run_task(task) for task in tasks]


_store: Store | None = None


def _start_worker(location: str) -> None:
    """Initialize a single-threaded process of the pool.

    It exits when its parent process ends for any reason, and leaves Ctrl-C to the parent.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_exit_with, args=(parent.sentinel,), daemon=True).start()
    # The variables are for libraries loaded later, threadpool_limits for those already loaded.
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    threadpool_limits(1)
    _open(location)


def _exit_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


def _open(location: str, options: Mapping[str, str] | None = None) -> None:
    global _store
    _close()
    _store = open_store(location, create=False, options=options)


def _close() -> None:
    global _store
    _pages.cache_clear()
    if _store is not None:
        _store.close()
        _store = None


@lru_cache(maxsize=2)
def _pages(document: str, encoder: EncoderRef) -> DocumentPages:
    assert _store is not None  # noqa: S101 - _open was called
    found = _store.vectors(document, encoder)
    return DocumentPages(PageVectors(found.vectors, found.offsets))


_methods = lru_cache(maxsize=8)(find_methods)


def _run_task(task: Task) -> SearchResult:
    asked = task.asked
    evidence = [page - 1 for page in asked.evidence_pages]
    pages = TimedPages(
        task.query,
        _pages(task.document, task.encoder),
        evidence=evidence,
        calibration=find_calibration(task.encoder),
    )
    retrieved = [_record(task, method, pages) for method in _methods(task.methods, task.depth)]
    relevance = pages.relevance
    match = best_cosine(relevance)
    return SearchResult(asked, retrieved, task.query, relevance.token_weights, match)


def _record(task: Task, method: Method, pages: TimedPages) -> RetrievalRecord:
    asked = task.asked
    result = pages.run(method)
    return RetrievalRecord(
        dataset=asked.dataset,
        question=asked.question,
        encoder=task.encoder.name,
        method=method.name,
        k=int(result.k),
        pages=_numbers(result.pages),
        ranking=_numbers(result.ranking[: task.depth]),
        sparsity=None if result.sparsity is None else float(result.sparsity),
        seconds={stage: float(seconds) for stage, seconds in result.seconds.items()},
        invalid_pages=task.invalid_pages,
        alone=task.alone,
        paper_sparsity=result.paper_sparsity,
    )


def _numbers(pages: Integers) -> tuple[int, ...]:
    return tuple(int(page) + 1 for page in pages)
