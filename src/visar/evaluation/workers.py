"""Which pages each method chooses for the questions of a run, on all cores."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait

from threadpoolctl import threadpool_limits

from visar.core import PageVectors
from visar.core.vectors import Float32, Float64, Integers
from visar.errors import VisarError
from visar.evaluation.methods import TimedPages, find_methods
from visar.evaluation.records import Asked, Retrieved
from visar.models.devices import usable_cores
from visar.results import EncoderRef
from visar.retrieval.calibration import best_cosine, find_calibration
from visar.retrieval.methods import DocumentPages, Method
from visar.store import Store, open_store, storage_options

# So few tasks are done before other processes have started.
FEW = 8
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class Task:
    """A question for which some methods are to choose pages."""

    asked: Asked
    document: str
    """Its id in the index."""
    encoder: EncoderRef
    query: Float32
    methods: tuple[str, ...]
    depth: int
    """How many pages are kept of a ranking."""
    invalid_pages: int = 0
    """Pages of the document that the encoder gave no vectors for."""


@dataclass(frozen=True, slots=True, eq=False)
class Searched:
    """The pages that methods chose for a question, and what its quotes need."""

    asked: Asked
    retrieved: list[Retrieved]
    query: Float32
    token_weights: Float64
    match: float
    """Cosine of the question with its best page."""


def retrieve(
    location: str,
    tasks: Sequence[Task],
    keep: Callable[[Searched], None],
    progress: Callable[[int, int], None],
    *,
    alone: bool = False,
    ray: str | None = None,
) -> None:
    """Let methods choose pages of the documents of an index, on all cores.

    Tasks of one document should stand together: each process reads a document once for them.
    ``keep`` is called with the result of each task as soon as it is there, ``progress`` with
    how many tasks are done, and how many there are. ``alone`` is for latencies: one task after
    another, each with all cores of this machine. ``ray`` is the address of a cluster whose cores do
    the rest. Raises VisarError if a method fails; tasks that are done are kept.
    """
    if not tasks:
        return
    progress(0, len(tasks))
    if alone or len(tasks) <= FEW:
        _open(location)
        document = None
        for done, task in enumerate(tasks, start=1):
            if alone and task.document != document:
                # Once uncounted: the first call finds nothing in the caches, and may import a
                # package.
                _carry_out(task)
                document = task.document
            found = _carry_out(task)
            keep(replace(found, retrieved=[replace(one, alone=alone) for one in found.retrieved]))
            progress(done, len(tasks))
        _close()
        return
    if ray is not None:
        _retrieve_on_cluster(ray, location, tasks, keep, progress)
        return
    context = get_context("spawn")
    with ProcessPoolExecutor(usable_cores(), context, _start_worker, (location,)) as pool:
        futures: list[Future[Searched]] = [pool.submit(_carry_out, task) for task in tasks]
        try:
            for done, future in enumerate(as_completed(futures), start=1):
                keep(future.result())
                progress(done, len(tasks))
        except BrokenProcessPool as error:
            raise VisarError(
                "A process that searched pages died, often because memory ran out. Results so far "
                "are kept: run the same command again, with fewer cores (taskset) if it happens "
                "again."
            ) from error
        except BaseException:
            workers = list((pool._processes or {}).values())  # noqa: SLF001 - nobody else's
            pool.shutdown(wait=False, cancel_futures=True)
            for process in workers:
                process.terminate()
            raise


def _retrieve_on_cluster(
    ray: str,
    location: str,
    tasks: Sequence[Task],
    keep: Callable[[Searched], None],
    progress: Callable[[int, int], None],
) -> None:
    from visar.ingest.ray_cluster import RayCluster

    # Other machines do not have the environment of this one.
    options = storage_options()
    groups = []
    for _, group in groupby(tasks, key=lambda task: task.document):
        together = tuple(group)
        groups += [
            _Group(location, options, together[start : start + FEW])
            for start in range(0, len(together), FEW)
        ]
    done = 0
    with RayCluster(ray) as cluster:
        cluster.check_location(location)
        for count, found in cluster.map(_carry_out_group, groups):
            for one in found:
                keep(one)
            done += count
            progress(done, len(tasks))


@dataclass(frozen=True, slots=True)
class _Group:
    """Some tasks of one document, for another machine."""

    location: str
    storage_options: Mapping[str, str]
    tasks: tuple[Task, ...]


def _carry_out_group(group: _Group) -> tuple[int, list[Searched]]:
    """Return how many tasks are done, and their results."""
    if _store is None or _store.location != group.location:
        threadpool_limits(1)
        _open(group.location, group.storage_options)
    return len(group.tasks), [_carry_out(task) for task in group.tasks]


_store: Store | None = None


def _start_worker(location: str) -> None:
    """Prepare a process of the pool, which has one thread for its work.

    It ends with the process that started it, however that ends. Ctrl-C reaches all of them; the
    first alone decides what it means.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    # For libraries that are loaded later, and for those that this module has loaded.
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    threadpool_limits(1)
    _open(location)


def _end_with(sentinel: int) -> None:
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


def _carry_out(task: Task) -> Searched:
    asked = task.asked
    evidence = [page - 1 for page in asked.evidence_pages]
    pages = TimedPages(
        task.query,
        _pages(task.document, task.encoder),
        evidence=evidence,
        calibration=find_calibration(task.encoder),
    )
    retrieved = [_retrieved(task, method, pages) for method in _methods(task.methods, task.depth)]
    relevance = pages.relevance
    return Searched(asked, retrieved, task.query, relevance.token_weights, best_cosine(relevance))


def _retrieved(task: Task, method: Method, pages: TimedPages) -> Retrieved:
    asked = task.asked
    result = pages.run(method)
    return Retrieved(
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
        paper_sparsity=result.paper_sparsity,
    )


def _numbers(pages: Integers) -> tuple[int, ...]:
    return tuple(int(page) + 1 for page in pages)
