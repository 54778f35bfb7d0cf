from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.evaluation.synthetic import DATASETS, write_records, write_run
from visar.errors import NotARun
from visar.evaluation.findings import Findings, read_findings, read_records
from visar.evaluation.records import Answered, Asked, Judged, Retrieved
from visar.evaluation.skipped import (
    invalid_pages,
    questions_with_pages_outside,
    skipped_documents,
)

ASKED = Asked("q1", "D", "a.pdf", 9, (2, 3), answerable=True)
RETRIEVED = Retrieved("D", "q1", "embedded", "visar", 2, (3, 2), (3, 2, 1), 0.5, {"scores": 0.1})
ANSWERED = Answered("D", "q1", "embedded", "visar", "extractive", 5, (3, 2), "", "", None, 3, 0.2)
JUDGED = Judged("D", "q1", "embedded", "visar", "extractive", 5, "rules", correct=True)


def test_records_come_back_as_they_were_written(tmp_path: Path) -> None:
    for name, record in {
        "asked": ASKED,
        "retrieved-share2": RETRIEVED,
        "answered": ANSWERED,
        "judged_1": JUDGED,
    }.items():
        write_records(tmp_path / f"{name}.jsonl", [record])
    assert read_records(tmp_path, Asked) == [ASKED]
    assert read_records(tmp_path, Retrieved) == [RETRIEVED]
    assert read_records(tmp_path, Answered) == [ANSWERED]
    assert read_records(tmp_path, Judged) == [JUDGED]


def test_of_records_with_one_key_the_last_counts(tmp_path: Path) -> None:
    later = Judged(**{**asdict(JUDGED), "correct": False})
    other = Judged(**{**asdict(JUDGED), "max_k": 10})
    write_records(tmp_path / "judged.jsonl", [JUDGED, other, later])
    assert read_records(tmp_path, Judged) == [later, other]


def test_what_a_crashed_writer_left_is_passed_over(tmp_path: Path) -> None:
    whole = json.dumps(asdict(ASKED))
    (tmp_path / "asked.jsonl").write_text(f'{whole}\n{{"questi\n\n{whole}\n{whole[:30]}')
    findings = read_findings(tmp_path)
    assert findings.asked == (ASKED,)
    # The end may still be written; a broken line in the middle never will.
    assert findings.unreadable == ("asked.jsonl, line 2",)


def test_a_character_cut_in_two_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "asked.jsonl").write_bytes(json.dumps(asdict(ASKED)).encode() + b'\n{"a": "\xc3')
    assert read_records(tmp_path, Asked) == [ASKED]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"pages": "nine"}, "asked.jsonl, line 1, 'pages' must be int, not 'nine'"),
        ({"pages": True}, "'pages' must be int"),
        ({"evidence_pages": [1, "2"]}, "'evidence_pages' must be tuple"),
        ({"question": None}, "'question' must be str"),
    ],
)
def test_a_wrong_value_is_named_with_its_line(
    tmp_path: Path, change: dict[str, object], said: str
) -> None:
    (tmp_path / "asked.jsonl").write_text(json.dumps(asdict(ASKED) | change) + "\n")
    with pytest.raises(NotARun, match=said):
        read_findings(tmp_path)


def test_what_is_no_number_is_refused(tmp_path: Path) -> None:
    line = json.dumps(asdict(RETRIEVED)).replace('"sparsity": 0.5', '"sparsity": NaN')
    (tmp_path / "retrieved.jsonl").write_text(line + "\n")
    with pytest.raises(NotARun, match="'sparsity' must be float, not 'nan'"):
        read_records(tmp_path, Retrieved)


def test_a_missing_field_is_named(tmp_path: Path) -> None:
    raw = asdict(RETRIEVED)
    del raw["ranking"]
    (tmp_path / "retrieved.jsonl").write_text(json.dumps(raw) + "\n")
    with pytest.raises(NotARun, match=r"retrieved\.jsonl, line 1: there is no 'ranking'"):
        read_records(tmp_path, Retrieved)


def test_folders_without_a_run_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotARun, match="holds no run"):
        read_findings(tmp_path)
    with pytest.raises(NotARun, match="is not a folder"):
        read_findings(tmp_path / "none")


@pytest.mark.parametrize("content", ["{", "[1]"])
def test_a_damaged_manifest_is_refused(tmp_path: Path, content: str) -> None:
    write_records(tmp_path / "asked.jsonl", [ASKED])
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(NotARun, match=r"manifest\.json"):
        read_findings(tmp_path)


def test_a_manifest_may_be_of_several_calls(tmp_path: Path) -> None:
    write_records(tmp_path / "asked.jsonl", [ASKED])
    (tmp_path / "manifest.json").write_text('{"visar": "1"}')
    assert read_findings(tmp_path).manifests == ({"visar": "1"},)
    (tmp_path / "manifest.json").write_text('[{"visar": "1"}, {"visar": "2"}]')
    assert read_findings(tmp_path).manifests == ({"visar": "1"}, {"visar": "2"})


def test_what_was_skipped_comes_from_the_manifests(tmp_path: Path) -> None:
    findings = read_findings(write_run(tmp_path, questions=5, generators=(), encoders=()))
    skipped = {"gone.pdf": "missing", "locked.pdf": "locked.pdf is encrypted"}
    assert skipped_documents(findings, "MMLongBench") == skipped
    assert skipped_documents(findings, "MMLongBench, corrected") == skipped
    assert skipped_documents(findings, DATASETS[-1]) == {}
    assert questions_with_pages_outside(findings, "MMLongBench") == ["q1"]
    assert invalid_pages(findings) == {"colpali": 2}


@pytest.mark.parametrize("skipped", [None, [], {"missing": []}, {"missing": {"D": "x"}}])
def test_a_manifest_that_says_nothing_of_it_is_no_obstacle(skipped: object) -> None:
    findings = Findings((ASKED,), manifests=({"skipped": skipped},))
    assert skipped_documents(findings, "D") == {}
    assert questions_with_pages_outside(findings, "D") == []
    assert invalid_pages(findings) == {}
