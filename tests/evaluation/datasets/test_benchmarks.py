"""Benchmarks in their published layouts, and custom questions."""

from __future__ import annotations

import gc
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.evaluation.datasets.layouts import (
    LONGDOCURL,
    MMLONGBENCH,
    missing_documents,
    write_lines,
    write_longdocurl,
    write_page_images,
    write_samples,
)
from visar.documents import ReadOptions, open_document
from visar.errors import DatasetError
from visar.evaluation.datasets import open_dataset
from visar.evaluation.datasets.benchmarks import _files_below
from visar.evaluation.questions import Question

OWN: list[dict[str, Any]] = [
    {
        "id": "ferries-1",
        "question": "How many ferries sail from Oban?",
        "document": "papers/ferries.pdf",
        "evidence_pages": [2],
        "answers": ["14", "fourteen"],
    },
    {
        "question": "Who is the captain?",
        "document": "scans",
        "evidence_pages": [],
        "answers": ["Not answerable"],
    },
]


def reds(folder: Path) -> list[int]:
    """Return the red values of a document's pages, which are the numbers in their file names."""
    with open_document(folder, ReadOptions(ocr="never")) as document:
        pixels = [document.image(page).getpixel((5, 5)) for page in range(1, len(document) + 1)]
    return [pixel[0] for pixel in pixels if isinstance(pixel, tuple)]


def test_mmlongbench_has_lists_as_strings(tmp_path: Path) -> None:
    dataset = open_dataset(write_samples(tmp_path, MMLONGBENCH))
    first, second, third = dataset.questions()
    assert dataset.name == "MMLongBench"
    assert first == Question(
        id=first.id,
        document="ferries.pdf",
        text="How many ferries sail from Oban?",
        evidence_pages=(2, 3),
        answers=("14",),
        kind="Int",
    )
    # A list is one answer.
    assert (second.evidence_pages, second.answers) == ((1, 7), ("['Oban', 'Mallaig']",))
    assert (third.evidence_pages, third.answers) == ((), ("Not answerable",))


def test_mmlongbench_pages_below_1_are_page_1(tmp_path: Path) -> None:
    # Of 0, -2, 1 and 3, the first three are page 1 and count once.
    (question,) = open_dataset(
        write_samples(tmp_path, [MMLONGBENCH[0] | {"evidence_pages": "[0, -2, 1, 3]"}])
    ).questions()
    assert question.evidence_pages == (1, 3)


def test_mmlongbench_on_the_hub_is_a_table(tmp_path: Path) -> None:
    samples = write_samples(tmp_path / "samples", MMLONGBENCH)
    table = tmp_path / "table"
    shutil.copytree(samples / "documents", table / "documents")
    (table / "data").mkdir()
    parquet.write_table(
        pa.Table.from_pylist(MMLONGBENCH), table / "data" / "train-00000-of-00001.parquet"
    )
    dataset = open_dataset(table)
    assert dataset.questions() == open_dataset(samples).questions()
    assert dataset.path("ferries.pdf") == table / "documents" / "ferries.pdf"


def test_the_repository_of_mmlongbench_has_samples_in_a_data_folder(tmp_path: Path) -> None:
    write_samples(tmp_path / "data", [*MMLONGBENCH, MMLONGBENCH[2]])
    dataset = open_dataset(tmp_path)
    assert dataset.path("ferries.pdf") == tmp_path / "data" / "documents" / "ferries.pdf"
    assert dataset.path("lost.pdf") is None
    assert missing_documents(dataset) == ["lost.pdf"]


def test_longdocurl_numbers_pages_from_1_and_images_from_0(tmp_path: Path) -> None:
    dataset = open_dataset(write_longdocurl(tmp_path))
    first, second = dataset.questions()
    assert dataset.name == "LongDocURL"
    assert (first.id, first.document, first.evidence_pages) == (
        "extract_4000001_1_3_1",
        "4000001",
        (2,),
    )
    assert (first.answers, second.answers) == (("14",), ('["Oban","Mallaig"]',))
    assert (first.kind, second.kind) == ("Integer", "List")


