"""Files that are wrong are refused with the place and the reason, all at once."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.evaluation.datasets.layouts import MMLONGBENCH, write_lines, write_samples
from visar.errors import DatasetError
from visar.evaluation.datasets import doubtful, missing_documents, open_dataset

GOOD = {"question": "How many?", "document": "a.pdf", "evidence_pages": [1], "answers": ["4"]}


def refusal(path: Path | str, data: Path | None = None) -> str:
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
        ({"evidence_pages": [1, 2.5]}, '"evidence_pages" holds 2.5, which must be a whole number'),
        ({"evidence_pages": ["1"]}, "\"evidence_pages\" holds '1', which must be a whole number"),
        ({"evidence_pages": [True]}, '"evidence_pages" holds True, which must be a whole number'),
        ({"answers": "4"}, "\"answers\" must be a list, not '4'"),
        ({"answers": [4]}, '"answers" holds 4, which must be text'),
        ({"answers": ["4", ""]}, "\"answers\" holds '', which is empty"),
        ({"id": 1.5}, '"id" must be text, not 1.5'),
        ({"id": ""}, '"id" is empty'),
        # JSON can write halves of characters, of which no tokenizer can make anything.
        ({"question": "How \ud800 many?"}, '"question" holds a character that is none'),
    ],
    ids=str,
)
def test_every_field_is_checked(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    file = tmp_path / "own.jsonl"
    file.write_text(f"{json.dumps(GOOD)}\n\n{json.dumps(GOOD | change)}\n")
    text = refusal(file)
    assert text.startswith(f"{file}: 1 problem\n")
    # Blank lines count: the number is the one an editor shows.
    assert f"  line 3: {message}" in text


@pytest.mark.parametrize(
    "name", ["../a.pdf", "b/../../a.pdf", "/etc/passwd", "C:\\a.pdf", "..\\a.pdf", ".", "a\0.pdf"]
)
def test_documents_stay_within_the_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.pdf").touch()
    file = write_lines(tmp_path / "data" / "own.jsonl", [GOOD | {"document": name}])
    assert "line 1: " in refusal(file)
    samples = write_samples(tmp_path / "mm", [MMLONGBENCH[0], MMLONGBENCH[1] | {"doc_id": name}])
    assert "entry 2: " in refusal(samples)
    # Nor is one found that no question names.
    assert open_dataset(write_samples(tmp_path / "mm", MMLONGBENCH)).path(name) is None


def test_a_name_that_no_file_can_have_is_missing(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "own.jsonl", [GOOD | {"document": "a" * 5000}])
    assert missing_documents(open_dataset(file)) == ["a" * 5000]


@pytest.mark.parametrize(
    "pages",
    ["3", "[3", "[3.5]", "[1, 'a']", "[01]", "[[1]]", "__import__('os')", "[" * 9000, "[1 2]", ""],
)
def test_what_a_text_of_pages_holds_must_be_a_list_of_numbers(tmp_path: Path, pages: str) -> None:
    entries = [MMLONGBENCH[0] | {"evidence_pages": pages}]
    assert 'entry 1: "evidence_pages" ' in refusal(write_samples(tmp_path, entries))


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    file = tmp_path / "own.jsonl"
    file.write_bytes(
        b'{"question": "How many?"}\n'
        b"not json\n" + json.dumps(GOOD | {"id": "a"}).encode() + b"\n"
        b"[1]\n"
        b'"caf\xe9"\n' + json.dumps(GOOD | {"id": "a"}).encode()
    )
    assert refusal(file).splitlines() == [
        f"{file}: 7 problems",
        '  line 1: has no "document"',
        '  line 1: has no "evidence_pages"',
        '  line 1: has no "answers"',
        "  line 2: is not JSON (Expecting value)",
        "  line 4: must be an object with fields, not [1]",
        "  line 5: is not UTF-8",
        "  line 6: has the id 'a', which line 3 has too",
    ]


def test_the_first_20_problems_are_enough(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "own.jsonl", [GOOD | {"answers": 4}] * 25)
    lines = refusal(file).splitlines()
    assert (lines[0], lines[-1], len(lines)) == (f"{file}: 25 problems", "  and 5 more", 22)
    assert lines[20].startswith("  line 20: ")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("own.jsonl", b"", "is empty"),
        ("own.jsonl", b"\n \n", "is empty"),
        ("own.jsonl", b"[" * 100_000, "line 1: is not JSON"),
        ("samples.json", b"[]", "is empty"),
        ("samples.json", b"", "line 1, is not JSON"),
        ("samples.json", b'[\n{"a": 1},\n{]', "line 3, is not JSON"),
        ("samples.json", b'[\n"caf\xe9"]', "line 2, is not UTF-8"),
        ("samples.json", b'{"a": 1}', "must hold a list of entries"),
        ("samples.json", b"[" * 100_000, "is not JSON"),
        ("data.parquet", b"PAR1 and nothing more", "is not a Parquet table"),
    ],
)
def test_files_that_are_not_what_they_should_be(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    text = refusal(tmp_path / name)
    assert str(tmp_path / name) in text
    assert message in text


def test_folders_without_a_data_set_say_what_was_looked_for(tmp_path: Path) -> None:
    assert "samples.json" in refusal(tmp_path)
    assert "is no folder" in refusal("MMLongBench", data=tmp_path / "nowhere")


def test_several_files_in_a_folder_are_not_guessed_at(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [GOOD])
    write_lines(tmp_path / "b.jsonl", [GOOD])
    text = refusal(tmp_path)
    assert str(tmp_path / "a.jsonl") in text
    assert str(tmp_path / "b.jsonl") in text


@pytest.mark.parametrize("name", ["MMLongBenchDoc", "nobody/nothing", "x" * 5000, "a\0b"])
def test_unknown_names_are_told_the_known_ones(tmp_path: Path, name: str) -> None:
    for data in (None, tmp_path):
        assert "yubo2333/MMLongBench-Doc" in refusal(name, data)


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
def test_what_is_written_is_what_is_read(entries: list[dict[str, Any]]) -> None:
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
def test_garbage_raises_nothing_but_a_dataset_error(lines: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, content in (
            ("own.jsonl", b"\n".join(lines)),
            ("samples.json", b"[" + b",".join(lines) + b"]"),
        ):
            file = Path(folder) / name
            file.write_bytes(content)
            with contextlib.suppress(DatasetError):
                dataset = open_dataset(file)
                missing_documents(dataset)
                doubtful(dataset.questions(), {})
