"""Answers without a language model: quotes of the best passages."""

from __future__ import annotations

from collections.abc import Sequence

from visar.results import Passage

NAME = "extractive"


def quote(passages: Sequence[Passage]) -> str:
    """Return the passages as the text of an answer, one per line."""
    return "\n".join(passage.text for passage in passages)


def table_title(passage: Passage) -> str:
    """Return the title of a quoted table, if it has one: the first line of its text."""
    first, *rest = passage.text.split("\n")
    body = {cell.row for cell in passage.cells if not cell.header}
    return first if len(rest) >= len(body) else ""
