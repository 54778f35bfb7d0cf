"""Dates and times of day in texts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_NAMES = "january february march april may june july august september october november december"
_MONTHS = _NAMES.split()
_MONTH = "|".join(f"{name[:3]}(?:{name[3:]})?" for name in _MONTHS if name != "may")
_MONTH = rf"(?P<month>{_MONTH}|may|sept)\.?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?P<year>[12]\d{3})"
_WRITTEN = (
    re.compile(rf"\b{_DAY}(?: of)?[ -]{_MONTH},?[ -]{_YEAR}\b", re.IGNORECASE),
    re.compile(rf"\b{_MONTH} ?{_DAY}(?:, ?| ){_YEAR}\b", re.IGNORECASE),
    re.compile(rf"(?<![\d-]){_YEAR}[-/.](?P<month>\d{{1,2}})[-/.]{_DAY}(?![\d-])"),
)
_MONTH_ONLY = re.compile(rf"\b{_MONTH},?[ -]{_YEAR}\b", re.IGNORECASE)
_EITHER_WAY = re.compile(rf"(?<![\d/.-])(\d{{1,2}})([-/.])(\d{{1,2}})\2{_YEAR}(?![\d/-])")
_CLOCK = re.compile(
    r"(?<![\d:.])(?P<hour>\d{1,2})(?:[:.h](?P<minute>[0-5]\d))?(?::(?P<second>[0-5]\d))?"
    r"\s?(?P<half>[apAP]\.?[mM]\b\.?)?(?:\s?(?P<zone>[A-Z]{2,4}T|UTC|GMT)\b)?(?![\d:])"
)


@dataclass(frozen=True, slots=True)
class Moment:
    """A day, a month, or a time of day; a date written 3/4/2020 has two readings."""

    readings: frozenset[tuple[int, ...]]
    zone: str
    start: int
    end: int

    def same(self, other: Moment) -> bool:
        """Whether one reading is shared, and no two different zones are named."""
        zones = {self.zone, other.zone} - {""}
        return bool(self.readings & other.readings) and len(zones) < 2


def dates(text: str) -> list[Moment]:
    """The dates of a tidied text, to the day or, where no day is said, to the month.

    >>> [sorted(date.readings) for date in dates("4 Jun. 2019 and 06/04/2019, then May 2020")]
    [[(2019, 6, 4)], [(2019, 4, 6), (2019, 6, 4)], [(2020, 5)]]
    """
    found: list[Moment] = []
    for moment in _all_dates(text):
        if not any(moment.start < taken.end and taken.start < moment.end for taken in found):
            found.append(moment)
    return found


def _all_dates(text: str) -> Iterator[Moment]:
    """The longer forms first: a month alone may be part of a whole date."""
    for pattern in _WRITTEN:
        for match in pattern.finditer(text):
            month, day = _month(match["month"]), int(match["day"])
            yield from _moment(match, (int(match["year"]), month, day))
    for match in _EITHER_WAY.finditer(text):
        one, other, year = int(match[1]), int(match[3]), int(match["year"])
        yield from _moment(match, (year, one, other), (year, other, one))
    for match in _MONTH_ONLY.finditer(text):
        yield from _moment(match, (int(match["year"]), _month(match["month"])))


def _moment(match: re.Match[str], *readings: tuple[int, ...]) -> Iterator[Moment]:
    possible = [r for r in readings if 1 <= r[1] <= 12 and (len(r) < 3 or 1 <= r[2] <= 31)]
    if possible:
        yield Moment(frozenset(possible), "", match.start(), match.end())


def _month(name: str) -> int:
    if name.isdecimal():
        return int(name)
    return next(i for i, month in enumerate(_MONTHS, start=1) if month[:3] == name[:3].lower())


def with_plain_dates(text: str) -> str:
    """A tidied text with its unambiguous dates in one form.

    >>> with_plain_dates("4 Jun. 2019 and May 2020")
    '2019 6 4 and 2020 5'
    """
    for date in sorted(dates(text), key=lambda date: date.start, reverse=True):
        if len(date.readings) == 1:
            (reading,) = date.readings
            text = text[: date.start] + " ".join(map(str, reading)) + text[date.end :]
    return text


def times(text: str) -> list[Moment]:
    """The times of day of a tidied text, on the 24-hour clock.

    >>> [sorted(time.readings) for time in times("from 5 pm to 17:30 CET, 12 ferries")]
    [[(17, 0, 0)], [(17, 30, 0)]]
    """
    found = []
    for match in _CLOCK.finditer(text):
        hour, half = int(match["hour"]), (match["half"] or "")[:1].lower()
        if (match["minute"] is None and not half) or hour > (12 if half else 24):
            continue
        if "." in match[0].rstrip(".") and not half:
            continue  # 3.45 is a number
        hour = hour % 12 + 12 * (half == "p") if half else hour
        reading = (hour, int(match["minute"] or 0), int(match["second"] or 0))
        moment = Moment(frozenset({reading}), match["zone"] or "", match.start(), match.end())
        found.append(moment)
    return found


def whole_moment(text: str, found: list[Moment]) -> Moment | None:
    """The one date or time that a text consists of."""
    text = text.rstrip(" .")
    if len(found) == 1 and found[0].start == 0 and found[0].end >= len(text):
        return found[0]
    return None
