"""The probability that a page holds evidence, from what the method knows of the page.

It is the product of two logistic models: that the pages are about the question at all, by the
closest page's mean cosine, and that a page holds evidence if they are, by a few features of its
`Relevance`, and by the reader's judgment where a reader took part. Their numbers depend on the
encoder and the reader: those of the embedded encoder and the built-in reader come with ViSAR,
``visar calibrate`` fits them for others. ``docs/confidence.md`` tells how well the probabilities
hold.
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
"""What the model sees of a page: see `page_features`."""
READER_FEATURES = ("judged", "first", "first_read")
"""Further features where a reader took part: see `add_judged`."""
FORMAT = 2
LIKELY = 0.6
POSSIBLE = 0.15
"""The lowest probabilities at which a page is called likely, or possible."""
# Evidence on more pages than these is rare; the expected F1 of taking more is not looked at.
_MOST_PAGES = 64
_TINY = float(np.finfo(np.float64).tiny)


def page_features(relevance: Relevance) -> Float64:
    """The features of each page, in the order of `FEATURES`: shape (N, features).

    ``score`` is s_p relative to the best, ``late`` late interaction standardised over the pages,
    ``late_gap`` its distance to the page that follows in rank, ``score_rank`` and ``late_rank``
    the logarithms of the ranks under both, ``sparsity`` the share of inactive pages, ``pages`` the
    logarithm of their number. The last two are ``score`` and ``late`` times ``pages``: what they
    tell depends on how many pages they tell apart.
    """
    late = relevance.late_interaction
    n_pages = len(late)
    standard = _standardized(late)
    by_late = np.argsort(-late, kind="stable")
    gaps = np.zeros(n_pages)
    gaps[by_late[:-1]] = -np.diff(standard[by_late])
    scores = relevance.scores / max(float(relevance.scores.max()), _TINY)
    if relevance.fallback:  # there are no scores then
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
    """Add `READER_FEATURES` to the features of pages.

    ``judged`` is the judgment of a reader on each page. Pages that it did not read in (NaN)
    count as the worst that it read. ``first`` is 1 for the first page by s_p, ``first_read`` for
    the first by s_p and judgment together, which is shown first.
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
    """The mean cosine of the question's vectors with their best matches on the closest page."""
    return float(relevance.late_interaction.max() / len(relevance.token_weights))


def _ranks(ranking: Integers) -> Integers:
    """The place of each page in a ranking, from 0."""
    ranks = np.empty_like(ranking)
    ranks[ranking] = np.arange(len(ranking))
    return ranks


@dataclass(frozen=True, slots=True)
class PageModel:
    """Logistic model that a page holds evidence, if the pages are about the question."""

    intercept: float
    weights: Mapping[str, float]
    """Weights of `FEATURES`, and of `READER_FEATURES` if it was fitted with a reader."""
    shift: float = 0.0
    """Correction of the logit of a probability, where one document is asked."""
    library_shift: float = 0.0
    """The same where several are asked: they have more pages that only seem to answer."""
    reader: str | None = None
    """Name of the reader that it was fitted with."""

    def probabilities(self, features: Float64) -> Float64:
        """Return the probability of each page, by its features in the order of the weights."""
        return logistic(self.intercept + features @ np.array([*self.weights.values()]))


@dataclass(frozen=True, slots=True)
class Coverage:
    """A promise: on average over questions like those it was fitted on, pages hold all evidence.

    Split conformal prediction (Vovk et al., 2005; Angelopoulos and Bates, 2021, arXiv 2107.07511):
    the model of pages was fitted on some questions, and the threshold on others.
    """

    level: float
    """Share of questions whose evidence is promised to be among the pages taken."""
    threshold: float | None
    """Lowest probability of a page that is taken; None takes all, where questions were too few."""
    questions: int
    """Number of questions that the threshold was fitted on."""
    pages: PageModel

    def choose(self, features: Float64) -> Integers:
        """Return the pages to take, best first, by `page_features`; at least one."""
        probabilities = self.pages.probabilities(features)
        ranking = np.argsort(-probabilities, kind="stable")
        if self.threshold is None:
            return ranking
        return ranking[: max(1, int(np.count_nonzero(probabilities >= self.threshold)))]


