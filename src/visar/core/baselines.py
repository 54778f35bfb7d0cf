"""Other ways to choose pages: the baselines of the paper, and more.

Each function takes one score per page from any source: late interaction for the paper's
baselines, ``Selection.scores`` for its ablations (k chosen by another rule on s_p).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visar.core.vectors import Float64, Integers, as_matrix, as_query, decode
from visar.errors import InvalidOption, InvalidVectors, extra_needed

# The paper rounds scores before it looks for the largest gap between them, or for clusters.
DECIMALS = 3
# Adaptive-k as published ignores the last tenth of the gaps and adds five pages.
IGNORED_TAIL = 0.1
EXTRA_PAGES = 5
# Fewer scores are too few to fit the tail of their distribution.
MIN_TAIL = 5
# Standard deviation of a normal distribution, as a multiple of its median absolute deviation.
STD_PER_MAD = 1.4826


@dataclass(frozen=True, eq=False)
class Choice:
    """The pages that a rule chose."""

    k: int
    pages: Integers
    """The k pages, best first (0-based)."""

    def __repr__(self) -> str:
        return f"Choice(k={self.k}, pages={self.pages.tolist()})"


def top_k(scores: Any, k: int) -> Choice:
    """Choose the k pages with the highest scores.

    >>> top_k([0.1, 0.9, 0.5], 2)
    Choice(k=2, pages=[1, 2])
    """
    values = _as_scores(scores)
    if k < 1:
        raise InvalidOption(f"k must be at least 1, not {k}.")
    return _best_pages(values, k)


def single_vector(query: Any, pages: Any, k: int) -> Choice:
    """Choose the k pages whose single vector has the highest cosine with that of the query.

    ``query`` has shape (D,) or (1, D), ``pages`` (N, D).
    """
    raw = as_matrix(pages, "the pages")
    vectors = np.empty(raw.shape, np.float32)
    decode(raw, vectors)
    question = as_query(query[None] if query.ndim == 1 else query, raw.shape[1])
    if len(question) != 1:
        raise InvalidVectors(f"A single-vector query must have one vector, not {len(question)}.")
    return top_k(vectors @ question[0] / np.linalg.norm(vectors, axis=1), k)


def largest_gap(scores: Any, *, original: bool = False) -> Choice:
    """Choose the pages before the largest drop in score.

    The paper's version rounds scores to three decimals; of equal drops, the first counts.
    ``original=True`` is Adaptive-k (Taguchi et al., 2025) as published: it doesn't round,
    ignores the last tenth of the gaps, and adds five pages.

    >>> largest_gap([0.2, 0.9, 0.8, 0.1])
    Choice(k=2, pages=[1, 2])
    """
    values = _as_scores(scores)
    descending = np.sort(values)[::-1]
    if original:
        drops = descending[:-1] - descending[1:]
        drops = drops[: len(drops) - int(len(drops) * IGNORED_TAIL)]
    else:
        # Differences of rounded scores are rounded again, so that equal drops compare equal.
        rounded = np.round(descending, DECIMALS)
        drops = np.round(rounded[:-1] - rounded[1:], DECIMALS)
    if not len(drops):
        return _best_pages(values, 1)
    k = int(np.argmax(drops)) + 1
    return _best_pages(values, k + EXTRA_PAGES if original else k)


def score_cluster(scores: Any, *, original: bool = False) -> Choice:
    """Choose the pages before the best boundary between clusters of scores.

    Based on Cluster-based Adaptive Retrieval (Xu et al., 2025): HDBSCAN clusters the points
    (δ, rank), where δ is 1 − score rescaled to [0, 1], once for each minimum cluster size. The
    clustering with the best silhouette gives the boundaries. The paper rounds scores to three
    decimals and takes the boundary with the largest step in δ; ``original=True`` doesn't round,
    and adds the boundary's depth, rank / N. Chooses all pages if a score is NaN, all scores are
    equal, or there is no boundary.

    Needs scikit-learn: ``pip install 'visar-rag[eval]'``.
    """
    values = np.asarray(scores, np.float64)
    if values.ndim == 1 and np.isnan(values).any():
        return Choice(len(values), np.arange(len(values)))
    values = _as_scores(values)
    n = len(values)
    descending = np.sort(values)[::-1]
    distance = 1 - (descending if original else np.round(descending, DECIMALS))
    span = distance[-1] - distance[0]
    if n < 3 or span == 0:
        return _best_pages(values, n)
    distance = (distance - distance[0]) / span
    labels = _best_clusters(np.column_stack([distance, np.arange(n)]))
    boundaries = np.flatnonzero(np.diff(labels)) + 1
    if not len(boundaries):
        return _best_pages(values, n)
    steps = distance[boundaries] - distance[boundaries - 1]
    quality = steps / (steps.max() + 1e-6)
    if original:
        quality = quality + boundaries / n
    return _best_pages(values, int(boundaries[np.argmax(quality)]))


def gaussian_mixture(
    scores: Any, *, candidates: int = 20, min_k: int = 5, max_k: int = 10
) -> Choice:
    """Choose the pages in the better of two Gaussians, between ``min_k`` and ``max_k`` pages.

    The cutoff of ViDoRAG (Wang et al., 2025, arXiv 2502.18017), with the constants of its code:
    a mixture of two Gaussians is fitted to the 20 best scores, and k is the number of scores in
    the component of the best one. The components can overlap, so that a better page belongs to the
    other one; ViDoRAG leaves that page out, this function takes the k best.

    Needs scikit-learn: ``pip install 'visar-rag[eval]'``.

    >>> gaussian_mixture([9.1, 9.0, 8.9, 8.8, 8.7, 8.6, 1.2, 1.1, 1.0, 0.9])
    Choice(k=6, pages=[0, 1, 2, 3, 4, 5])
    """
    values = _as_scores(scores)
    best = np.sort(values)[::-1][:candidates]
    k = _in_better_gaussian(best) if best[0] > best[-1] else len(best)
    return _best_pages(values, min(max(k, min_k), max_k))


def two_means(scores: Any, *, top: int = 5, short: int = 5, threshold: float = 0.5) -> Choice:
    """Choose up to ``top`` pages from the better of two clusters of scores.

    The selection of AVIR (Li et al., 2026, arXiv 2601.11976): k-means with k = 2 on the scores,
    then the top K of the better cluster. In short documents, the pages whose relevance reaches
    a threshold. AVIR's scores are probabilities from a trained model; here they are replaced by
    scores rescaled to [0, 1]. A document with fewer than 5 pages counts as short. The threshold
    of 0.5 and K = 5 are our choice. The two means are the global optimum, not the result of an
    iteration.

    >>> two_means([0.9, 0.1, 0.85, 0.2, 0.15])
    Choice(k=2, pages=[0, 2])
    """
    values = _as_scores(scores)
    descending = np.sort(values)[::-1]
    span = descending[0] - descending[-1]
    if span == 0:
        k = len(values)
    elif len(values) < short:
        k = int(np.count_nonzero(descending - descending[-1] >= threshold * span))
    else:
        k = _two_means(descending)
    return _best_pages(values, min(k, top))


def surprise(scores: Any, *, p: float = 0.05) -> Choice:
    """Choose the pages whose score is too high for the tail of the others.

    Surprise (Bahri et al., 2020, arXiv 2010.09797): a generalized Pareto distribution F is
    fitted to the excesses of scores over a threshold u, and the surprise of a score x is
    −ln(1 − F(x − u)). The Cramér–von Mises statistic decides which scores are fitted: the best
    scores are removed one by one while the fit improves, then u is raised one score at a time
    while it improves. The paper tunes the minimum surprise on training data; here it is −ln p,
    so that p is the probability of a score this high in the tail. F is unbounded (shape ≥ 0).
    Chooses one page if fewer than 5 different scores exceed the lowest.
    """
    values = _as_scores(scores)
    ascending = np.unique(values)
    low, high = 0, len(ascending)
    if high - 1 < MIN_TAIL:
        return _best_pages(values, 1)
    misfit = _misfit(ascending)
    while high - 2 >= MIN_TAIL and (lower := _misfit(ascending[: high - 1])) < misfit:
        misfit, high = lower, high - 1
    while high - low - 2 >= MIN_TAIL and (lower := _misfit(ascending[low + 1 : high])) < misfit:
        misfit, low = lower, low + 1
    tail = _fit_pareto(ascending[low + 1 : high] - ascending[low])
    above = values[values > ascending[low]] - ascending[low]
    return _best_pages(values, int(np.count_nonzero(_surprise(above, *tail) >= -math.log(p))))


def benjamini_hochberg(scores: Any, *, rate: float = 0.1) -> Choice:
    """Choose the pages whose score is significantly high, with a bounded false discovery rate.

    The step-up procedure of Benjamini and Hochberg (1995): with the p-values in ascending
    order, k is the largest i with p_i ≤ ``rate`` · i / N. A p-value is the probability of a
    score at least as high under the null distribution: a normal one around the median of the
    document's scores, whose deviation is 1.4826 times their median absolute deviation (an
    empirical null after Efron, 2004). Chooses at least one page.

    >>> benjamini_hochberg([5.0, 1.0, 1.1, 0.9, 1.2, 0.8, 4.0, 1.05])
    Choice(k=2, pages=[0, 6])
    """
    values = _as_scores(scores)
    middle = np.median(values)
    deviation = STD_PER_MAD * np.median(np.abs(values - middle))
    descending = np.sort(values)[::-1] - middle
    if deviation == 0:
        return _best_pages(values, int(np.count_nonzero(descending > 0)))
    chances = np.array([math.erfc(x / (deviation * math.sqrt(2))) / 2 for x in descending])
    significant = np.flatnonzero(chances <= rate * np.arange(1, len(values) + 1) / len(values))
    return _best_pages(values, int(significant[-1]) + 1 if len(significant) else 1)


def autocut(scores: Any, *, jumps: int = 1) -> Choice:
    """Choose the pages before the n-th jump in the scores.

    Weaviate's autocut (https://docs.weaviate.io/weaviate/api/graphql/additional-operators): scores
    in descending order are rescaled to go from 0 to 1, and compared with a straight line between
    the two ends. A jump is a point that lies further above the line than both its neighbors (or,
    for the last point, than the two before it). Chooses the pages before jump number ``jumps``,
    or all pages if there are fewer jumps.

    >>> autocut([0.9, 0.85, 0.3, 0.25, 0.2])
    Choice(k=2, pages=[0, 1])
    """
    values = _as_scores(scores)
    if jumps < 1:
        raise InvalidOption(f"jumps must be at least 1, not {jumps}.")
    distance = _distance_to_line(values)
    peaks = _peaks(distance).tolist()
    if len(values) > 2 and distance[-1] > distance[-3:-1].max():
        peaks.append(len(values) - 1)
    return _best_pages(values, peaks[jumps - 1] if len(peaks) >= jumps else len(values))


def kneedle(scores: Any, *, sensitivity: float = 1.0) -> Choice:
    """Choose the pages before the first elbow of the scores.

    Kneedle (Satopää et al., 2011, doi 10.1109/ICDCSW.2011.20) for a falling curve: scores in
    descending order and ranks are rescaled to [0, 1]. An elbow is a peak of the distance between
    them that falls by more than ``sensitivity`` mean rank steps before the next peak. The curve
    isn't smoothed, because scores aren't noisy measurements. The elbow is the first page after
    the drop and isn't chosen. Chooses all pages if there is no elbow.

    >>> kneedle([0.9, 0.85, 0.3, 0.25, 0.2])
    Choice(k=2, pages=[0, 1])
    """
    values = _as_scores(scores)
    distance = _distance_to_line(values)
    peaks = _peaks(distance)
    step = sensitivity / max(1, len(values) - 1)
    for peak, end in zip(peaks, np.append(peaks, len(values))[1:], strict=True):
        if distance[peak:end].min() < distance[peak] - step:
            return _best_pages(values, int(peak))
    return _best_pages(values, len(values))


def share_of_best(scores: Any, *, share: float = 0.9) -> Choice:
    """Choose the pages whose score is at least a share of the best score.

    Many search engines offer this relative threshold. Chooses only the best pages if no score
    is above 0.

    >>> share_of_best([10.0, 9.1, 8.9, 2.0])
    Choice(k=2, pages=[0, 1])
    """
    values = _as_scores(scores)
    if not 0 < share <= 1:
        raise InvalidOption(f"share must be above 0 and at most 1, not {share}.")
    best = float(values.max())
    return _best_pages(
        values, int(np.count_nonzero(values >= (best * share if best > 0 else best)))
    )


def top_p(scores: Any, *, p: float = 0.9, temperature: float = 1.0) -> Choice:
    """Choose the fewest best pages whose probabilities add up to ``p``.

    Nucleus sampling (Holtzman et al., 2020, arXiv 1904.09751) applied to pages: their
    probabilities are a softmax of scores / ``temperature``.

    >>> top_p([2.0, 2.0, -3.0, -3.0])
    Choice(k=2, pages=[0, 1])
    """
    values = _as_scores(scores)
    if not 0 < p <= 1:
        raise InvalidOption(f"p must be above 0 and at most 1, not {p}.")
    if not temperature > 0:
        raise InvalidOption(f"temperature must be above 0, not {temperature}.")
    descending = np.sort(values)[::-1]
    weights = np.exp((descending - descending[0]) / temperature)
    # The tolerance keeps rounding from requiring a last page with zero weight.
    reached = np.cumsum(weights) >= p * weights.sum() * (1 - 1e-12)
    return _best_pages(values, int(np.argmax(reached)) + 1)


def threshold(scores: Any, minimum: float) -> Choice:
    """Choose the pages whose score is at least ``minimum``, and at least one page.

    >>> threshold([0.2, 0.7, 0.5], 0.5)
    Choice(k=2, pages=[1, 2])
    """
    values = _as_scores(scores)
    return _best_pages(values, int(np.count_nonzero(values >= minimum)))


def fit_threshold(questions: Sequence[tuple[Any, Iterable[int]]]) -> float:
    """Return the threshold with the highest mean F1 over questions.

    Each question is a pair of scores and evidence pages (0-based). Only the scores of evidence
    pages are tried, since F1 can only improve there.

    >>> fit_threshold([([0.9, 0.4, 0.3], [0]), ([0.8, 0.7, 0.1], [0, 1])])
    0.7
    """
    cases = [(_as_scores(scores), sorted(set(evidence))) for scores, evidence in questions]
    if not cases or not all(evidence for _, evidence in cases):
        raise InvalidOption("Fitting a threshold needs questions that have evidence pages.")
    candidates = np.unique(np.concatenate([values[evidence] for values, evidence in cases]))
    total = np.zeros(len(candidates))
    for values, evidence in cases:
        # `threshold` chooses the best page if none reaches the minimum.
        minimum = np.minimum(candidates, values.max())
        selected = len(values) - np.searchsorted(np.sort(values), minimum)
        correct = len(evidence) - np.searchsorted(np.sort(values[evidence]), minimum)
        total += 2 * correct / (selected + len(evidence))
    return float(candidates[int(np.argmax(total))])


def oracle(scores: Any, evidence: Iterable[int]) -> Choice:
    """Choose the smallest top-k that contains every evidence page (0-based).

    No cutoff of the same ranking can do better.

    >>> oracle([0.1, 0.9, 0.5], [2])
    Choice(k=2, pages=[1, 2])
    """
    values = _as_scores(scores)
    pages = sorted(set(evidence))
    if not pages:
        raise InvalidOption("The oracle needs at least one evidence page.")
    if pages[0] < 0 or pages[-1] >= len(values):
        raise InvalidOption(
            f"Evidence pages must lie between 0 and {len(values) - 1}, not {pages}."
        )
    ranks = np.flatnonzero(np.isin(_descending(values), pages))
    return _best_pages(values, int(ranks[-1]) + 1)


def _as_scores(scores: Any) -> Float64:
    values = np.asarray(scores, np.float64)
    if values.ndim != 1 or not len(values):
        raise InvalidVectors(f"Scores must be one number per page, not shape {values.shape}.")
    if not np.isfinite(values).all():
        page = int(np.flatnonzero(~np.isfinite(values))[0])
        raise InvalidVectors(f"The score of page {page} (counted from 0) is {values[page]}.")
    return values


def _descending(values: Float64) -> Integers:
    return np.argsort(-values, kind="stable")


def _best_pages(values: Float64, k: int) -> Choice:
    k = min(max(k, 1), len(values))
    return Choice(k, _descending(values)[:k])


def _distance_to_line(values: Float64) -> Float64:
    """Return the drop from the best score at each rank minus the rank, both from 0 to 1."""
    descending = np.sort(values)[::-1]
    span = descending[0] - descending[-1]
    if span == 0:
        return np.zeros(len(values))
    return np.asarray((descending[0] - descending) / span - np.linspace(0, 1, len(values)))


def _peaks(values: Float64) -> Integers:
    """Return the positions of the values that are above both their neighbors."""
    middle = values[1:-1]
    return np.flatnonzero((middle > values[:-2]) & (middle > values[2:])) + 1


def _best_clusters(points: Float64) -> NDArray[np.int64]:
    """Return HDBSCAN's labels for the first minimum cluster size with the best silhouette."""
    with extra_needed("Score-Cluster", "eval"):
        from sklearn.cluster import HDBSCAN
        from sklearn.metrics import silhouette_score
    best, best_quality = np.zeros(len(points), np.int64), -np.inf
    for smallest in range(2, len(points)):
        labels = HDBSCAN(min_cluster_size=smallest, copy=True).fit_predict(points)
        quality = -1.0
        if 1 < len(np.unique(labels)) < len(points):
            quality = float(silhouette_score(points, labels))
        if quality > best_quality:
            best, best_quality = labels, quality
    return best


