"""Measure the cost of selecting pages, compared with late interaction and dense similarity.

Results are ratios within one run, because absolute times mean little on a shared machine.
``--embeddings DIR`` uses saved embeddings of real documents: .npz files with ``vectors`` (Σn, D),
``offsets`` (N + 1), ``queries`` (all stacked) and ``query_offsets``. ``--save`` writes the table to
docs/benchmarks.md; of real documents, only the smallest, the median and the largest.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import visar
from benchmarks.dense import dense_select
from benchmarks.planted import Example, planted_document
from benchmarks.tables import markdown_table, save_section

SIZES = (100, 468)
REPEATS = 3
# Above this size the dense version takes minutes per query, so only one query is compared.
LONG_DOCUMENT = 150

SAVED_DOCUMENTS = 3

DENSE, APPROXIMATE, EXACT = "dense", "dense approx.", "ViSAR exact"


@dataclass(frozen=True)
class QueryRun:
    """The measurements of one question."""

    selection: visar.Selection
    late: float
    times: dict[str, float]
    same: bool | None
    """Whether the dense version chose the same pages; None if it wasn't run."""


@dataclass(frozen=True)
class Measurement:
    """The measurements of a document, with medians over its queries."""

    example: Example
    runs: list[QueryRun]

    def median(self, name: str) -> float | None:
        known = [run.times[name] for run in self.runs if name in run.times]
        return statistics.median(known) if known else None

    @property
    def ratio(self) -> float:
        return statistics.median(run.times[EXACT] / run.late for run in self.runs)


def measure(example: Example, *, dense: bool) -> Measurement:
    vectors = visar.prepare(example.vectors, example.offsets)
    runs = []
    for number, query in enumerate(example.queries):
        compare = dense and (number == 0 or len(vectors) <= LONG_DOCUMENT)
        runs.append(measure_query(query, vectors, compare=compare))
    return Measurement(example, runs)


def measure_query(
    query: NDArray[np.float16], vectors: visar.PageVectors, *, compare: bool
) -> QueryRun:
    late, _ = fastest(lambda: visar.maxsim(query, vectors))
    exact, selection = fastest(lambda: visar.select(query, vectors))
    times = {EXACT: exact}
    if not compare:
        return QueryRun(selection, late, times, None)
    times[DENSE], reference = once(lambda: dense_select(query, vectors))
    times[APPROXIMATE], _ = once(
        lambda: dense_select(query, vectors, top_j=450, top_p=75, top_s=10)
    )
    return QueryRun(selection, late, times, reference.pages == selection.pages.tolist())


def fastest(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds and the result of the fastest of a few runs."""
    return min((once(call) for _ in range(REPEATS)), key=lambda run: run[0])


def once(call: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    result = call()
    return time.perf_counter() - started, result


def rows(measured: list[Measurement]) -> Iterator[list[str]]:
    for m in measured:
        selections = [run.selection for run in m.runs]
        compared = [run.same for run in m.runs if run.same is not None]
        exact = m.median(EXACT) or math.nan
        slower = (m.median(name) for name in (DENSE, APPROXIMATE))
        yield [
            f"{len(m.example.vectors):,} × {m.example.vectors.shape[1]}",
            f"{statistics.median(s.k_star for s in selections):g}",
            f"{m.ratio:.1f}×",
            *("–" if seconds is None else f"{seconds / exact:.1f}×" for seconds in slower),
            f"{sum(compared)} of {len(compared)}",
        ]


HEADER = [
    "vectors",
    "k*",
    "ViSAR / late interaction",
    "paper's program / ViSAR",
    "its approximation / ViSAR",
    "same pages",
]


def spread(measured: list[Measurement], count: int) -> list[Measurement]:
    """Return evenly spaced measurements, from the first to the last."""
    if len(measured) <= count:
        return measured
    return [measured[round(n * (len(measured) - 1) / (count - 1))] for n in range(count)]


def load(folder: Path, n_queries: int) -> Iterator[Example]:
    for path in sorted(folder.glob("*.npz"), key=lambda p: p.stat().st_size):
        with np.load(path, allow_pickle=False) as saved:
            queries = np.split(saved["queries"], saved["query_offsets"][1:-1])[:n_queries]
            yield Example(path.stem[:24], saved["vectors"], saved["offsets"], queries)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--embeddings", type=Path, help="a folder of saved embeddings")
    parser.add_argument("--pages", type=int, nargs="*", default=SIZES, help="planted sizes")
    parser.add_argument("--queries", type=int, default=4, help="questions per document")
    parser.add_argument(
        "--dense-up-to",
        type=int,
        default=max(SIZES),
        help="pages up to which the dense version runs",
    )
    parser.add_argument("--save", action="store_true", help="write to docs/benchmarks.md")
    options = parser.parse_args()
    if options.embeddings:
        examples = load(options.embeddings, options.queries)
        section = "real documents"
    else:
        examples = (planted_document(n, options.queries) for n in options.pages)
        section = "planted documents"
    measured = []
    for example in examples:
        dense = len(example.offsets) - 1 <= options.dense_up_to
        measured.append(measure(example, dense=dense))
        print(markdown_table(HEADER, rows(measured[-1:])), flush=True)
    table = markdown_table(HEADER, rows(measured))
    print(f"\n{table}")
    median = statistics.median(m.ratio for m in measured)
    print(f"\nViSAR / late interaction, median over documents: {median:.1f}")
    if options.save:
        save_section(section, markdown_table(HEADER, rows(spread(measured, SAVED_DOCUMENTS))))


if __name__ == "__main__":
    main()