def conformal_threshold(lowest: Float64, level: float) -> float | None:
    """Return the threshold that a share ``level`` of new questions reach, with all their evidence.

    ``lowest`` holds the lowest score of the evidence of each question. The threshold is the r-th
    smallest with r = ⌊(n + 1)(1 − level)⌋: if a new question is exchangeable with these n, its
    lowest score is at least as high with a probability of at least ``level``. None if r is 0: n
    questions are too few to leave any page out.

    >>> conformal_threshold(np.array([0.5, 0.1, 0.4, 0.2, 0.3, 0.6, 0.7, 0.8, 0.9]), 0.8)
    0.2
    >>> conformal_threshold(np.array([0.5, 0.1, 0.4]), 0.9)
    """
    # 9 + 1 questions at 0.9 are 1.0, and 0.99… in floating point.
    rank = int((len(lowest) + 1) * (1 - level) + 1e-9)
    return float(np.sort(lowest)[rank - 1]) if rank else None


@dataclass(frozen=True, slots=True)
class Calibration:
    """Fitted models for the vectors of one encoder."""

    encoder: str
    version: str
    made_from: str
    """Data that it was fitted on, in a few words."""
    about_intercept: float
    about_weight: float
    """Numbers for the pages to be about a question: logistic(intercept + weight × cosine³)."""
    pages: PageModel
    with_reader: PageModel | None
    """Used instead of ``pages`` where the same reader took part."""
    weak: float
    """Pages that are less probably about a question match it weakly."""
    none: float
    """Pages that are less probably about a question do not match it."""
    threshold: float | None = None
    """Mean cosine of a question with a page, from which taking pages has the highest mean F1."""
    coverage: Coverage | None = None
    """Used by the method ``coverage``."""

    def about(self, cosine: float) -> float:
        """Return the probability that pages are about a question, by their `best_cosine`."""
        return float(logistic(np.array(self.about_intercept + self.about_weight * cosine**3)))

    def if_about(self, features: Float64) -> Float64:
        """Return the probability of each page, if the pages are about the question.

        No reader takes part. ``features`` are those of `page_features`.
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
        """Return the probability of each page to hold evidence for the question.

        Parameters
        ----------
        cosine
            `best_cosine` of the question.
        features
            `page_features` of the question.
        several
            Whether the pages are the best of several documents.
        reader
            Name of the reader that took part.
        judged
            Its judgment on each page, NaN for pages that it did not read in.
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
        """Return how well pages match that are about a question with this probability."""
        if about >= self.weak:
            return "good"
        return "weak" if about >= self.none else "none"


def logistic(values: Float64) -> Float64:
    """1 / (1 + exp(-x)) of each value.

    >>> logistic(np.array([0.0, 2.0])).round(3)
    array([0.5  , 0.881])
    """
    return np.asarray(1 / (1 + np.exp(-np.clip(values, -700, 700))))


def logit(probabilities: Float64) -> Float64:
    """Return log(p / (1 - p)) of each probability: `logistic` reversed. 0 and 1 stay finite."""
    inside = np.clip(probabilities, 1e-12, 1 - 1e-12)
    return np.asarray(np.log(inside) - np.log1p(-inside))