def _two_means(descending: Float64) -> int:
    """Return the size of the better of the two clusters with the least variance."""
    n = len(descending)
    counts = np.arange(1, n)
    # Relative to the mean (scaled by n), the sums of the two clusters are opposite.
    sums = np.cumsum(n * descending - descending.sum())[:-1]
    return int(np.argmax(sums**2 / (counts * (n - counts)))) + 1


def _in_better_gaussian(descending: Float64) -> int:
    """Return how many values share a component with the highest, in a mixture of two."""
    with extra_needed("The Gaussian mixture", "eval"):
        from sklearn.mixture import GaussianMixture
    labels = GaussianMixture(2, random_state=0).fit_predict(descending[:, None])
    return int(np.count_nonzero(labels == labels[0]))


def _fit_pareto(excesses: Float64) -> tuple[float, float]:
    """Return shape ξ ≥ 0 and scale σ of the maximum-likelihood generalized Pareto distribution.

    Given τ = ξ / σ, the likeliest shape is the mean of ln(1 + τ y), and its mean log-likelihood
    is −ln(ξ / τ) − ξ − 1, so a search over τ is enough. τ = 0 is the exponential distribution.
    """
    mean = float(excesses.mean())
    best, shape, scale = -math.log(mean) - 1, 0.0, mean
    low, high = -4.0, 4.0
    for _ in range(2):
        exponents = np.linspace(low, high, 81)
        ratios = 10**exponents / mean
        shapes = np.log1p(ratios[:, None] * excesses).mean(axis=1)
        likelihoods = np.log(ratios / shapes) - shapes - 1
        index = int(np.argmax(likelihoods))
        if likelihoods[index] > best:
            best, shape = float(likelihoods[index]), float(shapes[index])
            scale = float(shape / ratios[index])
        step = exponents[1] - exponents[0]
        low, high = exponents[index] - step, exponents[index] + step
    return shape, scale


def _surprise(excesses: Float64, shape: float, scale: float) -> Float64:
    """Return −ln(1 − F) for a generalized Pareto distribution F."""
    if shape == 0:
        return excesses / scale
    return np.asarray(np.log1p(shape * excesses / scale) / shape)


def _misfit(ascending: Float64) -> float:
    """Return the Cramér–von Mises statistic of a fit to the excesses over the first value."""
    excesses = ascending[1:] - ascending[0]
    m = len(excesses)
    expected = (2 * np.arange(1, m + 1) - 1) / (2 * m)
    actual = -np.expm1(-_surprise(excesses, *_fit_pareto(excesses)))
    return float(1 / (12 * m) + ((actual - expected) ** 2).sum())
