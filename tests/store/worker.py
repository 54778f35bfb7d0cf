"""A process beside others on one index: ``python -m tests.store.worker TASK INDEX [ARGUMENT…]``."""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from pathlib import Path

from tests.store.samples import IMAGE, TEXT, add, document, embedding, items, page
from visar.errors import NotInIndex
from visar.store import EncoderRef, Store

SOURCE = "/files/shared.pdf"
ROUNDS = 8


def wait_for_start(index: str) -> None:
    """Until all workers are ready: their start takes longer than their work."""
    Path(f"{index}.ready-{time.monotonic_ns()}").touch()
    while not Path(f"{index}.start").exists():
        time.sleep(0.001)


def write(index: str, name: str) -> None:
    """Add documents of its own."""
    store = Store.open(index)
    wait_for_start(index)
    for number in range(ROUNDS):
        add(store, f"{name}-{number}")


def same(index: str, encoder: str) -> None:
    """Add the same new documents as others, by the same encoder or another."""
    store = Store.open(index)
    wait_for_start(index)
    for number in range(ROUNDS):
        ref = EncoderRef(encoder, "1", 4)
        store.add(document(f"same-{number}"), ref, items("same", 3, ref))


def replace(index: str) -> None:
    """Change one file again and again; every version has one look throughout."""
    store = Store.open(index)
    wait_for_start(index)
    for number in range(ROUNDS):
        seed = f"version-{number}"
        whole = [(page(seed, n), embedding(seed, n, TEXT)) for n in (1, 2, 3)]
        store.add(document(seed, source=SOURCE), TEXT, whole)
    Path(f"{index}.done").touch()


def read(index: str) -> None:
    """Read the file that is being changed: each time one version, whole."""
    store = Store.open(index, cache_bytes=0)
    wait_for_start(index)
    seen: set[str | None] = set()
    while not Path(f"{index}.done").exists() or seen <= {None}:
        for stored in store.documents():
            seen.add(check_version(store, stored.id))
    print(len(seen - {None}))  # noqa: T201


def check_version(store: Store, id_: str) -> str | None:
    try:
        pages, vectors = store.pages(id_), store.vectors(id_, TEXT)
    except NotInIndex:
        return None  # replaced since it was listed
    assert pages == tuple(page(id_, n) for n in (1, 2, 3))
    expected = b"".join(embedding(id_, n, TEXT).vectors.tobytes() for n in (1, 2, 3))
    assert vectors.vectors.tobytes() == expected
    return id_


def compact(index: str) -> None:
    """Compact all the time, with a grace longer than any step of the others."""
    store = Store.open(index)
    wait_for_start(index)
    while not Path(f"{index}.done").exists():
        store.compact(grace=timedelta(seconds=30))


def create(index: str) -> None:
    """Make the index where it is not, at the same moment as others."""
    wait_for_start(index)
    add(Store.open(index), str(time.monotonic_ns()), IMAGE)


TASKS = {f.__name__: f for f in (write, same, replace, read, compact, create)}

if __name__ == "__main__":
    TASKS[sys.argv[1]](*sys.argv[2:])
