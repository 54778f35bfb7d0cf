"""Small data sets in the benchmarks' published layouts, with invented questions."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from PIL import Image

from tests.documents.conftest import text_at, write_pdf
from visar.evaluation.questions import Dataset

MMLONGBENCH: list[dict[str, Any]] = [
    {
        "doc_id": "ferries.pdf",
        "doc_type": "Brochure",
        "question": "How many ferries sail from Oban?",
        "answer": "14",
        "evidence_pages": "[2, 3]",
        "evidence_sources": "['Table']",
        "answer_format": "Int",
    },
    {
        "doc_id": "ferries.pdf",
        "doc_type": "Brochure",
        "question": "Which ports have a café?",
        "answer": "['Oban', 'Mallaig']",
        "evidence_pages": "[0, 7]",
        "evidence_sources": "['Figure']",
        "answer_format": "List",
    },
    {
        "doc_id": "lost.pdf",
        "doc_type": "Brochure",
        "question": "Who is the captain?",
        "answer": "Not answerable",
        "evidence_pages": "[]",
        "evidence_sources": "[]",
        "answer_format": "None",
    },
]
LONGDOCURL: list[dict[str, Any]] = [
    {
        "question_id": "extract_4000001_1_3_1",
        "doc_no": "4000001",
        "total_pages": 11,
        "start_end_idx": [1, 3],
        "question": "How many ferries sail from Oban?",
        "answer": 14,
        "evidence_pages": [2],
        "answer_format": "Integer",
    },
    {
        "question_id": "extract_4000002_1_3_1",
        "doc_no": "4000002",
        "total_pages": 3,
        "start_end_idx": [1, 3],
        "question": "Which ports have a café?",
        "answer": ["Oban", "Mallaig"],
        "evidence_pages": [1, 3],
        "answer_format": "List",
    },
]


def write_lines(path: Path, entries: Iterable[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(entry, ensure_ascii=False) for entry in entries]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_samples(folder: Path, entries: Iterable[dict[str, Any]]) -> Path:
    """Write ``samples.json`` and a ``documents`` folder with ferries.pdf."""
    pages = [text_at(20, 300, word) for word in ("one", "two", "three")]
    write_pdf(_folder(folder / "documents") / "ferries.pdf", *pages)
    (folder / "samples.json").write_text(json.dumps(list(entries)), encoding="utf-8")
    return folder


def write_page_images(folder: Path, document: str, numbers: Iterable[int]) -> None:
    """Write page images whose red value is the number in their name."""
    _folder(folder)
    for number in numbers:
        Image.new("RGB", (20, 30), (number, 0, 0)).save(folder / f"{document}_{number}.png")


def write_longdocurl(folder: Path, *, images_of_second: Iterable[int] = range(3)) -> Path:
    """Write JSON Lines, and page images of both documents in one folder, as published."""
    write_lines(folder / "LongDocURL.jsonl", LONGDOCURL)
    images = folder / "pdf_pngs" / "4000-4999" / "4000"
    write_page_images(images, "4000001", range(11))
    write_page_images(images, "4000002", images_of_second)
    return folder


def _folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def missing_documents(dataset: Dataset) -> list[str]:
    """Return documents that questions need but aren't available, in the order of the data set."""
    documents = dict.fromkeys(question.document for question in dataset.questions())
    return [document for document in documents if dataset.path(document) is None]
