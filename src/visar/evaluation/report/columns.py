"""Columns of tables: a statistic over questions, with interval and paired differences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd
from numpy.typing import ArrayLike

from visar.evaluation.report.markup import Cell
from visar.evaluation.statistics import (
    Estimate,
    Statistic,
    bootstrap,
    compare,
    compare_accuracy,
    f1_of_means,
    first_mean,
)

SIGNIFICANT = 0.05
CHOICES = (
    "R@k* and P@k* are means over questions, F1@k* is their harmonic mean. All evidence: the share "
    "of questions with all evidence pages among the chosen pages."
)
INTERVALS = "In parentheses: 95% of 10,000 bootstrap samples over questions."


@dataclass(frozen=True, slots=True)
class Column:
    """A column with a statistic of the means of measures, or of their medians."""

    heading: str
    digits: int
    measures: tuple[str, ...]
    statistic: Statistic = first_mean
    paper: str | None = None
    """The measure's name in the paper's numbers, if the definition is the same."""
    has_interval: bool = True
    center: Literal["mean", "median"] = "mean"
    test: Callable[[ArrayLike, ArrayLike, Statistic], Estimate] = compare
    """A function that compares the measures of two methods."""

    def value(self, group: pd.DataFrame) -> float:
        """Return the statistic over questions."""
        return float(self.statistic(group[list(self.measures)].agg(self.center).to_numpy()))

    def cell(self, group: pd.DataFrame, **more: Any) -> Cell:
        """Return the statistic over questions, with other fields of a cell."""
        if group.empty:
            return Cell(None)
        if not self.has_interval:
            return Cell(self.value(group), self.digits, **more)
        return Cell.of(self.estimate(group), self.digits, **more)

    def estimate(self, group: pd.DataFrame, **options: Any) -> Estimate:
        """Return the statistic over questions with its interval."""
        return bootstrap(group[list(self.measures)], self.statistic, **options)

    def pair(
        self, group: pd.DataFrame, reference: pd.DataFrame, key: str = "question"
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return the measures of both on the questions that both have, in the same order."""
        one, other = (of.set_index(key)[list(self.measures)] for of in (group, reference))
        shared = one.index.intersection(other.index).sort_values()
        return one.loc[shared], other.loc[shared]

    def difference(
        self, group: pd.DataFrame, reference: pd.DataFrame, key: str = "question"
    ) -> Estimate | None:
        """Return the difference from a reference on the questions that both have, if any."""
        one, other = self.pair(group, reference, key)
        return None if one.empty else self.test(one, other, self.statistic)


ALL_EVIDENCE = Column("All evidence %", 2, ("perfect_recall",), has_interval=False)
F1 = Column("F1@k* %", 2, ("precision", "recall"), f1_of_means, "f1")
ACCURACY = Column("Accuracy %", 2, ("accuracy",), paper="accuracy", test=compare_accuracy)
