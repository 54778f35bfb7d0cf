"""A reply that is one of a few given ones: how it is asked for, and how it is recognised."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

# What a model says before its choice can be long; the choice comes last.
_LONGEST_LOOK = 10_000


def choice_schema(choices: Sequence[str]) -> dict[str, Any]:
    """The JSON schema of ``{"choice": …}`` with one of the choices."""
    return {
        "type": "object",
        "properties": {"choice": {"type": "string", "enum": list(choices)}},
        "required": ["choice"],
        "additionalProperties": False,
    }


def choice_text(choice: str) -> str:
    """The reply that stands for a choice.

    >>> choice_text("correct")
    '{"choice": "correct"}'
    """
    return json.dumps({"choice": choice}, ensure_ascii=False)


def choice_request(choices: Sequence[str]) -> str:
    """What to ask a model for that cannot be held to a schema."""
    listed = " or ".join(choice_text(choice) for choice in choices)
    return f"Reply with one of these JSON objects and nothing else: {listed}"


def find_choice(text: str, choices: Sequence[str]) -> str | None:
    """The one choice that a reply makes; None if there is none, or more than one.

    >>> find_choice('Sure! {"choice": "no"}', ("yes", "no"))
    'no'
    >>> find_choice("Yes.", ("yes", "no"))
    'yes'
    >>> find_choice('{"choice": "yes"} {"choice": "no"}', ("yes", "no"))
    >>> find_choice("<think>yes? no?</think>no", ("yes", "no"))
    'no'
    """
    said = text.rpartition("</think>")[2][-_LONGEST_LOOK:]
    named = {value for value in _choices_in(said) if value in choices}
    if not named:
        bare = said.strip().strip("\"'`*.").casefold()
        named = {choice for choice in choices if choice.casefold() == bare}
    return named.pop() if len(named) == 1 else None


def _choices_in(text: str) -> Iterator[str]:
    decoder = json.JSONDecoder()
    start = text.find("{")
    while start >= 0:
        try:
            found, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            found, end = None, start + 1
        if isinstance(found, dict) and isinstance(found.get("choice"), str):
            yield found["choice"]
        start = text.find("{", end)
