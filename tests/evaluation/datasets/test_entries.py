"""Invalid files raise one error with all locations and reasons."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.evaluation.datasets.layouts import (
    MMLONGBENCH,
    missing_documents,
    write_lines,
    write_samples,
)
from visar.errors import DatasetError
from visar.evaluation.datasets import open_dataset

GOOD = {"question": "How many?", "document": "a.pdf", "evidence_pages": [1], "answers": ["4"]}


def error_message(path: Path | str, data: Path | None = None) -> str:
    with pytest.raises(DatasetError) as caught:
        open_dataset(path, data=data)
    return str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"question": None}, 'has no "question"'),
        ({"question": 5}, '"question" must be text, not 5'),
        ({"question": " \n"}, '"question" is empty'),
        ({"document": ["a.pdf"]}, "\"document\" must be text, not ['a.pdf']"),
        ({"evidence_pages": 3}, '"evidence_pages" must be a list, not 3'),
        ({"evidence_pages": "[3]"}, '"evidence_pages" must be a list, not'),
        (
            {"evidence_pages": [1, 2.5]},
            '"evidence_pages" contains 2.5, which must be a whole number',
        ),
        (
            {"evidence_pages": ["1"]},
            "\"evidence_pages\" contains '1', which must be a whole number",
        ),
        (
            {"evidence_pages": [True]},
            '"evidence_pages" contains True, which must be a whole number',
        ),
        ({"answers": "4"}, "\"answers\" must be a list, not '4'"),
        ({"answers": [4]}, '"answers" contains 4, which must be text'),
        ({"answers": ["4", ""]}, "\"answers\" contains '', which is empty"),
        ({"id": 1.5}, '"id" must be text, not 1.5'),
        ({"id": ""}, '"id" is empty'),
        # JSON can contain lone surrogates, which tokenizers don't support.
        ({"question": "How \ud800 many?"}, '"question" contains an invalid character'),
    ],
    ids=str,
)
def test_every_field_is_checked(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    file = tmp_path / "own.jsonl"
    file.write_text(f"{json.dumps(GOOD)}\n\n{json.dumps(GOOD | change)}\n")
    text = error_message(file)
    assert text.startswith(f"{file}: 1 problem\n")
    # Blank lines count, so that line numbers are the same as in an editor.
    assert f"  line 3: {message}" in text


@pytest.mark.parametrize(
    "name", ["../a.pdf", "b/../../a.pdf", "/etc/passwd", "C:\\a.pdf", "..\\a.pdf", ".", "a\0.pdf"]
)
def test_documents_must_be_inside_the_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.pdf").touch()
    file = write_lines(tmp_path / "data" / "own.jsonl", [GOOD | {"document": name}])
    assert "line 1: " in error_message(file)
    samples = write_samples(tmp_path / "mm", [MMLONGBENCH[0], MMLONGBENCH[1] | {"doc_id": name}])
    assert "entry 2: " in error_message(samples)
    # Such a document isn't found, even without a question about it.
    assert open_dataset(write_samples(tmp_path / "mm", MMLONGBENCH)).path(name) is None


def test_an_invalid_file_name_is_missing(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "own.jsonl", [GOOD | {"document": "a" * 5000}])
    assert missing_documents(open_dataset(file)) == ["a" * 5000]


@pytest.mark.parametrize(
    "pages",
    ["3", "[3", "[3.5]", "[1, 'a']", "[01]", "[[1]]", "__import__('os')", "[" * 9000, "[1 2]", ""],
)
def test_pages_in_a_string_must_be_a_list_of_numbers(tmp_path: Path, pages: str) -> None:
    entries = [MMLONGBENCH[0] | {"evidence_pages": pages}]
    assert 'entry 1: "evidence_pages" ' in error_message(write_samples(tmp_path, entries))


def test_all_problems_are_in_one_error(tmp_path: Path) -> None:
    file = tmp_path / "own.jsonl"
    file.write_bytes(
        b'{"question": "How many?"}\n'
        b"not json\n" + json.dumps(GOOD | {"id": "a"}).encode() + b"\n"
        b"[1]\n"
        b'"caf\xe9"\n' + json.dumps(GOOD | {"id": "a"}).encode()
    )
    assert error_message(file).splitlines() == [
        f"{file}: 7 problems",
        '  line 1: has no "document"',
        '  line 1: has no "evidence_pages"',
        '  line 1: has no "answers"',
        "  line 2: isn't JSON (Expecting value)",
        "  line 4: must be an object with fields, not [1]",
        "  line 5: isn't UTF-8",
        "  line 6: has the id 'a', which line 3 also has",
    ]


def test_at_most_20_problems_are_shown(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "own.jsonl", [GOOD | {"answers": 4}] * 25)
    lines = error_message(file).splitlines()
    assert (lines[0], lines[-1], len(lines)) == (f"{file}: 25 problems", "  and 5 more", 22)
    assert lines[20].startswith("  line 20: ")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("own.jsonl", b"", "is empty"),
        ("own.jsonl", b"\n \n", "is empty"),
        ("own.jsonl", b"[" * 100_000, "line 1: isn't JSON"),
        ("samples.json", b"[]", "is empty"),
        ("samples.json", b"", "line 1, isn't JSON"),
        ("samples.json", b'[\n{"a": 1},\n{]', "line 3, isn't JSON"),
        ("samples.json", b'[\n"caf\xe9"]', "line 2, isn't UTF-8"),
        ("samples.json", b'{"a": 1}', "list of entries"),
        ("samples.json", b"[" * 100_000, "JSON"),
        ("data.parquet", b"PAR1 and nothing more", "Parquet table"),
    ],
)
def test_invalid_files_are_errors(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    text = error_message(tmp_path / name)
    assert str(tmp_path / name) in text
    assert message in text


def test_the_error_for_a_folder_without_a_data_set_lists_expected_files(tmp_path: Path) -> None:
    assert "samples.json" in error_message(tmp_path)
    assert "a folder" in error_message("MMLongBench", data=tmp_path / "nowhere")


def test_several_data_sets_in_a_folder_are_an_error(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [GOOD])
    write_lines(tmp_path / "b.jsonl", [GOOD])
    text = error_message(tmp_path)
    assert str(tmp_path / "a.jsonl") in text
    assert str(tmp_path / "b.jsonl") in text


@pytest.mark.parametrize("name", ["MMLongBenchDoc", "nobody/nothing", "x" * 5000, "a\0b"])
def test_the_error_for_an_unknown_name_lists_known_names(tmp_path: Path, name: str) -> None:
    for data in (None, tmp_path):
        assert "yubo2333/MMLongBench-Doc" in error_message(name, data)


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
filled = texts.filter(str.strip)
names = st.text(st.characters(categories=["L", "Nd"]), min_size=1, max_size=20)
questions = st.fixed_dictionaries(
    {
        "question": filled,
        "document": names,
        "evidence_pages": st.lists(st.integers(), unique=True),
        "answers": st.lists(filled),
    }
)


@given(st.lists(questions, min_size=1, max_size=5))
def test_entries_round_trip(entries: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        dataset = open_dataset(write_lines(Path(folder) / "own.jsonl", entries))
        read = dataset.questions()
    assert [
        {
            "question": question.text,
            "document": question.document,
            "evidence_pages": list(question.evidence_pages),
            "answers": list(question.answers),
        }
        for question in read
    ] == entries
    assert len({question.id for question in read}) == len(entries)


keys = st.sampled_from(["question", "document", "evidence_pages", "answers", "id"]) | (
    st.sampled_from(["doc_id", "doc_no", "question_id", "answer", "total_pages", "answer_format"])
)
anything = st.one_of(
    st.text(max_size=4),
    st.sampled_from(["a.pdf", "../a", "\ud800", "a\0", "[1, 2]", "[1"]),
    st.sampled_from([None, True, 0, -3, 2.5, float("nan"), 10**30]),
    st.sampled_from([[], [0, 10**30], ["a"], [[1]], [None], {}, {"a": [1]}]),
)
entries_of_any_kind = st.dictionaries(keys, anything, max_size=11).map(
    lambda entry: json.dumps(entry).encode()
)


@given(st.lists(st.binary(max_size=40) | entries_of_any_kind, max_size=5))
def test_garbage_only_raises_dataset_error(lines: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, content in (
            ("own.jsonl", b"\n".join(lines)),
            ("samples.json", b"[" + b",".join(lines) + b"]"),
        ):
            file = Path(folder) / name
            file.write_bytes(content)
            with contextlib.suppress(DatasetError):
                missing_documents(open_dataset(file))
