"""Choosing documents by their metadata: ``year >= 2020 and kind = "report"``.

Comparisons (``=``, ``!=``, ``<``, ``<=``, ``>``, ``>=``), ``in (…)``, ``is null``, ``and``, ``or``,
``not`` and parentheses. A name that a document does not have is null. Values of different kinds,
such as a number and a text, are never equal and in no order.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import Any, Literal, NamedTuple, TypeAlias

from visar.errors import InvalidOption
from visar.results import Document

Value: TypeAlias = str | int | float | bool | None
Predicate: TypeAlias = Callable[[Mapping[str, Any]], bool]

_TOKENS = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<number>[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?(?!\w))
    |(?P<word>[^\W\d][\w.-]*)
    |(?P<sign>[<>!=]=|<>|[<>=(),])
    |(?P<end>$))""",
    re.VERBOSE,
)
_WORDS = {"and", "or", "not", "in", "is", "null", "none", "true", "false"}
_CONSTANTS: dict[str, Value] = {"true": True, "false": False, "null": None, "none": None}
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_DEEPEST = 50


def filtered(documents: Iterable[Document], where: str | None) -> list[Document]:
    """Return the documents whose metadata match a filter; all without one.

    Raises
    ------
    InvalidOption
        If the filter cannot be read; the message points at the place.
    """
    if where is None:
        return list(documents)
    matches = parse_filter(where)
    return [document for document in documents if matches(document.metadata)]


def parse_filter(text: str) -> Predicate:
    """Return the predicate over metadata that a filter describes.

    Raises
    ------
    InvalidOption
        If it cannot be read.

    >>> matches = parse_filter('year >= 2020 and not kind in ("letter", "note")')
    >>> matches({"year": 2021, "kind": "report"}), matches({"year": 2021, "kind": "note"})
    (True, False)
    """
    return _Parser(text).parse()


def parse_value(text: str) -> Value:
    """Return the value that a text from the command line means.

    A number, ``true``, ``false`` or ``null``; all else is text, with or without double quotes.

    >>> parse_value("2021"), parse_value("true"), parse_value("a report"), parse_value('"2021"')
    (2021, True, 'a report', '2021')
    """
    try:
        value = json.loads(text)
    except ValueError:
        return text
    if not isinstance(value, str | int | float | None) or (
        isinstance(value, float) and not isfinite(value)
    ):
        return text
    return value


def parse_metadata(settings: Iterable[str]) -> dict[str, Value]:
    """Return the metadata that settings such as ``year=2021`` mean.

    Raises
    ------
    InvalidOption
        If one has no name, or a name that a filter could not use.
    """
    metadata = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        name = name.strip()
        found = _TOKENS.fullmatch(name)
        if not equals or found is None or found["word"] is None or name.lower() in _WORDS:
            raise InvalidOption(
                f"{setting!r} is no NAME=VALUE: a name has letters, digits, _, - and . alone, "
                "begins with a letter, and is no word of filters such as and, or, in."
            )
        metadata[name] = parse_value(value.strip())
    return metadata


class _Token(NamedTuple):
    kind: Literal["text", "number", "word", "sign", "end"]
    text: str
    place: int

    @property
    def lower(self) -> str:
        """Of a word, which may be written in capitals; of texts nothing."""
        return "" if self.kind == "text" else self.text.lower()


