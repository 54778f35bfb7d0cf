"""Tasks for several processes on one index.

``python -m tests.store.worker`` reads commands from its input, one JSON list per line, runs them in
forked processes, and prints for each command whether it succeeded. Forking saves importing LanceDB
in each process, which takes longer than all tasks.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

from tests.store.crash import fork, kill_at_any_time, kill_before_every_write
from tests.store.samples import (
    IMAGE,
    TEXT,
    add,
    damage,
    document,
    embedding,
    items,
    open_kind,
    page,
    put,
    with_layout,
)
from visar.errors import NotInIndex
from visar.results import EncoderRef
from visar.store import Store

SOURCE = "/files/shared.pdf"
ROUNDS = 6
PAGES = 8


def write(store: Store, _index: Path, name: str) -> None:
    """Add own documents, and change their metadata and collections."""
    for number in range(ROUNDS):
        add(store, f"{name}-{number}")
        store.collect("all", [f"{name}-{number}"])
        store.set_metadata(f"{name}-{number}", {"number": number})


def same(store: Store, index: Path, encoder: str) -> None:
    """Add the same new documents as others, by the same encoder or another."""
    ref = EncoderRef(encoder, "1", 4)
    for number in range(ROUNDS if index.exists() else 2):  # object storage is slow
        put(store, document(f"same-{number}", PAGES), ref, items("same", PAGES, ref))


def replace(store: Store, index: Path) -> None:
    """Change one file repeatedly; all pages of a version have the same seed."""
    for number in range(ROUNDS):
        seed = f"version-{number}"
        whole = [(page(seed, n), embedding(seed, n, TEXT)) for n in (1, 2, 3)]
        put(store, document(seed, source=SOURCE), TEXT, whole)
    index.with_name("done").touch()


def read(store: Store, index: Path) -> None:
    """Read the changing file, and check that each read is one complete version."""
    seen: set[str | None] = set()
    while not index.with_name("done").exists() or seen <= {None}:
        for stored in store.documents():
            assert stored.encoders == (TEXT,)
            seen.add(check_version(store, stored.id))


def check_version(store: Store, id_: str) -> str | None:
    try:
        pages, vectors = store.pages(id_), store.vectors(id_, TEXT)
    except NotInIndex:
        return None  # replaced since it was listed
    assert pages == tuple(page(id_, n) for n in (1, 2, 3))
    expected = b"".join(embedding(id_, n, TEXT).vectors.tobytes() for n in (1, 2, 3))
    assert vectors.vectors.tobytes() == expected
    return id_


def compact(store: Store, index: Path) -> None:
    """Compact and verify repeatedly; there must never be damage."""
    if hasattr(store, "grace"):
        store.grace = timedelta(seconds=30)
    while not index.with_name("done").exists():
        store.compact()
        assert damage(store) == []


def lay_out(store: Store, _index: Path) -> None:
    """Set the blocks of all pages, one by one."""
    for stored in store.documents():
        for number in range(1, stored.pages + 1):
            (bare,) = store.pages(stored.id, [number])
            store.set_blocks(stored.id, [with_layout(bare)])


def create(store: Store, index: Path, name: str) -> None:
    """Create new indexes at the same time as other processes."""
    kind = type(store).__name__.removesuffix("Store").lower()
    for number in range(4):
        add(open_kind(kind, index.with_name(f"new-{number}")), name, IMAGE)


TASKS: dict[str, Callable[..., None]] = {
    task.__name__: task for task in (write, same, replace, read, compact, lay_out, create)
}


def together(kind: str, index: str, *tasks: str) -> bool:
    """Run each task, such as ``write:a``, in its own process; all start at the same time."""
    start = time.monotonic() + 0.2

    def work(task: str) -> None:
        name, _, argument = task.partition(":")
        time.sleep(max(0.0, start - time.monotonic()))
        TASKS[name](open_kind(kind, index), Path(index), *filter(None, [argument]))

    children = [fork(partial(work, task)) for task in tasks]
    codes = [os.waitpid(child, 0)[1] for child in children]
    return not any(codes)


COMMANDS: dict[str, Callable[..., bool]] = {
    "together": together,
    "kill_before_every_write": kill_before_every_write,
    "kill_at_any_time": kill_at_any_time,
}


if __name__ == "__main__":
    if "lance" in sys.argv:
        import lancedb  # noqa: F401

        # LanceDB warns about forks while it is in use, but it is only imported here.
        warnings.simplefilter("ignore", RuntimeWarning)
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        print(json.dumps(COMMANDS[command](*arguments)), flush=True)  # noqa: T201
