"""Schemas of entries: types of fields whose errors name the field, quote the value and say why."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import PydanticCustomError

from visar.evaluation.datasets.entries import Entry, Problems, leaves_folder, shown
from visar.evaluation.questions import Question

# A Python list of whole numbers: nothing else in a text is evaluated.
_WRITTEN_PAGES = re.compile(r"\s*\[[\s,\d+-]*\]\s*", re.ASCII)
_LONGEST_WRITTEN = 10_000


class Schema(BaseModel):
    """Base class for entries. Other fields of an entry are ignored."""

    model_config = ConfigDict(frozen=True)


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
    names = [part for part in error["loc"] if isinstance(part, str)]
    key = names[-1] if names else ""
    if error["type"] == "missing":
        return f'has no "{key}"'
    if error["type"] == "wrong":
        return f'"{key}" {error["msg"]}' if key else str(error["msg"])
    return f'"{key}" is wrong: {error["msg"]}, not {shown(error["input"])}'


def wrong(what: str) -> PydanticCustomError:
    """Return the error of a validator; the name of its field is put before the text."""
    # Braces would be read as placeholders.
    return PydanticCustomError("wrong", "{what}", {"what": what})


def _of(check: Callable[[Any], Any]) -> BeforeValidator:
    """Return a validator that takes null for a missing field."""

    def validate(value: Any) -> Any:
        if value is None:
            raise PydanticCustomError("missing", "missing")
        return check(value)

    return BeforeValidator(validate)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise wrong(f"must be text, not {shown(value)}")
    if not value.strip():
        raise wrong("is empty")
    return _valid(value)


def _valid(value: str) -> str:
    """Refuse what JSON can write and UTF-8 cannot, and what no file name can hold."""
    if any("\ud800" <= character <= "\udfff" or character == "\0" for character in value):
        raise wrong(f"holds a character that is none: {shown(value)}")
    return value


def check_texts(value: Any) -> tuple[str, ...]:
    """Return a list of texts that are not blank; raises what validators raise."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise wrong(f"must be a list of texts, not {shown(value)}")
    if not all(item.strip() for item in value):
        raise wrong("holds an empty text")
    return tuple(map(_valid, value))


def check_document(value: Any) -> str:
    """Return a name that stays within the folder of documents; raises what validators raise."""
    name = _text(value)
    if leaves_folder(name):
        raise wrong(f"must name a file below the folder of documents, not {shown(name)}")
    return name


def _identity(value: Any) -> str:
    return str(value) if _is_whole(value) else _text(value)


def _page(value: Any) -> int:
    if not _is_whole(value):
        raise wrong(f"must be a page number, not {shown(value)}")
    return int(value)


def check_pages(value: Any) -> tuple[int, ...]:
    """Return a list of whole numbers, each once; raises what validators raise."""
    if not isinstance(value, list):
        raise wrong(f"must be a list of page numbers, not {shown(value)}")
    odd = [page for page in value if not _is_whole(page)]
    if odd:
        raise wrong(f"must hold whole numbers, not {shown(odd[0])}")
    return tuple(dict.fromkeys(value))


def _written_pages(value: Any) -> tuple[int, ...]:
    """Return pages of a list, or of a text that holds one as Python writes it."""
    if isinstance(value, str) and len(value) <= _LONGEST_WRITTEN and _WRITTEN_PAGES.match(value):
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            value = ast.literal_eval(value.strip())
    return check_pages(value)


def _count(value: Any) -> int:
    if not _is_whole(value) or value < 1:
        raise wrong(f"must be a whole number above 0, not {shown(value)}")
    return int(value)


def _answer(value: Any) -> str:
    """Return a text, a number, or a list of all that belongs to an answer, as one text."""
    if isinstance(value, dict):
        raise wrong(f"must be text, a number or a list, not {shown(value)}")
    if isinstance(value, list):
        return _valid(json.dumps(value, ensure_ascii=False, default=str)) if value else ""
    return "" if value is None else _valid(str(value))


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _objects(value: Any) -> list[Any]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise wrong(f"must be a list of objects, not {shown(value)}")
    return value


Text: TypeAlias = Annotated[str, _of(_text)]
"""A text that is not blank."""
Texts: TypeAlias = Annotated[tuple[str, ...], _of(check_texts)]
"""Texts that are not blank; there may be none."""
DocumentName: TypeAlias = Annotated[str, _of(check_document)]
"""The name of a document, which stays within the folder of the data set."""
Identity: TypeAlias = Annotated[str, _of(_identity)]
"""An id: text or a whole number."""
Page: TypeAlias = Annotated[int, _of(_page)]
Pages: TypeAlias = Annotated[tuple[int, ...], _of(check_pages)]
"""Whole numbers, each once."""
WrittenPages: TypeAlias = Annotated[tuple[int, ...], _of(_written_pages)]
"""The same, also as a text that holds the list."""
Count: TypeAlias = Annotated[int, _of(_count)]
"""A whole number above 0."""
Answer: TypeAlias = Annotated[str, BeforeValidator(_answer)]
"""A reference answer as one text; empty for null."""
OptionalText: TypeAlias = Annotated[
    str | None, BeforeValidator(lambda value: None if value in (None, "") else _text(value))
]
"""A text, or None where it is missing or empty."""
Objects = _of(_objects)
"""Validator of a list of objects, for ``Annotated``."""


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
