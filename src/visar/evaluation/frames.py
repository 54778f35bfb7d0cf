"""The results of a run as pandas tables, with a row for each question and setting."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from visar.evaluation import metrics
from visar.evaluation.inputs import Definitions
from visar.evaluation.manifest import Skipped, read_manifests
from visar.evaluation.methods import METHODS
from visar.evaluation.records import AnswerRecord, QuestionRecord, RetrievalRecord, VerdictRecord
from visar.evaluation.state import CORRECTED, progress, read_state

RANKS = (5, 10)
"""Ranks at which rankings are measured."""
CHOICE_METRICS = {
    "precision": metrics.precision,
    "recall": metrics.recall,
    "f1": metrics.f1,
    "perfect_recall": metrics.perfect_recall,
}
"""Metrics of chosen pages; their columns are in percent."""
RANK_METRICS = {
    "recall": metrics.recall_at,
    "ndcg": metrics.ndcg_at,
    "paper_ndcg": metrics.paper_ndcg_at,
    "hits": metrics.hit_at,
    "mrr": metrics.reciprocal_rank_at,
}
"""Metrics of rankings; their columns are "recall@5", "recall@10", "ndcg@5" …"""

ANSWER_KEY = ["dataset", "generator", "prompt", "encoder", "method", "max_k", "question"]
_ORDER = {name: index for index, name in enumerate(METHODS)}


@dataclass(frozen=True)
class Results:
    """All results of a run. Rows are sorted by key, with methods in the order of METHODS."""

    questions: pd.DataFrame
    """Columns: dataset, question, document, pages (of the document), evidence_pages, answerable,
    corrected."""
    retrievals: pd.DataFrame
    """Key: dataset, encoder, method, question. Columns: k, pages, ranking, sparsity,
    paper_sparsity, alone, invalid_pages; "seconds.STAGE" for each stage and seconds for their sum
    (NaN if not measured); the question's columns (with pages as document_pages); metrics in percent
    or, for NDCG and MRR, between 0 and 1 (NaN for questions without evidence)."""
    answers: pd.DataFrame
    """Key: `ANSWER_KEY`. Columns: text, pages, input_tokens, output_tokens, seconds, model …"""
    verdicts: pd.DataFrame
    """Key: `ANSWER_KEY` and judge. Columns: correct, and accuracy, which is 0 or 100."""
    manifests: tuple[Mapping[str, Any], ...] = ()
    """The manifests of all calls of the run, in order."""
    definitions: Definitions = field(default_factory=Definitions)
    """The definitions, each from the last call that used it."""
    stale: int = 0
    """The number of stale records, which aren't in the tables."""
    missing: int = 0
    """The number of planned records that are missing."""
    unreadable: tuple[str, ...] = ()
    """Locations of lines that aren't JSON, left by interrupted writers."""
    left_out: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    """Questions left out because pages couldn't be encoded, by (data set, encoder)."""

    @cached_property
    def datasets(self) -> tuple[str, ...]:
        return tuple(self.questions.dataset.unique())

    @cached_property
    def encoders(self) -> tuple[str, ...]:
        return tuple(sorted(self.retrievals.encoder.unique()))

    @cached_property
    def counted(self) -> pd.DataFrame:
        """The retrievals of questions with evidence pages."""
        return self.retrievals[self.retrievals.has_evidence]

    @cached_property
    def invalid_questions(self) -> dict[tuple[str, str], frozenset[str]]:
        """Questions about documents with pages that couldn't be encoded, by (data set, encoder)."""
        failed = self.retrievals[self.retrievals.invalid_pages > 0]
        return {
            (dataset, encoder): frozenset(
                self.of(dataset).question[self.of(dataset).document.isin(group.document)]
            )
            for (dataset, encoder), group in failed.groupby(["dataset", "encoder"])
        }

    @cached_property
    def skipped(self) -> list[Skipped]:
        """What each call of the run skipped."""
        return [Skipped.model_validate(one.get("skipped", {})) for one in self.manifests]

    def of(self, dataset: str) -> pd.DataFrame:
        """Return the questions of a data set."""
        return self.questions[self.questions.dataset == dataset]

    def leave_out_invalid(self, settings: Collection[tuple[str, str]]) -> Results:
        """Return the results without the `invalid_questions` of some (data set, encoder)."""
        left_out = {key: self.invalid_questions.get(key, frozenset()) for key in settings}
        dropped = {(*key, question) for key, of_key in left_out.items() for question in of_key}

        def keep(frame: pd.DataFrame) -> pd.DataFrame:
            keys = zip(frame.dataset, frame.encoder, frame.question, strict=True)
            return frame[np.array([key not in dropped for key in keys], bool)]

        return replace(
            self,
            retrievals=keep(self.retrievals),
            answers=keep(self.answers),
            verdicts=keep(self.verdicts),
            left_out={key: questions for key, questions in left_out.items() if questions},
        )

    def skipped_documents(self, dataset: str) -> dict[str, str]:
        """Return the skipped documents of a data set with the reasons."""
        name = dataset.removesuffix(CORRECTED)
        reasons: dict[str, str] = {}
        for skipped in self.skipped:
            reasons |= dict.fromkeys(skipped.missing.get(name, ()), "missing")
            reasons |= skipped.refused.get(name, {})
        # A later call may have found documents that an earlier one missed.
        return {
            name: reasons[name] for name in sorted(reasons.keys() - {*self.of(dataset).document})
        }

    def lost_documents(self, dataset: str) -> list[str]:
        """Return the documents with results that the last call couldn't find or read."""
        if not self.skipped:
            return []
        name, last = dataset.removesuffix(CORRECTED), self.skipped[-1]
        skipped = {*last.missing.get(name, ()), *last.refused.get(name, ())}
        return sorted(skipped & {*self.of(dataset).document})


