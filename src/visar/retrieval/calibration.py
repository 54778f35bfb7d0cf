"""Calibrated probabilities that pages contain evidence.

A probability is the product of two logistic models. The first one gives the probability that the
pages are about the question, from the mean cosine of the best page. The second one gives the
probability that a page contains evidence if they are, from features of its `Relevance` and, if a
reader was used, from its scores. The models depend on encoder and reader. ViSAR ships those of the
embedded encoder and the built-in reader; ``visar calibrate`` fits others. ``docs/benchmarks.md``
shows how accurate the probabilities are.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from visar.core import Relevance
from visar.core.vectors import Float64, Integers
from visar.errors import CalibrationError
from visar.files import write_whole
from visar.results import EncoderRef, Likelihood, Strength

FEATURES = (
    "score",
    "late",
    "late_gap",
    "score_rank",
    "late_rank",
    "sparsity",
    "pages",
    "score_pages",
    "late_pages",
)
"""Features of a page; see `page_features`."""
READER_FEATURES = ("judged", "first", "first_read")
"""Additional features if a reader was used; see `add_judged`."""
FORMAT = 2
LIKELY = 0.6
POSSIBLE = 0.15
"""Minimum probabilities of likely and possible pages."""
# Maximum number of pages for the expected F1: evidence is rarely on more.
_MAX_PAGES = 64
_TINY = float(np.finfo(np.float64).tiny)


def page_features(relevance: Relevance) -> Float64:
    """Return the features of each page, in the order of `FEATURES`: (N, features).

    ``score`` is s_p relative to the best page, ``late`` late interaction standardized over the
    pages, ``late_gap`` its distance to the next page in rank, ``score_rank`` and ``late_rank`` the
    logarithms of both ranks, ``sparsity`` the share of inactive pages, and ``pages`` the logarithm
    of the number of pages. The last two are ``score`` and ``late`` times ``pages``, since their
    meaning depends on the number of pages.
    """
    late = relevance.late_interaction
    n_pages = len(late)
    standard = _standardized(late)
    by_late = np.argsort(-late, kind="stable")
    gaps = np.zeros(n_pages)
    gaps[by_late[:-1]] = -np.diff(standard[by_late])
    scores = relevance.scores / max(float(relevance.scores.max()), _TINY)
    if relevance.fallback:  # without scores
        scores = (np.arange(n_pages) == relevance.ranking[0]).astype(np.float64)
    size = np.log(n_pages)
    columns = (
        scores,
        standard,
        gaps,
        np.log1p(_ranks(relevance.ranking)),
        np.log1p(_ranks(by_late)),
        np.full(n_pages, relevance.sparsity),
        np.full(n_pages, size),
        scores * size,
        standard * size,
    )
    return np.column_stack(columns)


def add_judged(features: Float64, judged: Float64) -> Float64:
    """Return the features of pages with `READER_FEATURES` added.

    ``judged`` has the reader's score of each page. Pages that it didn't read (NaN) get its lowest
    score. ``first`` is 1 for the best page by s_p, ``first_read`` for the best page by s_p and the
    reader's score together, which is shown first.
    """
    scores, ranks = (features[:, FEATURES.index(name)] for name in ("score", "score_rank"))
    read = np.flatnonzero(~np.isnan(judged))
    first_read = read[(_standardized(scores[read]) + _standardized(judged[read])).argmax()]
    positions = np.arange(len(features))
    return np.column_stack(
        [
            features,
            np.where(np.isnan(judged), np.nanmin(judged), judged),
            positions == ranks.argmin(),
            positions == first_read,
        ]
    )


def _standardized(values: Float64) -> Float64:
    return np.asarray((values - values.mean()) / max(float(values.std()), _TINY))


def best_cosine(relevance: Relevance) -> float:
    """Return the mean cosine of the question's vectors with their best matches on the best page."""
    return float(relevance.late_interaction.max() / len(relevance.token_weights))


