"""Entries of JSON, JSON lines and Parquet files, with all problems of a file in one error."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, NoReturn

from visar.errors import DatasetError
from visar.text import counted

_MOST_SHOWN = 20
_LONGEST_SHOWN = 60
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MISSING = object()
# A Python list of whole numbers: nothing else in a text is evaluated.
_WRITTEN_PAGES = re.compile(r"\s*\[[\s,\d+-]*\]\s*", re.ASCII)
_LONGEST_WRITTEN = 10_000


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
    """Read a JSON array, a Parquet table, or (any other name) JSON lines.

    ``within`` names the field that holds the array, where a JSON file is an object. Columns of
    images are not read. Lines and elements that are no JSON objects are added to the problems.
    Raises a DatasetError if the file cannot be read or holds nothing.
    """
    suffix = file.suffix.lower()
    if suffix == ".parquet":
        entries = _rows(file)
    elif suffix == ".json":
        entries = list(_elements(file, problems, within))
    else:
        entries = list(_lines(file, problems))
    if not entries:
        problems.refuse()
        raise DatasetError(f"{file} is empty: it holds no entries.")
    return entries


class Fields:
    """The checked fields of one entry.

    Every method returns a value of the right type. Where the entry's is wrong, it adds a problem
    and returns a placeholder: use no value before ``Problems.refuse``.
    """

    def __init__(self, entry: Entry, problems: Problems) -> None:
        self._entry = entry
        self._problems = problems

    def text(self, key: str) -> str:
        """A text that is not blank."""
        value = self._value(key)
        if value is _MISSING:
            return ""
        if not isinstance(value, str):
            self.wrong(f'"{key}" must be text, not {shown(value)}')
            return ""
        if not value.strip():
            self.wrong(f'"{key}" is empty')
        return self._valid(key, value)

    def optional_text(self, key: str) -> str | None:
        """A text, or None where there is none."""
        return self.text(key) if self._entry.values.get(key) not in (None, "") else None

    def optional_count(self, key: str) -> int | None:
        """A whole number above 0, or None where there is none."""
        value = self._entry.values.get(key)
        if value is None:
            return None
        if not _is_whole(value) or value < 1:
            self.wrong(f'"{key}" must be a whole number above 0, not {shown(value)}')
            return None
        return int(value)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts that are not blank; the list may be empty."""
        value = self._value(key)
        if value is _MISSING:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.wrong(f'"{key}" must be a list of texts, not {shown(value)}')
            return ()
        if not all(item.strip() for item in value):
            self.wrong(f'"{key}" holds an empty text')
        return tuple(self._valid(key, item) for item in value)

    def pages(self, key: str, *, as_text: bool = False) -> tuple[int, ...]:
        """A list of whole numbers, each once; with ``as_text`` also as Python writes it."""
        value = self._value(key)
        if value is _MISSING:
            return ()
        if as_text and isinstance(value, str):
            value = _written_list(value)
        if not isinstance(value, list):
            self.wrong(f'"{key}" must be a list of page numbers, not {shown(value)}')
            return ()
        odd = [page for page in value if not _is_whole(page)]
        if odd:
            self.wrong(f'"{key}" must hold whole numbers, not {shown(odd[0])}')
            return ()
        return tuple(dict.fromkeys(value))

    def answers(self, key: str, *alternatives: str) -> tuple[str, ...]:
        """The answer of a benchmark, and those of optional fields, which are right too.

        An answer is a text, a number, or a list of all that belongs to it, which becomes one text.
        Blank ones are left out.
        """
        self._value(key, nothing_allowed=True)
        found = []
        for name in (key, *alternatives):
            value = self._entry.values.get(name)
            if isinstance(value, dict):
                self.wrong(f'"{name}" must be text, a number or a list, not {shown(value)}')
            elif isinstance(value, list) and value:
                found.append(json.dumps(value, ensure_ascii=False, default=str))
            elif value not in (None, []) and str(value).strip():
                found.append(str(value))
        return tuple(self._valid(key, text) for text in found)

    def document(self, key: str) -> str:
        """The name of a document, which must stay within the data set's folder."""
        name = self.text(key)
        if name and leaves_folder(name):
            self.wrong(f'"{key}" must name a file below the folder of documents, not {shown(name)}')
        return name

    def identity(self, key: str, document: str, question: str, seen: dict[str, str]) -> str:
        """The id that the data set gives; else the position and a short hash, without any words.

        ``seen`` holds the ids of earlier entries, with where they stand, and gets this one.
        """
        given = self._entry.values.get(key)
        if given is None:
            content = f"{document}\0{question}".encode(errors="surrogatepass")
            identity = f"{self._entry.position}-{hashlib.sha256(content).hexdigest()[:8]}"
        else:
            identity = str(given) if _is_whole(given) else self.text(key)
        first = seen.setdefault(identity, self._entry.where)
        if first != self._entry.where:
            self.wrong(f"has the id {shown(identity)}, which {first} has too")
        return identity

    def wrong(self, what: str) -> None:
        """Add a problem of this entry."""
        self._problems.add(self._entry.where, what, self._entry.position)

    def _value(self, key: str, *, nothing_allowed: bool = False) -> Any:
        value = self._entry.values.get(key, _MISSING)
        if value is _MISSING or (value is None and not nothing_allowed):
            self.wrong(f'has no "{key}"')
            return _MISSING
        return value

    def _valid(self, key: str, value: str) -> str:
        """Refuse what JSON can write and UTF-8 cannot, and what no file name can hold."""
        if any("\ud800" <= character <= "\udfff" or character == "\0" for character in value):
            self.wrong(f'"{key}" holds a character that is none: {shown(value)}')
        return value


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


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _written_list(text: str) -> object:
    """The list that a text holds; the text itself if it holds none."""
    if len(text) > _LONGEST_WRITTEN or not _WRITTEN_PAGES.fullmatch(text):
        return text
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


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
