"""Kill processes that change an index at random moments, and check the index.

    python -m benchmarks.crash [--trials 1000] [--seed 0] [--save]

In each trial a few processes add, remove and compact in one index, some of them the same documents,
until they are killed (SIGKILL) at a random moment. Each process logs when it starts and finishes a
step. Finished changes must be in the index, identical to those in an undisturbed index. Unfinished
changes may be there completely or not at all. In every second trial another process backs up the
index until it is killed too: the backup must be the complete index at some moment of the trial, or
be missing and resumed by the next one. At the end the index is compacted and compared with a clean
index of the same documents.
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
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.tables import RELIABILITY, markdown_line, save_section
from visar.documents.page import Page, Word
from visar.encoders.encoder import PageEmbedding
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
    """Change the index until killed, logging the start and end of each step."""
    rng = random.Random(seed)
    # Use several transactions per document, so that processes are killed in between.
    sqlite_addition.FLUSH_BYTES = rng.choice([1, 4000, 1 << 20])
    store = open_store(location)
    own = [f"own-{worker}-{n}" for n in range(OWN_DOCUMENTS)]
    shared = [f"shared-{n}" for n in range(SHARED_DOCUMENTS)]
    while True:
        what = rng.choices(("add", "share", "remove", "compact"), (6, 3, 2, 1))[0]
        document = rng.choice(shared if what == "share" else own)
        # Versions of an encoder replace each other, so shared documents always use the same one.
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
    """The expected content of the index: the valid states of each document."""

    def __init__(self) -> None:
        self.documents: dict[str, list[frozenset[EncoderRef]]] = {}
        """The valid sets of encoders by document; an empty set means that it isn't in the index."""
        self.past: dict[str, set[frozenset[EncoderRef]]] = {}
        """The valid sets of encoders at any moment of the last trial."""

    def begin(self) -> None:
        """Start a trial."""
        self.past = {document: set(states) for document, states in self.documents.items()}

    def now(self, document: str) -> frozenset[EncoderRef]:
        return self.documents.get(document, [frozenset()])[0]

    def take(self, lines: Sequence[str]) -> None:
        """Process the log of a process."""
        for position, line in enumerate(lines):
            word, _, rest = line.partition(" ")
            if word != "begin":
                continue
            what, document, number = rest.split()
            if what == "compact":
                continue
            before = self.now(document)
            after = _after(before, what, ENCODERS[int(number)])
            self.past.setdefault(document, {frozenset()}).update((before, after))
            done = position + 1 < len(lines) and lines[position + 1].startswith("done")
            self.documents[document] = [after] if done else [before, after]

    def check(self, store: Store) -> None:
        """Compare the index with the expected content, then use its actual content from now on."""
        found = {known.id: frozenset(known.encoders) for known in store.documents()}
        for document, allowed in self.documents.items():
            state = found.get(document, frozenset())
            if state not in allowed:
                raise SystemExit(f"{document} has {set(state)}, allowed are {allowed}")
            self.documents[document] = [state]
        compare_all(store)
        damage = [problem for problem in store.verify() if problem.kind == "damage"]
        if damage:
            raise SystemExit(f"damage: {damage}")

    def check_backup(self, store: Store) -> None:
        """Compare a backup with the valid states during the trial."""
        for known in store.documents():
            if frozenset(known.encoders) not in self.past[known.id]:
                raise SystemExit(f"the backup has {known.encoders} of {known.id}")
        compare_all(store)
        if problems := store.verify():
            raise SystemExit(f"the backup: {problems}")


def _after(before: frozenset[EncoderRef], what: str, encoder: EncoderRef) -> frozenset[EncoderRef]:
    if what == "remove":
        return frozenset()
    return frozenset(known for known in before if known.name != encoder.name) | {encoder}


