"""The paper's numbers, and which of them are comparable to a run's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Self

from visar.evaluation.authors import encoder_of_authors, paper_encoder, paper_generator
from visar.evaluation.frames import Results
from visar.evaluation.report.markup import Cell
from visar.evaluation.report.methods import label
from visar.evaluation.report.notes import Counts, listed
from visar.evaluation.state import CORRECTED
from visar.generation.registry import INTERNVL
from visar.generation.registry import PUBLISHED as GENERATORS


@dataclass(frozen=True, slots=True)
class PaperRow:
    """A row of numbers in one of the paper's tables."""

    table: str
    """The table's number: "1", "S2" …"""
    dataset: str
    method: str
    """The label of a method, or "evidence"."""
    values: Mapping[str, float]
    """Numbers by measure; shares in percent, NDCG and MRR between 0 and 1."""
    encoder: str | None = None
    """A name of ``visar encoders``; None if the table doesn't state it or it doesn't matter."""
    generator: str | None = None
    max_k: int | None = None
    interval: Sequence[float] | None = None
    """The 95% interval of the accuracy."""
    significant: bool = False
    """True if ViSAR differs significantly from fixed top-k, by McNemar's test."""


@dataclass(frozen=True, slots=True)
class Paper:
    """The numbers reported in the paper.

    The paper doesn't state the numbers of questions. They were derived from its accuracies and hit
    rates, which are shares of these numbers.
    """

    questions: Mapping[str, int]
    """The number of questions for accuracy, by data set."""
    questions_with_evidence: Mapping[str, int]
    """The number of questions for retrieval, by data set."""
    questions_left_out: Mapping[str, Mapping[str, int]]
    """Questions left out because of pages without vectors, by data set and encoder."""
    judge: str
    machine: str
    outcomes: Mapping[str, int]
    """The number of settings in which ViSAR is better than, equal to and worse than fixed top-k."""
    rows: tuple[PaperRow, ...]


@cache
def the_paper() -> Paper:
    """Return the paper's numbers, read from package data."""
    file = resources.files("visar.evaluation") / "data" / "paper.json"
    raw = json.loads(file.read_text(encoding="utf-8"))
    del raw["title"]
    return Paper(**raw | {"rows": tuple(PaperRow(**row) for row in raw["rows"])})


@cache
def _numbers() -> dict[tuple[object, ...], float]:
    """Return numbers by table, measure and setting; table None means the first with the number."""
    found: dict[tuple[object, ...], float] = {}
    for row in the_paper().rows:
        setting = (row.dataset, row.encoder, row.method, row.generator, row.max_k)
        for measure, value in row.values.items():
            found[row.table, measure, *setting] = value
            found.setdefault((None, measure, *setting), value)
    return found


@cache
def _encoder_obstacle(encoder: str) -> str | None:
    if paper_encoder(encoder) not in {row.encoder for row in the_paper().rows}:
        return f"the paper doesn't use the encoder {encoder}"
    if (in_paper := encoder_of_authors(encoder)) != encoder:
        return f"the paper encodes questions as {in_paper} does, not {encoder} (--as-authors)"
    return None


def paper_settings(results: Results) -> list[tuple[str, str]]:
    """Return the (data set, encoder) pairs of a run that are comparable to the paper."""
    pairs = results.retrievals[["dataset", "encoder"]].drop_duplicates()
    return [
        (dataset, encoder)
        for dataset, encoder in pairs.itertuples(index=False)
        if _encoder_obstacle(encoder) is None and not _data_obstacles(results, dataset)
    ]


def _data_obstacles(results: Results, dataset: str) -> list[str]:
    if dataset.removesuffix(CORRECTED) not in the_paper().questions:
        return [f"the paper doesn't use {dataset}"]
    corrected = int(results.of(dataset).corrected.sum())
    if dataset.endswith(CORRECTED) or corrected:
        return [f"{corrected} questions are corrected, unlike in the paper"]
    return []


def _generator_obstacles(generator: str, prompt: str, models: Sequence[str]) -> list[str]:
    obstacles = []
    if paper_generator(generator) not in {row.generator for row in the_paper().rows}:
        obstacles.append(f"the paper doesn't use the generator {generator}")
    internvl = GENERATORS["internvl3.5"].repository
    if any(internvl in one for one in (paper_generator(generator), *models)):
        obstacles.append(f"{internvl} has different weights than the paper's {INTERNVL}")
    if prompt != "paper":
        obstacles.append("the answers don't use the paper's prompt (--prompt paper)")
    return obstacles