def read_results(folder: Path) -> Results:
    """Read the current results and the manifests from a run's folder.

    Raises NotARun if the folder doesn't contain a run, or a file in it is invalid.
    """
    state = read_state(folder)
    return make_results(
        list(state.asked.values()),
        list(state.retrieved.values()),
        list(state.answered.values()),
        list(state.judged.values()),
        manifests=read_manifests(folder),
        definitions=state.definitions,
        stale=sum(state.stale.values()),
        missing=sum(one.missing for one in progress(state).values()),
        unreadable=state.unreadable,
    )


def make_results(
    asked: Sequence[QuestionRecord],
    retrieved: Sequence[RetrievalRecord] = (),
    answered: Sequence[AnswerRecord] = (),
    judged: Sequence[VerdictRecord] = (),
    **more: Any,
) -> Results:
    """Convert records to tables; ``more`` are the other fields of `Results`."""
    questions = _sorted(_frame(asked, QuestionRecord), ["dataset", "question"])
    retrievals = _frame(retrieved, RetrievalRecord, without=("seconds", "inputs"))
    stages = pd.DataFrame([one.seconds for one in retrieved], index=retrievals.index)
    retrievals["seconds"] = stages.sum(axis=1, min_count=1)
    retrievals = retrievals.join(stages.add_prefix("seconds."))
    about = questions.rename(columns={"pages": "document_pages"})
    retrievals = retrievals.merge(about, on=["dataset", "question"])
    retrievals = retrievals.join(_measure(retrievals))
    verdicts = _frame(judged, VerdictRecord, without=("reason", "model", "inputs"))
    verdicts["accuracy"] = 100 * verdicts.correct.astype(float)
    return Results(
        questions,
        _sorted(retrievals, ["dataset", "encoder", "method", "question"]),
        _sorted(_frame(answered, AnswerRecord, without=("raw", "inputs")), ANSWER_KEY),
        _sorted(verdicts, [*ANSWER_KEY[:3], "judge", *ANSWER_KEY[3:]]),
        **more,
    )


def method_order(names: Iterable[str]) -> list[str]:
    """Sort names of methods in the order of METHODS, with unknown ones last."""
    return sorted(names, key=lambda name: (_ORDER.get(name, len(_ORDER)), name))


def measure_choices(
    pages: Iterable[Sequence[int]], evidence: Iterable[Collection[int]]
) -> dict[str, list[float]]:
    """Return the `CHOICE_METRICS` of chosen pages in percent, by name."""
    pairs = list(zip(pages, evidence, strict=True))
    return {
        name: [100 * metric(*pair) for pair in pairs] for name, metric in CHOICE_METRICS.items()
    }


def _frame(records: Sequence[Any], kind: type[Any], without: Collection[str] = ()) -> pd.DataFrame:
    names = [one.name for one in fields(kind) if one.name not in without]
    values = attrgetter(*names)
    return pd.DataFrame([values(record) for record in records], columns=names)


def _sorted(frame: pd.DataFrame, key: list[str]) -> pd.DataFrame:
    order = {name: index for index, name in enumerate(method_order(set(frame.get("method", ()))))}
    frame = frame.sort_values(
        key, key=lambda column: column.map(order) if column.name == "method" else column
    )
    return frame[key + [name for name in frame.columns if name not in key]].reset_index(drop=True)


def _measure(retrievals: pd.DataFrame) -> pd.DataFrame:
    """Compute all metrics of all retrievals; they are missing without evidence."""
    known = retrievals[retrievals.evidence_pages.map(len) > 0]
    frame = pd.DataFrame(measure_choices(known.pages, known.evidence_pages), known.index)
    # Measure each ranking once, because most methods share those of late interaction or ViSAR.
    pairs = list(zip(known.ranking, known.evidence_pages, strict=True))
    for name, metric in RANK_METRICS.items():
        factor = 100 if name in ("recall", "hits") else 1
        for rank in RANKS:
            values = {pair: metric(*pair, rank) * factor for pair in dict.fromkeys(pairs)}
            frame[f"{name}@{rank}"] = np.array([values[pair] for pair in pairs], float)
    frame = frame.astype(float).reindex(retrievals.index)
    return frame.assign(has_evidence=retrievals.index.isin(known.index))
