"""The answer without a language model: the passages that weigh most, quoted."""

from __future__ import annotations

from collections.abc import Sequence

from visar.results import Passage

NAME = "extractive"


def quote(passages: Sequence[Passage]) -> str:
    """The answer's text."""
    return "\n".join(passage.text for passage in passages)
