"""The leaderboard: rows, paired tests, and notes on differences between runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.evaluation.synthetic import PRIVATE, stamp, write_records, write_run
from tests.explain.browser import needs_chromium, opened
from visar.errors import InvalidOption, NotARun
from visar.evaluation.records import QuestionRecord, RetrievalRecord, VerdictRecord, read_lines
from visar.evaluation.report import InvalidPages
from visar.evaluation.report.leaderboard import write_leaderboard

QUOTES = {"extractive": {"default": ""}}
DATA = {"source": "own", "questions": 4, "digest": "first"}


def write_small(folder: Path, choices: dict[str, dict[str, tuple[int, ...]]]) -> Path:
    """Write a run of four questions with evidence 1 and 2, and the methods' choices."""
    folder.mkdir()
    asked = [QuestionRecord(name, "own", f"{name}.pdf", 12, (1, 2), True) for name in "abcd"]
    write_records(folder / "asked.jsonl", asked)
    write_records(
        folder / "retrieved.jsonl",
        [
            RetrievalRecord("own", question, "letters", method, len(pages), pages, pages, None)
            for method, by_question in choices.items()
            for question, pages in by_question.items()
        ],
    )
    return stamp(folder)


def table(page: Path, key: str) -> dict[str, Any]:
    tables = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))["tables"]
    found = next(table for table in tables if table["key"] == key)
    rows = [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]
    return {**found, "rows": rows}


def number(cell: Any) -> Any:
    return cell["value"] if isinstance(cell, dict) else cell


BOTH, FIRST, WRONG = (1, 2), (1,), (7, 8)


