"""Answers without a language model: the passages that match best, quoted."""

from __future__ import annotations

from collections.abc import Sequence

from visar.results import Passage

NAME = "extractive"


def quote(passages: Sequence[Passage]) -> str:
    """Return the passages as the text of an answer, one on a line."""
    return "\n".join(passage.text for passage in passages)
