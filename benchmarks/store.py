"""Measure writing and reading a local index, compared with the same bytes in .npy files.

    python -m benchmarks.store

All data is in the page cache, as for documents in use. Variants are timed interleaved, and the best
time of each counts, because other load only adds to it.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.tables import markdown_table
from visar.documents.page import Page, Word
from visar.encoders.encoder import PageEmbedding
from visar.results import Document, EncoderRef
from visar.store import Store, open_store
from visar.store.sqlite import SqliteStore

ENCODER = EncoderRef("visual", "1", 128)
PAGES, VECTORS, WORDS = 468, 1030, 400
SMALL_DOCUMENTS = 2_000
LISTED_DOCUMENTS = 10_000
REPEATS = 15


def page_of(number: int, words: int) -> Page:
    placed = (Word(f"word{i * i % 997}", (0.1, 0.2, 0.3, 0.4), i // 9) for i in range(words))
    return Page(number, 595.0, 842.0, 0, tuple(placed), "text layer")


def embedding_of(rng: np.random.Generator, vectors: int, words: int) -> PageEmbedding:
    values = rng.standard_normal((vectors, ENCODER.dimension), np.float32)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    boxes = rng.random((vectors, 4), np.float32)
    return PageEmbedding(
        values.astype(np.float16), boxes, rng.integers(-1, words, vectors, np.int32)
    )


def add(store: Store, name: str, pages: list[tuple[Page, PageEmbedding]]) -> float:
    """Add a document; return the seconds it took."""
    started = time.perf_counter()
    new = Document(name, f"{name}.pdf", len(pages), 0, source=f"/{name}.pdf")
    with store.adding(new, ENCODER) as addition:
        for page, embedding in pages:
            addition.put(page, embedding)
        addition.commit()
    return time.perf_counter() - started


def touch(vectors: NDArray[np.float16], offsets: NDArray[np.int64]) -> float:
    """Read from every memory page, as a question reads every vector."""
    return float(
        sum(vectors[start:end:2].view(np.uint16).sum() for start, end in pairwise(offsets))
    )


def best(actions: list[Callable[[], object]]) -> list[float]:
    """Return the minimum seconds of each action, timed interleaved."""
    times: list[list[float]] = [[] for _ in actions]
    for _ in range(REPEATS):
        for action, taken in zip(actions, times, strict=True):
            started = time.perf_counter()
            action()
            taken.append(time.perf_counter() - started)
    return [min(taken) for taken in times]


def loading(folder: Path) -> list[list[str]]:
    rng = np.random.default_rng(0)
    pages = [(page_of(n, WORDS), embedding_of(rng, VECTORS, WORDS)) for n in range(1, PAGES + 1)]
    store = open_store(folder / "long")
    wrote = add(store, "long", pages)
    plain = folder / "plain.npy"
    np.save(plain, np.concatenate([embedding.vectors for _, embedding in pages]))
    offsets = np.arange(PAGES + 1) * VECTORS

    def from_store() -> float:
        found = store.vectors("long", ENCODER)
        return touch(found.vectors, found.offsets)

    def from_file() -> float:
        return touch(np.load(plain, mmap_mode="r"), offsets)

    ours, theirs = best([from_store, from_file])
    return [
        [f"write {PAGES} pages of {VECTORS} × 128", f"{PAGES / wrote:,.0f} pages/s", "", ""],
        [
            "load them and touch every page",
            f"{1000 * ours:.0f} ms",
            f"{ours / theirs:.2f} × np.load(mmap)",
            "≤ 1.2",
        ],
    ]


def growing(folder: Path) -> list[list[str]]:
    rng = np.random.default_rng(0)
    small = [(page_of(1, 20), embedding_of(rng, 30, 20))]
    store = open_store(folder / "small")
    times = [add(store, f"small-{number}", small) for number in range(SMALL_DOCUMENTS)]
    # Average the tenth and the last with their neighbors, because single times are noisy.
    tenth, last = statistics.median(times[5:25]), statistics.median(times[-20:])
    return [
        [
            f"add the last of {SMALL_DOCUMENTS:,} small documents",
            f"{1000 * last:.1f} ms",
            f"{last / tenth:.2f} × the tenth",
            "≤ 2",
        ]
    ]


def listing(folder: Path) -> list[list[str]]:
    store = SqliteStore.open(folder / "many")
    # The speed of writing is measured above.
    store._connection.execute("PRAGMA synchronous = OFF")
    rng = np.random.default_rng(0)
    small = [(page_of(1, 2), embedding_of(rng, 2, 2))]
    for number in range(LISTED_DOCUMENTS):
        add(store, f"{number}", small)

    def milliseconds(action: Callable[[], object]) -> float:
        times = []
        for _ in range(REPEATS):
            started = time.perf_counter()
            action()
            times.append(time.perf_counter() - started)
        return 1000 * statistics.median(times)

    first = milliseconds(lambda: open_store(folder / "many").documents())
    later = milliseconds(store.documents)
    what = f"list {LISTED_DOCUMENTS:,} documents"
    return [
        [f"{what}: open the index and list", f"{first:.0f} ms", "", ""],
        [f"{what}: again", f"{later:.0f} ms", "", "< 50 ms"],
    ]


def main() -> None:
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as values:
        folder = Path(values)
        rows = [*loading(folder), *growing(folder), *listing(folder)]
    print(markdown_table(("what", "takes", "ratio", "aim"), rows))


if __name__ == "__main__":
    main()