def compare(store: Store, document: str, encoder: EncoderRef) -> None:
    """Compare all data of a document: pages, vectors, boxes, words."""
    total = pages_of(document)
    if store.pages(document) != tuple(page_of(document, n) for n in range(1, total + 1)):
        raise SystemExit(f"The pages of {document} differ from those that were added.")
    expected = [embedding_of(document, number, encoder) for number in range(1, total + 1)]
    found = store.vectors(document, encoder)
    for name in ("vectors", "boxes", "words"):
        whole = np.concatenate([getattr(page, name) for page in expected])
        if getattr(found, name).tobytes() != whole.tobytes():
            raise SystemExit(f"The {name} of {document} by {encoder} differ from those added.")


def compare_all(store: Store) -> None:
    for known in store.documents():
        for encoder in known.encoders:
            compare(store, known.id, encoder)


def back_up(location: str, target: Path, said: int) -> None:
    """Make a backup and wait to be killed."""
    try:
        open_store(location).backup(target)
    except StoreError as error:
        os.write(said, f"error {error}\n".encode())
        os._exit(1)
    signal.pause()


def check_backup(target: Path, expected: Expected) -> Counter[str]:
    """Check a finished backup and delete it; otherwise leave it for the next trial."""
    if not target.exists():
        return Counter({"backups interrupted": 1})
    store = open_store(target, create=False)
    expected.check_backup(store)
    store.close()
    shutil.rmtree(target)
    return Counter({"backups": 1})


def trial(
    location: str, rng: random.Random, expected: Expected, target: Path | None
) -> Counter[str]:
    """Let processes work, one of them on a backup, and kill them; return counts."""
    children: list[tuple[int, int]] = []
    expected.begin()
    for worker in range(rng.randint(1, PROCESSES) + (target is not None)):
        reading, writing = os.pipe()
        seed = rng.getrandbits(32)
        process = os.fork()
        if not process:
            os.close(reading)
            if worker == 0 and target is not None:
                back_up(location, target, writing)
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
    if target is not None:
        counted += check_backup(target, expected)
    return counted


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def run(trials: int, seed: int, folder: Path) -> list[str]:
    """Run the trials; return a row of numbers, or exit with an error."""
    rng, expected, counted = random.Random(seed), Expected(), Counter[str]()
    location = str(folder / "index")
    open_store(location).close()
    largest = 0
    for number in range(trials):
        target = folder / "backup" if number % 2 else None
        counted += trial(location, rng, expected, target)
        store = open_store(location)
        expected.check(store)
        counted["documents compared"] += len(store.documents())
        store.close()
        largest = max(largest, size_of(Path(location)))
        if sys.stderr.isatty() or number % 100 == 99:
            print(f"{number + 1} of {trials} trials", file=sys.stderr)
    store = open_store(location)
    store.backup(folder / "backup")
    store.compact()
    store.close()
    copy = open_store(folder / "backup")
    expected.check(copy)
    copy.close()
    clean = open_store(folder / "clean")
    for document, states in expected.documents.items():
        for encoder in sorted(states[0], key=str):
            add(clean, document, encoder)
    clean.compact()
    clean.close()
    ratio = size_of(Path(location)) / size_of(folder / "clean")
    names = (
        *("trials", "killed", "operations", "interrupted", "documents compared"),
        *("backups", "backups interrupted"),
    )
    figures = [f"{counted[name]:,}" for name in names]
    return [*figures, "0", f"{largest / 1e6:.1f} MB", f"{ratio:.2f}"]


def print_trials(
    run: Callable[[int, int, Path], Sequence[str]], header: Sequence[str], trials: int, section: str
) -> None:
    """Run the command line's trials in a temporary folder; print their numbers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=trials)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", action="store_true", help="write the numbers to the docs")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="visar-trials-"))
    try:
        row = run(arguments.trials, arguments.seed, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    line = markdown_line(header, row)
    print(line)
    if arguments.save:
        save_section(section, line, RELIABILITY)


if __name__ == "__main__":
    header = (
        *("trials", "processes killed", "operations done", "killed in the middle of one"),
        *(
            "documents compared",
            "backups compared",
            "backups killed",
            "lost or damaged",
            "largest size",
            "after compact / clean",
        ),
    )
    print_trials(run, header, 1000, "crashes")
