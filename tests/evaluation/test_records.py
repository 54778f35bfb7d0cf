"""Records: crash safety, files of several writers, and errors for invalid lines."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from visar.errors import NotARun
from visar.evaluation.records import (
    AnswerRecord,
    QuestionRecord,
    RetrievalRecord,
    VerdictRecord,
    read_by_key,
    read_lines,
    write_records,
    writer_name,
)

ASKED = QuestionRecord("q1", "data", "a.pdf", 12, (3, 4), answerable=True)
ANSWERED = AnswerRecord(
    "data", "q1", "embedded", "visar", "extractive", 5, (3, 2), "“é”", "", None, 3, 0.2
)
JUDGED = VerdictRecord("data", "q1", "embedded", "visar", "extractive", 5, "rules 1", correct=True)


def retrieved(question: str = "q1", k: int = 2) -> RetrievalRecord:
    return RetrievalRecord(
        "data", question, "embedded", "visar", k, (3, 1), (3, 1, 2), 0.5, {"query to page": 0.1}
    )


def test_records_round_trip(tmp_path: Path) -> None:
    for record in (ASKED, retrieved(), ANSWERED, JUDGED):
        write_records(tmp_path, [record], "one")
        assert read_by_key(tmp_path, type(record)) == {record.key: record}


def test_an_incomplete_line_is_skipped(tmp_path: Path) -> None:
    write_records(tmp_path, [retrieved("q1"), retrieved("q2")], "one")
    (file,) = tmp_path.glob("retrieved*.jsonl")
    whole = file.read_bytes()
    for end in range(len(whole) - 2, len(whole) // 2, -7):
        file.write_bytes(whole[:end])
        assert set(read_by_key(tmp_path, RetrievalRecord)) == {retrieved("q1").key}


def test_an_incomplete_character_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "asked.jsonl").write_bytes(json.dumps(asdict(ASKED)).encode() + b'\n{"a": "\xc3')
    assert read_lines(tmp_path, QuestionRecord)[0] == [ASKED]


def test_writers_use_separate_files_and_the_last_one_counts(tmp_path: Path) -> None:
    for k in range(2, 8):
        records = [retrieved("q1", k), retrieved(f"of writer {k}")]
        write_records(tmp_path, records, writer_name())
    assert len(list(tmp_path.iterdir())) == 6
    found = read_by_key(tmp_path, RetrievalRecord)
    assert len(found) == 7
    assert found[retrieved("q1").key].k == 7


def test_the_last_record_of_a_key_counts(tmp_path: Path) -> None:
    later, other = replace(JUDGED, correct=False), replace(JUDGED, max_k=10)
    write_records(tmp_path, [JUDGED, other, later], "one")
    assert read_lines(tmp_path, VerdictRecord)[0] == [other, later]


def test_no_records_create_no_file(tmp_path: Path) -> None:
    write_records(tmp_path, [], "one")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pages": "nine"}, "asked.jsonl, line 1: pages must be a valid integer, not 'nine'"),
        ({"pages": True}, "pages must be a valid integer, not True"),
        ({"evidence_pages": [1, "2"]}, "evidence_pages, item 2 must be a valid integer, not '2'"),
        ({"evidence_pages": 1}, "evidence_pages must be a valid array, not 1"),
        ({"question": None}, "question must be a valid string, not None"),
    ],
)
def test_the_error_for_an_invalid_value_names_the_line(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    (tmp_path / "asked.jsonl").write_text(json.dumps(asdict(ASKED) | change) + "\n")
    with pytest.raises(NotARun, match=message):
        read_lines(tmp_path, QuestionRecord)


@pytest.mark.parametrize("line", ["[1]", "7", "null"])
def test_other_json_values_are_errors(tmp_path: Path, line: str) -> None:
    (tmp_path / "asked.jsonl").write_text(line + "\n")
    with pytest.raises(NotARun, match=r"asked\.jsonl, line 1: .* must be an object"):
        read_lines(tmp_path, QuestionRecord)


@pytest.mark.parametrize(
    ("field", "changed", "message"),
    [
        ('"sparsity": 0.5', '"sparsity": NaN', "sparsity must be a finite number, not nan"),
        ('"ranking": [3, 1, 2], ', "", r"retrieved\.jsonl, line 1: 'ranking' is missing"),
    ],
)
def test_nan_and_missing_fields_are_errors(
    tmp_path: Path, field: str, changed: str, message: str
) -> None:
    line = json.dumps(asdict(retrieved())).replace(field, changed)
    (tmp_path / "retrieved.jsonl").write_text(line + "\n")
    with pytest.raises(NotARun, match=message):
        read_lines(tmp_path, RetrievalRecord)
