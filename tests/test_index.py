"""An index from a user's point of view: documents in, pages and passages out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from visar.errors import InvalidOption, NotInIndex
from visar.explain.pictures import pages_with_heat
from visar.index import Index
from visar.ingest.pipeline import Stage
from visar.serialization import to_plain

QUESTIONS = json.loads(
    (Path(__file__).parents[1] / "examples" / "questions.json").read_text(encoding="utf-8")
)["questions"]
ON_ONE_PAGE = [q for q in QUESTIONS if q["kind"] in ("one page", "scanned page")]
UNANSWERABLE = [q for q in QUESTIONS if q["kind"] == "not answerable"]

MakePdf = Callable[..., Path]
CATS = "The cat sleeps on the sofa all day.\nIts fur is grey and very soft."
TAXES = "Income tax is due in April.\nThe rate is nineteen percent of profits."
BOATS = "Sailing boats need wind to leave the harbour.\nA storm damaged the mast."


@pytest.mark.parametrize("question", ON_ONE_PAGE, ids=lambda q: q["question"][:40])
def test_the_page_with_the_answer_is_selected(library: Index, question: dict[str, Any]) -> None:
    found = library.search(question["question"])
    assert set(question["evidence_pages"]) <= {hit.page for hit in found.pages}
    assert found.strength == "good"
    assert found.k <= 5


def test_the_answer_is_a_whole_sentence_with_its_position(library: Index) -> None:
    answer = library.ask("How long is the warranty on the Aurora 4 lantern?")
    assert answer.found
    assert answer.passages[0].text == (
        "We give a warranty of seven years on the lantern and five years on its battery."
    )
    assert answer.passages[0].page == 10
    assert len(answer.passages[0].boxes) == 3
    assert answer.pages[0].page == 10


def test_a_table_row_is_quoted_as_a_row(library: Index) -> None:
    answer = library.ask("How did capital expenditure change between 2020 and 2024?")
    assert answer.search.k > 1
    rows = [p.text for p in answer.passages if "47.5" in p.text]
    assert rows


@pytest.mark.parametrize("question", UNANSWERABLE, ids=lambda q: q["question"][:40])
def test_no_page_is_likely_for_an_unanswerable_question(
    library: Index, question: dict[str, Any]
) -> None:
    answer = library.ask(question["question"])
    assert answer.search.pages
    assert "likely" not in [hit.likelihood for hit in answer.search.pages]


def test_a_question_about_something_else_is_not_answered(library: Index) -> None:
    answer = library.ask("Which vaccines does the company produce?")
    assert not answer.found
    assert answer.search.strength == "none"
    assert answer.passages
    # If the documents don't match at all, no page is "possible", whatever its probability.
    assert {hit.likelihood for hit in answer.pages} == {"unlikely"}


def test_results_can_be_converted_to_json(library: Index) -> None:
    answer = library.ask("How long is the warranty on the Aurora 4 lantern?")
    plain = json.loads(json.dumps(to_plain(answer), allow_nan=False))
    assert plain["search"]["pages"][0]["page"] == 10
    assert plain["search"]["decision"]["k_star"] == answer.search.k_star


def test_other_methods_choose_other_pages(library: Index) -> None:
    question = "How did capital expenditure change between 2020 and 2024?"
    assert library.search(question, method="top-k", k=7).k == 7
    assert library.search(question, method="top-k").k == 5
    assert library.search(question, method="largest-gap").k >= 1
    assert library.search(question, method="score-cluster", max_k=2).k <= 2
    with pytest.raises(InvalidOption, match="top-k"):
        library.search(question, k=3)


def test_neighbors_are_marked_and_stay_within_the_document(library: Index) -> None:
    found = library.search("cash flow statement", max_k=1, neighbors=1)
    first = found.pages[0]
    beside = {hit.page: hit.beside for hit in found.pages[1:]}
    expected = {p: first.page for p in (first.page - 1, first.page + 1) if 1 <= p <= 40}
    assert beside == expected


def test_heat_is_on_the_matching_words(library: Index) -> None:
    found = library.search("How long is the warranty on the Aurora 4 lantern?")
    hit, picture = next(iter(pages_with_heat(library, found, dpi=72)))
    assert hit.page == 10
    passage = library.ask(found.question).passages[0]
    left, top, right, bottom = passage.boxes[1]
    pixels = np.asarray(picture, np.int16)
    height, width = pixels.shape[:2]
    is_hot = (pixels[..., 0] - pixels[..., 2]) > 40
    on_passage = is_hot[
        int(top * height) : int(bottom * height), int(left * width) : int(right * width)
    ]
    assert on_passage.mean() > 5 * is_hot.mean()


def test_adding_the_same_file_again_changes_nothing(tmp_path: Path, make_pdf: MakePdf) -> None:
    index = Index.open(tmp_path / "index")
    path = make_pdf("animals.pdf", CATS)
    first = index.add(path)
    stages: list[Stage] = []
    again = index.add(path, progress=lambda stage, _done, _total: stages.append(stage))
    assert again == first
    assert not stages
    assert index.documents() == [first]


def test_a_changed_file_replaces_its_old_version(tmp_path: Path, make_pdf: MakePdf) -> None:
    index = Index.open(tmp_path / "index")
    old = index.add(make_pdf("notes.pdf", CATS))
    new = index.add(make_pdf("notes.pdf", TAXES, BOATS))
    assert [document.id for document in index.documents()] == [new.id]
    assert new.id != old.id
    assert index.search("When is tax due?").pages[0].page == 1


def test_several_documents_are_searched_together(tmp_path: Path, make_pdf: MakePdf) -> None:
    index = Index.open(tmp_path / "index")
    index.add(make_pdf("animals.pdf", CATS, "Dogs bark at night."))
    taxes = index.add(make_pdf("taxes.pdf", BOATS, TAXES))
    found = index.search("When is income tax due?")
    assert (found.pages[0].document, found.pages[0].page) == (taxes.id, 2)
    assert found.pages_searched == 4
    only = index.search("When is income tax due?", documents=["animals.pdf"])
    assert {hit.name for hit in only.pages} == {"animals.pdf"}


def test_progress_is_reported_per_page(tmp_path: Path, make_pdf: MakePdf) -> None:
    index = Index.open(tmp_path / "index")
    steps: list[tuple[Stage, int, int]] = []
    index.add(make_pdf("a.pdf", CATS, TAXES), progress=lambda *step: steps.append(step))
    assert ("reading", 2, 2) in steps
    assert steps[-1] == ("encoding", 2, 2)


def test_an_interrupted_addition_is_resumed(tmp_path: Path, make_pdf: MakePdf) -> None:
    index = Index.open(tmp_path / "index")
    path = make_pdf("long.pdf", *(f"Page {n} speaks of subject {n}." for n in range(40)))

    def stop(stage: Stage, done: int, _total: int) -> None:
        if stage == "encoding" and done == 24:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        index.add(path, progress=stop)
    assert index.documents() == []
    read: list[tuple[Stage, int]] = []
    again = Index.open(tmp_path / "index")
    added = again.add(path, progress=lambda stage, done, _: read.append((stage, done)))
    assert added.pages == 40
    assert 0 < sum(stage == "reading" for stage, _ in read) < 40
    assert not [problem for problem in again.verify() if problem.kind == "damage"]


def test_one_bad_file_does_not_stop_the_others(tmp_path: Path, make_pdf: MakePdf) -> None:
    index = Index.open(tmp_path / "index")
    good = make_pdf("good.pdf", CATS)
    bad = tmp_path / "bad.pdf"
    bad.write_bytes(b"%PDF-1.7 but no more")
    additions = index.add_all([bad, good])
    assert [document.name for document in additions.added] == ["good.pdf"]
    assert "bad.pdf" in additions.refused[0].reason


def test_one_missing_path_does_not_stop_the_others(tmp_path: Path, make_pdf: MakePdf) -> None:
    index = Index.open(tmp_path / "index")
    good = make_pdf("good.pdf", CATS)
    additions = index.add_all([tmp_path / "missing.pdf", "x" * 300, good])
    assert [document.name for document in additions.added] == ["good.pdf"]
    assert [refusal.path for refusal in additions.refused] == [
        str(tmp_path / "missing.pdf"),
        "x" * 300,
    ]
    assert "missing.pdf" in additions.refused[0].reason


def test_errors_name_the_mistake(tmp_path: Path, make_pdf: MakePdf) -> None:
    index = Index.open(tmp_path / "index")
    with pytest.raises(NotInIndex):
        index.ask("anything?")
    index.add(make_pdf("a.pdf", CATS, TAXES))
    with pytest.raises(NotInIndex, match="'zebra'"):
        index.ask("anything?", documents=["zebra"])
    with pytest.raises(InvalidOption, match="neighbors"):
        index.search("cat", neighbors=-1)
    with pytest.raises(InvalidOption, match="best"):
        index.search("cat", encoder="best")


def test_a_removed_document_is_no_longer_found(tmp_path: Path, make_pdf: MakePdf) -> None:
    index = Index.open(tmp_path / "index")
    cats = index.add(make_pdf("animals.pdf", CATS))
    index.add(make_pdf("taxes.pdf", TAXES))
    index.remove(cats.id[:8])
    assert [document.name for document in index.documents()] == ["taxes.pdf"]
    assert {hit.name for hit in index.search("cat").pages} == {"taxes.pdf"}


def test_pages_stay_loaded_until_the_index_changes(make_pdf: MakePdf, tmp_path: Path) -> None:
    index = Index.open(tmp_path / "index")
    index.add(make_pdf("notes.pdf", BOATS, TAXES))
    pages = index.searcher(None).pages
    assert index.searcher(None).pages is pages
    index.add(make_pdf("more.pdf", TAXES))
    assert len(index.searcher(None).pages) == 3
