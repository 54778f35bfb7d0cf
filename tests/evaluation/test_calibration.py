"""A calibration is fitted as scikit-learn would, and finds again what made the evidence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from visar.errors import CalibrationError
from visar.evaluation.calibration import Example, Kind, cross_validate, fit, fit_logistic
from visar.results import EncoderRef
from visar.retrieval.calibration import FEATURES, logistic

ENCODER = EncoderRef("tiny", "1", 8)
TRUE_WEIGHTS = np.array([4.0, 0.5, 0.3, -1.0, -0.5, 0.0, 0.2, 0.0, 0.3])


def test_the_fit_is_that_of_scikit_learn() -> None:
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
    """Questions about 12 documents whose evidence is drawn from a model that is known."""
    random = np.random.default_rng(2)

    def example(kind: Kind, document: str, pages_of: str) -> Example:
        features = random.normal(size=(20, len(FEATURES)))
        chances = logistic(features @ TRUE_WEIGHTS - 4)
        evidence = random.random(20) < chances * (kind != "other")
        cosine = random.normal(0.3 if kind == "other" else 0.6, 0.1)
        ranking = np.argsort(-features[:, 0])
        return Example(kind, document, pages_of, features, cosine, evidence, ranking, 3)

    names = [f"{number}.pdf" for number in range(12)]
    return [
        example(kind, name, other if kind == "other" else name)
        for name, other in zip(names, [*names[1:], names[0]], strict=True)
        for kind in 30 * ("own",) + 30 * ("other",)
    ]


def test_what_made_the_evidence_is_found_again(examples: list[Example]) -> None:
    calibration = fit(examples, ENCODER)
    found = [calibration.page_weights[name] for name in FEATURES]
    assert found == pytest.approx(TRUE_WEIGHTS, abs=0.5)
    assert calibration.about(0.6) > 0.9
    assert calibration.about(0.3) < 0.3
    assert calibration.made_from.startswith("360 questions (")


def test_probabilities_hold_on_documents_left_out(examples: list[Example]) -> None:
    quality = cross_validate(examples, ENCODER)
    assert (quality.questions, quality.documents) == (360, 12)
    assert quality.pages_error < 0.02
    assert sum(each.count for each in quality.pages) == 360 * 20
    # The thresholds were set for a tenth, and 95 %, of the documents they were fitted on.
    assert quality.answerable.none == pytest.approx(0.1, abs=0.05)
    assert quality.others.weak == pytest.approx(0.95, abs=0.05)
    assert quality.rules["calibrated"].mean_f1 > quality.rules["visar"].mean_f1


def test_the_error_is_seen_where_probabilities_do_not_hold(examples: list[Example]) -> None:
    random = np.random.default_rng(5)
    # Half of the documents have no evidence where the model sees it.
    shuffled = [
        replace(each, evidence=random.permutation(each.evidence))
        if each.document < "3.pdf"
        else each
        for each in examples
    ]
    worse, better = cross_validate(shuffled, ENCODER), cross_validate(examples, ENCODER)
    assert worse.best_error > better.best_error + 0.02


@pytest.mark.parametrize("kept", ["few", "one document"])
def test_too_little_is_refused(examples: list[Example], kept: str) -> None:
    if kept == "few":
        some = [each for each in examples if each.document == "0.pdf"][:15]
    else:
        some = [each for each in examples if each.document == "0.pdf" and each.kind == "own"]
    with pytest.raises(CalibrationError, match="too few"):
        fit(some, ENCODER)
