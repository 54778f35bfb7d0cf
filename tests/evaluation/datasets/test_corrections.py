"""Corrections in a separate file, with reasons, applied only if they match."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.evaluation.datasets.layouts import write_lines
from visar.errors import DatasetError
from visar.evaluation.datasets import correct, read_corrections
from visar.evaluation.questions import Question

QUESTIONS = [
    Question("1-aa", "a.pdf", "How many ferries?", (14,), ("4",)),
    Question("2-bb", "a.pdf", "Which port?", (2,), ("Oban",)),
    Question("3-cc", "a.pdf", "Who?", (3,), ("Not answerable",)),
]
PAGES = {
    "question": "1-aa",
    "field": "evidence_pages",
    "was": [14],
    "becomes": [20, 21],
    "why": "14 is the printed number; 6 pages come before page 1",
    "by": "A. Reader",
}
ANSWERS = {
    "question": "1-aa",
    "field": "answers",
    "was": ["4"],
    "becomes": ["5", "five"],
    "why": "the table lists five",
    "by": "A. Reader",
}


def test_corrections_change_only_their_questions(tmp_path: Path) -> None:
    corrections = read_corrections(write_lines(tmp_path / "c.jsonl", [PAGES, ANSWERS]))
    assert (corrections[0].why, corrections[0].by) == (PAGES["why"], "A. Reader")
    before = list(QUESTIONS)
    corrected, changed = correct(QUESTIONS, corrections)
    assert corrected == [
        Question("1-aa", "a.pdf", "How many ferries?", (20, 21), ("5", "five")),
        *QUESTIONS[1:],
    ]
    assert changed == {"1-aa"}
    # The original questions are unchanged, for results without corrections.
    assert before == QUESTIONS


def test_corrected_answers_may_have_another_type(tmp_path: Path) -> None:
    """Judges use the type: with the old answer's type, the new one would be wrong."""
    question = Question("1-aa", "a.pdf", "Who?", (14,), ("Not answerable",), "None")
    change = ANSWERS | {"was": ["Not answerable"], "becomes": ["Ann Lee"]}
    corrected, _ = correct(
        [question], read_corrections(write_lines(tmp_path / "c.jsonl", [change]))
    )
    assert corrected[0].kind is None
    pages = read_corrections(write_lines(tmp_path / "c.jsonl", [PAGES]))
    assert correct([question], pages)[0][0].kind == "None"


def test_evidence_can_be_removed(tmp_path: Path) -> None:
    away = PAGES | {"question": "3-cc", "was": [3], "becomes": []}
    corrected, _ = correct(QUESTIONS, read_corrections(write_lines(tmp_path / "c.jsonl", [away])))
    assert corrected[2].evidence_pages == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"question": "9-zz"}, "the data set has no question '9-zz'"),
        ({"was": [13]}, '"was" is [13], but the data set has [14] in evidence_pages of 1-aa'),
    ],
)
def test_corrections_of_other_data_are_errors(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    file = write_lines(tmp_path / "c.jsonl", [ANSWERS, PAGES | change])
    with pytest.raises(DatasetError) as caught:
        correct(QUESTIONS, read_corrections(file))
    assert f"{file}, line 2: {message}" in str(caught.value)


def test_two_corrections_of_a_field_are_an_error(tmp_path: Path) -> None:
    again = PAGES | {"was": [20, 21], "becomes": [22]}
    file = write_lines(tmp_path / "c.jsonl", [PAGES, again])
    with pytest.raises(DatasetError) as caught:
        correct(QUESTIONS, read_corrections(file))
    assert f"{file}, line 2: {file}, line 1 " in str(caught.value)


def test_all_fields_of_a_correction_are_checked(tmp_path: Path) -> None:
    file = write_lines(
        tmp_path / "c.jsonl",
        [
            {key: value for key, value in PAGES.items() if key not in ("why", "by")},
            PAGES | {"field": "text"},
            PAGES | {"becomes": [0]},
            PAGES | {"becomes": [14]},
            PAGES | {"was": ["4"]},
            ANSWERS | {"becomes": [5]},
        ],
    )
    with pytest.raises(DatasetError) as caught:
        read_corrections(file)
    assert str(caught.value).splitlines() == [
        f"{file}: 7 problems",
        '  line 1: has no "why"',
        '  line 1: has no "by"',
        "  line 2: \"field\" must be 'evidence_pages' or 'answers', not 'text'",
        '  line 3: "becomes" contains 0, which must be above 0',
        '  line 4: "was" and "becomes" are equal',
        "  line 5: \"was\" contains '4', which must be a whole number",
        '  line 6: "becomes" contains 5, which must be text',
    ]
