"""Test filters on metadata, and their errors."""

from __future__ import annotations

import json
import operator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from visar.errors import InvalidOption
from visar.store.filters import parse_filter, parse_metadata, parse_value

NAMES = ("year", "kind", "part-no", "größe", "a.b")
REPORT = {"year": 2021, "kind": "report", "final": True, "price": 2.5, "editor": None}

values = st.one_of(
    st.integers(-(10**6), 10**6),
    st.floats(-100, 100),
    st.booleans(),
    st.none(),
    st.text(max_size=6),
)
metadata = st.dictionaries(st.sampled_from(NAMES), values)

# A filter and its reference predicate.
Case = tuple[str, Any]


def _literal(value: object) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return json.dumps(value)


def _same(left: object, right: object) -> bool:
    return isinstance(left, bool) == isinstance(right, bool) and left == right


def _compare(name: str, sign: str, value: Any) -> Case:
    def matches(data: dict[str, Any]) -> bool:
        actual: Any = data.get(name)
        if sign in ("=", "!="):
            return _same(actual, value) == (sign == "=")
        texts = isinstance(actual, str) and isinstance(value, str)
        numbers = type(actual) in (int, float) and type(value) in (int, float)
        if not (texts or numbers):
            return False
        order: Any = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}[
            sign
        ]
        return bool(order(actual, value))

    return f"{name} {sign} {_literal(value)}", matches


simple = st.one_of(
    st.builds(
        _compare,
        st.sampled_from(NAMES),
        st.sampled_from(["=", "!=", "<", "<=", ">", ">="]),
        values,
    ),
    st.builds(
        lambda name, options: (
            f"{name} in ({', '.join(map(_literal, options))})",
            lambda data: any(_same(data.get(name), option) for option in options),
        ),
        st.sampled_from(NAMES),
        st.lists(values, min_size=1, max_size=3),
    ),
    st.builds(
        lambda name: (f"{name} is null", lambda data: data.get(name) is None),
        st.sampled_from(NAMES),
    ),
)
filters = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.builds(lambda a: (f"not ({a[0]})", lambda data: not a[1](data)), inner),
        st.builds(
            lambda a, b: (f"({a[0]}) AND {b[0]}", lambda data: a[1](data) and b[1](data)),
            inner,
            simple,
        ),
        st.builds(
            lambda a, b: (f"{a[0]} or ({b[0]})", lambda data: a[1](data) or b[1](data)),
            simple,
            inner,
        ),
    ),
    max_leaves=6,
)


@given(filters, metadata)
def test_filter_matches_its_reference(case: Case, data: dict[str, Any]) -> None:
    text, matches = case
    assert parse_filter(text)(data) == matches(data)


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ('year >= 2020 and kind = "report"', True),
        ("year>2021 or kind='report'", True),
        # "not" binds more tightly than "and", which binds more tightly than "or".
        ("final = true or year = 1 and year = 2", True),
        ("not year = 1 and year = 2", False),
        ("year in (2020, 2021)", True),
        ("year not in (2020, 2021)", False),
        ("editor is null and missing is null and kind is not null", True),
        # A missing value is neither larger nor smaller, but it is different.
        ("missing < 5 or missing >= 5", False),
        ("missing != 5", True),
        # Numbers, text and booleans are never equal.
        ('year = "2021" or year >= "2" or final = 1', False),
        ("price = 2.50 and year < 2021.5", True),
    ],
)
def test_filter_on_a_report(text: str, matches: bool) -> None:
    assert parse_filter(text)(REPORT) is matches


@pytest.mark.parametrize(
    ("text", "position", "hint"),
    [
        ("year >= ", 8, "number"),
        ("year >= 2020 kind = 1", 13, "and"),
        ("kind = report", 7, '"report"'),
        ("year ~ 3", 5, "character"),
        ('kind = "report', 7, "quote"),
        ("(year = 1", 9, ")"),
        ("and = 1", 0, "name"),
        ("", 0, "name"),
        ("year in 3", 8, "("),
        ("not " * 60 + "a = 1", 200, "nested"),
    ],
)
def test_error_points_to_its_position(text: str, position: int, hint: str) -> None:
    with pytest.raises(InvalidOption) as raised:
        parse_filter(text)
    message, line, mark = str(raised.value).split("\n")
    assert hint in message
    assert line == f"  {text}"
    assert mark.index("^") - 2 == position


@given(st.text(max_size=30))
@example("__import__('os')")
@example("year = 1\n")
def test_any_text_is_a_filter_or_an_invalid_option(text: str) -> None:
    try:
        matches = parse_filter(text)
    except InvalidOption:
        return
    assert matches({}) in (True, False)


@given(values.filter(lambda value: not isinstance(value, str)))
def test_parse_value(value: object) -> None:
    assert parse_value(json.dumps(value)) == value


def test_other_values_are_text() -> None:
    settings = ["kind=a report", 'code="007"', "code-2=007", "sum=1e999", "list=[1]", "empty="]
    assert parse_metadata(settings) == {
        "kind": "a report",
        "code": "007",
        "code-2": "007",
        "sum": "1e999",
        "list": "[1]",
        "empty": "",
    }


@pytest.mark.parametrize("setting", ["year", "=3", "2year=3", "in=3", "a b=3", '"a"=3'])
def test_metadata_needs_a_name_that_filters_can_use(setting: str) -> None:
    with pytest.raises(InvalidOption, match="NAME=VALUE"):
        parse_metadata([setting])
