"""Converters, with small files in the benchmarks' published layouts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from tests.evaluation.datasets.layouts import write_lines, write_page_images
from visar.documents import open_document
from visar.errors import DatasetError, InvalidOption
from visar.evaluation.datasets import open_dataset
from visar.evaluation.datasets.converters import CONVERTERS, convert, converter_names
from visar.evaluation.questions import Question

MMDOCIR = {
    "doc_name": "ferries",
    "domain": "Brochure",
    "page_indices": [0, 4],
    "layout_indinces": [0, 9],
    "questions": [
        {
            "Q": "How many ferries sail from Oban?",
            "A": "14",
            "type": "['Table']",
            "page_id": [0, 3],
            "layout_mapping": [{"page": 0, "page_size": [600, 800], "bbox": [1, 2, 3, 4]}],
        },
        {"Q": "Who is the captain?", "A": "Ann", "page_id": [2], "layout_mapping": []},
    ],
}
MMDOCRAG = {
    "q_id": 7,
    "doc_name": "ferries.pdf",
    "question": "How many ferries sail from Oban?",
    "text_quotes": [
        {"quote_id": "text1", "type": "text", "text": "…", "page_id": 5, "layout_id": 1},
        {"quote_id": "text2", "type": "text", "text": "…", "page_id": 1, "layout_id": 2},
    ],
    "img_quotes": [{"quote_id": "image1", "type": "image", "page_id": 0, "layout_id": 3}],
    "gold_quotes": ["image1", "text1"],
    "answer_short": "14",
    "answer_interleaved": "There are ![14](image1).",
}
VISR_BENCH = {
    "file_name": "0042",
    "all_page_images": ["0042_0.png", "0042_1.png", "0042_2.png"],
    "all_page_md_str": ["…", "…", "…"],
    "qa_list": [{"question": "How many ferries?", "answer": "14", "page_index": 2}],
}
SLIDEVQA = {
    "deck_name": "ferries-of-oban",
    "deck_url": "https://example.org/deck",
    "image_urls": ["https://example.org/ferries-1-1024.jpg"],
    "qa_id": 3,
    "question": "How many ferries?",
    "answer": "14",
    "arithmetic_expression": "None",
    "evidence_pages": [1, 20],
    "reasoning_type": "Multi-hop",
    "answer_type": "Single-span",
}
MP_DOCVQA = {
    "questionId": 337,
    "question": "How many ferries?",
    "doc_id": "abcd0001",
    "page_ids": ["abcd0001_p4", "abcd0001_p5", "abcd0001_p6"],
    "answers": ["14", "fourteen"],
    "answer_page_idx": 1,
    "data_split": "val",
}
FINANCEBENCH = {
    "financebench_id": "financebench_id_03029",
    "company": "Ferries",
    "doc_name": "FERRIES_2018_10K",
    "question": "What was the capital expenditure?",
    "answer": "$1577.00",
    "evidence": [
        {"evidence_text": "…", "doc_name": "FERRIES_2018_10K", "evidence_page_num": 0},
        {"evidence_text": "…", "doc_name": "FERRIES_2018_10K", "evidence_page_num": 59},
        {"evidence_text": "…", "doc_name": "FERRIES_2017_10K", "evidence_page_num": 3},
    ],
}


def as_lines(*entries: dict[str, Any]) -> str:
    return "".join(json.dumps(entry) + "\n" for entry in entries)


def as_list(*entries: dict[str, Any]) -> str:
    return json.dumps(entries)


def as_data(*entries: dict[str, Any]) -> str:
    return json.dumps({"dataset_name": "MP-DocVQA", "dataset_split": "val", "data": entries})


LAYOUTS: dict[str, tuple[str, Callable[..., str], dict[str, Any]]] = {
    "MMDocIR": ("MMDocIR_annotations.jsonl", as_lines, MMDOCIR),
    "MMDocRAG": ("evaluation_20.jsonl", as_lines, MMDOCRAG),
    "VisR-Bench": ("figure_QA.json", as_list, VISR_BENCH),
    "SlideVQA": ("test.jsonl", as_lines, SLIDEVQA),
    "MP-DocVQA": ("val.json", as_data, MP_DOCVQA),
    "FinanceBench": ("financebench_open_source.jsonl", as_lines, FINANCEBENCH),
}


def write_source(folder: Path, name: str, *entries: dict[str, Any]) -> Path:
    file, write, example = LAYOUTS[name]
    (folder / file).write_text(write(*(entries or (example,))), encoding="utf-8")
    return folder / file


def convert_entries(folder: Path, name: str, *entries: dict[str, Any]) -> list[Question]:
    out = folder / "out" / "questions.jsonl"
    convert(name, write_source(folder, name, *entries), out)
    return open_dataset(out).questions()


@pytest.mark.parametrize(
    ("name", "document", "pages", "answers"),
    [
        # The file has pages 0 and 3, from 0.
        ("MMDocIR", "doc_pdfs/ferries.pdf", (1, 4), ("14",)),
        # The gold quotes are on pages 0 and 5, from 0.
        ("MMDocRAG", "doc_pdfs/ferries.pdf", (1, 6), ("14",)),
        # page_index 2 is the third image.
        ("VisR-Bench", "Multimodal/0042", (3,), ("14",)),
        # Pages are numbered from 1 to 20.
        ("SlideVQA", "images/test/ferries-of-oban", (1, 20), ("14",)),
        # The answer's page is an index in page_ids, from 0: the second of three pages.
        ("MP-DocVQA", "pages/abcd0001", (2,), ("14", "fourteen")),
        # Pages 0 and 59, from 0; the page of another filing is ignored.
        ("FinanceBench", "pdfs/FERRIES_2018_10K.pdf", (1, 60), ("$1577.00",)),
    ],
)
def test_documents_pages_and_answers(
    tmp_path: Path, name: str, document: str, pages: tuple[int, ...], answers: tuple[str, ...]
) -> None:
    first = convert_entries(tmp_path, name)[0]
    assert (first.document, first.evidence_pages, first.answers) == (document, pages, answers)


def test_every_converter_is_tested() -> None:
    assert list(LAYOUTS) == list(CONVERTERS) == converter_names()


def test_ids_come_from_the_benchmark_or_the_position(tmp_path: Path) -> None:
    ids = {name: [one.id for one in convert_entries(tmp_path, name)] for name in LAYOUTS}
    assert ids["MMDocRAG"] == ["7"]
    assert ids["SlideVQA"] == ["3"]
    assert ids["MP-DocVQA"] == ["337"]
    assert ids["FinanceBench"] == ["financebench_id_03029"]
    assert [one.partition("-")[0] for one in ids["MMDocIR"]] == ["1", "2"]


def test_page_ranges_of_mp_docvqa_are_documents(tmp_path: Path) -> None:
    """Questions about the same pages share a document; the test split has no answers."""
    other = {"page_ids": ["abcd0001_p0"], "questionId": 338}
    same = {"questionId": 339}
    unknown = {"questionId": 340, "question": "?"}
    test = {key: MP_DOCVQA[key] for key in ("doc_id", "page_ids")} | unknown
    found = convert_entries(
        tmp_path, "MP-DocVQA", MP_DOCVQA, MP_DOCVQA | other | {"answer_page_idx": 0}, test,
        MP_DOCVQA | same,
    )  # fmt: skip
    assert [one.document for one in found] == [
        "pages/abcd0001",
        "pages/abcd0001-2",
        "pages/abcd0001",
        "pages/abcd0001",
    ]
    assert (found[2].evidence_pages, found[2].answers) == ((), ())


def test_pages_of_mp_docvqa_are_linked(tmp_path: Path) -> None:
    """The red value of a page image is its number in the document."""
    (tmp_path / "images").mkdir()
    for number in (4, 5, 6):
        image = Image.new("RGB", (40, 50), (10 * number, 0, 0))
        image.save(tmp_path / "images" / f"abcd0001_p{number}.jpg")
    (question,) = convert_entries(tmp_path, "MP-DocVQA")
    with open_document(tmp_path / "out" / question.document) as document:
        assert len(document) == 3
        red = document.image(question.evidence_pages[0]).getchannel("R")
        assert list(red.getextrema()) == pytest.approx([50, 50], abs=3)


def test_folders_of_visr_bench_are_documents(tmp_path: Path) -> None:
    source = write_source(tmp_path, "VisR-Bench", VISR_BENCH)
    write_page_images(tmp_path / "Multimodal" / "0042", "0042", range(12))
    result = convert("visr-bench", source, tmp_path / "visr-bench.jsonl")
    assert (result.questions, result.with_evidence, result.documents) == (1, 1, 1)
    assert result.missing == []
    path = open_dataset(tmp_path / "visr-bench.jsonl").path("Multimodal/0042")
    assert path is not None
    multilingual = tmp_path / "multilingual_QA.json"
    multilingual.write_text(as_list(VISR_BENCH))
    assert convert("VisR-Bench", multilingual, tmp_path / "m.jsonl").missing == [
        "Multilingual/0042"
    ]


def test_hub_tables_are_read_without_images(tmp_path: Path) -> None:
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    columns = {key: pa.array([value]) for key, value in SLIDEVQA.items()}
    columns["page_1"] = pa.array([{"bytes": b"\xff", "path": "1.jpg"}], image)
    file = tmp_path / "test-00000-of-00002.parquet"
    parquet.write_table(pa.table(columns), file)
    convert("SlideVQA", file, tmp_path / "slides.jsonl")
    (question,) = open_dataset(tmp_path / "slides.jsonl").questions()
    assert question.document == "images/test/ferries-of-oban"
    assert question.evidence_pages == (1, 20)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("MMDocIR", {"questions": None}, 'line 1: has no "questions"'),
        ("MMDocIR", {"questions": ["?"]}, '"questions" must be a list of objects'),
        ("MMDocIR", {"questions": [{"Q": "?", "A": "!"}]}, 'line 1, question 1: has no "page_id"'),
        ("MMDocIR", {"doc_name": "../secret"}, "inside the folder of documents"),
        ("MMDocRAG", {"gold_quotes": ["text9"]}, "'text9'"),
        ("MMDocRAG", {"text_quotes": [{"quote_id": "text1"}]}, 'has no "page_id"'),
        (
            "VisR-Bench",
            {"qa_list": [{"question": "?", "answer": "!"}]},
            'question 1: has no "page_index"',
        ),
        ("SlideVQA", {"evidence_pages": ["1"]}, "which must be a whole number"),
        ("MP-DocVQA", {"answer_page_idx": 3}, '"answer_page_idx" is 3, but there are 3 pages'),
        ("MP-DocVQA", {"page_ids": ["../a"]}, "must name files of one folder"),
        ("FinanceBench", {"evidence": "page 3"}, '"evidence" must be a list, not'),
    ],
)
def test_invalid_entries_are_reported(
    tmp_path: Path, name: str, change: dict[str, Any], message: str
) -> None:
    source = write_source(tmp_path, name, LAYOUTS[name][2] | change)
    with pytest.raises(DatasetError) as caught:
        convert(name, source, tmp_path / "out.jsonl")
    assert message in str(caught.value)
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_file_of_another_benchmark_is_an_error(tmp_path: Path, name: str) -> None:
    for other in LAYOUTS.keys() - {name}:
        source = write_source(tmp_path, other)
        with pytest.raises(DatasetError, match=r"has no|must contain"):
            convert(name, source, tmp_path / "out.jsonl")


def test_folders_and_unknown_names_are_errors(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="is a folder"):
        convert("MMDocIR", tmp_path, tmp_path / "out.jsonl")
    source = write_lines(tmp_path / "any.jsonl", [{}])
    with pytest.raises(InvalidOption, match="no converter 'MMDocRAGs': did you mean MMDocRAG"):
        convert("MMDocRAGs", source, tmp_path / "out.jsonl")
