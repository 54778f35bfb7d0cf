"""Apply methods that choose k to the predictions of other programs, in mteb's JSON format.

No models or vectors are needed, so methods that require them aren't supported.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TypeAlias

import numpy as np
from pydantic import FiniteFloat, TypeAdapter, ValidationError

from visar.core import baselines
from visar.core.vectors import Float64
from visar.errors import DatasetError, InvalidOption
from visar.evaluation import metrics
from visar.evaluation.datasets.beir import BeirOptions, read_qrels
from visar.evaluation.datasets.entries import shown
from visar.retrieval.methods import METHODS, KnownScores, Method, get_method

DEPTH = 100
"""Default number of best documents per query that methods choose from."""
FIXED = (5, 10)
"""Default values of k for methods with a fixed k."""
NDCG_DEPTH = 10
THRESHOLD = "threshold"
# The key of mteb's model metadata, next to the subsets.
_META = "mteb_model_meta"

Qrels: TypeAlias = Mapping[str, Mapping[str, int]]
Scores: TypeAlias = dict[str, dict[str, FiniteFloat]]
"""The scores of documents by query."""
Predictions: TypeAlias = dict[str, dict[str, Scores]]
_SCHEMA: TypeAdapter[Predictions] = TypeAdapter(Predictions)


@dataclass(frozen=True, slots=True)
class Query:
    """A query with its best documents and evidence."""

    id: str
    scores: Float64
    """Scores of the best documents, in descending order."""
    evidence: tuple[int, ...]
    """Ranks of the evidence, from 0; evidence that wasn't found has ranks past the end."""

    @property
    def found(self) -> tuple[int, ...]:
        """Ranks of the evidence that was found."""
        return tuple(rank for rank in self.evidence if rank < len(self.scores))


@dataclass(frozen=True, slots=True)
class CutRow:
    """The quality of a method on a subset of predictions. Shares are between 0 and 1."""

    subset: str
    method: str
    queries: int
    mean_k: float
    recall: float | None = None
    """The mean recall. This and the following fields are None without judgments."""
    precision: float | None = None
    f1: float | None = None
    """The harmonic mean of mean precision and mean recall."""
    perfect_recall: float | None = None
    ndcg: float | None = None
    """NDCG@10 of the chosen documents, with binary relevance."""


def cut(
    predictions: Path,
    methods: Sequence[str] = (),
    *,
    qrels: Path | None = None,
    grade: int = 1,
    fixed: Sequence[int] = FIXED,
    depth: int = DEPTH,
) -> list[CutRow]:
    """Apply methods to a file of predictions in mteb's JSON format, and measure their choices.

    Raises DatasetError if a file is invalid or the judgments belong to other queries, and
    InvalidOption if a method is unknown or needs more than scores.

    Parameters
    ----------
    predictions
        File with predictions.
    methods
        Names of methods; by default, all fast methods that only need scores.
    qrels
        Judgments: a file, or the folder of a data set in BEIR's layout.
    grade
        Minimum grade for a document to count as evidence.
    fixed
        Values of k for methods with a fixed k.
    depth
        Number of best documents per query that methods choose from.
    """
    if depth < 1 or any(k < 1 for k in fixed):
        raise InvalidOption(f"depth {depth} and k {list(fixed)} must be at least 1.")
    rows: list[CutRow] = []
    for subset, splits in read_predictions(predictions).items():
        # Mteb calls a single subset "default"; others are languages.
        language = None if subset == "default" else subset
        for split, scores in splits.items():
            judged = None
            if qrels is not None:
                judged = read_qrels(qrels, BeirOptions(language=language, split=split))
            queries = _queries(scores, judged, split, grade, depth)
            names = methods or default_methods(judged)
            rows += _measure(f"{subset}/{split}", queries, names, fixed)
    return rows


def default_methods(judged: object | None = None) -> list[str]:
    """Return the fast methods that only need scores; with judgments, also those that need them."""
    refused = {"visar", "visar-approx", "single-vector"}
    names = [
        name
        for name, method in METHODS.items()
        if name not in refused and not method.needs_calibration and method.max_pages is None
    ]
    if judged is None:
        return [name for name in names if not METHODS[name].needs_evidence]
    return [*names, THRESHOLD]


