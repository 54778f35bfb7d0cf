"""Fit calibrations on questions with evidence pages, and measure their quality."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from visar.core.baselines import fit_threshold, threshold
from visar.core.vectors import Float64, Integers
from visar.errors import CalibrationError
from visar.evaluation.calibration_examples import Example, Kind
from visar.evaluation.metrics import f1, f1_of_means, precision, recall
from visar.results import EncoderRef
from visar.retrieval.calibration import (
    FEATURES,
    LIKELY,
    READER_FEATURES,
    Calibration,
    Coverage,
    PageModel,
    add_judged,
    conformal_threshold,
    logistic,
    logit,
    most_useful,
)

MIN_QUESTIONS = 20
"""Minimum number of questions with evidence pages."""
# Total weight of questions put to other documents, relative to the rest: an assumption about how
# often people ask a document about something else.
SHARE_OF_OTHERS = 0.25
# Quantiles for the thresholds of matches "none" and "weak": see fit().
NONE_QUANTILE = 0.12
WEAK_QUANTILE = 0.95
FOLDS = 30
"""Maximum number of groups of documents in cross-validation."""


def fit_logistic(
    features: Float64, labels: Float64, sample_weights: Float64, ridge: float = 1.0
) -> tuple[float, Float64]:
    """Fit a logistic regression; return its intercept and weights.

    Features are standardized for the ridge penalty, which excludes the intercept. The returned
    weights apply to the original features. A constant feature gets weight 0.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler()
    standard = scaler.fit_transform(features, sample_weight=sample_weights)
    model = LogisticRegression(C=1 / ridge, solver="newton-cholesky", tol=1e-10, max_iter=1000)
    model.fit(standard, labels, sample_weight=sample_weights)
    weights = model.coef_[0] / scaler.scale_
    return float(model.intercept_[0] - scaler.mean_ @ weights), weights


def fit(
    examples: Sequence[Example],
    encoder: EncoderRef,
    reader: str | None = None,
    fewest: int = MIN_QUESTIONS,
    coverage: float | None = None,
) -> Calibration:
    """Fit a calibration on at least ``fewest`` questions with evidence pages.

    Thresholds apply to the probability that the document is about the question. A match is "none"
    below the `NONE_QUANTILE` quantile of answerable questions, or below the 0.99 quantile of
    questions put to other documents if that is lower. It is "weak" below the `WEAK_QUANTILE`
    quantile of questions put to other documents. ``reader`` is the name of the reader that judged
    pages; None to fit without its judgments. ``coverage`` is the share of questions for which the
    method "coverage" promises to find all evidence. Raises CalibrationError if there are too few
    questions or only one document.
    """
    own = [example for example in examples if example.kind == "own"]
    others = [example for example in examples if example.kind == "other"]
    answerable = [example for example in own if example.evidence.any()]
    count, documents = len(answerable), len({example.document for example in own})
    if count < fewest or not others:
        raise CalibrationError(
            f"Can't calibrate with {count} questions with evidence pages about {documents} "
            f"documents: provide at least {MIN_QUESTIONS} about 3 documents."
        )
    # The cube fits better, because differences between low cosines hardly matter.
    cubes = np.array([[example.cosine**3] for example in (*own, *others)])
    is_about = np.repeat([1.0, 0.0], [len(own), len(others)])
    share = SHARE_OF_OTHERS * len(own) / len(others)
    importance = np.where(is_about == 1, 1.0, share)
    intercept, (weight,) = fit_logistic(cubes, is_about, importance, ridge=0.01)

    def quantile(some: Sequence[Example], level: float) -> float:
        return float(np.quantile([example.cosine for example in some], level))

    none = min(quantile(answerable, NONE_QUANTILE), quantile(others, 0.99))
    weak = max(none, quantile(others, WEAK_QUANTILE))
    none, weak = logistic(intercept + weight * np.array([none, weak]) ** 3).tolist()
    about = {id(e): float(logistic(np.array(intercept + weight * e.cosine**3))) for e in examples}
    asked = [(e, e.features, about[id(e)]) for e in examples if e.kind != "other"]
    read = [
        (e, add_judged(e.features, e.judged), p)
        for e, _, p in asked
        if e.judged is not None and not np.isnan(e.judged).all()
    ]
    return Calibration(
        encoder=encoder.name,
        version=encoder.version,
        made_from=f"{len(own)} questions ({count} with evidence pages) about {documents} documents",
        about_intercept=intercept,
        about_weight=float(weight),
        pages=_fit_pages(asked),
        with_reader=_fit_pages(read, reader) if reader is not None and read else None,
        weak=weak,
        none=none,
        threshold=_fit_threshold(answerable),
        coverage=None if coverage is None else fit_coverage(examples, coverage),
    )