def _ranks(ranking: Integers) -> Integers:
    ranks = np.empty_like(ranking)
    ranks[ranking] = np.arange(len(ranking))
    return ranks


@dataclass(frozen=True, slots=True)
class PageModel:
    """Logistic model of the evidence on a page, given that the pages are about the question."""

    intercept: float
    weights: Mapping[str, float]
    """Weights of `FEATURES`, and of `READER_FEATURES` if the model uses a reader."""
    shift: float = 0.0
    """Correction of the logit for questions to a single document."""
    library_shift: float = 0.0
    """Correction for several documents: they have more pages that only seem relevant."""
    reader: str | None = None
    """Name of the reader that the model was fitted with."""

    def probabilities(self, features: Float64) -> Float64:
        """Return the probability of each page; features are in the order of the weights."""
        return logistic(self.intercept + features @ np.array([*self.weights.values()]))


@dataclass(frozen=True, slots=True)
class Coverage:
    """A coverage guarantee: a share of questions have all their evidence on the chosen pages.

    It holds on average, for questions like those of the fit, by split conformal prediction (Vovk
    et al., 2005; Angelopoulos and Bates, 2021, arXiv 2107.07511): the page model is fitted on some
    questions, and the threshold on others.
    """

    level: float
    """Guaranteed share of questions with all their evidence on the chosen pages."""
    threshold: float | None
    """Minimum probability of chosen pages; None chooses all, after a fit on too few questions."""
    questions: int
    """Number of questions that the threshold was fitted on."""
    pages: PageModel

    def choose(self, features: Float64) -> Integers:
        """Return the chosen pages from their `page_features`, best first; at least one."""
        probabilities = self.pages.probabilities(features)
        ranking = np.argsort(-probabilities, kind="stable")
        if self.threshold is None:
            return ranking
        return ranking[: max(1, int(np.count_nonzero(probabilities >= self.threshold)))]


def conformal_threshold(lowest: Float64, level: float) -> float | None:
    """Return the threshold that all evidence of a share ``level`` of new questions reaches.

    ``lowest`` has the lowest score of each question's evidence. The threshold is its r-th smallest
    value, with r = ⌊(n + 1)(1 − level)⌋. If a new question is exchangeable with these n, its lowest
    score is at least as high with a probability of at least ``level``. None if r is 0: n questions
    are too few to leave any page out.

    >>> conformal_threshold(np.array([0.5, 0.1, 0.4, 0.2, 0.3, 0.6, 0.7, 0.8, 0.9]), 0.8)
    0.2
    >>> conformal_threshold(np.array([0.5, 0.1, 0.4]), 0.9)
    """
    # (9 + 1)(1 - 0.9) is 1, but 0.99… in floating point.
    rank = int((len(lowest) + 1) * (1 - level) + 1e-9)
    return float(np.sort(lowest)[rank - 1]) if rank else None


