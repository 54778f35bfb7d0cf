"""Entries of JSON, JSON lines and Parquet files, with all problems of a file in one error."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, NoReturn

from visar.errors import DatasetError
from visar.text import counted

_MOST_SHOWN = 20
_LONGEST_SHOWN = 60
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Entry:
    """The fields that a file has for one question or correction."""

    where: str
    """As errors name it: "line 3" of JSON lines, "entry 3" of other files."""
    position: int
    """Among the entries; 1 is the first."""
    values: dict[str, Any]


class Problems:
    """Collects what is wrong, to be raised as one error."""

    def __init__(self, of_what: str) -> None:
        self._of_what = of_what
        self._found: list[tuple[int, str]] = []

    def add(self, where: str, what: str, position: int = 0) -> None:
        """Add a problem. They are shown by position, and in the order of adding."""
        self._found.append((position, f"{where}: {what}"))

    def refuse(self) -> None:
        """Raise a DatasetError with the first 20 problems, if there are any."""
        if not self._found:
            return
        count = len(self._found)
        title = f"{self._of_what}: {counted(count, 'problem')}"
        ordered = sorted(self._found, key=lambda problem: problem[0])
        lines = [title, *(f"  {problem}" for _, problem in ordered[:_MOST_SHOWN])]
        if count > _MOST_SHOWN:
            lines.append(f"  and {count - _MOST_SHOWN} more")
        raise DatasetError("\n".join(lines))


def read_entries(file: Path, problems: Problems, *, within: str | None = None) -> list[Entry]:
    """Read a JSON array, a Parquet table, tab-separated values, or (any other name) JSON lines.

    ``within`` names the field that holds the array, where a JSON file is an object. Columns of
    images are not read. Lines and elements that are no JSON objects are added to the problems.
    Raises a DatasetError if the file cannot be read or holds nothing.
    """
    suffix = file.suffix.lower()
    if suffix == ".parquet":
        entries = _rows(file)
    elif suffix == ".json":
        entries = list(_elements(file, problems, within))
    elif suffix == ".tsv":
        entries = list(_separated(file))
    else:
        entries = list(_lines(file, problems))
    if not entries:
        problems.refuse()
        raise DatasetError(f"{file} is empty: it holds no entries.")
    return entries


def leaves_folder(name: str) -> bool:
    r"""True if a name leads out of the folder it is looked up in, on any system.

    >>> [leaves_folder(name) for name in ("a/b.pdf", "../b.pdf", "/b.pdf", "C:\\b.pdf", ".")]
    [False, True, True, True, True]
    """
    ways = PurePosixPath(name), PureWindowsPath(name)
    return any(not way.parts or way.anchor or ".." in way.parts for way in ways)


def shown(value: object) -> str:
    """A value as errors show it, cut where it is long."""
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _lines(file: Path, problems: Problems) -> Iterator[Entry]:
    position = 0
    for number, line in enumerate(_content(file).split(b"\n"), 1):
        if not line.strip():
            continue
        where = f"line {number}"
        position += 1
        try:
            values = json.loads(line.decode("utf-8"))
        except UnicodeDecodeError:
            problems.add(where, "is not UTF-8", position)
        except (ValueError, RecursionError) as error:
            problems.add(where, f"is not JSON ({_short(error)})", position)
        else:
            yield from _entry(where, position, values, problems)


def _separated(file: Path) -> Iterator[Entry]:
    try:
        lines = _content(file).decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        _refuse(f"{file} is not UTF-8", error)
    rows = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    for position, row in enumerate(rows, 1):
        yield Entry(f"line {position + 1}", position, {str(key): row[key] for key in row})


def _elements(file: Path, problems: Problems, within: str | None) -> Iterator[Entry]:
    content = _content(file)
    try:
        elements = json.loads(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        _refuse(f"{file}, line {line}, is not UTF-8", error)
    except json.JSONDecodeError as error:
        _refuse(f"{file}, line {error.lineno}, is not JSON ({error.msg})", error)
    except (ValueError, RecursionError) as error:
        _refuse(f"{file} is not JSON that can be read ({_short(error)})", error)
    if within is not None:
        if not isinstance(elements, dict) or within not in elements:
            raise DatasetError(
                f'{file} must hold an object with "{within}", not {shown(elements)}.'
            )
        elements = elements[within]
    if not isinstance(elements, list):
        raise DatasetError(f"{file} must hold a list of entries, not {shown(elements)}.")
    for position, values in enumerate(elements, 1):
        yield from _entry(f"entry {position}", position, values, problems)


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
        _refuse(f"{file} is not a Parquet table that can be read ({_short(error)})", error)
    return [Entry(f"entry {number}", number, row) for number, row in enumerate(rows, 1)]


def _entry(where: str, position: int, values: object, problems: Problems) -> Iterator[Entry]:
    if isinstance(values, dict):
        yield Entry(where, position, values)
    else:
        problems.add(where, f"must be an object with fields, not {shown(values)}", position)


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes().removeprefix(_BYTE_ORDER_MARK)
    except OSError as error:
        _refuse(f"{file} cannot be read: {error.strerror}", error)


def _short(error: Exception) -> str:
    text = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
    return text.partition("\n")[0][:120]


def _refuse(message: str, error: Exception) -> NoReturn:
    raise DatasetError(f"{message}.") from error
