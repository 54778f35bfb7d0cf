"""The paper's own numbers, and where they can stand beside those of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

from visar.encoders.registry import PUBLISHED as ENCODERS
from visar.evaluation.findings import CORRECTED, Findings
from visar.evaluation.report.scope import Counts, label, listed
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
    """By measure and setting; where two tables differ, that of the first."""
    found: dict[tuple[object, ...], float] = {}
    for row in the_paper().rows:
        setting = (row.dataset, row.encoder, row.method, row.generator, row.max_k)
        for measure, value in row.values.items():
            found.setdefault((measure, *setting), value)
    return found


# The paper's models go by our short names and by those of the hub.
_SHORT_NAMES = {
    **{one.repository: name for name, one in ENCODERS.items()},
    **{one.repository: name for name, one in GENERATORS.items()},
    "OpenGVLab/InternVL3_5-8B-Instruct": "internvl3.5",
}


def short_name(model: str) -> str:
    """Return our short name of a model of the paper; also of "openai:MODEL" behind a server.

    >>> short_name("openai:Qwen/Qwen2.5-VL-7B-Instruct")
    'qwen2.5-vl'
    """
    bare = model.removeprefix("openai:").removeprefix("openai-text:").split("@")[0]
    return _SHORT_NAMES.get(bare, bare)


def is_paper_encoder(encoder: str) -> bool:
    """Whether the paper has numbers of an encoder."""
    return short_name(encoder) in {row.encoder for row in the_paper().rows}


def paper_settings(findings: Findings) -> list[tuple[str, str]]:
    """Return the (data set, encoder) of a run that numbers of the paper may stand beside.

    There, as many questions count as in the paper once those about documents with pages that
    could not be encoded are left out.
    """
    return [
        (dataset, encoder)
        for dataset, encoder in findings.choices
        if is_paper_encoder(encoder)
        and any(
            not compared.obstacles and count == compared.expected(encoder)
            for compared, count in _counted(findings, dataset, encoder)
        )
    ]


def _counted(findings: Findings, dataset: str, encoder: str) -> list[tuple[Comparison, int]]:
    """How many questions count for retrieval and for answers, without those on invalid pages."""
    invalid = findings.invalid_questions.get((dataset, encoder), frozenset())
    valid = [one for one in findings.questions[dataset].values() if one.question not in invalid]
    retrieval = Comparison.of_retrieval(findings, dataset)
    return [
        (retrieval, sum(bool(one.evidence_pages) for one in valid)),
        (replace(retrieval, has_answers=True), len(valid)),
    ]


def _data_obstacles(findings: Findings, dataset: str) -> list[str]:
    if dataset.removesuffix(CORRECTED) not in the_paper().questions:
        return [f"the paper does not use {dataset}"]
    asked = findings.questions.get(dataset, {}).values()
    if dataset.endswith(CORRECTED) or any(one.corrected for one in asked):
        corrected = sum(one.corrected for one in asked)
        return [f"{corrected} questions are corrected, and not so in the paper"]
    return []


@dataclass(frozen=True, slots=True)
class Comparison:
    """The paper's numbers for a data set of a run, or why there are none."""

    dataset: str
    generator: str | None = None
    """Whose answers they are about; None for retrieval."""
    has_answers: bool = False
    """Whether all questions count, or those with evidence pages alone."""
    obstacles: tuple[str, ...] = ()

    @classmethod
    def of_retrieval(cls, findings: Findings, dataset: str) -> Comparison:
        """Compare the pages chosen for the questions with evidence."""
        return cls(dataset, obstacles=tuple(_data_obstacles(findings, dataset)))

    @classmethod
    def of_answers(
        cls, findings: Findings, dataset: str, generator: str, prompt: str, judge: str
    ) -> Comparison:
        """Compare judged answers: asked for and judged as in the paper, by the same models."""
        obstacles = [
            *_data_obstacles(findings, dataset),
            *_generator_obstacles(generator, prompt),
        ]
        paper_judge = the_paper().judge
        parts = judge.split()
        if parts[:1] != ["paper"]:
            obstacles.append(
                f"they are judged by {judge}, in the paper by {paper_judge} with its own prompt "
                "(--judge paper)"
            )
        elif short_name(f"Qwen/{paper_judge}") not in map(short_name, parts):
            obstacles.append(f"they are judged by {judge}, in the paper by {paper_judge}")
        return cls(dataset, short_name(generator), has_answers=True, obstacles=tuple(obstacles))

    @classmethod
    def of_latency(
        cls, findings: Findings, dataset: str, encoder: str, answers: tuple[str, str] | None
    ) -> Comparison:
        """Compare times; ``answers`` are the generator and prompt they are about, if any."""
        obstacles = _data_obstacles(findings, dataset)
        if not is_paper_encoder(encoder):
            obstacles.append(f"the paper does not use the encoder {encoder}")
        if answers is not None:
            obstacles += _generator_obstacles(*answers)
            if short_name(answers[0]) != "qwen2.5-vl":
                obstacles.append("the paper's latencies are of Qwen2.5-VL-7B-Instruct")
        return cls(dataset, has_answers=True, obstacles=tuple(obstacles))

    def expected(self, encoder: str | None) -> int:
        """Return how many questions the paper counts for an encoder; 0 if it has no such data."""
        paper = the_paper()
        counted = paper.questions if self.has_answers else paper.questions_with_evidence
        left_out = paper.questions_left_out.get(self.dataset, {})
        known = counted.get(self.dataset, 0)
        return known if encoder is None else known - left_out.get(short_name(encoder), 0)

    def value(
        self,
        measure: str,
        encoder: str | None,
        method: str,
        questions: int,
        max_k: int | None = None,
    ) -> float | None:
        """Return the paper's number of a setting, or None.

        Models go by their short names or those of the hub, ``openai:`` before them or not;
        ``method`` is the key of a method, or "evidence"; ``questions`` is how many count here:
        the paper's number stands only where as many count there.
        """
        if self.obstacles or questions != self.expected(encoder):
            return None
        model = None if encoder is None else short_name(encoder)
        setting = (self.dataset, model, label(method), self.generator, max_k)
        return _numbers().get((measure, *setting))

    def notes(self, counts: Counts) -> list[str]:
        """Say why numbers of the paper are missing, given how many questions each row counts."""
        obstacles = list(self.obstacles)
        for encoder in dict.fromkeys(encoder for _, encoder in counts):
            if not is_paper_encoder(encoder):
                obstacles.append(f"the paper does not use the encoder {encoder}")
            elif not self.obstacles:
                own = {count for (_, of), count in counts.items() if of == encoder}
                if others := sorted(own - {self.expected(encoder)}):
                    obstacles.append(
                        f"with {encoder} {listed(map(str, others))} questions count, in the paper "
                        f"{self.expected(encoder)}"
                    )
        if not obstacles:
            return []
        where = "" if self.obstacles else " for some or all rows"
        return [f"No number of the paper stands here{where}: {'; '.join(obstacles)}."]


def _generator_obstacles(generator: str, prompt: str) -> list[str]:
    obstacles = []
    if short_name(generator) not in {row.generator for row in the_paper().rows}:
        obstacles.append(f"the paper does not use the generator {generator}")
    if prompt != "paper":
        obstacles.append("the answers are not asked for with the paper's prompt (--prompt paper)")
    return obstacles