def _fit_threshold(answerable: Sequence[Example]) -> float | None:
    """Fit the method ``threshold``; return None if the cosines of pages are unknown."""
    known = [(e.cosines, np.flatnonzero(e.evidence)) for e in answerable if e.cosines is not None]
    return fit_threshold(known) if known else None


def fit_coverage(examples: Sequence[Example], level: float) -> Coverage:
    """Fit the choice of pages that include all evidence for a given share of questions.

    The page model is fitted on questions about half of the documents, the threshold on the rest.
    Raises CalibrationError if the level isn't between 0 and 1, or a half has no question with
    evidence.
    """
    if not 0 < level < 1:
        raise CalibrationError(f"Invalid coverage {level}: use a share between 0 and 1.")
    own = [example for example in examples if example.kind == "own"]
    fitted_on = set(sorted({example.document for example in own})[::2])
    first = [example for example in own if example.document in fitted_on]
    second = [e for e in own if e.document not in fitted_on and e.evidence.any()]
    if not second or not any(example.evidence.any() for example in first):
        raise CalibrationError(
            "Can't fit a coverage: provide questions with evidence pages about at least two "
            "documents."
        )
    model = _fit_pages([(example, example.features, 1.0) for example in first])
    lowest = [model.probabilities(e.features)[e.evidence].min() for e in second]
    return Coverage(level, conformal_threshold(np.array(lowest), level), len(second), model)


@dataclass(frozen=True, slots=True)
class CoverageQuality:
    """The measured coverage on documents that weren't used for fitting."""

    level: float
    kept: float
    """The share of questions with all evidence among the chosen pages."""
    questions: int
    mean_k: float
    mean_pages: float
    """The mean number of pages of the documents."""


def measure_coverage(examples: Sequence[Example], level: float) -> CoverageQuality:
    """Measure the coverage of all documents by cross-validation."""
    results = []
    for left_out in _folds(examples):
        rest = [e for e in examples if e.document not in left_out]
        promise = fit_coverage(rest, level)
        for example in examples:
            if example.document in left_out and example.kind == "own" and example.evidence.any():
                taken = promise.choose(example.features)
                results.append(
                    (
                        example.evidence.sum() == example.evidence[taken].sum(),
                        len(taken),
                        len(example.evidence),
                    )
                )
    kept, k, pages = np.mean(results, axis=0).tolist()
    return CoverageQuality(level, kept, len(results), k, pages)


def _folds(examples: Sequence[Example]) -> list[set[str]]:
    """Return disjoint groups of documents to leave out together."""
    documents = sorted({example.document for example in examples})
    folds = min(len(documents), FOLDS)
    return [set(documents[fold::folds]) for fold in range(folds)]


def _fit_pages(
    asked: Sequence[tuple[Example, Float64, float]], reader: str | None = None
) -> PageModel:
    """Fit the page model on questions put to one document, and the shifts on the first pages.

    Each example comes with the features of its pages and the probability that they are about it.
    """
    own = [(example, features) for example, features, _ in asked if example.kind == "own"]
    labels = np.concatenate([example.evidence for example, _ in own]).astype(np.float64)
    features = np.concatenate([features for _, features in own])
    intercept, weights = fit_logistic(features, labels, np.ones(len(labels)))

    def shift(kind: Kind) -> float:
        """Return the shift that calibrates the probability of the first page."""
        logits, held = [], []
        for example, features, about in asked:
            if example.kind == kind:
                first = example.ranking[0] if reader is None else features[:, -1].argmax()
                logits.append(logit(about * logistic(intercept + features[first] @ weights)))
                held.append(example.evidence[first])
        return fit_shift(np.array(logits), np.array(held, np.float64))

    names = FEATURES if reader is None else (*FEATURES, *READER_FEATURES)
    return PageModel(
        intercept=intercept,
        weights=dict(zip(names, weights.tolist(), strict=True)),
        shift=shift("own"),
        library_shift=shift("library"),
        reader=reader,
    )


