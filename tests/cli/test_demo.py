"""``visar demo`` shows ViSAR at work on the sample report, away from the user's index."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.typed import Visar
from visar import Index
from visar.cli.asking import QUESTIONS
from visar.samples import REPORT


def test_the_demo_answers_its_questions_in_a_separate_index(
    visar: Visar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither VISAR_INDEX nor the setting ``index`` names the index it uses."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("VISAR_CONFIG", str(tmp_path / "config.toml"))
    (tmp_path / "config.toml").write_text(f"index = '{tmp_path / 'mine'}'\n")
    first = visar("demo")
    assert (first.code, first.err.count("\n")) == (0, 1)
    (own,) = (tmp_path / "cache" / "visar").glob("demo-*")
    with Index.open(own, create=False) as library:
        (document,) = library.documents()
    assert document.name == REPORT.name
    assert first.out.startswith(document.name)
    warranty, expenditure, vaccines = (
        first.out.partition(question)[2].partition("\n\n")[2].partition(following)[0]
        for question, following in zip(QUESTIONS, (*QUESTIONS[1:], "visar ask"), strict=True)
    )
    assert warranty.lstrip().startswith("We give a warranty of seven years")
    assert "£47.5 million" in expenditure
    assert [int(page) for page in re.findall(r"^ +(\d+)  likely", warranty, flags=re.M)] == [10]
    assert not re.search(r"^ +\d+  (likely|possible)", vaccines, flags=re.M)

    # The sample is added once, and another index can be named.
    other = own.rename(tmp_path / "other")
    second = visar("demo", "--index", other)
    assert (second.code, second.err) == (0, "")
    with Index.open(other, create=False) as library:
        assert library.documents() == [document]
    for folder in (own, tmp_path / "index", tmp_path / "mine"):
        assert not folder.exists()
