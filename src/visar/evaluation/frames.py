"""The results of a run as pandas tables: one row for each question and setting."""

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
from visar.evaluation.manifest import Skipped, read_manifests
from visar.evaluation.methods import METHODS
from visar.evaluation.records import Answered, Asked, Judged, Retrieved
from visar.evaluation.state import CORRECTED, progress, read_state

RANKS = (5, 10)
"""Ranks that rankings are measured at."""
RANK_METRICS = {
    "recall": metrics.recall_at,
    "ndcg": metrics.ndcg_at,
    "paper_ndcg": metrics.paper_ndcg_at,
    "hits": metrics.hit_at,
    "mrr": metrics.reciprocal_rank_at,
}
"""Metrics of a ranking; their columns are "recall@5", "recall@10", "ndcg@5" …"""

ANSWER_KEY = ["dataset", "generator", "prompt", "encoder", "method", "max_k", "question"]
_ORDER = {name: place for place, name in enumerate(METHODS)}


@dataclass(frozen=True)
class Results:
    """All results of a run. Rows are sorted by their key, methods in the order of METHODS."""

    questions: pd.DataFrame
    """dataset, question, document, pages (of the document), evidence_pages, answerable, corrected.
    """
    retrievals: pd.DataFrame
    """dataset, encoder, method, question: k, pages, ranking, sparsity, paper_sparsity, alone,
    invalid_pages; "seconds.STAGE" for each stage and seconds for their sum (NaN if not measured);
    the question's columns (its pages are document_pages); metrics in per cent or, for NDCG and MRR,
    between 0 and 1; NaN for questions without evidence."""
    answers: pd.DataFrame
    """`ANSWER_KEY`: text, pages, input_tokens, output_tokens, seconds, model, concurrency."""
    verdicts: pd.DataFrame
    """`ANSWER_KEY` and judge: correct."""
    manifests: tuple[Mapping[str, Any], ...] = ()
    """Manifests of every call of the run, the last one last."""
    stale: int = 0
    """Records computed from inputs that have changed since; they are in no table."""
    missing: int = 0
    """Records that the calls of the run ask for and the folder does not have."""
    unreadable: tuple[str, ...] = ()
    """Lines that are not JSON: a writer was interrupted."""
    left_out: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    """By (data set, encoder): questions left out because pages could not be encoded."""

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
        """By (data set, encoder): questions about documents with pages that it failed on."""
        failed = self.retrievals[self.retrievals.invalid_pages > 0]
        return {
            (dataset, encoder): frozenset(
                self.of(dataset).question[self.of(dataset).document.isin(group.document)]
            )
            for (dataset, encoder), group in failed.groupby(["dataset", "encoder"])
        }

    @cached_property
    def has_paper_sparsity(self) -> bool:
        """Whether sparsity is also kept as the paper counts it; older versions did not."""
        visar = self.retrievals[self.retrievals.method == "visar"]
        return bool((visar.paper_sparsity.notna() | visar.sparsity.isna()).all())

    @cached_property
    def skipped(self) -> list[Skipped]:
        """What each call of the run skipped."""
        return [Skipped.model_validate(one.get("skipped", {})) for one in self.manifests]

    def of(self, dataset: str) -> pd.DataFrame:
        """Return the questions of a data set."""
        return self.questions[self.questions.dataset == dataset]

    def leave_out_invalid(self, settings: Collection[tuple[str, str]]) -> Results:
        """Return the results without `invalid_questions` of some (data set, encoder)."""
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
        """Return the documents of a data set that no question was asked about, with the reasons."""
        name = dataset.removesuffix(CORRECTED)
        reasons: dict[str, str] = {}
        for skipped in self.skipped:
            reasons |= dict.fromkeys(skipped.missing.get(name, ()), "missing")
            reasons |= skipped.refused.get(name, {})
        # A later call of the run may have found what an earlier one missed.
        return {
            name: reasons[name] for name in sorted(reasons.keys() - {*self.of(dataset).document})
        }