def fit_shift(logits: Float64, labels: Float64) -> float:
    """Fit a constant to add to logits, which is a logistic regression with only an intercept.

    A ridge penalty keeps it finite if all labels are equal.
    """
    shift = 0.0
    for _ in range(100):
        chances = logistic(logits + shift)
        step = (np.sum(labels - chances) - shift) / (np.sum(chances * (1 - chances)) + 1)
        shift += float(np.clip(step, -1, 1))
    return shift


@dataclass(frozen=True, slots=True)
class Bin:
    """A bin of pages with similar probability."""

    count: int
    probability: float
    """The mean probability."""
    share: float
    """The share of pages with evidence."""


@dataclass(frozen=True, slots=True)
class Matches:
    """The shares of questions with a weak match or none."""

    none: float
    weak: float
    """The share with a weak match or none."""


@dataclass(frozen=True, slots=True)
class Reliability:
    """The calibration of probabilities.

    Errors are expected calibration errors: the mean distance between probability and share.
    """

    pages: tuple[Bin, ...]
    """Bins of all pages of the questions' documents."""
    pages_error: float
    best: tuple[Bin, ...]
    """Bins of the most probable page of each question."""
    best_error: float
    first_error: float
    """The error for the first page."""
    library_error: float
    """The error for the first page of questions put to all documents."""
    likely: float
    """The share of answerable questions whose first page is likely."""
    unanswerable_likely: float | None
    """The same share of unanswerable questions; None if there are none."""


@dataclass(frozen=True, slots=True)
class ChoiceQuality:
    """The quality of the pages that a method chooses for answerable questions."""

    f1: float
    """F1 of mean precision and mean recall, as in the paper's tables."""
    mean_f1: float
    """The mean of the F1 of each question."""
    mean_k: float


@dataclass(frozen=True, slots=True)
class Quality:
    """The quality of calibrations on documents that weren't used for fitting."""

    questions: int
    with_evidence: int
    documents: int
    without_reader: Reliability
    with_reader: Reliability | None
    answerable: Matches
    unanswerable: Matches | None
    """Matches of unanswerable questions; None if there are none."""
    others: Matches
    """Matches of questions put to another document."""
    rules: Mapping[str, ChoiceQuality]
    """The quality of chosen pages by method."""
    library_rules: Mapping[str, ChoiceQuality]
    """The same for questions put to all documents."""


def cross_validate(
    examples: Sequence[Example], encoder: EncoderRef, reader: str | None = None
) -> Quality:
    """Measure calibrations of all documents by cross-validation; raises the errors of `fit`."""
    held = []
    for left_out in _folds(examples):
        kept = [e for e in examples if not left_out & {e.document, e.pages_of}]
        calibration = fit(kept, encoder, reader, fewest=1)
        held += [_HeldOut(e, calibration, reader) for e in examples if e.document in left_out]
    own = [each for each in held if each.example.kind == "own"]
    answerable = [each for each in own if each.example.evidence.any()]
    unanswerable = [each for each in own if not each.example.evidence.any()]
    library = [each for each in held if each.example.kind == "library"]
    return Quality(
        questions=len(own),
        with_evidence=len(answerable),
        documents=len({example.document for example in examples}),
        without_reader=_reliability(own, library),
        with_reader=None if reader is None else _reliability(own, library, with_reader=True),
        answerable=_matches(answerable),
        unanswerable=_matches(unanswerable) if unanswerable else None,
        others=_matches([each for each in held if each.example.kind == "other"]),
        rules=_rules(answerable),
        library_rules=_rules([each for each in library if each.example.evidence.any()]),
    )


