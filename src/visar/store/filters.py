"""Filters on metadata, such as ``year >= 2020 and kind = "report"``.

Filters support comparisons (``=``, ``!=``, ``<``, ``<=``, ``>``, ``>=``), ``in (…)``, ``is null``,
``and``, ``or``, ``not`` and parentheses. Missing fields are null. Values of different types, such
as a number and text, are never equal, and none is less than the other.
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
_MAX_DEPTH = 50


def filter_documents(documents: Iterable[Document], where: str | None) -> list[Document]:
    """Return the documents whose metadata matches a filter, or all without a filter."""
    if where is None:
        return list(documents)
    matches = parse_filter(where)
    return [document for document in documents if matches(document.metadata)]


def parse_filter(text: str) -> Predicate:
    """Parse a filter to a predicate over metadata.

    Raises InvalidOption if the filter is invalid; the message points to the error.

    >>> matches = parse_filter('year >= 2020 and not kind in ("letter", "note")')
    >>> matches({"year": 2021, "kind": "report"}), matches({"year": 2021, "kind": "note"})
    (True, False)
    """
    return _Parser(text).parse()


def parse_value(text: str) -> Value:
    """Parse a value from the command line.

    Numbers, ``true``, ``false`` and ``null`` are recognized. Everything else is text, with or
    without double quotes.

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
    """Parse metadata from settings such as ``year=2021``.

    Raises InvalidOption if a setting has no name, or a name that can't be used in filters.
    """
    metadata = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        name = name.strip()
        token = _TOKENS.fullmatch(name)
        if not equals or token is None or token["word"] is None or name.lower() in _WORDS:
            raise InvalidOption(
                f"Invalid metadata {setting!r}: write NAME=VALUE. A name starts with a letter and "
                'contains only letters, digits, "_", "-" and "."; words such as "and" and "in" are '
                "reserved for filters."
            )
        metadata[name] = parse_value(value.strip())
    return metadata


class _Token(NamedTuple):
    kind: Literal["text", "number", "word", "sign", "end"]
    text: str
    position: int

    @property
    def lower(self) -> str:
        """The word or sign in lower case; empty for quoted text, which is never a keyword."""
        return "" if self.kind == "text" else self.text.lower()


class _Parser:
    """A recursive descent parser with one method for each rule of the grammar."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split()
        self._next = 0
        self._depth = 0

    def parse(self) -> Predicate:
        predicate = self._disjunction()
        if self._token.kind != "end":
            raise self._error('expected "and", "or" or the end of the filter')
        return predicate

    def _split(self) -> list[_Token]:
        tokens: list[_Token] = []
        position = 0
        while not tokens or tokens[-1].kind != "end":
            match = _TOKENS.match(self._text, position)
            if match is None:
                rest = self._text[position:]
                position += len(rest) - len(rest.lstrip())
                unclosed = self._text[position] in "\"'"
                reason = "missing closing quote" if unclosed else "unexpected character"
                raise _syntax_error(self._text, position, reason)
            kind = match.lastgroup
            assert kind is not None  # noqa: S101 - one of the groups matched
            tokens.append(_Token(kind, match[kind], match.start(kind)))  # type: ignore[arg-type]
            position = match.end()
        return tokens

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _accept(self, *texts: str) -> str | None:
        """Consume and return the next token if it is one of these words or signs."""
        if self._token.lower not in texts:
            return None
        self._next += 1
        return self._tokens[self._next - 1].lower

    def _disjunction(self) -> Predicate:
        options = [self._conjunction()]
        while self._accept("or"):
            options.append(self._conjunction())
        return options[0] if len(options) == 1 else lambda m: any(each(m) for each in options)

    def _conjunction(self) -> Predicate:
        conditions = [self._condition()]
        while self._accept("and"):
            conditions.append(self._condition())
        if len(conditions) == 1:
            return conditions[0]
        return lambda m: all(each(m) for each in conditions)

    def _condition(self) -> Predicate:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._error('parentheses or "not" nested too deeply')
        try:
            if self._accept("not"):
                condition = self._condition()
                return lambda metadata: not condition(metadata)
            if self._accept("("):
                inner = self._disjunction()
                if not self._accept(")"):
                    raise self._error('expected ")"')
                return inner
            return self._comparison()
        finally:
            self._depth -= 1

    def _comparison(self) -> Predicate:
        token = self._token
        if token.kind != "word" or token.lower in _WORDS:
            raise self._error("expected the name of a metadata field, such as year")
        name = token.text
        self._next += 1
        if self._accept("is"):
            negated = self._accept("not") is not None
            if not self._accept("null", "none"):
                raise self._error('expected "null"')
            return lambda metadata: (metadata.get(name) is None) != negated
        if self._accept("not"):
            if not self._accept("in"):
                raise self._error('expected "in"')
            values = self._values()
            return lambda m: not any(_equal(m.get(name), value) for value in values)
        if self._accept("in"):
            values = self._values()
            return lambda m: any(_equal(m.get(name), value) for value in values)
        sign = self._accept("=", "==", "!=", "<>", *_ORDERS)
        if sign is None:
            raise self._error('expected =, !=, <, <=, >, >=, "in" or "is null"')
        value = self._value()
        if sign in ("=", "=="):
            return lambda m: _equal(m.get(name), value)
        if sign in ("!=", "<>"):
            return lambda m: not _equal(m.get(name), value)
        before = _ORDERS[sign]
        return lambda m: _comparable(m.get(name), value) and before(m[name], value)

    def _values(self) -> list[Value]:
        if not self._accept("("):
            raise self._error('expected "(" and values')
        values = [self._value()]
        while self._accept(","):
            values.append(self._value())
        if not self._accept(")"):
            raise self._error('expected "," or ")"')
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
            raise self._error(f'expected a value. Put text in quotes: "{token.text}"')
        else:
            raise self._error("expected a number, text in quotes, true, false or null")
        self._next += 1
        return value

    def _error(self, reason: str) -> InvalidOption:
        return _syntax_error(self._text, self._token.position, reason)


def _equal(left: Any, right: Value) -> bool:
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def _comparable(left: Any, right: Value) -> bool:
    """Return whether two values have an order: two texts or two numbers."""
    return any(
        isinstance(left, kind) and isinstance(right, kind) for kind in (str, int | float)
    ) and not (isinstance(left, bool) or isinstance(right, bool))


def _syntax_error(text: str, position: int, reason: str) -> InvalidOption:
    line = text.replace("\n", " ").replace("\t", " ")
    return InvalidOption(f"Invalid filter: {reason}.\n  {line}\n  {' ' * position}^")