def test_page_images_in_a_shared_folder_are_separated_and_sorted(tmp_path: Path) -> None:
    # As published: documents whose numbers have the same prefix share a folder.
    dataset = open_dataset(write_longdocurl(tmp_path))
    first, second = dataset.path("4000001"), dataset.path("4000002")
    assert first is not None
    assert second is not None
    # Page 11 has the image 10, which comes after 9 and not after 1.
    assert reds(first) == list(range(11))
    assert reds(second) == [0, 1, 2]
    assert dataset.path("4000001") == first
    assert first.name == "4000001"
    # The folders of links are deleted with the data set.
    del dataset
    gc.collect()
    assert not first.parent.exists()
    assert len(list(tmp_path.rglob("*.png"))) == 14


def test_page_images_in_their_own_folder_are_not_linked(tmp_path: Path) -> None:
    write_lines(tmp_path / "LongDocURL.jsonl", LONGDOCURL[1:])
    write_page_images(tmp_path / "pages", "4000002", range(3))
    (tmp_path / "pages" / ".hidden").touch()
    assert open_dataset(tmp_path).path("4000002") == tmp_path / "pages"


@pytest.mark.parametrize("numbers", [[0, 2], [0, 1], [1, 2, 3], []], ids=str)
def test_an_incomplete_document_counts_as_missing(tmp_path: Path, numbers: list[int]) -> None:
    # After a gap, pages would have wrong numbers and scores.
    dataset = open_dataset(write_longdocurl(tmp_path, images_of_second=numbers))
    assert dataset.path("4000002") is None
    assert missing_documents(dataset) == ["4000002"]


def test_a_pdf_is_preferred_to_page_images(tmp_path: Path) -> None:
    write_longdocurl(tmp_path, images_of_second=[0])
    pdf = tmp_path / "ccpdf_zip" / "4000-4999" / "4000002.pdf"
    pdf.parent.mkdir(parents=True)
    pdf.touch()
    assert open_dataset(tmp_path).path("4000002") == pdf


def test_folders_that_link_to_each_other_are_searched_once(tmp_path: Path) -> None:
    write_longdocurl(tmp_path / "data")
    (tmp_path / "data" / "pdf_pngs" / "again").symlink_to(tmp_path / "data")
    elsewhere = tmp_path / "elsewhere"
    (tmp_path / "data" / "pdf_pngs" / "4000-4999").rename(elsewhere)
    (tmp_path / "data" / "pdf_pngs" / "linked").symlink_to(elsewhere)
    assert missing_documents(open_dataset(tmp_path / "data")) == []
    assert len(list(_files_below(tmp_path / "data"))) == 14 + 1


def collection(folder: Path) -> Path:
    """Write the collection that the paper used, with both benchmarks in the same layout."""
    write_samples(folder / "MMLongBench", MMLONGBENCH)
    plain = {"doc_id": "ferries.pdf", "question": "How many?", "answer": 3, "evidence_pages": [2]}
    write_samples(folder / "LongDocURL", [plain])
    return folder


def test_a_benchmark_in_the_collection_is_selected_by_name_or_folder(tmp_path: Path) -> None:
    collection(tmp_path)
    for name, folder in (("MMLongBench-Doc", "MMLongBench"), ("longdocurl", "LongDocURL")):
        by_name = open_dataset(name, data=tmp_path)
        by_folder = open_dataset(tmp_path / folder)
        assert by_name.name == by_folder.name == folder
        assert by_name.questions() == by_folder.questions()
        assert by_name.path("ferries.pdf") == tmp_path / folder / "documents" / "ferries.pdf"
        assert by_folder.path("ferries.pdf") == by_name.path("ferries.pdf")


def test_longdocurl_in_the_collection_numbers_pages_from_0(tmp_path: Path) -> None:
    collection(tmp_path)
    (question,) = open_dataset("LongDocURL", data=tmp_path).questions()
    # The collection has 2 for the third page of LongDocURL, but numbers MMLongBench from 1.
    assert question.evidence_pages == (3,)
    assert open_dataset("MMLongBench", data=tmp_path).questions()[0].evidence_pages == (2, 3)


