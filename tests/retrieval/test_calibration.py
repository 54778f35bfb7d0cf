"""Tests of calibrated probabilities: features, files, and methods that use them."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visar.core import Selection, maxsim, prepare, select
from visar.encoders.embedded import EmbeddedEncoder
from visar.errors import CalibrationError, InvalidOption
from visar.quotes.reader import BUILT_IN
from visar.results import EncoderRef
from visar.retrieval.calibration import (
    FEATURES,
    READER_FEATURES,
    Calibration,
    Coverage,
    PageModel,
    add_judged,
    best_cosine,
    calibration_path,
    conformal_threshold,
    expected_f1,
    find_calibration,
    most_useful,
    page_features,
    save_calibration,
)
from visar.retrieval.methods import METHODS, ScoredPages

EMBEDDED = EncoderRef.of(EmbeddedEncoder())
OTHER = EncoderRef("/models/tiny [1]", "abc", 8)
CALIBRATION = Calibration(
    encoder=OTHER.name,
    version=OTHER.version,
    made_from="40 questions about 3 documents",
    about_intercept=-4.0,
    about_weight=100.0,
    pages=PageModel(-3.0, dict.fromkeys(FEATURES, 0.0) | {"score": 4.0}, library_shift=-1.0),
    with_reader=PageModel(
        -3.0,
        dict.fromkeys([*FEATURES, *READER_FEATURES], 0.0) | {"score": 4.0, "judged": 1.0},
        reader="tiny-reader",
    ),
    weak=0.6,
    none=0.2,
)


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


@pytest.fixture
def query() -> np.ndarray:
    return np.eye(3, 8, dtype=np.float32)


def pages(count: int) -> list[np.ndarray]:
    vectors = np.random.default_rng(3).normal(size=(count, 12, 8)).astype(np.float32)
    return list(vectors / np.linalg.norm(vectors, axis=2, keepdims=True))


def test_expected_f1_is_the_mean_over_all_possible_evidence() -> None:
    probabilities = np.array([0.9, 0.55, 0.5, 0.2, 0.03])
    expected = np.zeros(5)
    for evidence in itertools.product([False, True], repeat=5):
        chance = np.prod(np.where(evidence, probabilities, 1 - probabilities))
        found = np.cumsum(evidence)
        expected += chance * 2 * found / (np.arange(1, 6) + sum(evidence))
    assert expected_f1(probabilities) == pytest.approx(expected)


def test_more_probable_pages_mean_more_chosen_pages() -> None:
    assert most_useful(np.array([0.01, 0.9, 0.02])).tolist() == [1]
    assert most_useful(np.array([0.8, 0.9, 0.02])).tolist() == [1, 0]
    assert len(most_useful(np.full(300, 0.9))) == 64


@pytest.mark.parametrize("count", [1, 2, 9])
def test_features_are_finite_for_any_number_of_pages(query: np.ndarray, count: int) -> None:
    for document in (pages(count), pages(1) * count, [*pages(count - 1), np.zeros((0, 8))]):
        features = page_features(select(query, prepare(document)))
        assert features.shape == (len(document), len(FEATURES))
        assert np.isfinite(features).all()


def test_features_describe_scores_and_ranks(query: np.ndarray) -> None:
    selection = select(query, pages(9))
    features = dict(zip(FEATURES, page_features(selection).T, strict=True))
    first = selection.ranking[0]
    assert features["score"][first] == features["score"].max() == 1
    assert np.argsort(features["score_rank"]).tolist() == selection.ranking.tolist()
    assert features["late"].mean() == pytest.approx(0)
    assert features["late"].std() == pytest.approx(1)
    by_late = np.argsort(-selection.late_interaction)
    assert features["late_rank"][by_late].tolist() == np.log1p(np.arange(9)).tolist()
    gaps = features["late"][by_late[:-1]] - features["late"][by_late[1:]]
    assert features["late_gap"][by_late] == pytest.approx([*gaps, 0])


def test_probabilities_are_lower_if_pages_are_not_about_the_question(query: np.ndarray) -> None:
    near = select(query, pages(9))
    far: Selection = replace(near, late_interaction=near.late_interaction / 10)
    assert best_cosine(far) == pytest.approx(best_cosine(near) / 10)
    assert (probabilities(far) < probabilities(near)).all()
    about = [CALIBRATION.about(best_cosine(selection)) for selection in (near, far)]
    assert [CALIBRATION.strength(value) for value in about] == ["good", "none"]
    assert CALIBRATION.strength(0.3) == "weak"


def probabilities(selection: Selection, **options: Any) -> np.ndarray:
    found: np.ndarray = CALIBRATION.probabilities(
        best_cosine(selection), page_features(selection), **options
    )
    return found


def test_pages_of_several_documents_are_less_probable(query: np.ndarray) -> None:
    selection = select(query, pages(9))
    assert (probabilities(selection, several=True) < probabilities(selection)).all()


def test_scores_of_the_reader_only_count_if_the_model_was_fitted_with_it(query: np.ndarray) -> None:
    selection = select(query, pages(9))
    judged = np.full(9, np.nan)
    judged[[2, 4]] = 5.0, 0.0
    without = probabilities(selection)
    with_reader = probabilities(selection, reader="tiny-reader", judged=judged)
    assert with_reader[2] > without[2]
    assert np.delete(with_reader, 2) == pytest.approx(np.delete(without, 2))
    for reader, read in (("another", judged), ("tiny-reader", np.full(9, np.nan))):
        found = probabilities(selection, reader=reader, judged=read)
        assert found == pytest.approx(without)


def test_pages_that_were_not_read_get_the_lowest_score(query: np.ndarray) -> None:
    selection = select(query, pages(9))
    judged = np.full(9, np.nan)
    first, second = selection.ranking[:2]
    judged[[first, second]] = -3.0, 6.0
    features = dict(
        zip(
            [*FEATURES, *READER_FEATURES],
            add_judged(page_features(selection), judged).T,
            strict=True,
        )
    )
    assert sorted(features["judged"]) == [*8 * [-3.0], 6.0]
    assert np.flatnonzero(features["first"]).tolist() == [first]
    assert features["first_read"].sum() == 1
    assert features["first_read"][[first, second]].sum() == 1


def test_the_calibrated_method_chooses_the_most_useful_pages(query: np.ndarray) -> None:
    document = prepare(pages(9))
    scored = ScoredPages(query, document, calibration=CALIBRATION)
    chosen = METHODS["calibrated"].choose(scored)
    likely = CALIBRATION.if_about(page_features(select(query, document)))
    assert chosen.pages.tolist() == most_useful(likely).tolist()
    assert chosen.k == len(chosen.pages)
    with pytest.raises(InvalidOption, match="visar calibrate"):
        METHODS["calibrated"].choose(ScoredPages(query, document))


PROMISE = Coverage(level=0.9, threshold=0.3, questions=40, pages=CALIBRATION.pages)


def test_the_coverage_method_chooses_pages_above_its_threshold(query: np.ndarray) -> None:
    document = prepare(pages(9))
    likely = CALIBRATION.if_about(page_features(select(query, document)))
    for threshold in (0.0, 0.3, 0.999, None):
        promise = replace(PROMISE, threshold=threshold)
        calibration = replace(CALIBRATION, coverage=promise)
        chosen = METHODS["coverage"].choose(ScoredPages(query, document, calibration=calibration))
        right = np.flatnonzero(likely >= (threshold or 0)).tolist() or [int(likely.argmax())]
        assert sorted(chosen.pages.tolist()) == right
    with pytest.raises(InvalidOption, match=r"--coverage 0\.9"):
        METHODS["coverage"].choose(ScoredPages(query, document, calibration=CALIBRATION))


def test_the_threshold_method_uses_the_mean_cosine(query: np.ndarray) -> None:
    document = prepare(pages(9))
    cosines = maxsim(query, document) / len(query)
    least = float(np.sort(cosines)[-3])
    calibration = replace(CALIBRATION, threshold=least)
    chosen = METHODS["threshold"].choose(ScoredPages(query, document, calibration=calibration))
    assert chosen.pages.tolist() == np.argsort(-cosines)[:3].tolist()
    with pytest.raises(InvalidOption, match="visar calibrate"):
        METHODS["threshold"].choose(ScoredPages(query, document, calibration=CALIBRATION))


@pytest.mark.parametrize("threshold", [0.3, None])
def test_a_coverage_guarantee_is_saved_in_the_file(threshold: float | None) -> None:
    promise = replace(PROMISE, threshold=threshold)
    calibration = replace(CALIBRATION, threshold=0.4, coverage=promise)
    save_calibration(calibration, calibration_path(OTHER))
    assert find_calibration(OTHER) == calibration


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=60, unique=True),
    st.sampled_from([0.5, 0.8, 0.9, 0.95]),
)
def test_the_conformal_threshold_covers_exchangeable_questions(
    scores: list[float], level: float
) -> None:
    """Leave out each of n + 1 questions in turn: the guaranteed share of them is covered."""
    covered = 0
    for place, left_out in enumerate(scores):
        threshold = conformal_threshold(np.array(scores[:place] + scores[place + 1 :]), level)
        covered += threshold is None or left_out >= threshold
    assert covered / len(scores) >= level - 1e-9
    # And not by far more than promised: the correction is at most one question.
    assert covered / len(scores) <= level + 1 / len(scores) + 1e-9


def test_guarantees_hold_for_simulated_questions() -> None:
    """Fit on 50 questions and measure on 200 new ones, 200 times: 90% within 4 deviations."""
    random = np.random.default_rng(8)
    kept = []
    for _ in range(200):
        scores = random.beta(2, 5, 250)
        threshold = conformal_threshold(scores[:50], 0.9)
        assert threshold is not None
        kept.append((scores[50:] >= threshold).mean())
    # 5 of 51 are below the threshold: 46/51 = 0.902. The deviation is that of thresholds.
    assert np.mean(kept) == pytest.approx(46 / 51, abs=4 * np.std(kept) / np.sqrt(200))
    assert np.mean(kept) >= 0.9 - 4 * np.sqrt(0.9 * 0.1 / (200 * 200))


def test_the_embedded_encoder_has_a_calibration() -> None:
    shipped = find_calibration(EMBEDDED)
    assert shipped is not None
    assert (shipped.encoder, shipped.version) == (EMBEDDED.name, EMBEDDED.version)
    assert 0 < shipped.none < shipped.weak < 1
    assert shipped.with_reader is not None
    assert shipped.with_reader.reader == BUILT_IN
    assert shipped.with_reader.weights["judged"] > 0
    # Vectors of another version are other vectors.
    assert find_calibration(replace(EMBEDDED, version="2")) is None


def test_the_calibration_of_the_user_is_preferred() -> None:
    assert find_calibration(OTHER) is None
    save_calibration(CALIBRATION, calibration_path(OTHER))
    assert find_calibration(OTHER) == CALIBRATION
    own = replace(CALIBRATION, encoder=EMBEDDED.name, version=EMBEDDED.version)
    save_calibration(own, calibration_path(EMBEDDED))
    assert find_calibration(EMBEDDED) == own


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[]",
        b'{"format": 3}',
        b'{"format": 2}',
        b'{"format": 1}',
        b'{"format": 2, "pages": 1}',
        b"\xff",
        json.dumps({"format": 1, "weak": "NaN"}).encode(),
    ],
)
def test_the_error_of_a_damaged_calibration_has_its_path(content: bytes) -> None:
    path = calibration_path(OTHER)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(CalibrationError, match="visar calibrate") as refused:
        find_calibration(OTHER)
    assert str(path) in str(refused.value)


def test_a_calibration_of_format_1_can_be_read() -> None:
    weights = dict.fromkeys(FEATURES, 0.0) | {"score": 4.0}
    values = {
        "format": 1,
        "encoder": OTHER.name,
        "version": OTHER.version,
        "made_from": CALIBRATION.made_from,
        "about_intercept": -4.0,
        "about_weight": 100.0,
        "page_intercept": -3.0,
        "page_weights": weights,
        "weak": 0.6,
        "none": 0.2,
    }
    path = calibration_path(OTHER)
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(values), encoding="utf-8")
    assert find_calibration(OTHER) == replace(
        CALIBRATION, pages=PageModel(-3.0, weights), with_reader=None
    )


def test_values_must_be_finite() -> None:
    path = calibration_path(OTHER)
    save_calibration(replace(CALIBRATION, weak=float("nan")), path)
    with pytest.raises(CalibrationError, match="nan"):
        find_calibration(OTHER)
