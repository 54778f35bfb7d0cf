"""A process that changes an index: ``python -m tests.store.faulty_child INDEX``.

It prints "done STEP" after each step, and "failed STEP ERROR" if a step raises StoreError.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from tests.store.samples import IMAGE, TEXT, TEXT_2, document, items
from visar.errors import StoreError
from visar.results import EncoderRef
from visar.store import Store, open_store, sqlite_addition


def add(store: Store, name: str, encoder: EncoderRef) -> None:
    with store.adding(document(name), encoder) as addition:
        for page, embedding in items(name, 3, encoder):
            if addition.stored is None and page.number not in addition.written:
                addition.put(page, embedding)
        addition.commit()


def main(location: str) -> None:
    # One transaction per page, so that many writes can fail.
    sqlite_addition.FLUSH_BYTES = 1
    steps: dict[str, Callable[[], object]] = {
        "open": lambda: open_store(location),
        "add": lambda: add(open_store(location), "new", TEXT),
        "encoder": lambda: add(open_store(location), "a", IMAGE),
        "version": lambda: add(open_store(location), "a", TEXT_2),
        "remove": lambda: open_store(location).remove("b"),
        "compact": lambda: open_store(location).compact(),
    }
    for name, step in steps.items():
        try:
            step()
        except StoreError as error:
            print("failed", name, error, flush=True)
        else:
            print("done", name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
