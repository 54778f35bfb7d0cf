"""Read entries from JSON, JSON Lines, TSV and Parquet files, collecting all problems."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, NoReturn

from visar.errors import DatasetError
from visar.text import counted

_MAX_PROBLEMS = 20
_MAX_LENGTH = 60
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a file, such as a question or correction."""

    where: str
    """The location in error messages: "line 3" in JSON Lines, "entry 3" in other files."""
    position: int
    """The number of the entry, from 1."""
    values: dict[str, Any]


class Problems:
    """A list of problems, to raise as one error."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._found: list[tuple[int, str]] = []

    def add(self, where: str, what: str, position: int = 0) -> None:
        """Add a problem. Problems are sorted by position, then by order of adding."""
        self._found.append((position, f"{where}: {what}"))

    def raise_if_any(self) -> None:
        """Raise DatasetError with the first 20 problems, if there are any."""
        if not self._found:
            return
        count = len(self._found)
        title = f"{self._title}: {counted(count, 'problem')}"
        ordered = sorted(self._found, key=lambda problem: problem[0])
        lines = [title, *(f"  {problem}" for _, problem in ordered[:_MAX_PROBLEMS])]
        if count > _MAX_PROBLEMS:
            lines.append(f"  and {count - _MAX_PROBLEMS} more")
        raise DatasetError("\n".join(lines))


def read_entries(file: Path, problems: Problems, *, within: str | None = None) -> list[Entry]:
    """Read a JSON array, Parquet table, TSV file or, for all other suffixes, JSON Lines.

    ``within`` is the field with the array if a JSON file is an object. Columns with images are
    skipped. Lines and elements that aren't JSON objects are added to the problems. Raises
    DatasetError if the file can't be read or is empty.
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
        problems.raise_if_any()
        raise DatasetError(f"{file} is empty: give a file with entries.")
    return entries


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
            problems.add(where, "isn't UTF-8", position)
        except (ValueError, RecursionError) as error:
            problems.add(where, f"isn't JSON ({_short(error)})", position)
        else:
            yield from _entry(where, position, values, problems)


def _separated(file: Path) -> Iterator[Entry]:
    try:
        lines = _content(file).decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        _raise_error(f"{file} isn't UTF-8", error)
    rows = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    for position, row in enumerate(rows, 1):
        yield Entry(f"line {position + 1}", position, {str(key): row[key] for key in row})


def _elements(file: Path, problems: Problems, within: str | None) -> Iterator[Entry]:
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
        _raise_error(f"{file} isn't a readable Parquet table ({_short(error)})", error)
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
        _raise_error(f"Can't read {file}: {error.strerror}", error)


def _short(error: Exception) -> str:
    text = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
    return text.partition("\n")[0][:120]


def _raise_error(message: str, error: Exception) -> NoReturn:
    raise DatasetError(f"{message}.") from error
