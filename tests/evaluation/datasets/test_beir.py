"""Data sets in the layout of BEIR, in Parquet and JSON lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

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
from tests.evaluation.datasets.layouts import write_lines
from visar.documents import open_document
from visar.errors import DatasetError
from visar.evaluation.datasets import missing_documents, open_dataset
from visar.evaluation.plan import Plan, open_question_sets
from visar.evaluation.questions import EvidenceBox

WRITERS = [write_parquet, write_json_lines]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("write", WRITERS)
def test_the_corpus_is_one_document_in_its_order(
    tmp_path: Path, write: Callable[[Path], Path]
) -> None:
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
def test_judged_pages_are_evidence_best_grade_first(
    tmp_path: Path, write: Callable[[Path], Path]
) -> None:
    """Ids 100 to 103 are pages 1 to 4; query 12 has no judgment and is left out."""
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


def test_options_choose_grade_and_language(tmp_path: Path) -> None:
    folder = write_parquet(tmp_path / "harbour")
    (question,) = open_dataset(f"{folder}?grade=2").questions()
    assert question.evidence_pages == (2,)
    english = open_dataset(f"beir:{folder}?language=english&grade=2")
    assert english.name == "harbour, english, grade 2"
    (french,) = open_dataset(f"{folder}?language=french").questions()
    assert french.id == "11"
    # As a plan of an evaluation names it.
    (opened,) = open_question_sets(Plan(data=(f"{folder}?grade=2",)))
    assert (opened.name, len(opened.questions)) == ("harbour, grade 2", 1)


def test_names_are_those_of_folders_and_repositories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_parquet(tmp_path / "harbour")
    assert open_dataset("vidore/esg_v2", data=folder).name == "esg_v2"
    monkeypatch.chdir(folder)
    assert open_dataset("beir:.").name == open_dataset(".").name == "harbour"


def test_a_config_for_each_language_as_mteb_has_them(tmp_path: Path) -> None:
    folder = write_parquet(tmp_path / "harbour")
    for part in ("corpus", "queries", "qrels"):
        (folder / part).rename(folder / f"french-{part}")
    (question,) = open_dataset(f"{folder}?language=french").questions()
    assert question.id == "11"
    with pytest.raises(DatasetError, match=r"is asked with \?language=LANGUAGE"):
        open_dataset(folder)


def test_qrels_as_the_default_config(tmp_path: Path) -> None:
    folder = write_parquet(tmp_path / "harbour")
    (folder / "qrels").rename(folder / "data")
    assert len(open_dataset(folder).questions()) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("?grade=high", "the options are grade=NUMBER"),
        ("?lang=french", "the options are grade=NUMBER, language=NAME and split=NAME"),
        ("?language=latin", "no queries in 'latin', but in english, french"),
        ("?split=dev", "no corpus of the split 'dev'"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, options: str, message: str) -> None:
    folder = write_parquet(tmp_path / "harbour")
    with pytest.raises(DatasetError, match=message):
        open_dataset(f"{folder}{options}")


def test_wrong_rows_are_named(tmp_path: Path) -> None:
    folder = write_json_lines(tmp_path / "harbour")
    write_lines(folder / "queries.jsonl", [{"_id": "10", "text": 5}, {"text": "?"}])
    with pytest.raises(DatasetError) as caught:
        open_dataset(folder)
    assert str(caught.value).splitlines()[1:] == [
        '  line 1: "text" must be text, not 5',
        '  line 2: has no "query-id"',
    ]


def test_judgments_of_pages_that_are_not_there_are_refused(tmp_path: Path) -> None:
    folder = write_parquet(tmp_path / "harbour")
    write_table(folder / "qrels" / "test-00000-of-00001.parquet", [QRELS[0] | {"corpus_id": 9}])
    with pytest.raises(DatasetError, match="judge the page '9', which is not in the corpus"):
        open_dataset(folder)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (None, "needs the path of an image"),
        ("../secret.png", "needs the path of an image below"),
        ("images/lost.png", "lost.png: no such file"),
    ],
)
def test_images_that_cannot_be_had(tmp_path: Path, image: str | None, message: str) -> None:
    folder = write_json_lines(tmp_path / "harbour")
    row = {"image": image}
    write_lines(folder / "corpus.jsonl", [{"_id": str(100 + place)} | row for place in range(4)])
    with pytest.raises(DatasetError, match=message):
        open_dataset(folder).path("harbour")


def test_a_table_without_images_is_refused(tmp_path: Path) -> None:
    folder = write_parquet(tmp_path / "harbour")
    for file in (folder / "corpus").iterdir():
        file.unlink()
    rows = [{"corpus_id": 100 + place, "text": "…"} for place in range(4)]
    write_table(folder / "corpus" / "test.parquet", rows)
    with pytest.raises(DatasetError, match=r'has a page without an image in "image"'):
        open_dataset(folder).path("harbour")


def test_a_name_that_is_neither_folder_nor_repository() -> None:
    with pytest.raises(DatasetError, match="neither a folder here nor OWNER/NAME at the hub"):
        open_dataset("beir:harbour")