def read_results(folder: Path) -> Results:
    """Read the results of a run's folder that count, and its manifests.

    Raises NotARun if the folder holds no run, or a file in it is not what it should be.
    """
    state = read_state(folder)
    return make_results(
        list(state.asked.values()),
        list(state.retrieved.values()),
        list(state.answered.values()),
        list(state.judged.values()),
        manifests=read_manifests(folder),
        stale=sum(state.stale.values()),
        missing=sum(one.missing for one in progress(state).values()),
        unreadable=state.unreadable,
    )


def make_results(
    asked: Sequence[Asked],
    retrieved: Sequence[Retrieved] = (),
    answered: Sequence[Answered] = (),
    judged: Sequence[Judged] = (),
    **more: Any,
) -> Results:
    """Return records as tables; ``more`` are the other fields of `Results`."""
    questions = _sorted(_frame(asked, Asked), ["dataset", "question"])
    retrievals = _frame(retrieved, Retrieved, without=("seconds", "inputs"))
    stages = pd.DataFrame([one.seconds for one in retrieved], index=retrievals.index)
    retrievals["seconds"] = stages.sum(axis=1, min_count=1)
    retrievals = retrievals.join(stages.add_prefix("seconds."))
    names = [
        "dataset",
        "question",
        "document",
        "pages",
        "evidence_pages",
        "answerable",
        "corrected",
        "text_digest",
    ]
    about = questions[names].rename(columns={"pages": "document_pages"})
    retrievals = retrievals.merge(about, on=["dataset", "question"])
    retrievals = retrievals.join(_measure(retrievals))
    return Results(
        questions,
        _sorted(retrievals, ["dataset", "encoder", "method", "question"]),
        _sorted(_frame(answered, Answered, without=("raw", "inputs")), ANSWER_KEY),
        _sorted(
            _frame(judged, Judged, without=("reason", "model", "inputs")),
            [*ANSWER_KEY[:3], "judge", *ANSWER_KEY[3:]],
        ),
        **more,
    )


def method_order(names: Iterable[str]) -> list[str]:
    """Return names of methods in the order of METHODS; those it does not know come last."""
    return sorted(names, key=lambda name: (_ORDER.get(name, len(_ORDER)), name))


def _frame(records: Sequence[Any], kind: type[Any], without: Collection[str] = ()) -> pd.DataFrame:
    names = [one.name for one in fields(kind) if one.name not in without]
    values = attrgetter(*names)
    return pd.DataFrame([values(record) for record in records], columns=names)


def _sorted(frame: pd.DataFrame, key: list[str]) -> pd.DataFrame:
    order = {name: place for place, name in enumerate(method_order(set(frame.get("method", ()))))}
    frame = frame.sort_values(
        key, key=lambda column: column.map(order) if column.name == "method" else column
    )
    return frame[key + [name for name in frame.columns if name not in key]].reset_index(drop=True)


def _measure(retrievals: pd.DataFrame) -> pd.DataFrame:
    """Compute every metric of every retrieval once."""
    rows: list[dict[str, float]] = []
    # Methods share rankings: most are those of late interaction or of ViSAR.
    known: dict[tuple[tuple[int, ...], tuple[int, ...]], dict[str, float]] = {}
    names = ["pages", "ranking", "evidence_pages"]
    for pages, ranking, evidence in retrievals[names].itertuples(index=False):
        if not evidence:
            rows.append({"has_evidence": False})
            continue
        if (ranking, evidence) not in known:
            known[ranking, evidence] = {
                f"{name}@{rank}": metric(ranking, evidence, rank)
                * (100 if name in ("recall", "hits") else 1)
                for name, metric in RANK_METRICS.items()
                for rank in RANKS
            }
        rows.append(
            {
                "has_evidence": True,
                "precision": 100 * metrics.precision(pages, evidence),
                "recall": 100 * metrics.recall(pages, evidence),
                "f1": 100 * metrics.f1(pages, evidence),
                "perfect_recall": 100 * metrics.perfect_recall(pages, evidence),
                **known[ranking, evidence],
            }
        )
    names = ["has_evidence", "precision", "recall", "f1", "perfect_recall"]
    names += [f"{name}@{rank}" for name in RANK_METRICS for rank in RANKS]
    frame = pd.DataFrame(rows, columns=names, index=retrievals.index)
    return frame.astype({"has_evidence": bool} | dict.fromkeys(names[1:], float))