def expected_f1(probabilities: Float64) -> Float64:
    """The expected F1 of taking the k most probable pages, for each k from 1 on.

    Pages are taken to hold evidence independently of each other. With a of the k pages and b of
    the others holding evidence, F1 is 2a / (k + a + b).

    Parameters
    ----------
    probabilities
        One for each page, in descending order. At most 64 values are returned.

    >>> expected_f1(np.array([0.9, 0.8, 0.0])).round(2)
    array([0.66, 0.89, 0.71])
    """
    most = min(len(probabilities), _MOST_PAGES)
    # How probable it is that the pages after the k-th hold evidence on b of them.
    others = [np.eye(1, _MOST_PAGES + 1)[0]]
    for probability in probabilities[:0:-1]:
        others.append(_one_more(others[-1], probability))
        if len(others) > most:
            del others[0]
    counts = np.arange(_MOST_PAGES + 1)
    taken = np.eye(1, _MOST_PAGES + 1)[0]
    values = np.zeros(most)
    for k in range(1, most + 1):
        taken = _one_more(taken, probabilities[k - 1])
        f1 = 2 * counts[:, None] / (k + counts[:, None] + counts[None, :])
        values[k - 1] = taken @ f1 @ others[-k]
    return values


def most_useful(probabilities: Float64) -> Integers:
    """The pages with the highest expected F1, best first.

    >>> most_useful(np.array([0.1, 0.9, 0.8]))
    array([1, 2])
    """
    ranking = np.argsort(-probabilities, kind="stable")
    return ranking[: int(expected_f1(probabilities[ranking]).argmax()) + 1]


def _one_more(distribution: Float64, probability: float) -> Float64:
    """The distribution of a count when one more page counts with a probability."""
    grown = distribution * (1 - probability)
    grown[1:] += distribution[:-1] * probability
    return grown


def find_calibration(encoder: EncoderRef) -> Calibration | None:
    """The calibration of an encoder: the user's own, or the one that comes with ViSAR.

    Raises
    ------
    CalibrationError
        If the user's own is damaged.
    """
    own = calibration_path(encoder)
    try:
        return _read(own.read_bytes(), str(own))
    except FileNotFoundError:
        pass
    except OSError as error:
        raise CalibrationError(f"{own} cannot be read: {error.strerror}.") from error
    shipped = resources.files("visar.retrieval") / "calibrations" / own.name
    return _read(shipped.read_bytes(), str(shipped)) if shipped.is_file() else None


def save_calibration(calibration: Calibration, path: Path) -> None:
    """Write a calibration as JSON; the old one stays if that fails.

    Raises
    ------
    CalibrationError
        If it cannot be written.
    """
    values = {"format": FORMAT, **dataclasses.asdict(calibration)}
    try:
        write_whole(path, (json.dumps(values, ensure_ascii=False, indent=2) + "\n").encode())
    except OSError as error:
        raise CalibrationError(f"{path} cannot be written: {error.strerror}.") from error


def calibration_path(encoder: EncoderRef) -> Path:
    """Where the user's own calibration of an encoder is kept, whichever index it is used with."""
    from platformdirs import user_data_path

    # An encoder's name can be a path; its version keeps calibrations of other vectors away.
    digest = hashlib.sha256(f"{encoder.name}\n{encoder.version}".encode()).hexdigest()[:12]
    readable = re.sub(r"[^\w.+-]+", "-", encoder.name).strip(".-")[-60:]
    return user_data_path("visar") / "calibrations" / f"{readable}-{digest}.json"


def _read(content: bytes, where: str) -> Calibration:
    advice = "delete it, or make it again with visar calibrate"
    try:
        values = json.loads(content)
        if values["format"] == 1:  # of ViSAR before it had readers
            values["pages"] = {
                "intercept": values["page_intercept"],
                "weights": values["page_weights"],
            }
            values["with_reader"] = None
        elif values["format"] != FORMAT:
            raise CalibrationError(
                f"{where} has the format {values['format']!r}, and this version of ViSAR reads "
                f"{FORMAT}: {advice}."
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
        raise CalibrationError(f"{where} is no calibration ({error!r}): {advice}.") from error


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
        raise ValueError(f"{value} is no number")
    return number


def likelihood(probability: float | None, strength: Strength = "good") -> Likelihood | None:
    """Return the word for a probability. No page is possible if the documents don't match.

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
