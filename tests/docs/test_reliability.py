"""SECURITY.md has the figures of docs/reliability.md."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_figures_are_those_of_the_trials() -> None:
    security = (ROOT / "SECURITY.md").read_text("utf-8")
    (trials,) = re.findall(r"\[Reliability\].*?\n\n", security, re.DOTALL)
    reliability = (ROOT / "docs" / "reliability.md").read_text("utf-8")
    summary, _, _ = reliability.partition("\n## ")
    figures = re.findall(r"\d[\d,]*", trials)
    assert len(figures) == 5
    assert set(figures) <= set(re.findall(r"\d[\d,]*", summary))
