"""The second step of a run: which pages each method chooses, on all cores."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from typing import Any

from visar.core import PageVectors
from visar.core.vectors import Float32
from visar.evaluation.choosing import Pages, choose
from visar.evaluation.methods import METHODS
from visar.evaluation.records import Asked, Retrieved
from visar.models.devices import usable_cores
from visar.store import EncoderRef, Store

# So few tasks are done before other processes have started.
FEW = 8
# Several libraries would otherwise each take all cores in every process.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class Task:
    """A question to be answered by some methods."""

    asked: Asked
    document: str
    """Its id in the index."""
    encoder: EncoderRef
    query: Float32
    methods: tuple[str, ...]


def retrieve(location: str, tasks: Sequence[Task], keep: Callable[[list[Retrieved]], None]) -> None:
    """Carry out the tasks; what each gives is kept as soon as it is there.

    Tasks of one document should stand together: each process reads a document once for them.
    """
    if len(tasks) <= FEW:
        _open(location)
        for task in tasks:
            keep(_work(task))
        return
    workers = usable_cores()
    with (
        _one_thread_each(),
        ProcessPoolExecutor(workers, get_context("spawn"), _open_in_process, (location,)) as pool,
    ):
        futures: list[Future[list[Retrieved]]] = [pool.submit(_work, task) for task in tasks]
        try:
            for future in as_completed(futures):
                keep(future.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def missing_methods(
    asked: Asked, encoder: str, methods: Iterable[str], known: dict[tuple[Any, ...], Retrieved]
) -> tuple[str, ...]:
    """The methods whose choice for a question is not kept yet."""
    return tuple(
        method
        for method in methods
        if (asked.dataset, asked.question, encoder, method) not in known
        and (METHODS[method].rule != "oracle" or asked.evidence_pages)
    )


def carried_over(
    asked: Asked,
    published: str,
    encoder: str,
    methods: Iterable[str],
    known: dict[tuple[Any, ...], Retrieved],
) -> Iterator[Retrieved]:
    """What was chosen for a question before it was corrected; only the oracle looks at evidence."""
    for method in methods:
        found = known.get((published, asked.question, encoder, method))
        if found is not None and not (asked.corrected and METHODS[method].rule == "oracle"):
            yield replace(found, dataset=asked.dataset)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


_store: Store | None = None


def _open_in_process(location: str) -> None:
    """Prepare a process of the pool: it ends with the one that started it, however that ends.

    Ctrl-C reaches all of them; the first alone decides what it means.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    _open(location)


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


def _open(location: str) -> None:
    global _store
    _pages.cache_clear()
    _store = Store.open(location, create=False)


@lru_cache(maxsize=2)
def _pages(document: str, encoder: EncoderRef) -> Pages:
    assert _store is not None  # noqa: S101 - the pool has called _open
    found = _store.vectors(document, encoder)
    return Pages(PageVectors(found.vectors, found.offsets))


def _work(task: Task) -> list[Retrieved]:
    pages = _pages(task.document, task.encoder)
    asked = task.asked
    return [
        Retrieved(
            dataset=asked.dataset,
            question=asked.question,
            encoder=task.encoder.name,
            method=chosen.method,
            k=chosen.k,
            pages=chosen.pages,
            ranking=chosen.ranking,
            sparsity=chosen.sparsity,
            seconds=chosen.seconds,
        )
        for chosen in choose(task.query, pages, asked.evidence_pages, task.methods)
    ]
