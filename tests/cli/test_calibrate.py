"""``visar calibrate`` as typed, and what commands show with and without a calibration."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.typed import Visar
from visar.quotes.reader import default_reader

MakePdf = Callable[..., Path]
SUBJECTS = (
    ("sailing boats", "wind", "harbour"),
    ("income tax", "April", "profits"),
    ("lanterns", "warranty", "seven years"),
    ("herring", "potatoes", "Friday"),
    ("harbour pilots", "tankers", "channel"),
    ("the bakery", "bread", "ovens"),
    ("violins", "spruce", "varnish"),
    ("glaciers", "ice", "valleys"),
)
TOWNS = ("Oban", "Leith", "Wick")
POOLED = ("--encoder", "embedded+pool2")


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture
def questions(make_pdf: MakePdf, tmp_path: Path) -> Path:
    """Three documents of eight pages, with a question about each page and one about none."""
    lines: list[dict[str, Any]] = []
    for town in TOWNS:
        pages = [f"In {town} {what}\nneed {first} and {then}." for what, first, then in SUBJECTS]
        make_pdf(f"{town}.pdf", *pages)
        for number, (what, *_) in enumerate(SUBJECTS, start=1):
            asked = {"question": f"What do {what} in {town} need?", "document": f"{town}.pdf"}
            lines.append({**asked, "evidence_pages": [number], "answers": []})
        asked = {"question": f"Who was born in {town}?", "document": f"{town}.pdf"}
        lines.append({**asked, "evidence_pages": [], "answers": ["Not answerable"]})
    file = tmp_path / "questions.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return file


def test_an_encoder_is_calibrated_for_all_later_commands(visar: Visar, questions: Path) -> None:
    asked = ("search", "What do violins need?", "--doc", "Oban.pdf", *POOLED)
    ran = visar("calibrate", questions, *POOLED, "--dry-run", "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["path"] is None
    assert json.loads(visar(*asked, "--json").out)["calibration"] is None
    before = visar(*asked).out
    assert "visar calibrate" in before
    assert "likely" not in before.partition("visar calibrate")[0]
    refused = visar(*asked, "--method", "calibrated")
    assert refused.code == 2
    assert "visar calibrate" in refused.err

    reader = default_reader()
    with_reader = json.loads(ran.out)["calibration"]["with_reader"]
    assert (with_reader and with_reader["reader"]) == (reader and reader.name)

    ran = visar("calibrate", questions, *POOLED)
    assert ran.code == 0, ran.err
    assert all(count in ran.out for count in ("27 questions", "24", "3 documents"))
    assert "expected calibration error" in ran.out
    found = json.loads(visar(*asked, "--json").out)
    assert found["calibration"] == "27 questions (24 with evidence pages) about 3 documents"
    assert found["pages"][0]["page"] == 7
    assert 0 < found["pages"][0]["probability"] < 1
    assert found["pages"][0]["likelihood"] == "likely"
    assert "likely   ███" in visar(*asked).out
    assert visar(*asked, "--method", "calibrated").code == 0


def test_coverage_is_fitted_reported_and_used(visar: Visar, questions: Path) -> None:
    asked = ("search", "What do violins need?", "--doc", "Oban.pdf", *POOLED)
    ran = visar("calibrate", questions, *POOLED, "--coverage", "0.6")
    assert ran.code == 0, ran.err
    assert "60%" in ran.out
    found = json.loads(visar(*asked, "--method", "coverage", "--json").out)
    assert 7 in [page["page"] for page in found["pages"]]
    assert visar(*asked, "--method", "threshold").code == 0
    # 8 questions are too few for 95%: all pages are taken.
    ran = visar("calibrate", questions, *POOLED, "--coverage", "0.95", "--json")
    assert json.loads(ran.out)["calibration"]["coverage"]["threshold"] is None
    assert json.loads(visar(*asked, "--method", "coverage", "--json").out)["k"] == 8
    refused = visar("calibrate", questions, *POOLED, "--coverage", "90")
    assert refused.code == 2
    assert "90" in refused.err


def test_too_few_questions_are_refused(visar: Visar, questions: Path) -> None:
    lines = questions.read_text(encoding="utf-8").splitlines()
    questions.write_text("\n".join(lines[:9]), encoding="utf-8")
    ran = visar("calibrate", questions)
    assert (ran.code, ran.out) == (2, "")
    assert "8 questions" in ran.err


def test_missing_documents_are_named(visar: Visar, questions: Path, tmp_path: Path) -> None:
    (tmp_path / "Wick.pdf").unlink()
    ran = visar("calibrate", questions)
    assert ran.code == 2
    assert "Wick.pdf" in ran.err
    for town in TOWNS[:2]:
        (tmp_path / f"{town}.pdf").unlink()
    ran = visar("calibrate", questions)
    assert (ran.code, ran.out) == (2, "")
    assert all(f"{town}.pdf" in ran.err for town in TOWNS)


def test_a_damaged_calibration_is_an_error_that_names_it(visar: Visar, questions: Path) -> None:
    kept = Path(json.loads(visar("calibrate", questions, "--json").out)["path"])
    kept.write_text("{", encoding="utf-8")
    ran = visar("ask", "What do violins need?")
    assert ran.code == 2
    assert str(kept) in ran.err.replace("\n", "")
