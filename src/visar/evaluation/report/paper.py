"""The paper's numbers, and which of them can stand beside those of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from visar.evaluation.authors import paper_encoder, paper_generator
from visar.evaluation.frames import Results
from visar.evaluation.report.markup import Cell
from visar.evaluation.report.methods import label
from visar.evaluation.report.notes import Counts, listed
from visar.evaluation.state import CORRECTED
from visar.generation.registry import INTERNVL
from visar.generation.registry import PUBLISHED as GENERATORS


@dataclass(frozen=True, slots=True)
class PaperRow:
    """Numbers of one row of one of the paper's tables."""

    table: str
    """"1", "S2" …: as LaTeX numbers them."""
    dataset: str
    method: str
    """The label of a method, or "evidence"."""
    values: Mapping[str, float]
    """By measure; shares in per cent, NDCG and MRR between 0 and 1."""
    encoder: str | None = None
    """A name of ``visar encoders``; None where the table does not say, or it does not matter."""
    generator: str | None = None
    max_k: int | None = None
    interval: Sequence[float] | None = None
    """Of the accuracy, 95 %."""
    significant: bool = False
    """ViSAR against fixed top-k, by McNemar's test."""


@dataclass(frozen=True, slots=True)
class Paper:
    """The numbers that the paper reports.

    It does not say how many questions it counts: these numbers are what its accuracies and hit
    rates are shares of.
    """

    questions: Mapping[str, int]
    """By data set: those that accuracy counts."""
    questions_with_evidence: Mapping[str, int]
    """By data set: those that retrieval counts."""
    questions_left_out: Mapping[str, Mapping[str, int]]
    """By data set and encoder: those about documents with pages that could not be encoded."""
    judge: str
    machine: str
    outcomes: Mapping[str, int]
    """In how many settings ViSAR answers better, as well and worse than fixed top-k."""
    rows: tuple[PaperRow, ...]


@cache
def the_paper() -> Paper:
    """Return the paper's numbers, read from the package."""
    file = resources.files("visar.evaluation") / "data" / "paper.json"
    raw = json.loads(file.read_text(encoding="utf-8"))
    del raw["title"]
    return Paper(**raw | {"rows": tuple(PaperRow(**row) for row in raw["rows"])})


@cache
def _numbers() -> dict[tuple[object, ...], float]:
    """By table, measure and setting; for the table None, the first one that has the number."""
    found: dict[tuple[object, ...], float] = {}
    for row in the_paper().rows:
        setting = (row.dataset, row.encoder, row.method, row.generator, row.max_k)
        for measure, value in row.values.items():
            found[row.table, measure, *setting] = value
            found.setdefault((None, measure, *setting), value)
    return found


def is_paper_encoder(encoder: str) -> bool:
    """Whether the paper has numbers of an encoder."""
    return paper_encoder(encoder) in {row.encoder for row in the_paper().rows}


def paper_settings(results: Results) -> list[tuple[str, str]]:
    """Return the (data set, encoder) of a run that numbers of the paper may stand beside."""
    pairs = results.retrievals[["dataset", "encoder"]].drop_duplicates()
    return [
        (dataset, encoder)
        for dataset, encoder in pairs.itertuples(index=False)
        if is_paper_encoder(encoder) and not _data_obstacles(results, dataset)
    ]


def _data_obstacles(results: Results, dataset: str) -> list[str]:
    if dataset.removesuffix(CORRECTED) not in the_paper().questions:
        return [f"the paper does not use {dataset}"]
    corrected = int(results.of(dataset).corrected.sum())
    if dataset.endswith(CORRECTED) or corrected:
        return [f"{corrected} questions are corrected, and not so in the paper"]
    return []


def _generator_obstacles(generator: str, prompt: str, models: Sequence[str]) -> list[str]:
    obstacles = []
    if paper_generator(generator) not in {row.generator for row in the_paper().rows}:
        obstacles.append(f"the paper does not use the generator {generator}")
    internvl = GENERATORS["internvl3.5"].repository
    if any(internvl in one for one in (paper_generator(generator), *models)):
        obstacles.append(f"{internvl} has other weights than the paper's {INTERNVL}")
    if prompt != "paper":
        obstacles.append("the answers are not asked for with the paper's prompt (--prompt paper)")
    return obstacles


