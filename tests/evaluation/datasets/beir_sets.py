"""Data sets in BEIR's layout, with pages of the example report."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from tests.evaluation.datasets.layouts import write_lines
from visar.documents import open_document
from visar.samples import REPORT

REPORT_PAGES = (7, 2, 5, 3)
"""The corpus: pages of the report in this order. Page 1 of the corpus is page 7."""
QUERIES: list[dict[str, Any]] = [
    {"query_id": 10, "query": "What is the fleet?", "language": "english", "answer": "Nine ships"},
    {"query_id": 11, "query": "Quelle est la flotte ?", "language": "french", "answer": "Neuf"},
    {"query_id": 12, "query": "Who is nobody?", "language": "english", "answer": None},
]
BOXES = [
    {"annotator": 0, "x1": 10, "x2": 50, "y1": 20, "y2": 60},
    {"annotator": 1, "x1": 12, "x2": 52, "y1": 20, "y2": 60},
]
QRELS: list[dict[str, Any]] = [
    {"query_id": 10, "corpus_id": 103, "score": 1, "bounding_boxes": []},
    {"query_id": 10, "corpus_id": 101, "score": 2, "bounding_boxes": BOXES},
    {"query_id": 11, "corpus_id": 100, "score": 1, "bounding_boxes": []},
]


@cache
def page_images(pages: tuple[int, ...] = REPORT_PAGES, dpi: int = 60) -> list[bytes]:
    """Return pages of the report as PNG."""
    found = []
    with open_document(REPORT) as document:
        for page in pages:
            buffer = io.BytesIO()
            document.image(page, dpi=dpi).save(buffer, "PNG")
            found.append(buffer.getvalue())
    return found


def write_table(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.Table.from_pylist([dict(row) for row in rows]), file)


def write_parquet(folder: Path) -> Path:
    """Write the format of ``datasets``: a folder for each config, with the corpus in two files."""
    corpus = [
        {"corpus_id": 100 + place, "image": {"bytes": image, "path": None}, "doc_id": "report"}
        for place, image in enumerate(page_images())
    ]
    write_table(folder / "corpus" / "test-00000-of-00002.parquet", corpus[:3])
    write_table(folder / "corpus" / "test-00001-of-00002.parquet", corpus[3:])
    write_table(folder / "queries" / "test-00000-of-00001.parquet", QUERIES)
    write_table(folder / "qrels" / "test-00000-of-00001.parquet", QRELS)
    return folder


def write_json_lines(folder: Path) -> Path:
    """Write BEIR's format: ids are strings, judgments are tab-separated; without boxes."""
    (folder / "images").mkdir(parents=True)
    corpus = []
    for place, image in enumerate(page_images()):
        # The order of the names differs from that of the pages.
        name = f"images/{9 - place}.png"
        (folder / name).write_bytes(image)
        corpus.append({"_id": str(100 + place), "image": name})
    write_lines(folder / "corpus.jsonl", corpus)
    write_lines(
        folder / "queries.jsonl",
        [{"_id": str(row["query_id"]), "text": row["query"]} for row in QUERIES],
    )
    lines = [f"{row['query_id']}\t{row['corpus_id']}\t{row['score']}" for row in QRELS]
    (folder / "qrels").mkdir()
    text = "\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n"
    (folder / "qrels" / "test.tsv").write_text(text)
    return folder
