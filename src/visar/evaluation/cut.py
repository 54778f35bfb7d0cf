"""Rules that choose k, put to the predictions of other programs: scores in mteb's JSON.

No model runs, and no vectors are needed. Methods that need them are refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

import numpy as np

from visar.core import baselines
from visar.core.vectors import Float64
from visar.errors import DatasetError, InvalidOption
from visar.evaluation import metrics
from visar.evaluation.datasets.beir import BeirOptions, read_qrels
from visar.evaluation.datasets.entries import shown
from visar.retrieval.methods import METHODS, KnownScores, Method, get_method

DEPTH = 100
"""Number of best documents of a query that methods choose from by default."""
FIXED = (5, 10)
"""Numbers of documents that methods take which do not decide by themselves."""
NDCG_DEPTH = 10
THRESHOLD = "threshold"
# mteb's record of the model, beside the subsets of languages.
_META = "mteb_model_meta"

Qrels: TypeAlias = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Query:
    """The best documents of a query, and those that are evidence."""

    id: str
    scores: Float64
    """In descending order."""
    evidence: tuple[int, ...]
    """Ranks (from 0) of the evidence; documents that were not found have ranks past the end."""

    @property
    def found(self) -> tuple[int, ...]:
        """Ranks of the evidence that was found."""
        return tuple(rank for rank in self.evidence if rank < len(self.scores))


@dataclass(frozen=True, slots=True)
class CutRow:
    """One method on one subset of predictions. Shares are between 0 and 1."""

    subset: str
    method: str
    queries: int
    mean_k: float
    recall: float | None = None
    """This and what follows is None without judgments."""
    precision: float | None = None
    f1: float | None = None
    """Harmonic mean of mean precision and mean recall."""
    perfect_recall: float | None = None
    ndcg: float | None = None
    """NDCG@10 of the documents that were kept, each being evidence or not."""


def cut(
    predictions: Path,
    methods: Sequence[str] = (),
    *,
    qrels: Path | None = None,
    grade: int = 1,
    fixed: Sequence[int] = FIXED,
    depth: int = DEPTH,
) -> list[CutRow]:
    """Cut the predictions of a file by methods, and measure what is kept.

    Parameters
    ----------
    predictions
        JSON as mteb writes it: language subset, split, query id, document id, score.
    methods
        Names; by default all that go by scores and are fast.
    qrels
        Judgments: a file, or a folder of a data set in the layout of BEIR.
    grade
        Lowest grade of a document that counts as evidence.
    fixed
        Numbers of documents that methods take which do not decide by themselves.
    depth
        Number of best documents of a query to choose from.

    Raises
    ------
    DatasetError
        If a file is not as it should be, or the judgments are of other queries.
    InvalidOption
        If there is no such method, or it needs more than scores.
    """
    if depth < 1 or any(k < 1 for k in fixed):
        raise InvalidOption("depth and k must be at least 1.")
    rows = []
    for subset, split, scores in read_predictions(predictions):
        judged = None
        if qrels is not None:
            judged = read_qrels(qrels, BeirOptions(language=_language(subset), split=split))
        queries = _queries(scores, judged, split, grade, depth)
        rows += _measure(f"{subset}/{split}", queries, methods or default_methods(judged), fixed)
    return rows


def default_methods(judged: object | None = None) -> list[str]:
    """The methods that go by scores alone and are fast; some only where there are judgments."""
    refused = {"visar", "visar-approx", "single-vector"}
    names = [
        name
        for name, method in METHODS.items()
        if name not in refused and not method.needs_calibration and method.max_pages is None
    ]
    if judged is None:
        return [name for name in names if not METHODS[name].needs_evidence]
    return [*names, THRESHOLD]


def read_predictions(file: Path) -> list[tuple[str, str, dict[str, dict[str, float]]]]:
    """The subsets of predictions: language, split, and the score of each document by query.

    Raises a DatasetError if the file is not as mteb writes it.
    """
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise DatasetError(f"{file} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{file} is not JSON ({error}).") from error
    found = []
    for subset, splits in _object(values, str(file)).items():
        if subset == _META:
            continue
        for split, queries in _object(splits, f"{file}, {subset}").items():
            where = f"{file}, {subset}/{split}"
            scores = {
                query: _scores(documents, f"{where}, query {query}")
                for query, documents in _object(queries, where).items()
            }
            found.append((subset, split, {query: one for query, one in scores.items() if one}))
    if not any(scores for _, _, scores in found):
        raise DatasetError(f"{file} holds no predictions.")
    return found


def _object(value: Any, where: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise DatasetError(f"{where}: there must be an object, not {shown(value)}.")


def _scores(value: Any, where: str) -> dict[str, float]:
    documents = _object(value, where)
    for name, score in documents.items():
        if not isinstance(score, int | float) or isinstance(score, bool) or not np.isfinite(score):
            raise DatasetError(f"{where}: the score of {name} must be a number, not {score!r}.")
    return documents


def _language(subset: str) -> str | None:
    """The language of a subset; mteb calls the only one of a data set "default"."""
    return None if subset == "default" else subset


def _queries(
    predicted: Mapping[str, Mapping[str, float]],
    judged: Qrels | None,
    split: str,
    grade: int,
    depth: int,
) -> list[Query]:
    """The queries of a subset; with judgments, those that have evidence."""
    queries = []
    for identity, documents in predicted.items():
        # Equal scores in the order of the file.
        names = sorted(documents, key=lambda name: -documents[name])[:depth]
        scores = np.array([documents[name] for name in names])
        evidence: tuple[int, ...] = ()
        if judged is not None:
            # mteb names queries and documents of ViDoRe query-SPLIT-ID and corpus-SPLIT-ID.
            grades = judged.get(identity) or judged.get(identity.removeprefix(f"query-{split}-"))
            wanted = {name for name, given in (grades or {}).items() if given >= grade}
            plain = [name.removeprefix(f"corpus-{split}-") for name in names]
            ranks = [
                rank for rank, name in enumerate(names) if name in wanted or plain[rank] in wanted
            ]
            missing = range(len(names), len(names) + len(wanted) - len(ranks))
            evidence = (*ranks, *missing)
            if not evidence:
                continue
        queries.append(Query(identity, scores, evidence))
    if not queries and judged is not None:
        raise DatasetError(
            f"The judgments have no evidence for the queries of the predictions: those judge "
            f"{shown(next(iter(judged), None))}, these have {shown(next(iter(predicted), None))}."
        )
    return queries


def _measure(
    subset: str, queries: Sequence[Query], methods: Iterable[str], fixed: Sequence[int]
) -> list[CutRow]:
    rows = []
    for name in methods:
        if name == THRESHOLD:
            rows.append(_row(subset, name, queries, _cross_fitted(queries)))
            continue
        method = get_method(name)
        if method.adaptive:
            rows.append(_row(subset, name, queries, _chooser(method)))
            continue
        for k in fixed:
            chooser = _chooser(method.with_options(k=k))
            rows.append(_row(subset, f"{name}, k = {k}", queries, chooser))
    return rows


def _chooser(method: Method) -> Callable[[Query], int]:
    def choose(query: Query) -> int:
        if method.needs_evidence and not query.found:
            return len(query.scores)
        return method.choose(KnownScores(query.scores, evidence=query.found)).k

    return choose


def _cross_fitted(queries: Sequence[Query]) -> Callable[[Query], int]:
    """A threshold for each half of the queries, fitted on the other half."""
    halves = [[query for query in queries[half::2] if query.found] for half in (0, 1)]
    if not all(halves):
        raise InvalidOption(
            "The method threshold is fitted on held-out queries: it needs judgments (--qrels) of "
            "at least two queries whose evidence was found."
        )
    fitted = [
        baselines.fit_threshold([(query.scores, query.found) for query in half]) for half in halves
    ]
    least = {query.id: fitted[1 - place % 2] for place, query in enumerate(queries)}
    return lambda query: baselines.threshold(query.scores, least[query.id]).k


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
    return CutRow(
        subset,
        name,
        len(queries),
        row.mean_k,
        recall=fmean(recalls),
        precision=fmean(precisions),
        f1=metrics.f1_of_means(precisions, recalls),
        perfect_recall=fmean(metrics.perfect_recall(*pair) for pair in pairs),
        ndcg=fmean(metrics.ndcg_at(*pair, NDCG_DEPTH) for pair in pairs),
    )
