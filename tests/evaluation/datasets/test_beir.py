"""Data sets in BEIR's layout, in Parquet and JSON Lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.evaluation.datasets.beir_sets import (
    QRELS,
    QUERIES,
    page_images,
    write_json_lines,
    write_parquet,
    write_table,
)
from tests.evaluation.datasets.layouts import missing_documents, write_lines
from visar.documents import open_document
from visar.errors import DatasetError
from visar.evaluation.datasets import open_dataset
from visar.evaluation.plan import Plan, open_question_sets
from visar.evaluation.questions import EvidenceBox

WRITERS = [write_parquet, write_json_lines]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("write", WRITERS)
def test_the_corpus_is_one_document_in_order(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    dataset = open_dataset(write(tmp_path / "harbour"))
    assert dataset.name == "harbour"
    assert missing_documents(dataset) == []
    path = dataset.path("harbour")
    assert path is not None
    with open_document(path) as document:
        assert len(document) == 4
        for number, expected in enumerate(page_images(), start=1):
            (tmp_path / "expected.png").write_bytes(expected)
            with Image.open(tmp_path / "expected.png") as image:
                assert np.array_equal(np.asarray(document.image(number)), np.asarray(image))
    assert dataset.path("elsewhere") is None


@pytest.mark.parametrize("write", WRITERS)
def test_evidence_pages_are_sorted_by_grade(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    """Ids 100 to 103 are pages 1 to 4; query 12 has no judgment and is skipped."""
    questions = open_dataset(write(tmp_path / "harbour")).questions()
    assert [(one.id, one.evidence_pages) for one in questions] == [("10", (2, 4)), ("11", (1,))]
    assert questions[0].text == QUERIES[0]["query"]


def test_answers_and_boxes_of_vidore_3(tmp_path: Path) -> None:
    first = open_dataset(write_parquet(tmp_path / "harbour")).questions()[0]
    assert first.answers == ("Nine ships",)
    assert first.boxes == (
        EvidenceBox(2, 0, (10.0, 20.0, 50.0, 60.0)),
        EvidenceBox(2, 1, (12.0, 20.0, 52.0, 60.0)),
    )


def test_options_select_grade_and_language(tmp_path: Path) -> None:
    folder = write_parquet(tmp_path / "harbour")
    (question,) = open_dataset(f"{folder}?grade=2").questions()
    assert question.evidence_pages == (2,)
    english = open_dataset(f"beir:{folder}?language=english&grade=2")
    assert english.name == "harbour, english, grade 2"
    (french,) = open_dataset(f"{folder}?language=french").questions()
    assert french.id == "11"
    # The name as in a plan of an evaluation.
    (opened,) = open_question_sets(Plan(data=(f"{folder}?grade=2",)))
    assert (opened.name, len(opened.questions)) == ("harbour, grade 2", 1)


def test_data_sets_are_named_by_folder_or_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_parquet(tmp_path / "harbour")
    assert open_dataset("vidore/esg_v2", data=folder).name == "esg_v2"
    monkeypatch.chdir(folder)
    assert open_dataset("beir:.").name == open_dataset(".").name == "harbour"


def test_mteb_configs_for_each_language(tmp_path: Path) -> None:
    folder = write_parquet(tmp_path / "harbour")
    for part in ("corpus", "queries", "qrels"):
        (folder / part).rename(folder / f"french-{part}")
    (question,) = open_dataset(f"{folder}?language=french").questions()
    assert question.id == "11"
    with pytest.raises(DatasetError, match=r"\?language=LANGUAGE"):
        open_dataset(folder)


def test_qrels_in_the_default_config(tmp_path: Path) -> None:
    folder = write_parquet(tmp_path / "harbour")
    (folder / "qrels").rename(folder / "data")
    assert len(open_dataset(folder).questions()) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("?grade=high", "grade=NUMBER"),
        ("?lang=french", "grade=NUMBER, language=NAME and split=NAME"),
        ("?language=latin", "'latin'.*english, french"),
        ("?split=dev", "no corpus .*'dev'"),
    ],
)
def test_invalid_options_are_errors(tmp_path: Path, options: str, message: str) -> None:
    folder = write_parquet(tmp_path / "harbour")
    with pytest.raises(DatasetError, match=message):
        open_dataset(f"{folder}{options}")


def test_a_single_file_of_judgments_has_no_splits(tmp_path: Path) -> None:
    folder = write_json_lines(tmp_path / "harbour")
    (folder / "qrels" / "test.tsv").rename(folder / "qrels.tsv")
    assert open_dataset(folder).questions()
    with pytest.raises(DatasetError, match=r"no qrels .*'dev'"):
        open_dataset(f"{folder}?split=dev")


def test_invalid_rows_are_reported(tmp_path: Path) -> None:
    folder = write_json_lines(tmp_path / "harbour")
    english = {"language": "english"}
    rows: list[dict[str, Any]] = [{"_id": "10", "text": 5, **english}, {"text": "?", **english}]
    queries = write_lines(folder / "queries.jsonl", rows)
    queries.write_text(queries.read_text() + "no JSON\n")
    for options in ("", "?language=english"):
        with pytest.raises(DatasetError) as caught:
            open_dataset(f"{folder}{options}")
        assert str(caught.value).splitlines()[1:] == [
            '  line 1: "text" must be text, not 5',
            '  line 2: has no "query-id"',
            "  line 3: isn't JSON (Expecting value)",
        ]


def test_judgments_of_missing_pages_are_errors(tmp_path: Path) -> None:
    folder = write_parquet(tmp_path / "harbour")
    write_table(folder / "qrels" / "test-00000-of-00001.parquet", [QRELS[0] | {"corpus_id": 9}])
    with pytest.raises(DatasetError, match="'9'"):
        open_dataset(folder)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (None, "needs the path of an image"),
        ("../secret.png", "needs the path of an image below"),
        ("images/lost.png", "lost.png: no such file"),
    ],
)
def test_missing_images_are_errors(tmp_path: Path, image: str | None, message: str) -> None:
    folder = write_json_lines(tmp_path / "harbour")
    row = {"image": image}
    write_lines(folder / "corpus.jsonl", [{"_id": str(100 + place)} | row for place in range(4)])
    with pytest.raises(DatasetError, match=message):
        open_dataset(folder).path("harbour")


def test_a_table_without_images_is_an_error(tmp_path: Path) -> None:
    folder = write_parquet(tmp_path / "harbour")
    for file in (folder / "corpus").iterdir():
        file.unlink()
    rows = [{"corpus_id": 100 + place, "text": "…"} for place in range(4)]
    write_table(folder / "corpus" / "test.parquet", rows)
    with pytest.raises(DatasetError, match=r'has a page without an image in "image"'):
        open_dataset(folder).path("harbour")


def test_a_name_that_is_neither_folder_nor_repository_is_an_error() -> None:
    with pytest.raises(DatasetError, match="OWNER/NAME"):
        open_dataset("beir:harbour")