def test_longdocurl_has_the_same_pages_in_both_layouts(tmp_path: Path) -> None:
    # Evidence is on the first and third page. The release numbers pages from 1 and has [1, 3]; the
    # collection numbers them from 0 and has [0, 2], with or without the release's other fields.
    release, collected = tmp_path / "release", tmp_path / "collection" / "LongDocURL"
    write_lines(release / "LongDocURL_public.jsonl", LONGDOCURL[1:])
    write_samples(
        collected,
        [
            LONGDOCURL[1] | {"evidence_pages": [0, 2]},
            {
                "doc_id": "4000002.pdf",
                "question": "Which?",
                "answer": "x",
                "evidence_pages": "[0, 2]",
            },
        ],
    )
    for data in (release, collected):
        for question in open_dataset("LongDocURL", data=data).questions():
            assert question.evidence_pages == (1, 3)


def test_alternative_answers_in_the_collection_are_references(tmp_path: Path) -> None:
    entry = MMLONGBENCH[0] | {"answer_2": "fourteen", "answer_3": " "}
    assert open_dataset(write_samples(tmp_path, [entry])).questions()[0].answers == (
        "14",
        "fourteen",
    )


@pytest.mark.parametrize("name", ["Lillianwei/Mdocagent-dataset", None])
def test_the_collection_without_a_benchmark_is_ambiguous(tmp_path: Path, name: str | None) -> None:
    collection(tmp_path)
    with pytest.raises(DatasetError, match=r"several data sets: .*MMLongBench.*LongDocURL"):
        open_dataset(name, data=tmp_path) if name else open_dataset(tmp_path)
    shutil.rmtree(tmp_path / "LongDocURL")
    assert open_dataset(tmp_path).name == "MMLongBench"


def test_a_folder_of_another_benchmark_is_an_error(tmp_path: Path) -> None:
    write_longdocurl(tmp_path)
    with pytest.raises(DatasetError, match="from MMLongBench: it looks like LongDocURL"):
        open_dataset("MMLongBench", data=tmp_path)


def test_custom_questions(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "harbour.jsonl", OWN)
    write_page_images(tmp_path / "scans", "page", [0, 1])
    dataset = open_dataset(file)
    first, second = dataset.questions()
    assert dataset.name == "harbour"
    assert (first.id, first.answers, first.kind) == ("ferries-1", ("14", "fourteen"), None)
    assert second.evidence_pages == ()
    # A folder of page images is also a document.
    assert dataset.path("scans") == tmp_path / "scans"
    assert missing_documents(dataset) == ["papers/ferries.pdf"]
    assert open_dataset(tmp_path).questions() == dataset.questions()


def test_byte_order_marks_line_ends_and_lists(tmp_path: Path) -> None:
    questions = open_dataset(write_lines(tmp_path / "a.jsonl", OWN)).questions()
    content = (tmp_path / "a.jsonl").read_bytes().replace(b"\n", b"\r\n\r\n").rstrip()
    (tmp_path / "b.jsonl").write_bytes(b"\xef\xbb\xbf" + content)
    (tmp_path / "c.json").write_text(json.dumps(OWN))
    for name in ("b.jsonl", "c.json"):
        assert open_dataset(tmp_path / name).questions() == questions


def test_ids_are_stable_unique_and_contain_no_text(tmp_path: Path) -> None:
    questions = open_dataset(write_samples(tmp_path, [*MMLONGBENCH, MMLONGBENCH[0]])).questions()
    # Results are stored under these ids, so they must not change.
    ids = ["1-4ed48c64", "2-f0b611ab", "3-f13b97df", "4-4ed48c64"]
    assert [question.id for question in questions] == ids


def test_a_benchmark_may_have_empty_answers(tmp_path: Path) -> None:
    entries = [dict(MMLONGBENCH[0], answer=None), dict(MMLONGBENCH[1], answer=" ")]
    questions = open_dataset(write_samples(tmp_path, entries)).questions()
    assert [question.answers for question in questions] == [(), ()]


def test_the_preferred_file_of_longdocurl_is_read(tmp_path: Path) -> None:
    write_lines(tmp_path / "LongDocURL_public.jsonl", LONGDOCURL)
    write_lines(tmp_path / "LongDocURL_public_with_subtask_category.jsonl", LONGDOCURL[:1])
    assert len(open_dataset(tmp_path).questions()) == 2
