"""Compute the cost of a library with 10 thousand, 1 million and 100 million pages.

    python -m benchmarks.scaling [--ocr-share 0.5] [--gpu-hour 0.6] …

This is arithmetic with constants, not a measurement. `MEASURED` is from `benchmarks.ingest`,
an index in object storage and the sample report. `Assumptions` are guesses, which you can replace
with options of the same name.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, fields

from benchmarks.tables import markdown_table

SIZES = {"10 thousand": 10_000, "1 million": 1_000_000, "100 million": 100_000_000}

MEASURED = {
    "read": 0.013,  # CPU seconds of a page with a text layer
    "ocr": 5.2,  # CPU seconds of a scanned page, rapidocr
    "embedded": 0.111,  # CPU seconds of a page, embedded encoder
    "embedded bytes": 191_500,  # vectors, boxes and words of a page, example report
    "colpali bytes": 1030 * (128 * 2 + 20),  # the same of a ColPali page
    "words bytes": 21_000,  # a page with its words and full text
    "file bytes": 11_400,  # a page of the example's PDF
    "catalog bytes": 59,  # of a page in the catalog of an index in object storage
    "bits bytes": 1030 * 128 // 8,  # one bit a dimension of a ColPali page
    "means bytes": 4096 * 2,  # the mean vectors of a page: 4096 numbers of 16 bits
}


@dataclass(frozen=True)
class Assumptions:
    """Values that weren't measured: prices in dollars, and properties of the documents."""

    cpu_hour: float = 0.04
    """Price of a core per hour."""
    gpu_hour: float = 0.80
    """Price of a GPU with 24 GB per hour."""
    gpu_pages: float = 8.0
    """Pages per second that ColPali encodes on this GPU."""
    gigabyte_month: float = 0.023
    """Price of object storage per GB and month."""
    million_puts: float = 5.0
    """Price of write requests to object storage."""
    memory_gigabyte_month: float = 3.0
    """Price of server memory per GB and month."""
    disk_gigabyte_month: float = 0.08
    """Price of server disk per GB and month."""
    ocr_share: float = 0.1
    """Share of pages without a text layer."""
    document_pages: float = 40.0
    """Pages per document."""


def cost(pages: int, given: Assumptions) -> dict[str, tuple[float, float, float]]:
    """Return the bytes, core or GPU seconds, and dollars (per month for bytes) of each stage."""
    core = given.cpu_hour / 3600
    gpu = given.gpu_hour / 3600
    stored = given.gigabyte_month / 1e9
    measured = MEASURED
    read, ocr = pages * measured["read"], pages * given.ocr_share * measured["ocr"]
    embedded, visual = pages * measured["embedded"], pages / given.gpu_pages
    base = pages * (measured["words bytes"] + measured["file bytes"])
    by_words, by_patches = (pages * measured[f"{n} bytes"] for n in ("embedded", "colpali"))
    # Rows, catalog and their manifests take about eight writes per document.
    puts = 8 * pages / given.document_pages
    kept = given.memory_gigabyte_month / 1e9
    catalog, means, bits = (pages * measured[f"{n} bytes"] for n in ("catalog", "means", "bits"))
    return {
        "read": (0, read, read * core),
        "OCR": (0, ocr, ocr * core),
        "encode, embedded": (0, embedded, embedded * core),
        "encode, ColPali on GPUs": (0, visual, visual * gpu),
        "commit": (0, 0, puts / 1e6 * given.million_puts),
        "keep files and words, a month": (base, 0, base * stored),
        "keep vectors, embedded, a month": (by_words, 0, by_words * stored),
        "keep vectors, ColPali, a month": (by_patches, 0, by_patches * stored),
        "keep summaries, a month": (means + bits, 0, (means + bits) * stored),
        "catalog in each process's memory, a month": (catalog, 0, catalog * kept),
        "means in memory, a month": (means, 0, means * kept),
        "bits on a server's disk, a month": (bits, 0, bits / 1e9 * given.disk_gigabyte_month),
    }


def amount(value: float, units: Sequence[tuple[float, str]]) -> str:
    """Format a number with a suitable unit.

    >>> amount(7_200, [(3600, "h"), (1, "s")]), amount(0, [(1, "s")])
    ('2 h', '–')
    """
    if not value:
        return "–"
    size, unit = next(((s, u) for s, u in units if value >= s), units[-1])
    return f"{value / size:,.2g} {unit}" if value / size < 10 else f"{value / size:,.0f} {unit}"


BYTES = [(1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB")]
SECONDS = [(86_400 * 365, "years"), (86_400, "days"), (3600, "h"), (60, "min"), (1, "s")]


def tables(given: Assumptions) -> tuple[str, str]:
    """Return the tables of costs and assumptions."""
    of_size = {name: cost(pages, given) for name, pages in SIZES.items()}
    rows = []
    for stage in next(iter(of_size.values())):
        row = [stage]
        for costs in of_size.values():
            size, seconds, dollars = costs[stage]
            what = amount(size, BYTES) if size else amount(seconds, SECONDS)
            paid = f"{dollars:,.2f}" if dollars < 10 else f"{dollars:,.0f}"
            row.append(f"{what}, ${paid}" if what != "–" else f"${paid}")
        rows.append(row)
    assumed = [
        [f"`--{field.name.replace('_', '-')}`", f"{getattr(given, field.name):g}"]
        for field in fields(given)
    ]
    return markdown_table(["stage", *SIZES], rows), markdown_table(["option", "assumed"], assumed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for field in fields(Assumptions):
        name = f"--{field.name.replace('_', '-')}"
        parser.add_argument(name, type=float, default=field.default, metavar="NUMBER")
    print(*tables(Assumptions(**vars(parser.parse_args()))), sep="\n\n")


if __name__ == "__main__":
    main()
