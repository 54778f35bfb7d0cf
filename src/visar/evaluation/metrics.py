"""Metrics of chosen or ranked pages, given the evidence pages.

Pages are numbered from 1 and occur at most once. E is the evidence, which is never empty, because
questions without evidence pages don't count for retrieval. R is the set of chosen pages, and r_i
the page at rank i.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from visar.errors import InvalidOption


def recall(pages: Sequence[int], evidence: Collection[int]) -> float:
    """Return the share of the evidence that was chosen: |R ∩ E| / |E|.

    >>> recall((4, 9, 2), {2, 7})
    0.5
    """
    return _count_found(pages, evidence) / len(set(evidence))


def precision(pages: Sequence[int], evidence: Collection[int]) -> float:
    """Return the share of chosen pages that are evidence: |R ∩ E| / |R|; 0 if nothing was chosen.

    >>> precision((4, 9, 2, 3), {2, 7})
    0.25
    """
    return _count_found(pages, evidence) / max(1, len(pages))


def perfect_recall(pages: Sequence[int], evidence: Collection[int]) -> float:
    """Return 1 if all evidence was chosen, E ⊆ R; otherwise 0.

    The mean over questions is the share that can be answered from the chosen pages alone.

    >>> perfect_recall((4, 9, 2), {2, 7}), perfect_recall((7, 9, 2), {2, 7})
    (0.0, 1.0)
    """
    return float(_count_found(pages, evidence) == len(set(evidence)))


def recall_at(ranking: Sequence[int], evidence: Collection[int], k: int) -> float:
    """Return the share of the evidence in the top k: |{r_1 … r_k} ∩ E| / |E|.

    >>> recall_at((4, 2, 7), {2, 7}, k=2)
    0.5
    """
    return recall(_first(ranking, k), evidence)


def ndcg_at(ranking: Sequence[int], evidence: Collection[int], k: int) -> float:
    """Return the normalized discounted cumulative gain with binary relevance.

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
    """Return the paper's NDCG: DCG divided by that of the found evidence in the best order.

    It is 1 if the found evidence is at the top, even if other evidence wasn't found, so it is never
    below `ndcg_at`. It is 0 if none was found.

    >>> paper_ndcg_at((2, 4, 7), {2, 9}, k=3)
    1.0
    """
    first = _first(ranking, k)
    found = _count_found(first, evidence)
    gain = _discounted(rank for rank, page in enumerate(first, start=1) if page in evidence)
    return gain / _discounted(range(1, found + 1)) if found else 0.0


def hit_at(ranking: Sequence[int], evidence: Collection[int], k: int) -> float:
    """Return 1 if any of the top k is evidence, {r_1 … r_k} ∩ E ≠ ∅; otherwise 0.

    The mean over questions is the hit rate.

    >>> hit_at((4, 2, 7), {2, 7}, k=2)
    1.0
    """
    return float(_count_found(_first(ranking, k), evidence) > 0)


def reciprocal_rank_at(ranking: Sequence[int], evidence: Collection[int], k: int) -> float:
    """Return 1 / i for the first r_i ∈ E with i ≤ k; 0 if there is none.

    The mean over questions is the mean reciprocal rank (MRR).

    >>> reciprocal_rank_at((4, 2, 7), {2, 7}, k=10)
    0.5
    """
    first = _first(ranking, k)
    _count_found(first, evidence)
    ranks = (rank for rank, page in enumerate(first, start=1) if page in evidence)
    return 1 / next(ranks, math.inf)


def f1(pages: Sequence[int], evidence: Collection[int]) -> float:
    """Return the F1 of a question, 2PR / (P + R) of precision P and recall R; 0 if both are 0.

    >>> f1((4, 9, 2), {2, 7})
    0.4
    """
    return f1_of_means([precision(pages, evidence)], [recall(pages, evidence)])


def f1_of_means(precisions: Sequence[float], recalls: Sequence[float]) -> float:
    """Return the F1 of a data set, 2PR / (P + R) of mean precision P and mean recall R.

    This is the F1 in the paper's tables. The paper's figures use the mean of `f1` over questions
    instead. It is 0 if both means are 0.

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
    """Return |pages ∩ E|; raises InvalidOption if the arguments are invalid."""
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