@dataclass(frozen=True, slots=True)
class Comparison:
    """The paper's numbers for a data set of a run, or the reasons why there are none.

    They stand where the definitions are the same, with the number of questions of both sides.
    """

    dataset: str
    obstacles: tuple[str, ...] = ()
    generator: str | None = None
    """Short name of the generator of the answers; None for retrieval and times."""
    has_answers: bool = False
    """Whether all questions count, or only those with evidence pages."""
    with_empty_pages: frozenset[str] = frozenset()
    """Encoders whose questions on pages that could not be encoded count; not so in the paper."""

    @classmethod
    def of_retrieval(cls, results: Results, dataset: str) -> Comparison:
        """Compare the pages chosen for the questions with evidence."""
        return cls._of(results, dataset)

    @classmethod
    def of_answers(
        cls, results: Results, dataset: str, generator: str, prompt: str, judge: str
    ) -> Comparison:
        """Compare judged answers: asked for and judged as in the paper, by the same models."""
        answers = results.answers[results.answers.generator == generator]
        models = answers.model.dropna().unique()
        obstacles = _generator_obstacles(generator, prompt, models)
        paper_judge = the_paper().judge
        parts = judge.split()
        if parts[:1] != ["paper"]:
            obstacles.append(
                f"they are judged by {judge}, in the paper by {paper_judge} with its own prompt "
                "(--judge paper)"
            )
        elif paper_generator(f"Qwen/{paper_judge}") not in map(paper_generator, parts):
            obstacles.append(f"they are judged by {judge}, in the paper by {paper_judge}")
        return cls._of(
            results, dataset, *obstacles, generator=paper_generator(generator), has_answers=True
        )

    @classmethod
    def of_latency(
        cls, results: Results, dataset: str, encoder: str, generator: str | None, prompt: str
    ) -> Comparison:
        """Compare times, of retrieval alone if there is no generator."""
        obstacles = []
        if not is_paper_encoder(encoder):
            obstacles.append(f"the paper does not use the encoder {encoder}")
        if generator is not None:
            obstacles += _generator_obstacles(generator, prompt, ())
            if paper_generator(generator) != "qwen2.5-vl":
                obstacles.append("the paper's latencies are of Qwen2.5-VL-7B-Instruct")
        return cls._of(results, dataset, *obstacles, has_answers=True)

    @classmethod
    def _of(cls, results: Results, dataset: str, *obstacles: str, **more: Any) -> Comparison:
        empty = {encoder for of, encoder in results.invalid_questions if of == dataset}
        return cls(
            dataset,
            (*_data_obstacles(results, dataset), *obstacles),
            with_empty_pages=frozenset(empty),
            **more,
        )

    def expected(self, encoder: str | None) -> int:
        """Return the number of questions that the paper counts for an encoder."""
        paper = the_paper()
        counted = paper.questions if self.has_answers else paper.questions_with_evidence
        left_out = paper.questions_left_out.get(self.dataset, {})
        known = counted.get(self.dataset, 0)
        return known if encoder is None else known - left_out.get(paper_encoder(encoder), 0)

    def value(
        self,
        measure: str,
        encoder: str | None,
        method: str,
        max_k: int | None = None,
        table: str | None = None,
    ) -> float | None:
        """Return the paper's number of a setting, or None.

        ``method`` is the key of a method, or "evidence"; ``table`` chooses one of the paper's
        tables where several have the number.
        """
        if self.obstacles or encoder in self.with_empty_pages:
            return None
        model = None if encoder is None else paper_encoder(encoder)
        setting = (self.dataset, model, label(method), self.generator, max_k)
        return _numbers().get((table, measure, *setting))

    def count(self, questions: int, encoder: str | None, method: str) -> Cell:
        """Return the number of questions, with the paper's if its numbers stand beside."""
        known = encoder is None or is_paper_encoder(encoder)
        known = known and label(method) in {row.method for row in the_paper().rows}
        if self.obstacles or not known or encoder in self.with_empty_pages:
            return Cell(questions)
        return Cell(questions, paper=self.expected(encoder))

    def notes(self, counts: Counts) -> list[str]:
        """Say why numbers of the paper are missing, or which are of other questions."""
        obstacles = list(self.obstacles)
        differing = []
        for encoder in dict.fromkeys(encoder for _, encoder in counts):
            own = sorted({count for (_, of), count in counts.items() if of == encoder})
            if not is_paper_encoder(encoder):
                obstacles.append(f"the paper does not use the encoder {encoder}")
            elif encoder in self.with_empty_pages:
                obstacles.append(
                    f"with {encoder}, pages that could not be encoded count as empty, and the "
                    "paper leaves their questions out"
                )
            elif not self.obstacles and own != [self.expected(encoder)]:
                shown = listed(map(str, own))
                differing.append(f"{encoder} {shown} here, {self.expected(encoder)} in the paper")
        notes = []
        if obstacles:
            where = "" if self.obstacles else " for some rows"
            notes.append(f"No number of the paper stands here{where}: {'; '.join(obstacles)}.")
        if differing:
            notes.append(f"The paper counts another number of questions: {'; '.join(differing)}.")
        return notes
