"""Schemas of entries, with error messages that name the field and quote the value."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError

from visar.evaluation.datasets.entries import Entry, Problems, leaves_folder, shown
from visar.evaluation.questions import Question, write_list

# A Python list of integers. No other text is evaluated.
_WRITTEN_PAGES = re.compile(r"\s*\[[\s,\d+-]*\]\s*", re.ASCII)
_LONGEST_WRITTEN = 10_000
# Expected values, by pydantic's error types.
_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "list_type": "a list",
    "model_type": "an object",
    "literal_error": "{expected}",
    "greater_than": "above {gt}",
}


class Schema(BaseModel):
    """The base class for entries. Additional fields are ignored."""

    model_config = ConfigDict(frozen=True, strict=True)


AnySchema = TypeVar("AnySchema", bound=Schema)


def parse(entry: Entry, schema: type[AnySchema], problems: Problems) -> AnySchema | None:
    """Validate an entry; if it is invalid, add its problems and return None."""
    try:
        return schema.model_validate(entry.values)
    except ValidationError as error:
        for each in error.errors(include_url=False):
            problems.add(entry.where, _message(each), entry.position)
        return None


def _message(error: Any) -> str:
    """Return the message for a pydantic error."""
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    names = [part for part in error["loc"] if isinstance(part, str)]
    field = f'"{names[-1]}" ' if names else ""
    is_item = bool(error["loc"]) and not isinstance(error["loc"][-1], str)
    if kind == "missing" or (value is None and not is_item):
        return f"has no {field.strip()}"
    expected = _EXPECTED[kind].format(**context) if kind in _EXPECTED else error["msg"]
    fault = f"must be {expected}"
    if kind == "value_error":  # raised by one of our validators
        fault = str(context["error"])
    elif not is_item:
        fault += f", not {shown(value)}"
    return f"{field}contains {shown(value)}, which {fault}" if is_item else f"{field}{fault}"


def _filled(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty")
    return _valid(value)


def _valid(value: str) -> str:
    """Raise ValueError for lone surrogates and null characters, which break UTF-8 or file names."""
    if any("\ud800" <= character <= "\udfff" or character == "\0" for character in value):
        raise ValueError(f"contains an invalid character: {shown(value)}")
    return value


def _inside(name: str) -> str:
    if leaves_folder(name):
        raise ValueError(f"must be a file inside the folder of documents, not {shown(name)}")
    return name


def _number_as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _written_list(value: Any) -> Any:
    """Parse a Python list in a string; return other values unchanged."""
    if isinstance(value, str) and len(value) <= _LONGEST_WRITTEN and _WRITTEN_PAGES.match(value):
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            return ast.literal_eval(value.strip())
    return value


def _answer(value: Any) -> Any:
    """Convert an answer to a string: text, a number, or a list of all its parts."""
    if isinstance(value, dict):
        raise ValueError(f"must be text, a number or a list, not {shown(value)}")  # noqa: TRY004
    if isinstance(value, list):
        return write_list([str(item) for item in value]) if value else ""
    return "" if value is None else str(value)


Text: TypeAlias = Annotated[str, AfterValidator(_filled)]
"""A string that isn't blank."""
OptionalText: TypeAlias = Annotated[
    Text | None, BeforeValidator(lambda value: None if value == "" else value)
]
"""A string, or None if missing or empty."""
DocumentName: TypeAlias = Annotated[Text, AfterValidator(_inside)]
"""The name of a document, inside the folder of the data set."""
Identity: TypeAlias = Annotated[Text, BeforeValidator(_number_as_text)]
"""An id: a string or an integer."""
WrittenPages: TypeAlias = Annotated[list[int], BeforeValidator(_written_list)]
"""Page numbers, as a list or a string with a list."""
Answer: TypeAlias = Annotated[str, BeforeValidator(_answer), AfterValidator(_valid)]
"""A reference answer as a string; empty for null."""


def read_questions(
    entries: Iterable[Entry],
    schema: type[AnySchema],
    problems: Problems,
    to_question: Callable[[AnySchema], Question],
) -> list[Question]:
    """Return the questions of entries; raises DatasetError with a list of all problems.

    A question without an id gets its position and a short hash as the id.
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
            repeated = f"has the id {shown(identity)}, which {other} also has"
            problems.add(entry.where, repeated, entry.position)
        found.append(replace(question, id=identity))
    problems.raise_if_any()
    return found


def filled(*answers: str) -> tuple[str, ...]:
    """Return the answers that are not blank."""
    return tuple(answer for answer in answers if answer.strip())
