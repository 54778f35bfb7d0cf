"""Metrics of a choice or a ranking of pages, given the evidence: one per function.

Pages count from 1, and none stands twice. E is the evidence, never empty: a question without
evidence pages does not count for retrieval. R is what was chosen, r_i the page at rank i.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from visar.errors import InvalidOption


def recall(pages: Sequence[int], evidence: Collection[int]) -> float:
    """The share of the evidence that was chosen: |R ∩ E| / |E|.

    >>> recall((4, 9, 2), {2, 7})
    0.5
    """
    return _count_found(pages, evidence) / len(set(evidence))


def precision(pages: Sequence[int], evidence: Collection[int]) -> float:
    """The share of the chosen that is evidence: |R ∩ E| / |R|; 0 where nothing was chosen.

    >>> precision((4, 9, 2, 3), {2, 7})
    0.25
    """
    return _count_found(pages, evidence) / max(1, len(pages))


def perfect_recall(pages: Sequence[int], evidence: Collection[int]) -> float:
    """1 if all evidence was chosen, E ⊆ R; else 0.

    The mean over questions is the share that can be answered from the chosen pages alone.

    >>> perfect_recall((4, 9, 2), {2, 7}), perfect_recall((7, 9, 2), {2, 7})
    (0.0, 1.0)
    """
    return float(_count_found(pages, evidence) == len(set(evidence)))


def recall_at(ranking: Sequence[int], evidence: Collection[int], k: int) -> float:
    """The share of the evidence among the first k: |{r_1 … r_k} ∩ E| / |E|.

    >>> recall_at((4, 2, 7), {2, 7}, k=2)
    0.5
    """
    return recall(_first(ranking, k), evidence)


def ndcg_at(ranking: Sequence[int], evidence: Collection[int], k: int) -> float:
    """Normalized discounted cumulative gain, a page being evidence (1) or not (0).

    DCG = Σ_{i ≤ k, r_i ∈ E} 1 / log₂(i + 1), divided by that of a perfect ranking,
    Σ_{i ≤ min(k, |E|)} 1 / log₂(i + 1).

    >>> round(ndcg_at((4, 2, 7), {2, 7}, k=2), 4)
    0.3869
    """
    first = _first(ranking, k)
    _count_found(first, evidence)
    gain = _discounted(rank for rank, page in enumerate(first, start=1) if page in evidence)
    return gain / _discounted(range(1, min(k, len(set(evidence))) + 1))


def paper_ndcg_at(ranking: Sequence[int], evidence: Collection[int], k: int) -> float:
    """The paper's NDCG: DCG divided by that of the evidence among the first k in the best order.

    1 wherever the evidence that was found stands at the top, however much of it was not found:
    it is never below `ndcg_at`. 0 where none was found.

    >>> paper_ndcg_at((2, 4, 7), {2, 9}, k=3)
    1.0
    """
    first = _first(ranking, k)
    found = _count_found(first, evidence)
    gain = _discounted(rank for rank, page in enumerate(first, start=1) if page in evidence)
    return gain / _discounted(range(1, found + 1)) if found else 0.0


def hit_at(ranking: Sequence[int], evidence: Collection[int], k: int) -> float:
    """Whether any of the first k is evidence: 1 if {r_1 … r_k} ∩ E ≠ ∅, else 0.

    The mean over questions is the hit rate.

    >>> hit_at((4, 2, 7), {2, 7}, k=2)
    1.0
    """
    return float(_count_found(_first(ranking, k), evidence) > 0)


def reciprocal_rank_at(ranking: Sequence[int], evidence: Collection[int], k: int) -> float:
    """1 / i of the first r_i ∈ E with i ≤ k; 0 where there is none.

    The mean over questions is the mean reciprocal rank (MRR).

    >>> reciprocal_rank_at((4, 2, 7), {2, 7}, k=10)
    0.5
    """
    first = _first(ranking, k)
    _count_found(first, evidence)
    ranks = (rank for rank, page in enumerate(first, start=1) if page in evidence)
    return 1 / next(ranks, math.inf)


def f1(pages: Sequence[int], evidence: Collection[int]) -> float:
    """F1 of one question: 2PR / (P + R) of its precision P and recall R; 0 where both are 0.

    >>> f1((4, 9, 2), {2, 7})
    0.4
    """
    return f1_of_means([precision(pages, evidence)], [recall(pages, evidence)])


def f1_of_means(precisions: Sequence[float], recalls: Sequence[float]) -> float:
    """F1 of a data set: 2PR / (P + R) of the mean precision P and the mean recall R.

    This is the F1 of the paper's tables. It is not the mean of `f1` over questions, which
    is that of its figures. 0 where both are 0.

    >>> f1_of_means([1.0, 0.0], [0.5, 0.0])
    0.3333333333333333
    """
    if len(precisions) != len(recalls):
        raise InvalidOption(
            f"There are {len(precisions)} precisions and {len(recalls)} recalls: "
            "give one of each for every question."
        )
    mean_precision, mean_recall = _mean(precisions), _mean(recalls)
    if mean_precision + mean_recall == 0:
        return 0.0
    return 2 * mean_precision * mean_recall / (mean_precision + mean_recall)


def _first(ranking: Sequence[int], k: int) -> Sequence[int]:
    if k < 1:
        raise InvalidOption(f"k must be at least 1, not {k}.")
    return ranking[:k]


def _count_found(pages: Sequence[int], evidence: Collection[int]) -> int:
    """|pages ∩ E|, once both are what the formulas speak of."""
    if not evidence:
        raise InvalidOption("There are no evidence pages: leave the question out of retrieval.")
    if len(set(pages)) < len(pages):
        twice = next(page for page in pages if list(pages).count(page) > 1)
        raise InvalidOption(f"Page {twice} stands more than once in {tuple(pages)}.")
    return len(set(pages).intersection(evidence))


def _discounted(ranks: Iterable[int]) -> float:
    return sum(1 / math.log2(rank + 1) for rank in ranks)


def _mean(values: Sequence[float]) -> float:
    if not values:
        raise InvalidOption("There are no questions to take the mean of.")
    return math.fsum(values) / len(values)
