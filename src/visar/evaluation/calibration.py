"""Fitting a calibration on questions with evidence pages, and measuring how well it holds."""

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

FEWEST_QUESTIONS = 20
"""With evidence pages; fewer cannot fit the model."""
# Questions put to other documents weigh as much together as this share of the others: how often
# people are taken to ask a document about something else.
SHARE_OF_OTHERS = 0.25
# What is called a weak match, and none: see fit().
REFUSED = 0.12
DOUBTED = 0.95
FOLDS = 30
"""Of documents, at most."""


def fit_logistic(
    features: Float64, labels: Float64, sample_weights: Float64, ridge: float = 1.0
) -> tuple[float, Float64]:
    """Fit a logistic regression; return the intercept and the weights.

    Features are standardized for the ridge penalty, which leaves out the intercept; the returned
    weights go with the features as they are given. A feature that does not vary gets 0.
    """
    from sklearn.linear_model import LogisticRegression

    mean = np.average(features, axis=0, weights=sample_weights)
    deviation = np.sqrt(np.average((features - mean) ** 2, axis=0, weights=sample_weights))
    scale = np.where(deviation > 1e-9, deviation, np.inf)
    model = LogisticRegression(C=1 / ridge, solver="newton-cholesky", tol=1e-10, max_iter=1000)
    model.fit((features - mean) / scale, labels, sample_weight=sample_weights)
    weights = model.coef_[0] / scale
    return float(model.intercept_[0] - mean @ weights), weights


def fit(
    examples: Sequence[Example],
    encoder: EncoderRef,
    reader: str | None = None,
    fewest: int = FEWEST_QUESTIONS,
    coverage: float | None = None,
) -> Calibration:
    """Fit a calibration on at least ``fewest`` questions with evidence pages.

    A match is called "none" below the probability of being about the question that
    `REFUSED` of the answerable questions do not reach (or a lower one, if that of nearly
    all questions put to other documents is lower), and "weak" below the one that
    `DOUBTED` of the questions put to other documents do not reach.

    Parameters
    ----------
    examples
        Questions put to pages.
    encoder
        Reference of the encoder whose vectors they were compared by.
    reader
        Name of the reader that judged pages; None to fit without its judgments.
    fewest
        Minimum number of questions with evidence pages.
    coverage
        Share of questions whose evidence the method ``coverage`` promises; see `fit_coverage`.

    Raises
    ------
    CalibrationError
        If there are too few such questions, or only one document.
    """
    own = [example for example in examples if example.kind == "own"]
    others = [example for example in examples if example.kind == "other"]
    answerable = [example for example in own if example.evidence.any()]
    count, documents = len(answerable), len({example.document for example in own})
    if count < fewest or not others:
        raise CalibrationError(
            f"{count} questions with evidence pages about {documents} documents are too few to "
            f"calibrate: at least {FEWEST_QUESTIONS} about 3 are needed."
        )
    # A cube fits better than a line: below some cosine it hardly matters how low it is.
    cubes = np.array([[example.cosine**3] for example in (*own, *others)])
    is_about = np.repeat([1.0, 0.0], [len(own), len(others)])
    share = SHARE_OF_OTHERS * len(own) / len(others)
    importance = np.where(is_about == 1, 1.0, share)
    intercept, (weight,) = fit_logistic(cubes, is_about, importance, ridge=0.01)

    def quantile(some: Sequence[Example], level: float) -> float:
        return float(np.quantile([example.cosine for example in some], level))

    none = min(quantile(answerable, REFUSED), quantile(others, 0.99))
    weak = max(none, quantile(others, DOUBTED))
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
    """Fit the method ``threshold``; None if the cosines of pages are not known."""
    known = [(e.cosines, np.flatnonzero(e.evidence)) for e in answerable if e.cosines is not None]
    return fit_threshold(known) if known else None


def fit_coverage(examples: Sequence[Example], level: float) -> Coverage:
    """Fit the promise that the pages taken hold all evidence of a share of questions.

    The model of pages is fitted on questions about every other document, the threshold on the
    questions about the rest.

    Raises
    ------
    CalibrationError
        If the level is not between 0 and 1, or either part has no question with evidence.
    """
    if not 0 < level < 1:
        raise CalibrationError(f"The coverage must lie between 0 and 1, such as 0.9, not {level}.")
    own = [example for example in examples if example.kind == "own"]
    fitted_on = set(sorted({example.document for example in own})[::2])
    first = [example for example in own if example.document in fitted_on]
    second = [e for e in own if e.document not in fitted_on and e.evidence.any()]
    if not second or not any(example.evidence.any() for example in first):
        raise CalibrationError(
            "Questions with evidence pages about at least two documents are needed for a coverage."
        )
    model = _fit_pages([(example, example.features, 1.0) for example in first])
    lowest = [model.probabilities(e.features)[e.evidence].min() for e in second]
    return Coverage(level, conformal_threshold(np.array(lowest), level), len(second), model)


@dataclass(frozen=True, slots=True)
class CoverageQuality:
    """What a promise kept on documents that it was not fitted on."""

    level: float
    kept: float
    """Share of questions whose evidence was all among the pages taken."""
    questions: int
    mean_k: float
    mean_pages: float
    """Mean number of pages of the documents."""


def measure_coverage(examples: Sequence[Example], level: float) -> CoverageQuality:
    """Fit promises on some documents, measure on others, until each was measured once."""
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
    """Return documents to leave out together, each once."""
    documents = sorted({example.document for example in examples})
    folds = min(len(documents), FOLDS)
    return [set(documents[fold::folds]) for fold in range(folds)]


