"""Answers whose truth is known: written by hand, about half of them wrong."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Case:
    kind: str
    question: str
    references: list[str]
    answer: str
    short: str
    """The answer cut down to what was asked for, by hand, without correcting it."""
    correct: bool


def known_cases() -> list[Case]:
    lines = Path(__file__).with_name("judged_answers.jsonl").read_text("utf-8").splitlines()
    return [Case(**json.loads(line)) for line in lines]
