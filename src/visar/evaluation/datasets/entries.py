"""Read entries from JSON, JSON Lines, TSV and Parquet files, and check them with schemas.

Errors list all problems of a file, name the field and quote the value.
"""

from __future__ import annotations

import ast
import csv
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Annotated, Any, NoReturn, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError

from visar.errors import DatasetError
from visar.evaluation.questions import Question, write_list
from visar.text import counted

_MAX_PROBLEMS = 20
_MAX_LENGTH = 60
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
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


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a file, such as a question or correction."""

    where: str
    """The location in error messages: "line 3" in JSON Lines, "entry 3" in other files."""
    values: dict[str, Any] = field(default_factory=dict)
    fault: str | None = None
    """Why it has no values."""


class Schema(BaseModel):
    """The base class for entries. Additional fields are ignored."""

    model_config = ConfigDict(frozen=True, strict=True)


Row = TypeVar("Row")


def read_entries(file: Path, *, within: str | None = None) -> list[Entry]:
    """Read a JSON array, Parquet table, TSV file or, for all other suffixes, JSON Lines.

    ``within`` is the field with the array if a JSON file is an object. Columns with images are
    skipped. Lines and elements that aren't JSON objects become entries with a fault. Raises
    DatasetError if the file can't be read or is empty.
    """
    suffix = file.suffix.lower()
    if suffix == ".parquet":
        entries = _rows(file)
    elif suffix == ".json":
        entries = _elements(file, within)
    elif suffix == ".tsv":
        entries = _separated(file)
    else:
        entries = list(_lines(file))
    if not entries:
        raise DatasetError(f"{file} is empty: give a file with entries.")
    return entries


def parse(
    title: object, entries: Iterable[Entry], validate: Callable[[dict[str, Any]], Row]
) -> list[Row]:
    """Return the rows of entries; raises DatasetError with a list of all problems.

    ``validate`` is a schema's ``model_validate``, or raises the same errors.
    """
    problems: list[str] = []
    rows = [row for _, _, row in _parsed(entries, validate, problems)]
    raise_problems(title, problems)
    return rows


def read_questions(
    title: object, entries: Iterable[Entry], validate: Callable[[dict[str, Any]], Question]
) -> list[Question]:
    """Return the questions of entries, as `parse` does.

    A question without an id gets its position and a short hash as the id.
    """
    problems: list[str] = []
    first: dict[str, str] = {}
    found = []
    for position, where, question in _parsed(entries, validate, problems):
        content = f"{question.document}\0{question.text}".encode()
        identity = question.id or f"{position}-{hashlib.sha256(content).hexdigest()[:8]}"
        if identity in first:
            repeated = f"has the id {shown(identity)}, which {first[identity]} also has"
            problems.append(f"{where}: {repeated}")
        first.setdefault(identity, where)
        found.append(replace(question, id=identity))
    raise_problems(title, problems)
    return found


def raise_problems(title: object, problems: Sequence[str]) -> None:
    """Raise DatasetError with the first 20 problems, if there are any."""
    if problems:
        lines = [f"{title}: {counted(len(problems), 'problem')}"]
        lines += [f"  {problem}" for problem in problems[:_MAX_PROBLEMS]]
        if len(problems) > _MAX_PROBLEMS:
            lines.append(f"  and {len(problems) - _MAX_PROBLEMS} more")
        raise DatasetError("\n".join(lines))


def leaves_folder(name: str) -> bool:
    r"""Return whether a name refers to a path outside its folder, on any system.

    >>> [leaves_folder(name) for name in ("a/b.pdf", "../b.pdf", "/b.pdf", "C:\\b.pdf", ".")]
    [False, True, True, True, True]
    """
    paths = PurePosixPath(name), PureWindowsPath(name)
    return any(not path.parts or path.anchor or ".." in path.parts for path in paths)


def shown(value: object) -> str:
    """Return a value's representation for error messages, truncated if long."""
    text = repr(value)
    return text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}…"


def filled(*answers: str) -> tuple[str, ...]:
    """Return the answers that are not blank."""
    return tuple(answer for answer in answers if answer.strip())


