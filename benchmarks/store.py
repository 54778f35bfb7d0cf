"""Speed of writing and reading the index, against the same arrays in .npy files.

Run as ``python benchmarks/store.py [--save docs/benchmark-store.md]``. Everything is warm: in the
page cache of the operating system, as a document in use is. Store and .npy are timed in turn, and
the best of each is taken: what else the machine does only ever adds.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import numpy as np

from visar.documents.page import Page, Word
from visar.encoders.protocol import PageEmbedding
from visar.store import DocumentVectors, EncoderRef, NewDocument, Store

PAGES = 468
WORDS = 400
OTHERS = 20
OTHER_PAGES = 50
REPEATS = 15


@dataclass(frozen=True)
class Shape:
    """The shape of a page's vectors."""

    name: str
    vectors: int
    dimension: int


SHAPES = (Shape("visual, 1030 × 128", 1030, 128), Shape("text, 130 × 384", 130, 384))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", type=Path, help="also write the table to this file")
    arguments = parser.parse_args()
    rows = [measure(shape) for shape in SHAPES]
    head = (
        "| vectors of a page | write pages/s | bytes/page | of these the page with its words "
        "| .npy ms | load ms | ratio | load after compact ms | ratio | cached ms | all pages ms |"
    )
    table = "\n".join([head, "|" + " --- |" * (head.count("|") - 1), *rows])
    note = (
        f"{PAGES} pages of {WORDS} words among {OTHERS} other documents of {OTHER_PAGES} pages; "
        f"the best of {REPEATS}, vectors with boxes and words; the ratio is to .npy in turn."
    )
    print(note, table, sep="\n\n")
    if arguments.save:
        arguments.save.write_text(f"# The index, measured\n\n{note}\n\n{table}\n")


def measure(shape: Shape) -> str:
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        store = Store.open(Path(folder) / "index", cache_bytes=0)
        encoder = EncoderRef(shape.name, "1", shape.dimension)
        for number in range(OTHERS):
            add(store, f"other-{number}", OTHER_PAGES, encoder, shape)
        seconds = add(store, "long", PAGES, encoder, shape)
        written = size_of(Path(folder) / "index")
        words = size_of(Path(folder) / "index" / "pages.lance")

        arrays = store.vectors("long", encoder)
        loaded, plain = against_npy(lambda: store.vectors("long", encoder), arrays, Path(folder))
        store.compact(grace=timedelta(milliseconds=1))
        again, plain_again = against_npy(
            lambda: store.vectors("long", encoder), arrays, Path(folder)
        )
        cached = Store.open(Path(folder) / "index")
        cached.vectors("long", encoder)
        hit = best_ms(lambda: cached.vectors("long", encoder))
        pages = best_ms(lambda: store.pages("long"))
    total = PAGES + OTHERS * OTHER_PAGES
    return (
        f"| {shape.name} | {PAGES / seconds:.0f} | {written / total:,.0f} | {words / total:,.0f} "
        f"| {plain:.0f} | {loaded:.0f} | {loaded / plain:.1f} "
        f"| {again:.0f} | {again / plain_again:.1f} | {hit:.1f} | {pages:.0f} |"
    )


def add(store: Store, name: str, pages: int, encoder: EncoderRef, shape: Shape) -> float:
    """Add a document and return the seconds the store took, without making the pages."""
    spent = 0.0

    def given() -> Iterator[tuple[Page, PageEmbedding]]:
        nonlocal spent
        rng = np.random.default_rng(len(name))
        for number in range(1, pages + 1):
            start = time.perf_counter()
            item = make_page(number, rng), make_embedding(shape, rng)
            spent += time.perf_counter() - start
            yield item

    start = time.perf_counter()
    store.add(NewDocument(name, f"{name}.pdf", f"/{name}.pdf", pages, 0), encoder, given())
    return time.perf_counter() - start - spent


def make_page(number: int, rng: np.random.Generator) -> Page:
    corners = rng.random((WORDS, 4)).tolist()
    words = tuple(
        Word(f"word{i * i % 997}", (box[0], box[1], box[2], box[3]), i // 9)
        for i, box in enumerate(corners)
    )
    return Page(number, 595.0, 842.0, 0, words, "text layer")


def make_embedding(shape: Shape, rng: np.random.Generator) -> PageEmbedding:
    vectors = rng.standard_normal((shape.vectors, shape.dimension), np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    boxes = rng.random((shape.vectors, 4), np.float32)
    words = rng.integers(-1, WORDS, shape.vectors, np.int32)
    return PageEmbedding(vectors.astype(np.float16), boxes, words)


def against_npy(
    load: Callable[[], DocumentVectors], arrays: DocumentVectors, folder: Path
) -> tuple[float, float]:
    """Milliseconds of the store and of np.load for the same arrays, measured in turn."""
    files = []
    for name in ("vectors", "offsets", "boxes", "words"):
        files.append(folder / f"{name}.npy")
        np.save(files[-1], getattr(arrays, name))

    def plain() -> list[np.ndarray]:
        return [np.load(file) for file in files]

    timed: tuple[list[float], list[float]] = [], []
    for _ in range(REPEATS):
        for read, times in zip((load, plain), timed, strict=True):
            times.append(milliseconds(read))
    return min(timed[0]), min(timed[1])


def best_ms(action: Callable[[], object]) -> float:
    return min(milliseconds(action) for _ in range(REPEATS))


def milliseconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    result = action()
    spent = time.perf_counter() - start
    del result
    return 1000 * spent


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


if __name__ == "__main__":
    main()
