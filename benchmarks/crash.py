"""Kill processes that change an index at random moments, and look at what is left.

    python -m benchmarks.crash [--trials 1000] [--seed 0] [--save]

In each trial a few processes add, remove and compact in one index, some of them the same documents,
until they are killed (SIGKILL) at a random moment. Each says what it begins and what is done. What
was done must be there, bit by bit as an undisturbed index has it; what was begun may be there
whole or not at all. At the end the index is compacted and compared with a clean one of the same
documents.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.tables import markdown_table, save_section
from visar.documents.page import Page, Word
from visar.encoders.protocol import PageEmbedding
from visar.errors import StoreError
from visar.results import Document, EncoderRef
from visar.store import Store, open_store, sqlite_addition

ENCODERS = (EncoderRef("text", "1", 32), EncoderRef("text", "2", 32), EncoderRef("image", "1", 16))
OWN_DOCUMENTS = 4
SHARED_DOCUMENTS = 3
PROCESSES = 3
LONGEST_LIFE = 0.25


def pages_of(document: str) -> int:
    return 2 + sum(document.encode()) % 7


def page_of(document: str, number: int) -> Page:
    rng = np.random.default_rng([number, *document.encode()])
    corners = rng.random((20, 4)).astype(np.float32).tolist()
    words = tuple(
        Word(f"{document}-{i}", (box[0], box[1], box[2], box[3]), i // 5)
        for i, box in enumerate(corners)
    )
    return Page(number, 595.0, 842.0, 0, words, "text layer")


def embedding_of(document: str, number: int, encoder: EncoderRef) -> PageEmbedding:
    rng = np.random.default_rng([number, *f"{document}{encoder}".encode()])
    count = 40 + number
    vectors = rng.standard_normal((count, encoder.dimension))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return PageEmbedding(
        vectors.astype(np.float16),
        rng.random((count, 4)).astype(np.float32),
        rng.integers(-1, 20, count).astype(np.int32),
    )


def add(store: Store, document: str, encoder: EncoderRef) -> None:
    new = Document(document, f"{document}.pdf", pages_of(document), 1000, source=f"/{document}.pdf")
    with store.adding(new, encoder) as addition:
        if addition.stored is None:
            for number in range(1, new.pages + 1):
                if number not in addition.written:
                    addition.put(page_of(document, number), embedding_of(document, number, encoder))
        addition.commit()


def child(location: str, worker: int, seed: int, said: int) -> None:
    """Change the index until killed; say each step before and after it."""
    rng = random.Random(seed)
    # Several transactions for each document, so that there is something to be killed between.
    sqlite_addition.FLUSH_BYTES = rng.choice([1, 4000, 1 << 20])
    store = open_store(location)
    own = [f"own-{worker}-{n}" for n in range(OWN_DOCUMENTS)]
    shared = [f"shared-{n}" for n in range(SHARED_DOCUMENTS)]
    while True:
        what = rng.choices(("add", "share", "remove", "compact"), (6, 3, 2, 1))[0]
        document = rng.choice(shared if what == "share" else own)
        # Versions of one encoder replace each other: a shared document always has the same.
        encoder = ENCODERS[0] if what == "share" else rng.choice(ENCODERS)
        step = f"{what} {document} {ENCODERS.index(encoder)}\n"
        os.write(said, f"begin {step}".encode())
        try:
            if what == "compact":
                store.compact()
            elif what == "remove":
                if any(known.id == document for known in store.documents()):
                    store.remove(document)
            else:
                add(store, document, encoder)
        except StoreError as error:
            os.write(said, f"error {error}\n".encode())
            os._exit(1)
        os.write(said, f"done {step}".encode())


class Expected:
    """What must be in the index: for each document the states that are right."""

    def __init__(self) -> None:
        self.documents: dict[str, list[frozenset[EncoderRef]]] = {}
        """By document: the sets of encoders it may have; an empty one means it is not there."""

    def now(self, document: str) -> frozenset[EncoderRef]:
        return self.documents.get(document, [frozenset()])[0]

    def take(self, lines: Sequence[str]) -> None:
        """Follow what one process said."""
        for position, line in enumerate(lines):
            word, _, rest = line.partition(" ")
            if word != "begin":
                continue
            what, document, number = rest.split()
            if what == "compact":
                continue
            before = self.now(document)
            after = _after(before, what, ENCODERS[int(number)])
            done = position + 1 < len(lines) and lines[position + 1].startswith("done")
            self.documents[document] = [after] if done else [before, after]

    def check(self, store: Store) -> None:
        """Compare the index with what must be there; then take what is there as the truth."""
        found = {known.id: frozenset(known.encoders) for known in store.documents()}
        for document, allowed in self.documents.items():
            state = found.get(document, frozenset())
            if state not in allowed:
                raise SystemExit(f"{document} has {set(state)}, allowed are {allowed}")
            self.documents[document] = [state]
        for document, encoders in found.items():
            for encoder in encoders:
                compare(store, document, encoder)
        damage = [problem for problem in store.verify() if problem.kind == "damage"]
        if damage:
            raise SystemExit(f"damage: {damage}")


def _after(before: frozenset[EncoderRef], what: str, encoder: EncoderRef) -> frozenset[EncoderRef]:
    if what == "remove":
        return frozenset()
    return frozenset(known for known in before if known.name != encoder.name) | {encoder}


def compare(store: Store, document: str, encoder: EncoderRef) -> None:
    """Every bit of a document: pages, vectors, boxes, words."""
    total = pages_of(document)
    if store.pages(document) != tuple(page_of(document, n) for n in range(1, total + 1)):
        raise SystemExit(f"the pages of {document} are not those that were added")
    expected = [embedding_of(document, number, encoder) for number in range(1, total + 1)]
    found = store.vectors(document, encoder)
    for name in ("vectors", "boxes", "words"):
        whole = np.concatenate([getattr(page, name) for page in expected])
        if getattr(found, name).tobytes() != whole.tobytes():
            raise SystemExit(f"the {name} of {document} by {encoder} are not those that were added")


def trial(location: str, rng: random.Random, expected: Expected) -> Counter[str]:
    """Let processes work and kill them; return what they did."""
    children: list[tuple[int, int]] = []
    for worker in range(rng.randint(1, PROCESSES)):
        reading, writing = os.pipe()
        seed = rng.getrandbits(32)
        process = os.fork()
        if not process:
            os.close(reading)
            child(location, worker, seed, writing)
        os.close(writing)
        children.append((process, reading))
    time.sleep(rng.uniform(0, LONGEST_LIFE))
    for process, _ in children:
        os.kill(process, signal.SIGKILL)
    counted = Counter[str](trials=1, killed=len(children))
    for process, reading in children:
        os.waitpid(process, 0)
        with os.fdopen(reading) as pipe:
            lines = pipe.read().splitlines()
        if failed := [line for line in lines if line.startswith("error")]:
            raise SystemExit(failed[0])
        expected.take(lines)
        counted["operations"] += sum(line.startswith("done") for line in lines)
        counted["interrupted"] += bool(lines) and lines[-1].startswith("begin")
    return counted


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def run(trials: int, seed: int, folder: Path) -> list[str]:
    """Run the trials; return a row of figures, or exit with what was wrong."""
    rng, expected, counted = random.Random(seed), Expected(), Counter[str]()
    location = str(folder / "index")
    open_store(location).close()
    largest = 0
    for number in range(trials):
        counted += trial(location, rng, expected)
        store = open_store(location)
        expected.check(store)
        counted["documents compared"] += len(store.documents())
        store.close()
        largest = max(largest, size_of(Path(location)))
        if sys.stderr.isatty() or number % 100 == 99:
            print(f"{number + 1} of {trials} trials", file=sys.stderr)
    store = open_store(location)
    store.compact()
    store.close()
    clean = open_store(folder / "clean")
    for document, states in expected.documents.items():
        for encoder in sorted(states[0], key=str):
            add(clean, document, encoder)
    clean.compact()
    clean.close()
    ratio = size_of(Path(location)) / size_of(folder / "clean")
    names = ("trials", "killed", "operations", "interrupted", "documents compared")
    figures = [f"{counted[name]:,}" for name in names]
    return [*figures, "0", f"{largest / 1e6:.1f} MB", f"{ratio:.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", action="store_true", help="write the table to the docs")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="visar-crash-"))
    try:
        row = run(arguments.trials, arguments.seed, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    header = (
        *("trials", "processes killed", "operations done", "killed in the middle of one"),
        *("documents compared", "lost or damaged", "largest size", "after compact / clean"),
    )
    table = markdown_table(header, [row])
    print(table)
    if arguments.save:
        save_section("crashes", table)


if __name__ == "__main__":
    main()
