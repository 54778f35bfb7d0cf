"""The fields of an entry, checked: a value that is wrong is added to the problems."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

from visar.evaluation.datasets.reading import Entry, Problems, shown

_MISSING = object()
# Python's literal of whole numbers only: whatever else a text holds is never evaluated.
_WRITTEN_PAGES = re.compile(r"\s*\[[\s,\d+-]*\]\s*", re.ASCII)
_LONGEST_WRITTEN = 10_000


class Fields:
    """The fields of one entry.

    Every method gives a value of the right type. Where the entry's own is wrong, it is a
    placeholder, and the problems have one more: nobody may use the values before
    ``Problems.refuse``.
    """

    def __init__(self, entry: Entry, problems: Problems) -> None:
        self._entry = entry
        self._problems = problems

    def text(self, key: str) -> str:
        """A text with something in it."""
        value = self._value(key)
        if value is _MISSING:
            return ""
        if not isinstance(value, str):
            self.wrong(f'"{key}" must be text, not {shown(value)}')
            return ""
        if not value.strip():
            self.wrong(f'"{key}" is empty')
        return self._whole(key, value)

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
        """A list of texts, each with something in it; the list may be empty."""
        value = self._value(key)
        if value is _MISSING:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.wrong(f'"{key}" must be a list of texts, not {shown(value)}')
            return ()
        if not all(item.strip() for item in value):
            self.wrong(f'"{key}" holds an empty text')
        return tuple(self._whole(key, item) for item in value)

    def pages(self, key: str) -> tuple[int, ...]:
        """A list of whole numbers, each kept once and in their order, whatever they are."""
        value = self._value(key)
        return () if value is _MISSING else self._pages(key, value)

    def written_pages(self, key: str) -> tuple[int, ...]:
        """Pages as a list, or as a text that holds a list as Python writes it."""
        value = self._value(key)
        if value is _MISSING:
            return ()
        return self._pages(key, _literal(value) if isinstance(value, str) else value)

    def answer(self, key: str) -> tuple[str, ...]:
        """The one right answer of a benchmark: a text, a number, or a list of what belongs to it.

        A list becomes one text: all of it is asked for, not one of its items. Nothing where the
        benchmark gives none.
        """
        value = self._value(key, nothing_allowed=True)
        if value is _MISSING or value is None:
            return ()
        if isinstance(value, dict):
            self.wrong(f'"{key}" must be text, a number or a list, not {shown(value)}')
            return ()
        text = _as_json(value) if isinstance(value, list) else str(value)
        return (self._whole(key, text),) if text.strip() else ()

    def document(self, key: str) -> str:
        """The name of a document, which must stay within the data set's folder."""
        name = self.text(key)
        if name and leaves_folder(name):
            self.wrong(f'"{key}" must name a file below the folder of documents, not {shown(name)}')
        return name

    def identity(self, key: str, document: str, question: str) -> str:
        """The id that the data set gives; else the position and a short hash, without any words."""
        given = self._entry.values.get(key)
        if given is None:
            content = f"{document}\0{question}".encode(errors="surrogatepass")
            return f"{self._entry.position}-{hashlib.sha256(content).hexdigest()[:8]}"
        return str(given) if _is_whole(given) else self.text(key)

    def wrong(self, what: str) -> None:
        """Add a problem of this entry."""
        self._problems.add(self._entry.where, what, self._entry.position)

    def _value(self, key: str, *, nothing_allowed: bool = False) -> Any:
        value = self._entry.values.get(key, _MISSING)
        if value is _MISSING or (value is None and not nothing_allowed):
            self.wrong(f'has no "{key}"')
            return _MISSING
        return value

    def _whole(self, key: str, value: str) -> str:
        """Refuse what JSON can write and UTF-8 cannot, and what no file name can hold."""
        if any("\ud800" <= character <= "\udfff" or character == "\0" for character in value):
            self.wrong(f'"{key}" holds a character that is none: {shown(value)}')
        return value

    def _pages(self, key: str, value: object) -> tuple[int, ...]:
        if not isinstance(value, list):
            self.wrong(f'"{key}" must be a list of page numbers, not {shown(value)}')
            return ()
        odd = [page for page in value if not _is_whole(page)]
        if odd:
            self.wrong(f'"{key}" must hold whole numbers, not {shown(odd[0])}')
            return ()
        return tuple(dict.fromkeys(value))


class Unique:
    """Sees to it that no two entries of a file have the same id."""

    def __init__(self) -> None:
        self._first: dict[str, str] = {}

    def check(self, fields: Fields, where: str, identity: str) -> None:
        first = self._first.setdefault(identity, where)
        if first != where:
            fields.wrong(f"has the id {shown(identity)}, which {first} has too")


def leaves_folder(name: str) -> bool:
    r"""Whether a name leads out of the folder it is looked up in, on any system.

    >>> [leaves_folder(name) for name in ("a/b.pdf", "../b.pdf", "/b.pdf", "C:\\b.pdf", ".")]
    [False, True, True, True, True]
    """
    ways = PurePosixPath(name), PureWindowsPath(name)
    return any(not way.parts or way.anchor or ".." in way.parts for way in ways)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _literal(text: str) -> object:
    """The list that a text holds; the text itself if it holds none."""
    if len(text) > _LONGEST_WRITTEN or not _WRITTEN_PAGES.fullmatch(text):
        return text
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def _as_json(value: list[object]) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
