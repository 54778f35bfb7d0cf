"""Precision and recall of the rules on known answers, as in the docs."""

from __future__ import annotations

import doctest
import re
from collections import Counter, defaultdict
from pathlib import Path

from tests.evaluation.judge.cases import known_cases
from visar.evaluation.judge import BenchmarkJudge

DOCS = Path(__file__).parents[3] / "docs" / "evaluation-reference.md"
# Kind, then precision and recall of original and shortened answers.
ROW = re.compile(r"^\| ([\w/ ]+) \| (\S+) \| (\S+) \| (\S+) \| (\S+) \|$", re.M)


def test_the_docs_have_the_measured_values() -> None:
    judge = BenchmarkJudge()
    counts: defaultdict[str, tuple[Counter[tuple[bool, bool]], Counter[tuple[bool, bool]]]]
    counts = defaultdict(lambda: (Counter(), Counter()))
    for case in known_cases():
        for row in (case.kind, "all"):
            for count, answer in zip(counts[row], (case.answer, case.short), strict=True):
                verdict = judge.judge(case.question, case.references, answer).correct
                count[verdict, case.correct] += 1
    assert {name: tuple(rest) for name, *rest in ROW.findall(DOCS.read_text("utf-8"))} == {
        name: (*_precision_and_recall(written), *_precision_and_recall(short))
        for name, (written, short) in counts.items()
    }


def _precision_and_recall(count: Counter[tuple[bool, bool]]) -> tuple[str, str]:
    right, wrong, missed = count[True, True], count[True, False], count[False, True]
    return _share(right, right + wrong), _share(right, right + missed)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.2f}" if whole else "–"


def test_the_examples_in_the_docs_are_correct() -> None:
    assert doctest.testfile(str(DOCS), module_relative=False) == (0, 7)


def test_half_of_the_cases_are_wrong() -> None:
    """Otherwise a judge with constant verdicts would look good."""
    cases = known_cases()
    assert len(cases) >= 60
    assert 0.45 < sum(case.correct for case in cases) / len(cases) < 0.55
