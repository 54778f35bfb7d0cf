"""Calibrations: agreement with scikit-learn, and recovery of a known model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from visar.errors import CalibrationError
from visar.evaluation.calibration import (
    cross_validate,
    fit,
    fit_coverage,
    fit_logistic,
    fit_shift,
    measure_coverage,
)
from visar.evaluation.calibration_examples import Example, Kind
from visar.results import EncoderRef
from visar.retrieval.calibration import FEATURES, logistic

ENCODER = EncoderRef("tiny", "1", 8)
TRUE_WEIGHTS = np.array([4.0, 0.5, 0.3, -1.0, -0.5, 0.0, 0.2, 0.0, 0.3])


def test_the_fit_equals_scikit_learn() -> None:
    random = np.random.default_rng(1)
    features = random.normal(size=(400, 3))
    labels = (random.random(400) < logistic(features @ [2.0, -1.0, 0.0] - 1)).astype(float)
    weights = random.uniform(0.5, 2, 400)
    mean = np.average(features, axis=0, weights=weights)
    deviation = np.sqrt(np.average((features - mean) ** 2, axis=0, weights=weights))
    known = LogisticRegression(C=1.0, tol=1e-10, max_iter=1000)
    known.fit((features - mean) / deviation, labels, sample_weight=weights)
    intercept, found = fit_logistic(features, labels, weights)
    assert found * deviation == pytest.approx(known.coef_[0], abs=1e-5)
    assert intercept + found @ mean == pytest.approx(known.intercept_[0], abs=1e-5)


def test_separable_labels_and_constant_features_have_a_fit() -> None:
    features = np.column_stack([np.arange(10.0), np.ones(10)])
    intercept, weights = fit_logistic(
        features, (features[:, 0] > 4).astype(np.float64), np.ones(10)
    )
    assert np.isfinite(intercept)
    assert weights[0] > 0
    assert weights[1] == 0


@pytest.fixture(scope="module")
def examples() -> list[Example]:
    """Questions about 12 documents, with evidence drawn from a known model."""
    random = np.random.default_rng(2)

    def example(kind: Kind, document: str, pages_of: str) -> Example:
        features = random.normal(size=(20, len(FEATURES)))
        chances = logistic(features @ TRUE_WEIGHTS - 4)
        evidence = random.random(20) < chances * (kind != "other")
        cosine = random.normal(0.3 if kind == "other" else 0.6, 0.1)
        ranking = np.argsort(-features[:, 0])
        # The reader reads ten pages, and its judgments depend partly on the evidence.
        judged = np.full(20, np.nan)
        judged[ranking[:10]] = 3.0 * evidence[ranking[:10]] + random.normal(size=10)
        return Example(kind, document, pages_of, cosine, features, evidence, ranking, 3, judged)

    names = [f"{number}.pdf" for number in range(12)]
    return [
        example(kind, name, other if kind == "other" else name)
        for name, other in zip(names, [*names[1:], names[0]], strict=True)
        for kind in 30 * ("own",) + 10 * ("library",) + 30 * ("other",)
    ]


def test_the_fit_recovers_the_true_model(examples: list[Example]) -> None:
    calibration = fit(examples, ENCODER)
    found = [calibration.pages.weights[name] for name in FEATURES]
    assert found == pytest.approx(TRUE_WEIGHTS, abs=0.5)
    assert calibration.about(0.6) > 0.9
    assert calibration.about(0.3) < 0.3
    assert calibration.made_from.startswith("360 questions (")
    assert calibration.with_reader is None


def test_probabilities_are_calibrated_on_held_out_documents(examples: list[Example]) -> None:
    quality = cross_validate(examples, ENCODER)
    assert (quality.questions, quality.documents) == (360, 12)
    assert quality.with_reader is None
    assert quality.without_reader.pages_error < 0.02
    assert sum(each.count for each in quality.without_reader.pages) == 360 * 20
    assert sum(each.count for each in quality.without_reader.best) == 360
    # The thresholds were fitted for a tenth and for 95 % on other documents.
    assert quality.answerable.none == pytest.approx(0.1, abs=0.05)
    assert quality.others.weak == pytest.approx(0.95, abs=0.05)
    assert quality.rules["calibrated"].mean_f1 > quality.rules["visar"].mean_f1


def test_the_error_is_high_for_wrong_probabilities(examples: list[Example]) -> None:
    random = np.random.default_rng(5)
    # Half of the documents have no evidence where the model predicts it.
    shuffled = [
        replace(each, evidence=random.permutation(each.evidence))
        if each.document < "3.pdf"
        else each
        for each in examples
    ]
    worse, better = cross_validate(shuffled, ENCODER), cross_validate(examples, ENCODER)
    assert worse.without_reader.best_error > better.without_reader.best_error + 0.02


def test_judgments_of_a_reader_are_used_where_available(examples: list[Example]) -> None:
    model = fit(examples, ENCODER, "reader").with_reader
    assert model is not None
    assert model.reader == "reader"
    assert model.weights["judged"] > 1
    quality = cross_validate(examples, ENCODER, "reader")
    assert quality.with_reader is not None
    assert quality.with_reader.best_error < 0.1
    assert quality.with_reader.likely > quality.without_reader.likely


def test_examples_without_judgments_fit_no_reader(examples: list[Example]) -> None:
    unread = [replace(each, judged=np.full(20, np.nan)) for each in examples]
    assert fit(unread, ENCODER, "reader").with_reader is None
    unread = [replace(each, judged=None) for each in examples]
    assert fit(unread, ENCODER, "reader").with_reader is None


def test_unanswerable_questions_lower_the_probabilities(examples: list[Example]) -> None:
    own = next(each for each in examples if each.kind == "own")
    emptied = [
        replace(each, evidence=np.zeros(20, np.bool_)) if number % 2 else each
        for number, each in enumerate(examples)
    ]
    high, low = (
        fit(some, ENCODER).probabilities(own.cosine, own.features) for some in (examples, emptied)
    )
    assert low.max() < high.max()


@pytest.mark.parametrize(("label", "sign"), [(1.0, 1), (0.0, -1)])
def test_a_shift_calibrates_probabilities_and_stays_finite(label: float, sign: int) -> None:
    logits = np.random.default_rng(4).normal(size=400)
    labels = (np.random.default_rng(5).random(400) < logistic(logits + 1.5)).astype(np.float64)
    shift = fit_shift(logits, labels)
    assert logistic(logits + shift).mean() == pytest.approx(labels.mean(), abs=0.01)
    assert 0 < sign * fit_shift(logits, np.full(400, label)) < 20


@pytest.mark.parametrize("level", [0.7, 0.9])
def test_coverage_holds_on_held_out_documents(examples: list[Example], level: float) -> None:
    """Within 3 binomial standard deviations."""
    measured = measure_coverage(examples, level)
    answerable = [each for each in examples if each.kind == "own" and each.evidence.any()]
    assert measured.questions == len(answerable)
    deviation = np.sqrt(level * (1 - level) / len(answerable))
    assert measured.kept >= level - 3 * deviation
    assert measured.kept <= level + 3 * deviation + 0.02
    assert 1 <= measured.mean_k < measured.mean_pages == 20
    assert measured.mean_k < measure_coverage(examples, 0.95).mean_k


def test_page_model_and_threshold_of_coverage_use_different_documents(
    examples: list[Example],
) -> None:
    promise = fit_coverage(examples, 0.9)
    names = sorted({each.document for each in examples})
    second = [e for e in examples if e.kind == "own" and e.document in names[1::2]]
    assert promise.questions == sum(bool(each.evidence.any()) for each in second)
    changed = [
        replace(each, evidence=each.evidence[::-1]) if each.document in names[1::2] else each
        for each in examples
    ]
    assert fit_coverage(changed, 0.9).pages == promise.pages
    assert fit_coverage(changed, 0.9).threshold != promise.threshold


def test_with_few_questions_coverage_chooses_all_pages(examples: list[Example]) -> None:
    """5 questions can't guarantee 90%, because 1 of 6 is 17%."""
    own = [each for each in examples if each.kind == "own" and each.evidence.any()]
    second = [each for each in own if each.document == "1.pdf"][:5]
    promise = fit_coverage([*(each for each in own if each.document == "0.pdf"), *second], 0.9)
    assert promise.threshold is None
    assert len(promise.choose(own[0].features)) == 20


@pytest.mark.parametrize("level", [0, 1, 90])
def test_a_coverage_is_a_share(examples: list[Example], level: float) -> None:
    with pytest.raises(CalibrationError, match=f"{level}"):
        fit_coverage(examples, level)


def test_a_fixed_threshold_is_fitted_where_cosines_are_known(examples: list[Example]) -> None:
    assert fit(examples, ENCODER).threshold is None
    known = [replace(each, cosines=np.where(each.evidence, 0.6, 0.1)) for each in examples]
    assert fit(known, ENCODER).threshold == pytest.approx(0.6)
    rules = cross_validate(known, ENCODER).rules
    assert rules["threshold"].mean_f1 == 1


@pytest.mark.parametrize("kept", ["few", "one document"])
def test_too_few_questions_are_an_error(examples: list[Example], kept: str) -> None:
    if kept == "few":
        some = [each for each in examples if each.document == "0.pdf"][:15]
    else:
        some = [each for each in examples if each.document == "0.pdf" and each.kind == "own"]
    with pytest.raises(CalibrationError, match="at least 20"):
        fit(some, ENCODER)