class _Parser:
    """Reads a filter from left to right: one method for each rule of the grammar."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split()
        self._next = 0
        self._depth = 0

    def parse(self) -> Predicate:
        predicate = self._either()
        if self._token.kind != "end":
            raise self._error("expected and, or, or the end")
        return predicate

    def _split(self) -> list[_Token]:
        tokens: list[_Token] = []
        place = 0
        while not tokens or tokens[-1].kind != "end":
            found = _TOKENS.match(self._text, place)
            if found is None:
                rest = self._text[place:]
                place += len(rest) - len(rest.lstrip())
                unclosed = self._text[place] in "\"'"
                reason = "a text without its closing quote" if unclosed else "not understood"
                raise _refusal(self._text, place, reason)
            kind = found.lastgroup
            assert kind is not None  # noqa: S101 - one of the groups matched
            tokens.append(_Token(kind, found[kind], found.start(kind)))  # type: ignore[arg-type]
            place = found.end()
        return tokens

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _took(self, *texts: str) -> str | None:
        """Go past the next token if it is one of these words or signs, and return it."""
        if self._token.lower not in texts:
            return None
        self._next += 1
        return self._tokens[self._next - 1].lower

    def _either(self) -> Predicate:
        options = [self._all()]
        while self._took("or"):
            options.append(self._all())
        return options[0] if len(options) == 1 else lambda m: any(each(m) for each in options)

    def _all(self) -> Predicate:
        conditions = [self._condition()]
        while self._took("and"):
            conditions.append(self._condition())
        if len(conditions) == 1:
            return conditions[0]
        return lambda m: all(each(m) for each in conditions)

    def _condition(self) -> Predicate:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._error("too many parentheses and nots within each other")
        try:
            if self._took("not"):
                denied = self._condition()
                return lambda metadata: not denied(metadata)
            if self._took("("):
                inner = self._either()
                if not self._took(")"):
                    raise self._error("expected )")
                return inner
            return self._comparison()
        finally:
            self._depth -= 1

    def _comparison(self) -> Predicate:
        token = self._token
        if token.kind != "word" or token.lower in _WORDS:
            raise self._error("expected the name of a metadatum, such as year")
        name = token.text
        self._next += 1
        if self._took("is"):
            negated = self._took("not") is not None
            if not self._took("null", "none"):
                raise self._error("expected null")
            return lambda metadata: (metadata.get(name) is None) != negated
        if self._took("not"):
            if not self._took("in"):
                raise self._error("expected in")
            values = self._values()
            return lambda m: not any(_equal(m.get(name), value) for value in values)
        if self._took("in"):
            values = self._values()
            return lambda m: any(_equal(m.get(name), value) for value in values)
        sign = self._took("=", "==", "!=", "<>", *_ORDERS)
        if sign is None:
            raise self._error("expected one of = != < <= > >=, in, or is null")
        value = self._value()
        if sign in ("=", "=="):
            return lambda m: _equal(m.get(name), value)
        if sign in ("!=", "<>"):
            return lambda m: not _equal(m.get(name), value)
        before = _ORDERS[sign]
        return lambda m: _comparable(m.get(name), value) and before(m[name], value)

    def _values(self) -> list[Value]:
        if not self._took("("):
            raise self._error("expected ( and values")
        values = [self._value()]
        while self._took(","):
            values.append(self._value())
        if not self._took(")"):
            raise self._error("expected , or )")
        return values

    def _value(self) -> Value:
        token = self._token
        if token.kind == "text":
            value: Value = re.sub(r"\\(.)", r"\1", token.text[1:-1])
        elif token.kind == "number":
            value = float(token.text) if re.search("[.eE]", token.text) else int(token.text)
        elif token.lower in _CONSTANTS:
            value = _CONSTANTS[token.lower]
        elif token.kind == "word":
            raise self._error(f'expected a value: a text stands in quotes, "{token.text}"')
        else:
            raise self._error("expected a number, a text in quotes, true, false or null")
        self._next += 1
        return value

    def _error(self, reason: str) -> InvalidOption:
        return _refusal(self._text, self._token.place, reason)


def _equal(left: Any, right: Value) -> bool:
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def _comparable(left: Any, right: Value) -> bool:
    """Whether two values have an order: two texts, or two numbers."""
    return any(
        isinstance(left, kind) and isinstance(right, kind) for kind in (str, int | float)
    ) and not (isinstance(left, bool) or isinstance(right, bool))


def _refusal(text: str, place: int, reason: str) -> InvalidOption:
    line = text.replace("\n", " ").replace("\t", " ")
    return InvalidOption(f"The filter is wrong here: {reason}.\n  {line}\n  {' ' * place}^")
