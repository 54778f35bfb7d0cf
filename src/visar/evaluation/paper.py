"""The paper's own numbers, to stand beside ours where the setting is the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from visar.encoders.registry import PUBLISHED as ENCODERS
from visar.generation.registry import PUBLISHED as GENERATORS


@dataclass(frozen=True, slots=True)
class PaperRow:
    """Numbers of one row of one of the paper's tables."""

    table: str
    """"1", "S2" …: as LaTeX numbers them."""
    dataset: str
    method: str
    """A key of METHODS, or "evidence"."""
    values: Mapping[str, float]
    """By measure; shares in per cent, NDCG and MRR between 0 and 1."""
    encoder: str | None = None
    """A name of ``visar encoders``; None where the table does not say, or it does not matter."""
    generator: str | None = None
    max_k: int | None = None
    interval: tuple[float, float] | None = None
    """Of the accuracy, 95 %."""
    significant: bool = False
    """ViSAR against fixed top-k, by McNemar's test."""


@dataclass(frozen=True)
class Paper:
    """What the paper reports."""

    questions: Mapping[str, int]
    """By data set. The paper does not give them: they are what its accuracies are shares of."""
    questions_left_out: Mapping[str, Mapping[str, int]]
    """By data set and encoder: those with pages that could not be encoded."""
    judge: str
    machine: str
    rows: tuple[PaperRow, ...]

    def value(
        self,
        measure: str,
        *,
        dataset: str,
        encoder: str | None,
        method: str,
        generator: str | None = None,
        max_k: int | None = None,
    ) -> float | None:
        """The number of that setting; where two tables differ, that of the first, None if none."""
        setting = (
            dataset,
            None if encoder is None else _known(encoder, _ENCODER_NAMES),
            method,
            None if generator is None else _known(generator, _GENERATOR_NAMES),
            max_k,
        )
        return _numbers().get((measure, *setting))

    def difference(self, dataset: str, questions: int) -> str | None:
        """Why numbers of this data set cannot be compared with the paper's; None if they can."""
        if dataset not in self.questions:
            return f"the paper does not use {dataset}"
        if questions != self.questions[dataset]:
            return (
                f"this run asks {questions} questions of {dataset}, the paper "
                f"{self.questions[dataset]}"
            )
        return None

    def uses_encoder(self, encoder: str) -> bool:
        return any(row.encoder == _known(encoder, _ENCODER_NAMES) for row in self.rows)

    def uses_generator(self, generator: str) -> bool:
        return any(row.generator == _known(generator, _GENERATOR_NAMES) for row in self.rows)


@cache
def the_paper() -> Paper:
    """The paper's numbers, read from the package."""
    file = resources.files("visar.evaluation") / "data" / "paper.json"
    raw = json.loads(file.read_text(encoding="utf-8"))
    rows = []
    for row in raw["rows"]:
        interval = row.pop("interval", None)
        rows.append(PaperRow(**row, interval=None if interval is None else tuple(interval)))
    return Paper(
        questions=raw["questions"],
        questions_left_out=raw["questions_left_out"],
        judge=raw["judge"],
        machine=raw["machine"],
        rows=tuple(rows),
    )


_Setting = tuple[str, str, str | None, str, str | None, int | None]


@cache
def _numbers() -> dict[_Setting, float]:
    found: dict[_Setting, float] = {}
    for row in the_paper().rows:
        for measure, value in row.values.items():
            key = (measure, row.dataset, row.encoder, row.method, row.generator, row.max_k)
            found.setdefault(key, value)
    return found


# The paper's models go by our short names and by those of the hub.
_ENCODER_NAMES = {one.repository: name for name, one in ENCODERS.items()}
_GENERATOR_NAMES = {one.repository: name for name, one in GENERATORS.items()} | {
    "OpenGVLab/InternVL3_5-8B-Instruct": "internvl3.5"
}


def _known(name: str, by_repository: Mapping[str, str]) -> str:
    """The short name; also of "openai:MODEL", the same model behind a server."""
    model = name.removeprefix("openai:").removeprefix("openai-text:").split("@")[0]
    return by_repository.get(model, model)
