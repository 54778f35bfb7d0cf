"""Schemas of entries, whose errors name the field, quote the value and say what it must be."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError

from visar.evaluation.datasets.entries import Entry, Problems, leaves_folder, shown
from visar.evaluation.questions import Question

# A Python list of whole numbers: nothing else in a text is evaluated.
_WRITTEN_PAGES = re.compile(r"\s*\[[\s,\d+-]*\]\s*", re.ASCII)
_LONGEST_WRITTEN = 10_000
# What a value must be, by the types of pydantic's errors.
_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "list_type": "a list",
    "model_type": "an object",
    "literal_error": "{expected}",
    "greater_than": "above {gt}",
}


class Schema(BaseModel):
    """Base class for entries. Other fields of an entry are ignored."""

    model_config = ConfigDict(frozen=True, strict=True)


AnySchema = TypeVar("AnySchema", bound=Schema)


def parse(entry: Entry, schema: type[AnySchema], problems: Problems) -> AnySchema | None:
    """Return an entry as its schema; if it does not fit, add its problems and return None."""
    try:
        return schema.model_validate(entry.values)
    except ValidationError as error:
        for each in error.errors(include_url=False):
            problems.add(entry.where, _message(each), entry.position)
        return None


def _message(error: Any) -> str:
    """Return one error of pydantic in our words."""
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    names = [part for part in error["loc"] if isinstance(part, str)]
    field = f'"{names[-1]}" ' if names else ""
    is_item = bool(error["loc"]) and not isinstance(error["loc"][-1], str)
    if kind == "missing" or (value is None and not is_item):
        return f"has no {field.strip()}"
    expected = _EXPECTED[kind].format(**context) if kind in _EXPECTED else error["msg"]
    fault = f"must be {expected}"
    if kind == "value_error":  # of a validator of ours
        fault = str(context["error"])
    elif not is_item:
        fault += f", not {shown(value)}"
    return f"{field}holds {shown(value)}, which {fault}" if is_item else f"{field}{fault}"


def _filled(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty")
    return _valid(value)


def _valid(value: str) -> str:
    """Refuse what JSON can write and UTF-8 cannot, and what no file name can hold."""
    if any("\ud800" <= character <= "\udfff" or character == "\0" for character in value):
        raise ValueError(f"holds a character that is none: {shown(value)}")
    return value


def _inside(name: str) -> str:
    if leaves_folder(name):
        raise ValueError(f"must name a file below the folder of documents, not {shown(name)}")
    return name


def _number_as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _written_list(value: Any) -> Any:
    """Return the list that a text holds as Python writes it; anything else as it is."""
    if isinstance(value, str) and len(value) <= _LONGEST_WRITTEN and _WRITTEN_PAGES.match(value):
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            return ast.literal_eval(value.strip())
    return value


def _answer(value: Any) -> Any:
    """Return a text, a number, or a list of all that belongs to an answer, as one text."""
    if isinstance(value, dict):
        raise ValueError(f"must be text, a number or a list, not {shown(value)}")  # noqa: TRY004
    if isinstance(value, list):
        return json.dumps([str(item) for item in value], ensure_ascii=False) if value else ""
    return "" if value is None else str(value)


Text: TypeAlias = Annotated[str, AfterValidator(_filled)]
"""A text that is not blank."""
OptionalText: TypeAlias = Annotated[
    Text | None, BeforeValidator(lambda value: None if value == "" else value)
]
"""A text, or None where it is missing or empty."""
DocumentName: TypeAlias = Annotated[Text, AfterValidator(_inside)]
"""The name of a document, which stays within the folder of the data set."""
Identity: TypeAlias = Annotated[Text, BeforeValidator(_number_as_text)]
"""An id: text or a whole number."""
WrittenPages: TypeAlias = Annotated[list[int], BeforeValidator(_written_list)]
"""Page numbers, also as a text that holds the list."""
Answer: TypeAlias = Annotated[str, BeforeValidator(_answer), AfterValidator(_valid)]
"""A reference answer as one text; empty for null."""


def read_questions(
    entries: Iterable[Entry],
    schema: type[AnySchema],
    problems: Problems,
    to_question: Callable[[AnySchema], Question],
) -> list[Question]:
    """Return the questions of entries; raises a DatasetError that lists what is wrong with them.

    A question without an id gets its position and a short hash, without any of its words.
    """
    first: dict[str, str] = {}
    found = []
    for entry in entries:
        row = parse(entry, schema, problems)
        if row is None:
            continue
        question = to_question(row)
        content = f"{question.document}\0{question.text}".encode()
        identity = question.id or f"{entry.position}-{hashlib.sha256(content).hexdigest()[:8]}"
        other = first.setdefault(identity, entry.where)
        if other != entry.where:
            repeated = f"has the id {shown(identity)}, which {other} has too"
            problems.add(entry.where, repeated, entry.position)
        found.append(replace(question, id=identity))
    problems.refuse()
    return found


def filled(*answers: str) -> tuple[str, ...]:
    """Return the answers that are not blank."""
    return tuple(answer for answer in answers if answer.strip())
