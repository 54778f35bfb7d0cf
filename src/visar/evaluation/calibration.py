"""Fitting a calibration on questions with evidence pages, and measuring how well it holds.

Beside its own document, a question is put to an excerpt of it and to all documents at once, since
people ask about a few pages or a whole library too, and to other documents, which do not answer it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from visar.core import PageVectors, select
from visar.core.vectors import Float64, Integers
from visar.errors import CalibrationError
from visar.evaluation.metrics import f1, f1_of_means, precision, recall
from visar.evaluation.questions import Question
from visar.index import Index
from visar.results import EncoderRef
from visar.retrieval.calibration import (
    FEATURES,
    Calibration,
    best_cosine,
    logistic,
    most_useful,
    page_features,
)
from visar.store import DocumentVectors

OTHER_DOCUMENTS = 5
"""How many other documents a question is put to."""
EXCERPTS = (1, 2, 3, 5, 8)
"""The pages of excerpts: each question is put to one of them."""
LIBRARY_EVERY = 3
"""Each third question is put to all documents at once, which takes long."""
# What these weigh: their pages are many, and questions made for one document fit others too.
LIBRARY_WEIGHT = 0.3
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

Kind: TypeAlias = Literal["own", "excerpt", "library", "other"]
Progress: TypeAlias = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """A question put to pages."""

    kind: Kind
    """To its own document, an excerpt of it, all documents, or another one."""
    document: str
    """That the question is about."""
    pages_of: str
    """That of the pages; "" for all."""
    features: Float64
    """Of each page: `page_features`."""
    cosine: float
    """Of the closest page."""
    evidence: NDArray[np.bool_]
    """Which pages hold evidence."""
    ranking: Integers
    """The pages in the order of s_p."""
    k_star: int
    """How many pages the paper's rule takes."""


def _silently(done: int, total: int) -> None:
    """Report no progress."""


def gather(
    index: Index,
    questions: Sequence[Question],
    names: Mapping[str, str],
    encoder: str,
    progress: Progress = _silently,
) -> list[Example]:
    """Put questions to their documents, to excerpts of these, and to other documents.

    Parameters
    ----------
    index
        Holds the documents and their vectors.
    questions
        Those whose document is missing in ``names`` are left out.
    names
        The id in the index of each document, by its name in the data set.
    encoder
        Whose vectors are used.
    progress
        Called with the questions done and their number.
    """
    library = _Library(
        {name: index.vectors(document, encoder=encoder) for name, document in sorted(names.items())}
    )
    asked = [question for question in questions if question.document in names]
    examples = []
    for number, question in enumerate(asked):
        progress(number, len(asked))
        query = index.encode_question(question.text, encoder=encoder)
        last = library.count(question.document)
        known = [page for page in question.evidence_pages if 1 <= page <= last]
        for kind, pages_of, first, pages in library.places(question.document, known, number):
            selection = select(query, pages)
            right = [page - 1 - first for page in known if kind != "other"]
            examples.append(
                Example(
                    kind=kind,
                    document=question.document,
                    pages_of=pages_of,
                    features=page_features(selection),
                    cosine=best_cosine(selection),
                    evidence=np.isin(np.arange(len(pages)), right),
                    ranking=selection.ranking,
                    k_star=selection.k_star,
                )
            )
    progress(len(asked), len(asked))
    return examples


