"""Verdicts are kept: through crashes, beside other writers, and never a damaged one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.evaluation.judge.generators import Grader, same_text
from visar.errors import GenerationError, InvalidOption
from visar.evaluation.judge import BenchmarkJudge, CachedJudge, Case, LLMJudge, Verdict
from visar.evaluation.judge.cache import _sha256, case_key
from visar.generation.protocol import Prompt, Reply, generate_in_turn

CASE = ("Who?", ["Tom", "Ada"], "Ada")


def kept_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_a_case_is_judged_once(tmp_path: Path) -> None:
    grader = Grader(same_text)
    first = CachedJudge(LLMJudge(grader), tmp_path).judge(*CASE)
    again = CachedJudge(LLMJudge(grader), tmp_path).judge(*CASE)
    assert first == again
    assert len(grader.prompts) == 1


def test_every_part_of_a_case_tells_it_apart(tmp_path: Path) -> None:
    grader, other = Grader(same_text), Grader(same_text, "another model")
    judge = CachedJudge(LLMJudge(grader), tmp_path)
    for case in (CASE, ("Why?", *CASE[1:]), ("Who?", ["Tom"], "Ada"), (*CASE[:2], "Tom")):
        judge.judge(*case)
    judge.judge(*CASE, kind="Str")
    CachedJudge(LLMJudge(other), tmp_path).judge(*CASE)
    assert (len(grader.prompts), len(other.prompts)) == (5, 1)
    assert len(kept_files(tmp_path)) == 6


@given(
    st.tuples(st.text(), st.lists(st.text()), st.text()),
    st.tuples(st.text(), st.lists(st.text()), st.text()),
)
def test_keys_are_equal_only_for_equal_cases(
    one: tuple[str, list[str], str], other: tuple[str, list[str], str]
) -> None:
    """No joining of texts may make two cases one."""
    assert (case_key("judge", *one) == case_key("judge", *other)) == (one == other)


def cut(entry: bytes) -> bytes:
    return entry[: len(entry) // 2]


def turned(entry: bytes) -> bytes:
    return entry.replace(b'"score": 1.0', b'"score": 0.0')


def of_another_case(entry: bytes) -> bytes:
    """Copied to the wrong name: whole, but its checksum holds the key of the other."""
    verdict = json.loads(entry)["verdict"]
    return json.dumps({"verdict": verdict, "sha256": _sha256(["0" * 64, verdict])}).encode()


@pytest.mark.parametrize(
    "damage",
    [
        cut,
        turned,
        of_another_case,
        lambda _: b"",
        lambda _: b"[]",
        lambda _: b"\xff" * 9,
        lambda _: b"null",
    ],
)
def test_a_damaged_entry_is_judged_again_and_replaced(tmp_path: Path, damage: Any) -> None:
    grader = Grader(same_text)
    judge = CachedJudge(LLMJudge(grader), tmp_path)
    verdict = judge.judge(*CASE)
    (path,) = kept_files(tmp_path)
    whole = path.read_bytes()
    assert damage(whole) != whole
    path.write_bytes(damage(whole))
    assert judge.judge(*CASE) == verdict
    assert len(grader.prompts) == 2
    assert path.read_bytes() == whole


def test_what_failed_is_not_kept(tmp_path: Path) -> None:
    def fail(case: dict[str, Any]) -> str:
        raise GenerationError(f"The server is away: {case['question']}")

    with pytest.raises(GenerationError):
        CachedJudge(LLMJudge(Grader(fail)), tmp_path).judge(*CASE)
    assert not kept_files(tmp_path)


def test_threads_do_not_judge_the_same_at_once(tmp_path: Path) -> None:
    def slow(case: dict[str, Any]) -> str:
        sleep(0.05)  # long enough for the others to come
        return same_text(case)

    grader = Grader(slow)
    judge = CachedJudge(LLMJudge(grader), tmp_path)
    with ThreadPoolExecutor(8) as pool:
        verdicts = set(pool.map(lambda _: judge.judge(*CASE), range(16)))
    assert len(verdicts) == 1
    assert len(grader.prompts) == 1


WRITER = """
import sys
from visar.evaluation.judge import CachedJudge, BenchmarkJudge
judge = CachedJudge(BenchmarkJudge(), sys.argv[1])
while True:
    for number in range(50):
        judge.judge("How many?", [str(number)], str(number))
        print(number, flush=True)
"""


class Absent:
    """Has the name of the rules and must not be asked."""

    name = BenchmarkJudge.name

    def judge(
        self, question: str, references: Sequence[str], answer: str, *, kind: str | None = None
    ) -> Verdict:
        raise AssertionError(f"{question} {references} {answer} {kind} is judged again")


def test_writers_killed_in_the_middle_leave_whole_verdicts(tmp_path: Path) -> None:
    """Three processes write the same cases and are killed; all that is there can be read."""
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    writers = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(3)]
    for writer in writers:
        assert writer.stdout is not None
        for _ in range(20):
            assert writer.stdout.readline()
        writer.kill()
    for writer in writers:
        writer.communicate()
    kept = {path.stem for path in tmp_path.rglob("*.json")}
    assert len(kept) >= 20
    judge = CachedJudge(Absent(), tmp_path)
    for number in range(50):
        case = ("How many?", [str(number)], str(number))
        if case_key(judge.name, *case) in kept:
            assert judge.judge(*case).correct


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(InvalidOption, match="another folder"):
        CachedJudge(BenchmarkJudge(), file).judge(*CASE)


def test_texts_that_are_no_valid_unicode_have_a_key(tmp_path: Path) -> None:
    """A model's broken output can hold half of a surrogate pair."""
    judge = CachedJudge(BenchmarkJudge(), tmp_path)
    assert judge.judge("Who?", ["Ada"], "\ud800") == judge.judge("Who?", ["Ada"], "\ud800")
    assert len(kept_files(tmp_path)) == 1


def test_of_several_cases_those_not_kept_are_judged_together(tmp_path: Path) -> None:
    class Batching(Grader):
        """Notes how many cases it is given at a time; some it fails at."""

        def generate_batch(
            self, prompts: Sequence[Prompt], **options: Any
        ) -> list[Reply | Exception]:
            sizes.append(len(prompts))
            return generate_in_turn(self, prompts, **options)

    def rule(case: dict[str, Any]) -> str:
        if case["answer"] == "Tom":
            raise GenerationError("Tom is away.")
        return same_text(case)

    sizes: list[int] = []
    judge = CachedJudge(LLMJudge(Batching(rule)), tmp_path)
    kept = judge.judge(*CASE)
    cases = [
        Case("Who?", [" "], "Ada"),
        Case(*CASE),
        Case("Who?", ["Tom"], "Tom"),
        Case("Who?", ["Tom"], "Ines"),
        Case("Who?", ["Ines"], "Ines"),
    ]
    blank, same, failed, wrong, right = judge.judge_batch(cases)
    assert isinstance(blank, InvalidOption)
    assert same == kept
    assert str(failed) == "Tom is away."
    assert isinstance(wrong, Verdict)
    assert isinstance(right, Verdict)
    assert (wrong.correct, right.correct) == (False, True)
    assert sizes == [3]
    assert len(kept_files(tmp_path)) == 3
