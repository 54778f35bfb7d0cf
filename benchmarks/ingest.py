"""Measure the speed of adding documents, compared with the encoder alone.

    python -m benchmarks.ingest [--text FILE] [--scanned FILE] [--rounds 3]

Text: adding a document, compared with encoding pages that were already read, without OCR of
figures. The default is the example report's text pages, repeated to 108. Scanned: adding with one
worker and with all, compared with reading and encoding page by page in this process. The default is
24 pages of the example report as images.

Variants run interleaved in rounds, so that other load affects all of them equally. CPU is the time
of this process and its children; "busy" is its share of the time of all cores.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pikepdf

from benchmarks.tables import markdown_table
from visar.documents import ReadOptions, open_document
from visar.encoders.embedded import EmbeddedEncoder
from visar.ingest.ocr_processes import OCR_PROCESSES
from visar.ingest.pipeline import ReadPage, add_document, encode_pages
from visar.models.devices import usable_cores
from visar.samples import REPORT
from visar.store import Store, open_store

SCANNED_PAGES = (11, 19)
TEXT_PAGES = 108
DECK_PAGES = 12
HEADER = ("what", "pages", "pages a second", "of the first line", "CPU ms a page", "cores busy")


@dataclass(frozen=True)
class Times:
    """The time of one run."""

    clock: float
    processor: float


def measure_times(work: Callable[[], None]) -> Times:
    clock, before = time.perf_counter(), os.times()
    work()
    # Child processes are included once they have ended.
    OCR_PROCESSES.close()
    after = os.times()
    return Times(time.perf_counter() - clock, sum(after[:4]) - sum(before[:4]))


def compared(
    works: Mapping[str, Callable[[], None]], pages: int, rounds: int
) -> list[tuple[str, ...]]:
    runs: dict[str, list[Times]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            runs[name].append(measure_times(work))
    first = next(iter(runs.values()))
    rows: list[tuple[str, ...]] = []
    for name, its in runs.items():
        clock = statistics.median(run.clock for run in its)
        ratio = statistics.median(a.clock / b.clock for a, b in zip(first, its, strict=True))
        processor = statistics.median(run.processor for run in its)
        busy = statistics.median(run.processor / run.clock for run in its) / usable_cores()
        rows.append(
            (
                name,
                str(pages),
                f"{pages / clock:.1f}",
                f"{ratio:.0%}",
                f"{1000 * processor / pages:.0f}",
                f"{busy:.0%}",
            )
        )
    return rows


def empty_stores(folder: Path, count: int) -> Iterator[Store]:
    """Yield stores that were created in advance, so that creating them isn't measured."""
    return iter([open_store(folder / f"index {number}") for number in range(count)])


def text_rows(
    path: Path, encoder: EmbeddedEncoder, stores: Iterator[Store], rounds: int
) -> list[tuple[str, ...]]:
    options = ReadOptions(ocr="never")
    with open_document(path, options) as document:
        pages = list(document.pages())

    def encode() -> None:
        for _ in encode_pages(encoder, map(ReadPage, pages)):
            pass

    def add() -> None:
        add_document(next(stores), path, encoder, options)

    def read() -> None:
        with open_document(path, options) as document:
            for _ in document.pages():
                pass

    works = {
        "the encoder alone": encode,
        "read, encode, commit": add,
        "read only": read,
    }
    return compared(works, len(pages), rounds)


def scanned_rows(
    path: Path, encoder: EmbeddedEncoder, stores: Iterator[Store], rounds: int
) -> list[tuple[str, ...]]:
    def one_by_one() -> None:
        with open_document(path) as document:
            for number in range(1, len(document) + 1):
                encoder.encode_pages([document.page(number)])

    with open_document(path) as document:
        pages = len(document)

    def add(workers: int) -> None:
        options = ReadOptions(ocr_threads=1)
        add_document(next(stores), path, encoder, options, workers=workers)

    cores = usable_cores()
    works = {
        "page after page in this process, OCR on all cores": one_by_one,
        "added, 1 worker": lambda: add(1),
        f"added, {cores} workers": lambda: add(cores),
    }
    return compared(works, pages, rounds)


def create_text(path: Path, pages: int = TEXT_PAGES) -> Path:
    with pikepdf.open(REPORT) as report, pikepdf.new() as made:
        chosen = [page for n, page in enumerate(report.pages, 1) if n not in SCANNED_PAGES]
        for number in range(pages):
            made.pages.append(chosen[number % len(chosen)])
        made.save(path)
    return path


def create_scan(folder: Path) -> Path:
    folder.mkdir()
    with open_document(REPORT, ReadOptions(ocr="never")) as document:
        for number in range(1, DECK_PAGES + 1):
            document.image(number, 150).save(folder / f"{number}.png", dpi=(150, 150))
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--text", type=Path)
    parser.add_argument("--scanned", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    encoder = EmbeddedEncoder()
    encoder.encode_query("loads the model")
    with tempfile.TemporaryDirectory() as made:
        stores = empty_stores(Path(made), 3 * arguments.rounds)
        text = arguments.text or create_text(Path(made) / "text.pdf")
        scanned = arguments.scanned or create_scan(Path(made) / "deck")
        measures = {
            "adding text": partial(text_rows, text),
            "adding scans": partial(scanned_rows, scanned),
        }
        for name, measure in measures.items():
            table = markdown_table(HEADER, measure(encoder, stores, arguments.rounds))
            print(f"\n{name}\n\n{table}", flush=True)


if __name__ == "__main__":
    main()
