"""A run's records survive crashes, files of several writers add up, and wrong lines are named."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.evaluation.synthetic import write_records
from visar.errors import NotARun
from visar.evaluation.records import (
    Answered,
    Asked,
    Judged,
    RecordWriter,
    Retrieved,
    key_of,
    read_by_key,
    read_lines,
)

ASKED = Asked("q1", "data", "a.pdf", 12, (3, 4), answerable=True)
ANSWERED = Answered(
    "data", "q1", "embedded", "visar", "extractive", 5, (3, 2), "“é”", "", None, 3, 0.2
)
JUDGED = Judged("data", "q1", "embedded", "visar", "extractive", 5, "rules 1", correct=True)


def retrieved(question: str = "q1", k: int = 2) -> Retrieved:
    return Retrieved(
        "data", question, "embedded", "visar", k, (3, 1), (3, 1, 2), 0.5, {"query to page": 0.1}
    )


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    with (
        RecordWriter(tmp_path, Asked) as questions,
        RecordWriter(tmp_path, Retrieved) as pages,
        RecordWriter(tmp_path, Answered) as answers,
        RecordWriter(tmp_path, Judged) as verdicts,
    ):
        questions.write([ASKED])
        pages.write([retrieved()])
        answers.write([ANSWERED])
        verdicts.write([JUDGED])
    assert read_by_key(tmp_path, Asked) == {key_of(ASKED): ASKED}
    assert read_by_key(tmp_path, Retrieved) == {key_of(retrieved()): retrieved()}
    assert read_by_key(tmp_path, Answered) == {key_of(ANSWERED): ANSWERED}
    assert read_by_key(tmp_path, Judged) == {key_of(JUDGED): JUDGED}


def test_records_are_there_before_the_writer_ends(tmp_path: Path) -> None:
    with RecordWriter(tmp_path, Retrieved) as writer:
        writer.write([retrieved()])
        assert len(read_by_key(tmp_path, Retrieved)) == 1


def test_a_line_cut_off_by_a_crash_is_passed_over(tmp_path: Path) -> None:
    with RecordWriter(tmp_path, Retrieved) as writer:
        writer.write([retrieved("q1"), retrieved("q2")])
    (file,) = tmp_path.glob("retrieved*.jsonl")
    whole = file.read_bytes()
    for end in range(len(whole) - 2, len(whole) // 2, -7):
        file.write_bytes(whole[:end])
        assert set(read_by_key(tmp_path, Retrieved)) == {key_of(retrieved("q1"))}


def test_a_character_cut_in_two_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "asked.jsonl").write_bytes(json.dumps(asdict(ASKED)).encode() + b'\n{"a": "\xc3')
    assert read_lines(tmp_path, Asked)[0] == [ASKED]


def test_writers_do_not_share_a_file_and_the_later_one_counts(tmp_path: Path) -> None:
    for k in range(2, 8):
        with RecordWriter(tmp_path, Retrieved) as writer:
            writer.write([retrieved("q1", k), retrieved(f"of writer {k}")])
    assert len(list(tmp_path.iterdir())) == 6
    found = read_by_key(tmp_path, Retrieved)
    assert len(found) == 7
    assert found[key_of(retrieved("q1"))].k == 7


def test_of_records_with_one_key_the_last_counts(tmp_path: Path) -> None:
    later = Judged(**{**asdict(JUDGED), "correct": False})
    other = Judged(**{**asdict(JUDGED), "max_k": 10})
    write_records(tmp_path / "judged.jsonl", [JUDGED, other, later])
    assert read_lines(tmp_path, Judged)[0] == [other, later]


def test_a_writer_without_records_leaves_nothing(tmp_path: Path) -> None:
    with RecordWriter(tmp_path, Retrieved) as writer:
        writer.write([])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"pages": "nine"}, "asked.jsonl, line 1: pages must be a valid integer, not 'nine'"),
        ({"pages": True}, "pages must be a valid integer, not True"),
        ({"evidence_pages": [1, "2"]}, "evidence_pages, item 2 must be a valid integer, not '2'"),
        ({"evidence_pages": 1}, "evidence_pages must be a valid array, not 1"),
        ({"question": None}, "question must be a valid string, not None"),
    ],
)
def test_a_wrong_value_is_named_with_its_line(
    tmp_path: Path, change: dict[str, object], said: str
) -> None:
    (tmp_path / "asked.jsonl").write_text(json.dumps(asdict(ASKED) | change) + "\n")
    with pytest.raises(NotARun, match=said):
        read_lines(tmp_path, Asked)[0]


def test_what_is_no_number_is_refused(tmp_path: Path) -> None:
    line = json.dumps(asdict(retrieved())).replace('"sparsity": 0.5', '"sparsity": NaN')
    (tmp_path / "retrieved.jsonl").write_text(line + "\n")
    with pytest.raises(NotARun, match="sparsity must be a finite number, not nan"):
        read_lines(tmp_path, Retrieved)[0]


@pytest.mark.parametrize("line", ["[1]", "7", "null"])
def test_what_is_no_record_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "asked.jsonl").write_text(line + "\n")
    with pytest.raises(NotARun, match=r"asked\.jsonl, line 1: it must be an object"):
        read_lines(tmp_path, Asked)[0]


def test_a_missing_field_is_named(tmp_path: Path) -> None:
    raw = asdict(retrieved())
    del raw["ranking"]
    (tmp_path / "retrieved.jsonl").write_text(json.dumps(raw) + "\n")
    with pytest.raises(NotARun, match=r"retrieved\.jsonl, line 1: there is no 'ranking'"):
        read_lines(tmp_path, Retrieved)[0]
