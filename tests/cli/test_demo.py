"""``visar demo`` shows ViSAR at work on the sample report, away from the user's index."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.typed import Visar
from visar import Index
from visar.cli.asking import QUESTIONS
from visar.samples import REPORT


def test_the_demo_answers_its_questions(visar: Visar, tmp_path: Path) -> None:
    ran = visar("demo", "--index", tmp_path / "demo")
    assert (ran.code, ran.err.count("\n")) == (0, 1)
    warranty, expenditure, vaccines = (
        ran.out.partition(question)[2].partition("\n\n")[2].partition(following)[0]
        for question, following in zip(QUESTIONS, (*QUESTIONS[1:], "visar ask"), strict=True)
    )
    assert warranty.lstrip().startswith("We give a warranty of seven years")
    assert "£47.5 million" in expenditure
    assert [int(page) for page in re.findall(r"^ +(\d+)  likely", warranty, flags=re.M)] == [10]
    assert not re.search(r"^ +\d+  (likely|possible)", vaccines, flags=re.M)


def test_the_sample_is_added_once_to_a_separate_index(
    visar: Visar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither VISAR_INDEX nor the setting ``index`` names the index it uses."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("VISAR_CONFIG", str(tmp_path / "config.toml"))
    (tmp_path / "config.toml").write_text(f"index = '{tmp_path / 'mine'}'\n")
    first = visar("demo")
    (own,) = (tmp_path / "cache" / "visar").glob("demo-*")
    with Index.open(own, create=False) as library:
        (document,) = library.documents()
    assert document.name == REPORT.name
    second = visar("demo")
    with Index.open(own, create=False) as library:
        assert library.documents() == [document]
    assert first.out.startswith(document.name)
    assert (first.code, second.code, second.err) == (0, 0, "")
    assert not (tmp_path / "index").exists()
    assert not (tmp_path / "mine").exists()