def read_predictions(file: Path) -> Predictions:
    """Read predictions: the document scores of each query, by subset and split.

    Raises DatasetError if the file isn't in mteb's format.
    """
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise DatasetError(f"Can't read {file}: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{file} isn't valid JSON: {error}.") from error
    if isinstance(values, dict):
        values.pop(_META, None)
    try:
        predictions = _SCHEMA.validate_python(values, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        *location, name = [str(file), *map(str, first["loc"])]
        if first["type"] == "dict_type":
            fault = f"{', '.join([*location, name])}: expected an object, not"
        else:
            fault = f"{', '.join(location)}: the score of {name} must be a number, not"
        raise DatasetError(f"{fault} {shown(first['input'])}.") from None
    found = [scores for splits in predictions.values() for scores in splits.values()]
    if not any(documents for scores in found for documents in scores.values()):
        raise DatasetError(f"{file} has no predictions: give a file saved by mteb.")
    return predictions


def _queries(
    predicted: Scores,
    judged: Qrels | None,
    split: str,
    grade: int,
    depth: int,
) -> list[Query]:
    """Return the queries of a subset; with judgments, only those with evidence."""
    queries = []
    for identity, documents in predicted.items():
        if not documents:
            continue
        # Sorting is stable: equal scores stay in the order of the file.
        names = sorted(documents, key=lambda name: -documents[name])[:depth]
        scores = np.array([documents[name] for name in names])
        evidence: tuple[int, ...] = ()
        if judged is not None:
            # In ViDoRe, mteb's ids are query-SPLIT-ID and corpus-SPLIT-ID.
            grades = judged.get(identity) or judged.get(identity.removeprefix(f"query-{split}-"))
            relevant = {name for name, own in (grades or {}).items() if own >= grade}
            plain = [name.removeprefix(f"corpus-{split}-") for name in names]
            ranks = [
                rank
                for rank, name in enumerate(names)
                if name in relevant or plain[rank] in relevant
            ]
            missing = range(len(names), len(names) + len(relevant) - len(ranks))
            evidence = (*ranks, *missing)
            if not evidence:
                continue
        queries.append(Query(identity, scores, evidence))
    if not queries and judged is not None:
        raise DatasetError(
            f"The judgments don't match the queries of the predictions: judgments have ids such as "
            f"{shown(next(iter(judged), None))}, predictions {shown(next(iter(predicted), None))}."
        )
    return queries


def _measure(
    subset: str, queries: Sequence[Query], methods: Iterable[str], fixed: Sequence[int]
) -> Iterator[CutRow]:
    for name in methods:
        if name == THRESHOLD:
            yield _row(subset, name, queries, _cross_fitted(queries))
            continue
        method = get_method(name)
        rules = {f"{name}, k = {k}": method.with_options(k=k) for k in fixed}
        for shown_name, rule in ({name: method} if method.adaptive else rules).items():
            yield _row(subset, shown_name, queries, partial(_choose, rule))


def _choose(method: Method, query: Query) -> int:
    if method.needs_evidence and not query.found:
        return len(query.scores)
    return method.choose(KnownScores(query.scores, evidence=query.found)).k


def _cross_fitted(queries: Sequence[Query]) -> Callable[[Query], int]:
    """Return a rule with a threshold for each half of the queries, fitted on the other half."""
    halves = [[query for query in queries[half::2] if query.found] for half in (0, 1)]
    if not all(halves):
        raise InvalidOption(
            "The method threshold is fitted on held-out queries: provide judgments (--qrels) for "
            "at least two queries whose evidence was found."
        )
    fitted = [
        baselines.fit_threshold([(query.scores, query.found) for query in half]) for half in halves
    ]
    thresholds = {query.id: fitted[1 - n % 2] for n, query in enumerate(queries)}
    return lambda query: baselines.threshold(query.scores, thresholds[query.id]).k


def _row(
    subset: str, name: str, queries: Sequence[Query], choose: Callable[[Query], int]
) -> CutRow:
    kept = [choose(query) for query in queries]
    row = CutRow(subset, name, len(queries), fmean(kept))
    if not all(query.evidence for query in queries):
        return row
    pairs = [(range(k), query.evidence) for k, query in zip(kept, queries, strict=True)]
    recalls = [metrics.recall(*pair) for pair in pairs]
    precisions = [metrics.precision(*pair) for pair in pairs]
    return replace(
        row,
        recall=fmean(recalls),
        precision=fmean(precisions),
        f1=metrics.f1_of_means(precisions, recalls),
        perfect_recall=fmean(metrics.perfect_recall(*pair) for pair in pairs),
        ndcg=fmean(metrics.ndcg_at(*pair, NDCG_DEPTH) for pair in pairs),
    )