@dataclass(frozen=True, slots=True)
class Comparison:
    """The paper's numbers for a run's data set, or the reasons why they aren't comparable.

    Numbers are shown if definitions are the same, with the numbers of questions of both sides.
    """

    dataset: str
    obstacles: tuple[str, ...] = ()
    generator: str | None = None
    """The short name of the generator; None for retrieval and times."""
    has_answers: bool = False
    """True if all questions count, False if only those with evidence pages do."""
    with_empty_pages: frozenset[str] = frozenset()
    """Encoders that include questions about pages that couldn't be encoded, unlike the paper."""

    @classmethod
    def of(cls, results: Results, dataset: str, *obstacles: str, **more: Any) -> Self:
        """Compare a data set; without other arguments, the pages chosen for its questions."""
        return cls(
            dataset,
            (*_data_obstacles(results, dataset), *obstacles),
            with_empty_pages=frozenset(e for of, e in results.invalid_questions if of == dataset),
            **more,
        )

    @classmethod
    def of_answers(
        cls, results: Results, dataset: str, generator: str, prompt: str, judge: str
    ) -> Self:
        """Compare judged answers, if prompt, judge and models are the same as in the paper."""
        answers = results.answers[results.answers.generator == generator]
        models = answers.model.dropna().unique()
        obstacles = _generator_obstacles(generator, prompt, models)
        paper_judge = the_paper().judge
        parts = judge.split()
        if parts[:1] != ["paper"]:
            obstacles.append(
                f"the judge is {judge}, but in the paper {paper_judge} with its own prompt "
                "(--judge paper)"
            )
        elif paper_generator(f"Qwen/{paper_judge}") not in map(paper_generator, parts):
            obstacles.append(f"the judge is {judge}, but in the paper {paper_judge}")
        known = paper_generator(generator)
        return cls.of(results, dataset, *obstacles, generator=known, has_answers=True)

    @classmethod
    def of_latency(
        cls, results: Results, dataset: str, encoder: str, generator: str | None, prompt: str
    ) -> Self:
        """Compare times; only of retrieval if there is no generator."""
        obstacles = list(filter(None, [_encoder_obstacle(encoder)]))
        if generator is not None:
            obstacles += _generator_obstacles(generator, prompt, ())
            if paper_generator(generator) != "qwen2.5-vl":
                obstacles.append("the paper's latencies are for Qwen2.5-VL-7B-Instruct")
        return cls.of(results, dataset, *obstacles, has_answers=True)

    def _obstacle(self, encoder: str | None) -> str | None:
        """Return why the numbers of an encoder aren't comparable; None means any encoder."""
        obstacle = None if encoder is None else _encoder_obstacle(encoder)
        if obstacle is None and encoder in self.with_empty_pages:
            return (
                f"with {encoder}, pages that couldn't be encoded count as empty, but the paper "
                "leaves out their questions"
            )
        return obstacle

    def expected(self, encoder: str | None) -> int:
        """Return the paper's number of questions for an encoder."""
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
        """Return the paper's number for a setting, or None.

        ``method`` is the key of a method or "evidence". ``table`` selects one of the paper's tables
        if several have the number.
        """
        if self.obstacles or self._obstacle(encoder):
            return None
        model = None if encoder is None else paper_encoder(encoder)
        setting = (self.dataset, model, label(method), self.generator, max_k)
        return _numbers().get((table, measure, *setting))

    def count(self, questions: int, encoder: str | None, method: str) -> Cell:
        """Return the number of questions, with the paper's if its numbers are shown."""
        known = label(method) in {row.method for row in the_paper().rows}
        if self.obstacles or self._obstacle(encoder) or not known:
            return Cell(questions)
        return Cell(questions, paper=self.expected(encoder))

    def notes(self, counts: Counts) -> list[str]:
        """Return notes on why the paper's numbers are missing or for different questions."""
        obstacles = list(self.obstacles)
        differing = []
        for encoder in dict.fromkeys(encoder for _, encoder in counts):
            own = sorted({count for (_, of), count in counts.items() if of == encoder})
            if obstacle := self._obstacle(encoder):
                obstacles.append(obstacle)
            elif not self.obstacles and own != [self.expected(encoder)]:
                shown = listed(map(str, own))
                differing.append(f"{encoder} {shown} here, {self.expected(encoder)} in the paper")
        notes = []
        if obstacles:
            scope = "" if self.obstacles else " for some rows"
            notes.append(f"Not compared with the paper{scope}: {'; '.join(obstacles)}.")
        if differing:
            notes.append(f"The paper's number of questions differs: {'; '.join(differing)}.")
        return notes