def _lines(file: Path) -> Iterator[Entry]:
    for number, line in enumerate(_content(file).split(b"\n"), 1):
        if not line.strip():
            continue
        where = f"line {number}"
        try:
            yield _entry(where, json.loads(line.decode("utf-8")))
        except UnicodeDecodeError:
            yield Entry(where, fault="isn't UTF-8")
        except (ValueError, RecursionError) as error:
            yield Entry(where, fault=f"isn't JSON ({_short(error)})")


def _separated(file: Path) -> list[Entry]:
    try:
        lines = _content(file).decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        _raise_error(f"{file} isn't UTF-8", error)
    rows = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    return [
        Entry(f"line {number}", {str(key): row[key] for key in row})
        for number, row in enumerate(rows, 2)
    ]


def _elements(file: Path, within: str | None) -> list[Entry]:
    content = _content(file)
    try:
        elements = json.loads(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        _raise_error(f"{file}, line {line}, isn't UTF-8", error)
    except json.JSONDecodeError as error:
        _raise_error(f"{file}, line {error.lineno}, isn't JSON ({error.msg})", error)
    except (ValueError, RecursionError) as error:
        _raise_error(f"{file} isn't readable JSON ({_short(error)})", error)
    if within is not None:
        if not isinstance(elements, dict) or within not in elements:
            raise DatasetError(
                f'{file} must contain an object with "{within}", not {shown(elements)}.'
            )
        elements = elements[within]
    if not isinstance(elements, list):
        raise DatasetError(f"{file} must contain a list of entries, not {shown(elements)}.")
    return [_entry(f"entry {number}", values) for number, values in enumerate(elements, 1)]


def _rows(file: Path) -> list[Entry]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        columns = [
            column.name
            for column in parquet.read_schema(file)
            if not pa.types.is_binary(column.type) and not pa.types.is_struct(column.type)
        ]
        rows = parquet.read_table(file, columns=columns).to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        _raise_error(f"{file} isn't a readable Parquet table ({_short(error)})", error)
    return [Entry(f"entry {number}", row) for number, row in enumerate(rows, 1)]


def _entry(where: str, values: object) -> Entry:
    if isinstance(values, dict):
        return Entry(where, values)
    return Entry(where, fault=f"must be an object with fields, not {shown(values)}")


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes().removeprefix(_BYTE_ORDER_MARK)
    except OSError as error:
        _raise_error(f"Can't read {file}: {error.strerror}", error)


def _short(error: Exception) -> str:
    text = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
    return text.partition("\n")[0][:120]


def _raise_error(message: str, error: Exception) -> NoReturn:
    raise DatasetError(f"{message}.") from error


def _parsed(
    entries: Iterable[Entry], validate: Callable[[dict[str, Any]], Row], problems: list[str]
) -> Iterator[tuple[int, str, Row]]:
    """Yield the number, location and row of each entry, or add its problems."""
    for position, entry in enumerate(entries, start=1):
        if entry.fault is not None:
            problems.append(f"{entry.where}: {entry.fault}")
            continue
        try:
            yield position, entry.where, validate(entry.values)
        except ValidationError as error:
            found = error.errors(include_url=False)
            problems.extend(f"{entry.where}: {_message(each)}" for each in found)


def _message(error: Any) -> str:
    """Return the message for a pydantic error."""
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    names = [part for part in error["loc"] if isinstance(part, str)]
    name = f'"{names[-1]}" ' if names else ""
    is_item = bool(error["loc"]) and not isinstance(error["loc"][-1], str)
    if kind == "missing" or (value is None and not is_item):
        return f"has no {name.strip()}"
    expected = _EXPECTED[kind].format(**context) if kind in _EXPECTED else error["msg"]
    fault = f"must be {expected}"
    if kind == "value_error":  # raised by one of our validators
        fault = str(context["error"])
    elif not is_item:
        fault += f", not {shown(value)}"
    return f"{name}contains {shown(value)}, which {fault}" if is_item else f"{name}{fault}"


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
