"""How good the rules are on answers whose truth is known; docs/judge.md must say the same."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from pathlib import Path

from tests.evaluation.cases import known_cases
from visar.evaluation.judge import RuleJudge

DOCS = Path(__file__).parents[2] / "docs" / "judge.md"
ROW = re.compile(r"^\| ([\w/ ]+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\S+) \| (\S+) \|$", re.M)


def test_the_docs_give_what_is_measured() -> None:
    judge = RuleJudge()
    counts: defaultdict[str, Counter[tuple[bool, bool]]] = defaultdict(Counter)
    for case in known_cases():
        said = judge.judge(case.question, case.references, case.answer).correct
        when = "written after the rules" if case.after_rules else "written with the rules"
        for row in (case.kind, when, "all"):
            counts[row][said, case.correct] += 1
    assert {name: tuple(rest) for name, *rest in ROW.findall(DOCS.read_text("utf-8"))} == {
        name: _row(count) for name, count in counts.items()
    }


def _row(count: Counter[tuple[bool, bool]]) -> tuple[str, ...]:
    right, wrong = count[True, True], count[True, False]
    denied, missed = count[False, False], count[False, True]
    numbers = (str(number) for number in (right, wrong, denied, missed))
    return (*numbers, f"{right / (right + wrong):.2f}", f"{right / (right + missed):.2f}")


def test_half_of_the_cases_are_wrong() -> None:
    """Otherwise a judge that always says the same would look good."""
    cases = known_cases()
    assert len(cases) >= 60
    assert 0.45 < sum(case.correct for case in cases) / len(cases) < 0.55