class _Library:
    """The documents of a data set, by name, and the pages that a question is put to."""

    def __init__(self, vectors: Mapping[str, DocumentVectors]) -> None:
        self._vectors = vectors
        self._all = PageVectors(
            [page for v in vectors.values() for page in np.split(v.vectors, v.offsets[1:-1])]
        )
        counts = [self.count(name) for name in vectors]
        self._starts = dict(zip(vectors, np.cumsum([0, *counts]).tolist(), strict=False))

    def count(self, name: str) -> int:
        """How many pages a document has."""
        return len(self._vectors[name].offsets) - 1

    def places(
        self, own: str, evidence: Sequence[int], number: int
    ) -> Iterator[tuple[Kind, str, int, PageVectors]]:
        """The pages for a question: their kind and document, the first one's place, the vectors.

        The place of the first is that in the question's document, from 0: negative in a library
        that has other documents before it.
        """
        count = self.count(own)
        yield "own", own, 0, self._pages(own, 0, count)
        size = min(EXCERPTS[number % len(EXCERPTS)], count)
        # The evidence stands anywhere in an excerpt.
        at = evidence[0] - 1 if evidence else number % count
        first = min(max(0, at - number % size), count - size)
        yield "excerpt", own, first, self._pages(own, first, first + size)
        if number % LIBRARY_EVERY == 0:
            yield "library", "", -self._starts[own], self._all
        others = [name for name in self._vectors if name != own]
        taken = min(OTHER_DOCUMENTS, len(others))
        for place in range(taken):
            name = others[(number + place * len(others) // taken) % len(others)]
            yield "other", name, 0, self._pages(name, 0, self.count(name))

    def _pages(self, name: str, first: int, last: int) -> PageVectors:
        stored = self._vectors[name]
        offsets = stored.offsets[first : last + 1]
        return PageVectors(stored.vectors[offsets[0] : offsets[-1]], offsets - offsets[0])


def fit_logistic(
    features: Float64, labels: Float64, sample_weights: Float64, ridge: float = 1.0
) -> tuple[float, Float64]:
    """Fit a logistic regression by Newton's method; return the intercept and the weights.

    Features are standardised for the ridge penalty, which leaves out the intercept; what is
    returned goes with the features as they are given. A feature that does not vary gets 0.
    """
    mean = np.average(features, axis=0, weights=sample_weights)
    deviation = np.sqrt(np.average((features - mean) ** 2, axis=0, weights=sample_weights))
    scale = np.where(deviation > 1e-9, deviation, np.inf)
    design = np.column_stack([np.ones(len(features)), (features - mean) / scale])
    penalty = np.diag([1e-9, *np.full(features.shape[1], ridge)])
    rates = np.zeros(design.shape[1])
    for _ in range(100):
        chances = logistic(design @ rates)
        gradient = design.T @ (sample_weights * (labels - chances)) - penalty @ rates
        spread = sample_weights * chances * (1 - chances)
        step = np.linalg.solve(design.T @ (design * spread[:, None]) + penalty, gradient)
        # Far from the optimum a whole step can overshoot.
        rates += step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < 1e-8:
            break
    weights = rates[1:] / scale
    return float(rates[0] - mean @ weights), weights


def fit(
    examples: Sequence[Example], encoder: EncoderRef, fewest: int = FEWEST_QUESTIONS
) -> Calibration:
    """Fit a calibration on at least ``fewest`` questions with evidence pages.

    A match is called "none" below the probability of being about the question that
    `REFUSED` of the answerable questions do not reach (or a lower one, if that of nearly
    all questions put to other documents is lower), and "weak" below the one that
    `DOUBTED` of the questions put to other documents do not reach.

    Raises
    ------
    CalibrationError
        If there are too few such questions, or only one document.
    """
    asked = [example for example in examples if example.kind != "other"]
    others = [example for example in examples if example.kind == "other"]
    answerable = [e for e in asked if e.kind == "own" and e.evidence.any()]
    count = len(answerable)
    if count < fewest or not others:
        raise CalibrationError(
            f"{count} questions with evidence pages about {len({e.document for e in asked})} "
            f"documents are too few to calibrate: at least {FEWEST_QUESTIONS} about 3 are needed."
        )
    labels = np.concatenate([example.evidence for example in asked]).astype(np.float64)
    features = np.concatenate([example.features for example in asked])
    weighed = [np.full(len(e.evidence), _page_weight(e)) for e in asked]
    page_intercept, weights = fit_logistic(features, labels, np.concatenate(weighed))
    own = [example for example in asked if example.kind == "own"]
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
    documents = len({example.document for example in own})
    return Calibration(
        encoder=encoder.name,
        version=encoder.version,
        made_from=f"{len(own)} questions ({count} with evidence pages) about {documents} documents",
        about_intercept=intercept,
        about_weight=float(weight),
        page_intercept=page_intercept,
        page_weights=dict(zip(FEATURES, weights.tolist(), strict=True)),
        weak=weak,
        none=none,
    )


def _page_weight(example: Example) -> float:
    return LIBRARY_WEIGHT if example.kind == "library" else 1.0


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
    pages: tuple[Bin, ...]
    """All pages of the questions' documents."""
    pages_error: float
    """The expected calibration error: the mean distance of probability and share over pages."""
    best: tuple[Bin, ...]
    """The most probable page of each question."""
    best_error: float
    library_error: float | None
    """The same of questions put to all documents at once."""
    answerable: Matches
    unanswerable: Matches | None
    """None if there is no such question."""
    others: Matches
    """Questions put to another document."""
    rules: Mapping[str, Chosen]
    """By method: the paper's, and ours."""
    library_rules: Mapping[str, Chosen]
    """The same for questions put to all documents at once."""


def cross_validate(examples: Sequence[Example], encoder: EncoderRef) -> Quality:
    """Fit on some documents, measure on others, until each was measured once.

    Raises
    ------
    CalibrationError
        If there are too few questions or documents: see `fit`.
    """
    documents = sorted({example.document for example in examples})
    folds = min(len(documents), FOLDS)
    held = []
    for fold in range(folds):
        left_out = set(documents[fold::folds])
        kept = [e for e in examples if not left_out & {e.document, e.pages_of}]
        calibration = fit(kept, encoder, fewest=1)
        held += [_Held(e, calibration) for e in examples if e.document in left_out]
    own = [each for each in held if each.example.kind == "own"]
    answerable = [each for each in own if each.example.evidence.any()]
    unanswerable = [each for each in own if not each.example.evidence.any()]
    pages = _bins(
        np.concatenate([each.probabilities for each in own]),
        np.concatenate([each.example.evidence for each in own]),
    )
    best = _best_pages(own)
    library = [each for each in held if each.example.kind == "library"]
    return Quality(
        questions=len(own),
        with_evidence=len(answerable),
        documents=len(documents),
        pages=pages,
        pages_error=_error(pages),
        best=best,
        best_error=_error(best),
        library_error=_error(_best_pages(library)) if library else None,
        answerable=_matches(answerable),
        unanswerable=_matches(unanswerable) if unanswerable else None,
        others=_matches([each for each in held if each.example.kind == "other"]),
        rules=_rules(answerable),
        library_rules=_rules([each for each in library if each.example.evidence.any()]),
    )


class _Held:
    """An example under a calibration that has not seen its document."""

    def __init__(self, example: Example, calibration: Calibration) -> None:
        about = calibration.about(example.cosine)
        if_about = calibration.if_about(example.features)
        self.example = example
        self.probabilities = about * if_about
        self.strength = calibration.strength(about)
        self.chosen = most_useful(if_about)


def _bins(probabilities: Float64, evidence: NDArray[np.bool_]) -> tuple[Bin, ...]:
    """Ten bins of equal width; those without a page are left out."""
    places = np.minimum((probabilities * 10).astype(int), 9)
    return tuple(
        Bin(int(there.sum()), float(probabilities[there].mean()), float(evidence[there].mean()))
        for there in (places == place for place in np.unique(places))
    )


def _best_pages(held: Sequence[_Held]) -> tuple[Bin, ...]:
    firsts = [(each, int(each.probabilities.argmax())) for each in held]
    return _bins(
        np.array([each.probabilities[first] for each, first in firsts]),
        np.array([each.example.evidence[first] for each, first in firsts]),
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
    return {
        "visar": measure_choice(taken),
        "calibrated": measure_choice([(each.example, each.chosen) for each in held]),
    }


def measure_choice(chosen: Iterable[tuple[Example, Integers]]) -> Chosen:
    """Measure the pages chosen for questions with evidence."""
    pairs = [(pages.tolist(), np.flatnonzero(each.evidence).tolist()) for each, pages in chosen]
    return Chosen(
        f1=f1_of_means([precision(*pair) for pair in pairs], [recall(*pair) for pair in pairs]),
        mean_f1=float(np.mean([f1(*pair) for pair in pairs])),
        mean_k=float(np.mean([len(pages) for pages, _ in pairs])),
    )