class _HeldOut:
    """An example with a calibration fitted without its document."""

    def __init__(self, example: Example, calibration: Calibration, reader: str | None) -> None:
        find = partial(
            calibration.probabilities,
            example.cosine,
            example.features,
            several=example.kind == "library",
        )
        self.example = example
        self.strength = calibration.strength(calibration.about(example.cosine))
        self.threshold = calibration.threshold
        self.if_about = calibration.if_about(example.features)
        self.probabilities = find()
        self.with_reader = find(reader=reader, judged=example.judged)


def _reliability(
    own: Sequence[_HeldOut], library: Sequence[_HeldOut], *, with_reader: bool = False
) -> Reliability:
    def found(held: _HeldOut) -> Float64:
        return held.with_reader if with_reader else held.probabilities

    def first(held: _HeldOut) -> int:
        judged = held.example.judged
        if with_reader and judged is not None and not np.isnan(judged).all():
            return int(add_judged(held.example.features, judged)[:, -1].argmax())
        return int(held.example.ranking[0])

    def bins(held: Sequence[_HeldOut], page: Callable[[_HeldOut], int]) -> tuple[Bin, ...]:
        return _bins(
            np.array([found(each)[page(each)] for each in held]),
            np.array([each.example.evidence[page(each)] for each in held]),
        )

    def likely(held: Sequence[_HeldOut]) -> float:
        return float(np.mean([found(each)[first(each)] >= LIKELY for each in held]))

    pages = _bins(
        np.concatenate([found(each) for each in own]),
        np.concatenate([each.example.evidence for each in own]),
    )
    best = bins(own, lambda each: int(found(each).argmax()))
    unanswerable = [each for each in own if not each.example.evidence.any()]
    return Reliability(
        pages=pages,
        pages_error=_error(pages),
        best=best,
        best_error=_error(best),
        first_error=_error(bins(own, first)),
        library_error=_error(bins(library, first)),
        likely=likely([each for each in own if each.example.evidence.any()]),
        unanswerable_likely=likely(unanswerable) if unanswerable else None,
    )


def _bins(probabilities: Float64, evidence: NDArray[np.bool_]) -> tuple[Bin, ...]:
    """Return the non-empty bins of ten bins of equal width."""
    bins = np.minimum((probabilities * 10).astype(int), 9)
    return tuple(
        Bin(int(inside.sum()), float(probabilities[inside].mean()), float(evidence[inside].mean()))
        for inside in (bins == number for number in np.unique(bins))
    )


def _error(bins: Sequence[Bin]) -> float:
    distances = [abs(each.probability - each.share) for each in bins]
    return float(np.average(distances, weights=[each.count for each in bins]))


def _matches(held: Sequence[_HeldOut]) -> Matches:
    none = sum(each.strength == "none" for each in held)
    weak = sum(each.strength == "weak" for each in held)
    return Matches(none / len(held), (none + weak) / len(held))


def _rules(held: Sequence[_HeldOut]) -> dict[str, ChoiceQuality]:
    if not held:
        return {}
    taken = [(each.example, each.example.ranking[: each.example.k_star]) for each in held]
    rules = {
        "visar": measure_choice(taken),
        "calibrated": measure_choice([(each.example, most_useful(each.if_about)) for each in held]),
    }
    by_threshold = [
        (each.example, threshold(each.example.cosines, each.threshold).pages)
        for each in held
        if each.example.cosines is not None and each.threshold is not None
    ]
    return rules | ({"threshold": measure_choice(by_threshold)} if by_threshold else {})


def measure_choice(chosen: Iterable[tuple[Example, Integers]]) -> ChoiceQuality:
    """Measure the pages chosen for questions with evidence."""
    pairs = [(pages.tolist(), np.flatnonzero(each.evidence).tolist()) for each, pages in chosen]
    return ChoiceQuality(
        f1=f1_of_means([precision(*pair) for pair in pairs], [recall(*pair) for pair in pairs]),
        mean_f1=float(np.mean([f1(*pair) for pair in pairs])),
        mean_k=float(np.mean([len(pages) for pages, _ in pairs])),
    )
