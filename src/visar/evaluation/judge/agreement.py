"""The agreement of two judges on the same cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from visar.errors import InvalidOption
from visar.evaluation.judge.judge import Verdict


@dataclass(frozen=True, slots=True)
class Agreement:
    """The agreement of two judges: counts of their verdicts, and Cohen's κ."""

    first: str
    second: str
    both_correct: int
    only_first: int
    """The number of answers that only the first judge considers correct."""
    only_second: int
    both_incorrect: int

    @property
    def cases(self) -> int:
        return self.both_correct + self.only_first + self.only_second + self.both_incorrect

    @property
    def share(self) -> float:
        """The share p_o of cases with the same verdict."""
        return (self.both_correct + self.both_incorrect) / self.cases

    @property
    def kappa(self) -> float | None:
        """Cohen's κ, the agreement beyond chance: 1 is full agreement, 0 is chance.

        None, because κ is undefined, if all verdicts of both judges are the same.

        >>> round(Agreement("a", "b", 20, 5, 10, 15).kappa, 3)
        0.4
        """
        from sklearn.metrics import cohen_kappa_score

        counts = [self.both_correct, self.only_first, self.only_second, self.both_incorrect]
        if self.cases in (self.both_correct, self.both_incorrect):
            return None
        return float(cohen_kappa_score([1, 1, 0, 0], [1, 0, 1, 0], sample_weight=counts))

    def __str__(self) -> str:
        kappa = "undefined" if self.kappa is None else f"{self.kappa:.2f}"
        return (
            f"{self.first} and {self.second} agree on "
            f"{self.both_correct + self.both_incorrect} of {self.cases} cases "
            f"({self.share:.1%}), Cohen's κ {kappa}: {self.both_correct} correct and "
            f"{self.both_incorrect} incorrect for both, {self.only_first} correct for the first "
            f"only, {self.only_second} for the second only"
        )


def compare_judges(first: Sequence[Verdict], second: Sequence[Verdict]) -> Agreement:
    """Compare the verdicts of two judges on the same cases, in the same order.

    Raises InvalidOption if there are none, their numbers differ, or a list has several judges.
    """
    if len(first) != len(second) or not first:
        raise InvalidOption(
            f"Can't compare {len(first)} with {len(second)} verdicts: pass verdicts on the same "
            "cases, at least one."
        )
    pairs = ((a.correct, b.correct) for a, b in zip(first, second, strict=True))
    return count_agreement(_only_judge(first), _only_judge(second), pairs)


def count_agreement(first: str, second: str, pairs: Iterable[tuple[bool, bool]]) -> Agreement:
    """Count the agreement of two judges from pairs of verdicts."""
    counts = Counter(pairs)
    return Agreement(
        first=first,
        second=second,
        both_correct=counts[True, True],
        only_first=counts[True, False],
        only_second=counts[False, True],
        both_incorrect=counts[False, False],
    )


def _only_judge(verdicts: Sequence[Verdict]) -> str:
    judges = sorted({verdict.judge for verdict in verdicts})
    if len(judges) > 1:
        raise InvalidOption(
            f"The verdicts are from several judges: {', '.join(judges)}. Pass those of one judge."
        )
    return judges[0]