@dataclass(frozen=True, slots=True)
class Calibration:
    """Models fitted for the vectors of one encoder."""

    encoder: str
    version: str
    made_from: str
    """Short description of the data that it was fitted on."""
    about_intercept: float
    about_weight: float
    """The probability of pages being about a question is logistic(intercept + weight × cosine³)."""
    pages: PageModel
    with_reader: PageModel | None
    """Page model for searches with the same reader."""
    weak: float
    """Matches with a lower probability of being about the question are weak."""
    none: float
    """Below this probability, there is no match."""
    threshold: float | None = None
    """Minimum mean cosine of pages, with the highest mean F1; for the method ``threshold``."""
    coverage: Coverage | None = None
    """Guarantee for the method ``coverage``."""

    def about(self, cosine: float) -> float:
        """Return the probability that pages are about a question, from their `best_cosine`."""
        return float(logistic(np.array(self.about_intercept + self.about_weight * cosine**3)))

    def if_about(self, features: Float64) -> Float64:
        """Return the probability of each page, given that the pages are about the question.

        ``features`` are those of `page_features`; the reader isn't used.
        """
        return self.pages.probabilities(features)

    def probabilities(
        self,
        cosine: float,
        features: Float64,
        *,
        several: bool = False,
        reader: str | None = None,
        judged: Float64 | None = None,
    ) -> Float64:
        """Return the probability that each page contains evidence.

        ``cosine`` and ``features`` are the question's `best_cosine` and `page_features`,
        ``several`` tells that the pages are the best of several documents, and ``judged`` has the
        score of each page by a reader, NaN for pages that it didn't read.
        """
        model = self.pages
        if (
            judged is not None
            and self.with_reader is not None
            and self.with_reader.reader == reader
            and not np.isnan(judged).all()
        ):
            model, features = self.with_reader, add_judged(features, judged)
        logits = logit(self.about(cosine) * model.probabilities(features))
        return logistic(logits + (model.library_shift if several else model.shift))

    def strength(self, about: float) -> Strength:
        """Return the strength of a match with this probability of being about the question."""
        if about >= self.weak:
            return "good"
        return "weak" if about >= self.none else "none"


def logistic(values: Float64) -> Float64:
    """Return 1 / (1 + exp(-x)) of each value.

    >>> logistic(np.array([0.0, 2.0])).round(3)
    array([0.5  , 0.881])
    """
    return np.asarray(1 / (1 + np.exp(-np.clip(values, -700, 700))))


def logit(probabilities: Float64) -> Float64:
    """Return log(p / (1 - p)) of each probability: the inverse of `logistic`, but always finite."""
    inside = np.clip(probabilities, 1e-12, 1 - 1e-12)
    return np.asarray(np.log(inside) - np.log1p(-inside))


def expected_f1(probabilities: Float64) -> Float64:
    """Return the expected F1 of choosing the k most probable pages, for k = 1, 2, …, 64.

    Probabilities are in descending order, and pages are assumed to contain evidence independently
    of each other. If a of the k pages and b of the others do, F1 is 2a / (k + a + b).

    >>> expected_f1(np.array([0.9, 0.8, 0.0])).round(2)
    array([0.66, 0.89, 0.71])
    """
    most = min(len(probabilities), _MAX_PAGES)
    # Probabilities that b pages after the k-th contain evidence, for each k and b.
    others = [np.eye(1, _MAX_PAGES + 1)[0]]
    for probability in probabilities[:0:-1]:
        others.append(_add_page(others[-1], probability))
        if len(others) > most:
            del others[0]
    counts = np.arange(_MAX_PAGES + 1)
    taken = np.eye(1, _MAX_PAGES + 1)[0]
    values = np.zeros(most)
    for k in range(1, most + 1):
        taken = _add_page(taken, probabilities[k - 1])
        f1 = 2 * counts[:, None] / (k + counts[:, None] + counts[None, :])
        values[k - 1] = taken @ f1 @ others[-k]
    return values


def most_useful(probabilities: Float64) -> Integers:
    """Return the pages with the highest expected F1, best first.

    >>> most_useful(np.array([0.1, 0.9, 0.8]))
    array([1, 2])
    """
    ranking = np.argsort(-probabilities, kind="stable")
    return ranking[: int(expected_f1(probabilities[ranking]).argmax()) + 1]


def _add_page(distribution: Float64, probability: float) -> Float64:
    """Return the distribution of a count after adding a page that counts with a probability."""
    grown = distribution * (1 - probability)
    grown[1:] += distribution[:-1] * probability
    return grown


def find_calibration(encoder: EncoderRef) -> Calibration | None:
    """Return the calibration of an encoder: the user's, or the one that ships with ViSAR.

    Raises CalibrationError if the user's calibration is damaged.
    """
    own = calibration_path(encoder)
    try:
        return _read(own.read_bytes(), str(own))
    except FileNotFoundError:
        pass
    except OSError as error:
        raise CalibrationError(f"Can't read {own}: {error.strerror}.") from error
    shipped = resources.files("visar.retrieval") / "calibrations" / own.name
    return _read(shipped.read_bytes(), str(shipped)) if shipped.is_file() else None


