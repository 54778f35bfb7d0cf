"""The agreement of two judges on the same cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


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