def test_rows_of_two_runs_by_hand(tmp_path: Path) -> None:
    """Evidence is {1, 2} everywhere.

    good: recall (1 + 1 + 1/2 + 1/2) / 4 = 3/4, precision 1, F1 = 2 · 3/4 / (7/4) = 6/7.
    poor: recall (1/2 + 0 + 1/2) / 3 = 1/3, precision (1 + 0 + 1) / 3 = 2/3, F1 = 4/9.
    On the three questions of both, good has recall (1 + 1 + 1/2) / 3 = 5/6, precision 1 and
    F1 = 10/11: poor has 4/9 − 10/11 = −46/99 less.
    """
    write_small(tmp_path / "new", {"my:good": {"a": BOTH, "b": BOTH, "c": FIRST, "d": FIRST}})
    write_small(tmp_path / "old", {"my:poor": {"a": FIRST, "b": WRONG, "c": FIRST}})
    page = write_leaderboard([tmp_path / "old", tmp_path / "new"], tmp_path / "out")
    found = table(page, "retrieval-own")
    good, poor = found["rows"]
    assert [good["Run"], good["Method"], good["Questions"]] == ["new", "my:good", 4]
    assert [poor["Run"], poor["Method"], poor["Questions"]] == ["old", "my:poor", 3]
    assert number(good["Mean k"]) == 1.5
    assert number(good["R@k* %"]) == 75
    assert number(good["P@k* %"]) == 100
    assert number(good["F1@k* %"]) == pytest.approx(600 / 7)
    assert number(poor["F1@k* %"]) == pytest.approx(400 / 9)
    assert [poor["Shared"], good["Shared"]] == [3, 4]
    assert number(poor["Δ F1"]) == pytest.approx(-4600 / 99)
    assert [good["Δ F1"], good["p"]] == [None, None]
    low, high = poor["Δ F1"]["interval"]
    assert low <= -4600 / 99 <= high <= 0
    assert any("3 are in both, 0 only in old, 1 only in new" in n for n in found["notes"])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two runs with the same questions; the second has one encoder, no answers, other evidence."""
    folder = tmp_path_factory.mktemp("runs")
    groups = ("main", "others", "T")
    first = write_run(
        folder / "first",
        questions=30,
        datasets=("MMLongBench",),
        generators=("extractive",),
        groups=groups,
    )
    second = write_run(
        folder / "second",
        questions=30,
        groups=groups,
        datasets=("MMLongBench", "more"),
        encoders=("embedded",),
        generators=(),
    )
    (changed,) = [one for one in read_lines(second, QuestionRecord)[0] if one.question == "q1"][:1]
    write_records(second / "asked.later.jsonl", [replace(changed, evidence_pages=(1, 2, 3))])
    return first, stamp(second)


@pytest.fixture(scope="module")
def page(runs: tuple[Path, Path]) -> Path:
    return write_leaderboard(runs, runs[0].parent / "out")


def test_rows_are_sorted_complete_and_annotated(page: Path) -> None:
    found = table(page, "retrieval-mmlongbench")
    rows = found["rows"]
    scores = [number(row["F1@k* %"]) for row in rows]
    assert scores == sorted(scores, reverse=True)
    # The paper's seven methods, two of them with two budgets, and ten others.
    assert len(rows) == 3 * (7 + 2 + 10)
    content = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))
    assert len({one["key"] for one in content["tables"]}) == len(content["tables"]) == 4
    named = {(row["Run"], row["Encoder"], row["Method"]) for row in rows}
    assert ("first", "colpali", "Benjamini–Hochberg") in named
    assert not any("T = " in method for _, _, method in named)
    best = next(row for row in rows if row["Method"] != "Oracle")
    assert [row for row in rows if row["p"] is None] == [best]
    assert all(0 < number(row["p"]) <= 1 for row in rows if row["p"] is not None)
    assert "Not in every run: more of second." in content["introduction"]
    assert any(note.startswith("1 questions of first and second") for note in found["notes"])
    assert content["manifests"].keys() == {"first", "second"}
    for path in page.parent.iterdir():
        assert PRIVATE not in path.read_text(encoding="utf-8")


def test_numbers_and_questions_can_be_downloaded(page: Path) -> None:
    html = page.read_text(encoding="utf-8")
    for name in ("", "-retrievals", "-verdicts"):
        assert f'href="leaderboard{name}.csv"' in html
    numbers = pd.read_csv(page.parent / "leaderboard.csv")
    shown = numbers[(numbers.table == "retrieval-mmlongbench") & (numbers.column == "F1@k* %")]
    rows = table(page, "retrieval-mmlongbench")["rows"]
    assert list(shown.value) == pytest.approx([number(row["F1@k* %"]) for row in rows])
    questions = pd.read_csv(page.parent / "leaderboard-retrievals.csv")
    # Lists that any program can read.
    assert [len(json.loads(pages)) for pages in questions.pages[:5]] == list(questions.k[:5])
    means = questions[questions.dataset == "MMLongBench"].groupby(["run", "encoder", "method"])
    recall = {(row["Run"], row["Encoder"], row["Method"]): number(row["R@k* %"]) for row in rows}[
        "first", "colpali", "Late-Interaction, k = 5"
    ]
    assert recall == pytest.approx(means.recall.mean()["first", "colpali", "top-k@5"])


@needs_chromium
def test_a_reader_sorts_and_filters_rows(page: Path) -> None:
    with opened(page) as seen:
        shown_table = seen.page.locator("#retrieval-mmlongbench")
        rows = shown_table.locator("tbody tr")
        heading = shown_table.get_by_role("button", name="Mean k")

        def shown() -> list[float]:
            cells = rows.locator("td:nth-child(9)").all()
            return [float(cell.get_attribute("data-value") or "nan") for cell in cells]

        before = shown()
        heading.click()
        assert shown() == sorted(before, reverse=True)
        heading.click()
        assert shown() == sorted(before)
        # Rows without a p come last in both directions.
        seen.page.locator("#retrieval-mmlongbench").get_by_role(
            "button", name="p", exact=True
        ).click()
        assert rows.last.locator("td").last.get_attribute("data-value") is None
        seen.page.get_by_label("Filter rows").fill("colpali oracle")
        assert rows.locator("visible=true").count() == 1
        assert rows.locator(".bar").count() > 0
        assert (seen.requests, seen.complaints) == ([], [])


def test_answers_are_compared_with_the_same_generator_and_budget(
    runs: tuple[Path, Path], tmp_path: Path
) -> None:
    """The values are those of the verdicts in the records."""
    page = write_leaderboard(runs, tmp_path, baseline="first/colpali/top-k@5")
    found = table(page, "answers-mmlongbench-rules")
    right: dict[tuple[Any, ...], list[bool]] = {}
    for one in sorted(read_lines(runs[0], VerdictRecord)[0], key=lambda one: one.question):
        key = (one.encoder, one.method, one.generator, one.max_k)
        right.setdefault(key, []).append(one.correct)
    (row,) = [
        row
        for row in found["rows"]
        if (row["Encoder"], row["Method"], row["Generator"], row["Max-k"])
        == ("embedded", "ViSAR", "extractive", 10)
    ]
    ours = right["embedded", "visar", "extractive", 10]
    theirs = right["colpali", "top-k", "extractive", 10]
    assert number(row["Accuracy %"]) == pytest.approx(100 * sum(ours) / len(ours))
    assert number(row["Δ"]) == pytest.approx(100 * (sum(ours) - sum(theirs)) / len(ours))
    baseline = [row for row in found["rows"] if row["Δ"] is None]
    assert {(row["Encoder"], row["Method"]) for row in baseline} == {
        ("colpali", "Late-Interaction")
    }


def test_the_baseline_must_match_one_row(runs: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="Several rows match 'embedded/visar'"):
        write_leaderboard(runs, tmp_path, baseline="embedded/visar")
    with pytest.raises(InvalidOption, match=r"'vizar'.*first/colpali/visar"):
        write_leaderboard(runs, tmp_path, baseline="vizar")
    page = write_leaderboard(runs, tmp_path, baseline="colpali/visar")
    rows = table(page, "retrieval-mmlongbench")["rows"]
    (reference,) = [row for row in rows if row["p"] is None]
    assert (reference["Run"], reference["Method"]) == ("first", "ViSAR")


def test_runs_with_the_same_name_are_shown_by_path(tmp_path: Path) -> None:
    for parent in ("x", "y"):
        (tmp_path / parent).mkdir()
        write_small(tmp_path / parent / "run", {"visar": dict.fromkeys("abcd", BOTH)})
    folders = [tmp_path / "x" / "run", tmp_path / "y" / "run"]
    rows = table(write_leaderboard(folders, tmp_path / "out"), "runs")["rows"]
    assert [row["Run"] for row in rows] == [str(folder) for folder in folders]
    with pytest.raises(InvalidOption, match="twice"):
        write_leaderboard([folders[0], folders[0]], tmp_path / "out")
    with pytest.raises(NotARun):
        write_leaderboard([tmp_path / "nothing"], tmp_path / "out")


@pytest.mark.parametrize(("way", "counted"), [("auto", 4), ("empty", 4), ("leave-out", 3)])
def test_questions_about_pages_that_could_not_be_encoded(
    tmp_path: Path, way: InvalidPages, counted: int
) -> None:
    """d.pdf has such a page, so its question is left out for that encoder, as in the paper."""
    run = write_small(tmp_path / "run", {"my:good": dict.fromkeys("abcd", BOTH)})
    found = read_lines(run, RetrievalRecord)[0]
    records = [replace(one, invalid_pages=int(one.question == "d")) for one in found]
    write_records(run / "retrieved.jsonl", records)
    page = write_leaderboard([run], tmp_path / "out", invalid_pages=way)
    (row,) = table(page, "retrieval-own")["rows"]
    assert row["Questions"] == counted
    introduction = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))["introduction"]
    left_out = "run, own, letters: 1 questions are left out, as in the paper"
    assert any(one.startswith(left_out) for one in introduction) is (way == "leave-out")


def write_manifest(folder: Path, **values: Any) -> None:
    (folder / "manifest.json").write_text(json.dumps({"started": "2026-01-02", **values}))
    # The digests of inputs depend on the definitions.
    stamp(folder)


@pytest.mark.parametrize(
    "changed",
    [
        {"definitions": {"code": "2", "encoders": {"letters": "1"}}},
        {"definitions": {"code": "1", "encoders": {"letters": "2"}}},
        {"definitions": {"code": "1", "methods": {"my:good": {"digest": "2"}}}},
        {"definitions": {"code": "1", "judges": {"rules": "2"}}},
        {"definitions": {"code": "1", "generators": {"qwen2.5-vl": {"default": "2"}}}},
        {"definitions": {"code": "1", "calibrations": {"letters": "2"}, "generators": QUOTES}},
        {"definitions": {"code": "1"}, "plan": {"as_authors": True}},
        {"definitions": {"code": "1"}, "data": {"own": DATA | {"digest": "other"}}},
    ],
)
def test_different_definitions_are_compared_only_if_allowed(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    runs = [write_small(tmp_path / name, {"my:good": {"a": BOTH}}) for name in ("one", "two")]
    definitions = {
        "code": "1",
        "encoders": {"letters": "1"},
        "methods": {"my:good": {"digest": "1"}},
        "calibrations": {"letters": "1"},
        "generators": {"qwen2.5-vl": {"default": "1"}, **QUOTES},
        "judges": {"rules": "1"},
    }
    first = {"definitions": definitions, "data": {"own": DATA}}
    write_manifest(runs[0], **first)
    write_manifest(runs[1], **changed)
    with pytest.raises(InvalidOption, match="--allow-different"):
        write_leaderboard(runs, tmp_path / "out")
    page = write_leaderboard(runs, tmp_path / "out", allow_different=True)
    introduction = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))["introduction"]
    assert any(one.startswith("Different between runs") for one in introduction)
    write_manifest(runs[1], **first)
    assert write_leaderboard(runs, tmp_path / "out").exists()


def test_definitions_of_earlier_calls_are_compared(tmp_path: Path) -> None:
    """The last call of a run used another encoder. Another prompt counts as another generator."""
    runs = [write_small(tmp_path / name, {"my:good": {"a": BOTH}}) for name in ("one", "two")]
    later = {"code": "1", "encoders": {"digits": "1"}, "generators": {"g": {"paper": "2"}}}
    manifest = {"started": "2026-01-03", "definitions": later}
    (runs[0] / "manifest.later.json").write_text(json.dumps(manifest))
    write_manifest(runs[0], definitions={"code": "1", "encoders": {"letters": "1"}})
    default = {"code": "1", "encoders": {"letters": "1"}, "generators": {"g": {"default": "1"}}}
    write_manifest(runs[1], definitions=default)
    assert write_leaderboard(runs, tmp_path / "out").exists()
    write_manifest(runs[1], definitions={"code": "1", "encoders": {"letters": "2"}})
    with pytest.raises(InvalidOption, match="encoder letters differs between one and two"):
        write_leaderboard(runs, tmp_path / "out")


def test_changed_documents_are_compared_only_if_allowed(tmp_path: Path) -> None:
    """A document was replaced, or its words were read with different OCR settings."""
    runs = [write_small(tmp_path / name, {"my:good": {"a": BOTH}}) for name in ("one", "two")]
    asked = [replace(one, document_digest="1") for one in read_lines(runs[0], QuestionRecord)[0]]
    changed = [replace(asked[0], document_digest="2"), *asked[1:]]
    for run, questions in zip(runs, (asked, changed), strict=True):
        write_records(run / "asked.later.jsonl", questions)
        stamp(run)
    with pytest.raises(InvalidOption, match="1 document of own"):
        write_leaderboard(runs, tmp_path / "out")
    assert write_leaderboard(runs, tmp_path / "out", allow_different=True).exists()