def _fit_pages(
    asked: Sequence[tuple[Example, Float64, float]], reader: str | None = None
) -> PageModel:
    """Fit the model of pages on questions to one document, and the shifts on the first pages.

    With each example come the features of its pages and the probability that they are about it.
    """
    own = [(example, features) for example, features, _ in asked if example.kind == "own"]
    labels = np.concatenate([example.evidence for example, _ in own]).astype(np.float64)
    features = np.concatenate([features for _, features in own])
    intercept, weights = fit_logistic(features, labels, np.ones(len(labels)))

    def shift(kind: Kind) -> float:
        """Return what makes the pages shown first as probable as they hold evidence."""
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
    """Fit the number that is best added to logits: a logistic regression of nothing else.

    A ridge penalty keeps it finite where all labels are the same.
    """
    shift = 0.0
    for _ in range(100):
        chances = logistic(logits + shift)
        step = (np.sum(labels - chances) - shift) / (np.sum(chances * (1 - chances)) + 1)
        shift += float(np.clip(step, -1, 1))
    return shift


@dataclass(frozen=True, slots=True)
class Bin:
    """Pages of similar probability."""

    count: int
    probability: float
    """Their mean probability."""
    share: float
    """How many of them hold evidence."""


@dataclass(frozen=True, slots=True)
class Matches:
    """The shares of some questions that are told so."""

    none: float
    weak: float
    """Or nothing at all."""


@dataclass(frozen=True, slots=True)
class Reliability:
    """How well probabilities hold.

    An error is the expected calibration error: the mean distance of probability and share.
    """

    pages: tuple[Bin, ...]
    """All pages of the questions' documents."""
    pages_error: float
    best: tuple[Bin, ...]
    """The most probable page of each question."""
    best_error: float
    first_error: float
    """Error of the page that is shown first."""
    library_error: float
    """Error of the page that is shown first, of questions put to all documents."""
    likely: float
    """Share of the answerable questions whose first page is called likely."""
    unanswerable_likely: float | None
    """The same share of the questions without an answer; None if there are none."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """How good the pages are that a rule takes for answerable questions."""

    f1: float
    """Of the mean precision and recall, as in the paper's tables."""
    mean_f1: float
    """The mean of the questions' own."""
    mean_k: float


@dataclass(frozen=True, slots=True)
class Quality:
    """How well calibrations hold on documents that they were not fitted on."""

    questions: int
    with_evidence: int
    documents: int
    without_reader: Reliability
    with_reader: Reliability | None
    answerable: Matches
    unanswerable: Matches | None
    """None if there is no such question."""
    others: Matches
    """Questions put to another document."""
    rules: Mapping[str, Chosen]
    """By method: the paper's, and ours."""
    library_rules: Mapping[str, Chosen]
    """The same for questions put to all documents at once."""


def cross_validate(
    examples: Sequence[Example], encoder: EncoderRef, reader: str | None = None
) -> Quality:
    """Fit on some documents, measure on others, until each was measured once.

    Raises
    ------
    CalibrationError
        If there are too few questions or documents: see `fit`.
    """
    held = []
    for left_out in _folds(examples):
        kept = [e for e in examples if not left_out & {e.document, e.pages_of}]
        calibration = fit(kept, encoder, reader, fewest=1)
        held += [_Held(e, calibration, reader) for e in examples if e.document in left_out]
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


class _Held:
    """An example under a calibration that has not seen its document."""

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
    own: Sequence[_Held], library: Sequence[_Held], *, with_reader: bool = False
) -> Reliability:
    def found(held: _Held) -> Float64:
        return held.with_reader if with_reader else held.probabilities

    def first(held: _Held) -> int:
        judged = held.example.judged
        if with_reader and judged is not None and not np.isnan(judged).all():
            return int(add_judged(held.example.features, judged)[:, -1].argmax())
        return int(held.example.ranking[0])

    def bins(held: Sequence[_Held], page: Callable[[_Held], int]) -> tuple[Bin, ...]:
        return _bins(
            np.array([found(each)[page(each)] for each in held]),
            np.array([each.example.evidence[page(each)] for each in held]),
        )

    def likely(held: Sequence[_Held]) -> float:
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
    """Ten bins of equal width; those without a page are left out."""
    places = np.minimum((probabilities * 10).astype(int), 9)
    return tuple(
        Bin(int(there.sum()), float(probabilities[there].mean()), float(evidence[there].mean()))
        for there in (places == place for place in np.unique(places))
    )


def _error(bins: Sequence[Bin]) -> float:
    distances = [abs(each.probability - each.share) for each in bins]
    return float(np.average(distances, weights=[each.count for each in bins]))


def _matches(held: Sequence[_Held]) -> Matches:
    none = sum(each.strength == "none" for each in held)
    weak = sum(each.strength == "weak" for each in held)
    return Matches(none / len(held), (none + weak) / len(held))


def _rules(held: Sequence[_Held]) -> dict[str, Chosen]:
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


def measure_choice(chosen: Iterable[tuple[Example, Integers]]) -> Chosen:
    """Measure the pages chosen for questions with evidence."""
    pairs = [(pages.tolist(), np.flatnonzero(each.evidence).tolist()) for each, pages in chosen]
    return Chosen(
        f1=f1_of_means([precision(*pair) for pair in pairs], [recall(*pair) for pair in pairs]),
        mean_f1=float(np.mean([f1(*pair) for pair in pairs])),
        mean_k=float(np.mean([len(pages) for pages, _ in pairs])),
    )