def save_calibration(calibration: Calibration, path: Path) -> None:
    """Write a calibration as JSON, atomically; raise CalibrationError if that fails."""
    values = {"format": FORMAT, **dataclasses.asdict(calibration)}
    try:
        write_whole(path, (json.dumps(values, ensure_ascii=False, indent=2) + "\n").encode())
    except OSError as error:
        raise CalibrationError(f"Can't write {path}: {error.strerror}.") from error


def calibration_path(encoder: EncoderRef) -> Path:
    """Return the path of the user's calibration of an encoder, shared by all indexes."""
    from platformdirs import user_data_path

    # The name can be a path. The digest tells versions apart, whose vectors differ.
    digest = hashlib.sha256(f"{encoder.name}\n{encoder.version}".encode()).hexdigest()[:12]
    readable = re.sub(r"[^\w.+-]+", "-", encoder.name).strip(".-")[-60:]
    return user_data_path("visar") / "calibrations" / f"{readable}-{digest}.json"


def _read(content: bytes, path: str) -> Calibration:
    advice = "Delete it, or create a new one with visar calibrate."
    try:
        values = json.loads(content)
        if values["format"] == 1:  # written before there were readers
            values["pages"] = {
                "intercept": values["page_intercept"],
                "weights": values["page_weights"],
            }
            values["with_reader"] = None
        elif values["format"] != FORMAT:
            raise CalibrationError(
                f"{path} has the format {values['format']!r}, but this version of ViSAR reads "
                f"{FORMAT}. {advice}"
            )
        with_reader = values["with_reader"]
        threshold, coverage = values.get("threshold"), values.get("coverage")
        return Calibration(
            encoder=values["encoder"],
            version=values["version"],
            made_from=values["made_from"],
            about_intercept=_finite(values["about_intercept"]),
            about_weight=_finite(values["about_weight"]),
            pages=_page_model(values["pages"], FEATURES),
            with_reader=with_reader and _page_model(with_reader, (*FEATURES, *READER_FEATURES)),
            weak=_finite(values["weak"]),
            none=_finite(values["none"]),
            threshold=None if threshold is None else _finite(threshold),
            coverage=None if coverage is None else _coverage(coverage),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CalibrationError(f"{path} isn't a valid calibration: {error!r}. {advice}") from error


def _page_model(values: Mapping[str, Any], features: Sequence[str]) -> PageModel:
    return PageModel(
        intercept=_finite(values["intercept"]),
        weights={name: _finite(values["weights"][name]) for name in features},
        shift=_finite(values.get("shift", 0.0)),
        library_shift=_finite(values.get("library_shift", 0.0)),
        reader=values.get("reader"),
    )


def _coverage(values: Mapping[str, Any]) -> Coverage:
    threshold = values["threshold"]
    return Coverage(
        level=_finite(values["level"]),
        threshold=None if threshold is None else _finite(threshold),
        questions=int(values["questions"]),
        pages=_page_model(values["pages"], FEATURES),
    )


def _finite(value: Any) -> float:
    number = float(value)
    if not np.isfinite(number):
        raise ValueError(f"{value} isn't finite")
    return number


def likelihood(probability: float | None, strength: Strength = "good") -> Likelihood | None:
    """Return the word for a probability; all pages are unlikely if there is no match.

    >>> likelihood(0.7), likelihood(0.2), likelihood(0.01), likelihood(None)
    ('likely', 'possible', 'unlikely', None)
    >>> likelihood(0.2, "none")
    'unlikely'
    """
    if probability is None:
        return None
    if strength == "none":
        return "unlikely"
    if probability >= LIKELY:
        return "likely"
    return "possible" if probability >= POSSIBLE else "unlikely"
