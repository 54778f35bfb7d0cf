"""Filters of metadata: what they mean, and where they are wrong."""

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

# A filter with what it means, as the grammar builds them.
Case = tuple[str, Any]


def _written(value: object) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return json.dumps(value)


def _same(left: object, right: object) -> bool:
    return isinstance(left, bool) == isinstance(right, bool) and left == right


def _compare(name: str, sign: str, value: Any) -> Case:
    def meant(data: dict[str, Any]) -> bool:
        found: Any = data.get(name)
        if sign in ("=", "!="):
            return _same(found, value) == (sign == "=")
        texts = isinstance(found, str) and isinstance(value, str)
        numbers = type(found) in (int, float) and type(value) in (int, float)
        if not (texts or numbers):
            return False
        order: Any = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}[
            sign
        ]
        return bool(order(found, value))

    return f"{name} {sign} {_written(value)}", meant


simple = st.one_of(
    st.builds(
        _compare,
        st.sampled_from(NAMES),
        st.sampled_from(["=", "!=", "<", "<=", ">", ">="]),
        values,
    ),
    st.builds(
        lambda name, options: (
            f"{name} in ({', '.join(map(_written, options))})",
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
def test_a_filter_means_what_it_says(case: Case, data: dict[str, Any]) -> None:
    text, meant = case
    assert parse_filter(text)(data) == meant(data)


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ('year >= 2020 and kind = "report"', True),
        ("year>2021 or kind='report'", True),
        # and binds closer than or, not closer than both.
        ("final = true or year = 1 and year = 2", True),
        ("not year = 1 and year = 2", False),
        ("year in (2020, 2021)", True),
        ("year not in (2020, 2021)", False),
        ("editor is null and missing is null and kind is not null", True),
        # What is not there is neither larger nor smaller, but it is not the same.
        ("missing < 5 or missing >= 5", False),
        ("missing != 5", True),
        # A number is no text and no truth value.
        ('year = "2021" or year >= "2" or final = 1', False),
        ("price = 2.50 and year < 2021.5", True),
    ],
)
def test_a_report_of_2021(text: str, matches: bool) -> None:
    assert parse_filter(text)(REPORT) is matches


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("year >= ", 8, "expected a number"),
        ("year >= 2020 kind = 1", 13, "expected and, or, or the end"),
        ("kind = report", 7, 'a text stands in quotes, "report"'),
        ("year ~ 3", 5, "not understood"),
        ('kind = "report', 7, "closing quote"),
        ("(year = 1", 9, "expected )"),
        ("and = 1", 0, "expected the name"),
        ("", 0, "expected the name"),
        ("year in 3", 8, "expected ("),
        ("not " * 60 + "a = 1", 200, "too many"),
    ],
)
def test_an_error_points_at_its_place(text: str, place: int, reason: str) -> None:
    with pytest.raises(InvalidOption) as raised:
        parse_filter(text)
    first, shown, mark = str(raised.value).split("\n")
    assert reason in first
    assert shown == f"  {text}"
    assert mark.index("^") - 2 == place


@given(st.text(max_size=30))
@example("__import__('os')")
@example("year = 1\n")
def test_any_text_is_a_filter_or_refused(text: str) -> None:
    try:
        matches = parse_filter(text)
    except InvalidOption:
        return
    assert matches({}) in (True, False)


@given(values.filter(lambda value: not isinstance(value, str)))
def test_values_of_the_command_line(value: object) -> None:
    assert parse_value(json.dumps(value)) == value


def test_what_is_no_value_is_text() -> None:
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
def test_a_setting_has_a_name_that_filters_can_use(setting: str) -> None:
    with pytest.raises(InvalidOption, match="NAME=VALUE"):
        parse_metadata([setting])
