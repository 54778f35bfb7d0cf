"""Tests of questions that aren't in English."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from visar.index import Index
from visar.retrieval.search import _shares_words

PAGES = (
    "Bedienungsanleitung der Laterne Aurora.\nDieses Heft beschreibt den Gebrauch der Laterne.",
    "Gewährleistung. Die Gewährleistung für die Laterne\nbeträgt sieben Jahre, für den Akku fünf.",
    "Reinigung. Wischen Sie das Glas jeden Monat\nmit einem trockenen Tuch ab.",
    "Der Umsatz stieg im Jahr 2024 auf 412,6 Millionen Euro.\nDie Dividende beträgt 0,40 Euro.",
)
ANSWERED = [
    ("Wie lange ist die Gewährleistung auf die Laterne?", 2),
    ("Womit soll man das Glas wischen?", 3),
    ("Wie hoch war der Umsatz 2024?", 4),
]
OTHER = ["Welche Impfstoffe stellt das Unternehmen her?", "Wie hoch ist der Eiffelturm?"]


@pytest.fixture
def german(make_pdf: Callable[..., Path], tmp_path: Path) -> Index:
    index = Index.open(tmp_path / "index")
    index.add(make_pdf("anleitung.pdf", *PAGES))
    return index


def test_a_german_question_is_answered_from_a_german_document(german: Index) -> None:
    pages = german.pages("anleitung.pdf")
    for question, page in ANSWERED:
        found = german.search(question)
        assert found.strength != "none", question
        assert page in [hit.page for hit in found.pages], question
        assert _shares_words(question, pages)


def test_an_unrelated_german_question_has_no_match(german: Index) -> None:
    pages = german.pages("anleitung.pdf")
    for question in OTHER:
        assert german.search(question).strength == "none", question
        assert not _shares_words(question, pages)


def test_shared_words_only_count_in_other_languages(library: Index) -> None:
    """The calibration was fitted on English questions."""
    pages = [library.page(library.documents()[0].id, number) for number in (3, 10)]
    assert not _shares_words("How long is the warranty on the Aurora 4 lantern?", pages)


def test_shared_words_make_at_least_a_weak_match(
    german: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cosines of an English encoder are too low."""
    monkeypatch.setattr("visar.retrieval.calibration.Calibration.about", lambda *_: 0.01)
    assert german.search(ANSWERED[0][0]).strength == "weak"
    assert german.search(OTHER[0]).strength == "none"
