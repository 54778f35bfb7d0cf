"""The paper's own numbers, and where they can stand beside those of a run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from visar.encoders.registry import PUBLISHED as ENCODERS
from visar.evaluation.findings import Findings
from visar.evaluation.report.scope import label
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
    """The numbers that the paper reports."""

    questions: Mapping[str, int]
    """By data set. The paper does not give them: they are what its accuracies are shares of."""
    questions_left_out: Mapping[str, Mapping[str, int]]
    """By data set and encoder: those with pages that could not be encoded."""
    judge: str
    rows: tuple[PaperRow, ...]


@cache
def the_paper() -> Paper:
    """Return the paper's numbers, read from the package."""
    file = resources.files("visar.evaluation") / "data" / "paper.json"
    raw = json.loads(file.read_text(encoding="utf-8"))
    rows = tuple(PaperRow(**row) for row in raw["rows"])
    return Paper(raw["questions"], raw["questions_left_out"], raw["judge"], rows)


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


def _short_name(model: str | None) -> str | None:
    """The short name; also of "openai:MODEL", the same model behind a server."""
    if model is None:
        return None
    bare = model.removeprefix("openai:").removeprefix("openai-text:").split("@")[0]
    return _SHORT_NAMES.get(bare, bare)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The paper's numbers for a data set of a run, or why there are none."""

    dataset: str
    obstacle: str | None

    @classmethod
    def of(cls, findings: Findings, dataset: str) -> Comparison:
        """Compare a data set of a run with the paper's."""
        asked = findings.questions.get(dataset, {})
        expected = the_paper().questions.get(dataset)
        obstacle = None
        if corrected := sum(one.corrected for one in asked.values()):
            obstacle = f"{corrected} questions are corrected, and not so in the paper"
        elif expected is None:
            obstacle = f"the paper does not use {dataset}"
        elif len(asked) != expected:
            obstacle = f"this run asks {len(asked)} questions of {dataset}, the paper {expected}"
        return cls(dataset, obstacle)

    def value(
        self,
        measure: str,
        encoder: str | None,
        method: str,
        generator: str | None = None,
        max_k: int | None = None,
    ) -> float | None:
        """Return the paper's number of a setting, or None.

        Models go by their short names or those of the hub, ``openai:`` before them or not;
        ``method`` is the key of a method, or "evidence".
        """
        if self.obstacle is not None:
            return None
        models = _short_name(encoder), _short_name(generator)
        return _numbers().get((measure, self.dataset, models[0], label(method), models[1], max_k))

    def notes(
        self, encoders: Iterable[str], generator: str | None = None, judge: str | None = None
    ) -> list[str]:
        """Say why a number of the paper is missing, and what differs although one is shown."""
        paper = the_paper()
        obstacles = [] if self.obstacle is None else [self.obstacle]
        known = {row.encoder for row in paper.rows}
        unknown = sorted({one for one in encoders if _short_name(one) not in known})
        if unknown:
            obstacles.append(f"the paper does not use the encoder {', '.join(unknown)}")
        if _short_name(generator) not in {row.generator for row in paper.rows}:
            obstacles.append(f"the paper does not use the generator {generator}")
        if obstacles:
            where = "" if self.obstacle is not None else " for some or all rows"
            return [f"No number of the paper stands here{where}: {'; '.join(obstacles)}."]
        return [] if judge is None else [f"Judged by {judge}; in the paper by {paper.judge}."]
