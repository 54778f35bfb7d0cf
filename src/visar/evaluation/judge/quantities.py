"""Numbers in texts: value, how exactly it is stated, unit, and when two are the same."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal

# A number that was rounded more than this from the reference is another number.
MOST_DIFFERENCE = Decimal("0.01")
# Decimal counts exactly up to 28; longer numbers are codes and compared as texts.
MOST_DIGITS = 20

_SCALES = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12} | {
    "k": 3, "mn": 6, "bn": 9, "tn": 12
}  # fmt: skip
_CURRENCIES = {
    "USD": ("$", "us$", "usd", "dollar", "dollars", "us dollars", "u.s. dollars"),
    "EUR": ("€", "eur", "euro", "euros"),
    "GBP": ("£", "gbp", "pound sterling", "pounds sterling"),
    "JPY": ("¥", "jpy", "yen"),
    "INR": ("₹", "inr", "rupee", "rupees"),
}
_MEASURES: dict[str, dict[str, tuple[str, ...]]] = {
    "length": {
        "0.001": ("mm", "millimetre", "millimeter"),
        "0.01": ("cm", "centimetre", "centimeter"),
        "1": ("m", "metre", "meter"),
        "1000": ("km", "kilometre", "kilometer"),
        "0.0254": ("inch", "inches"),
        "0.3048": ("ft", "foot", "feet"),
        "1609.344": ("mi", "mile"),
    },
    "mass": {
        "0.001": ("mg", "milligram"),
        "1": ("g", "gram"),
        "1000": ("kg", "kilogram"),
        "1000000": ("tonne",),
        "453.59237": ("lb", "lbs", "pound"),
        "28.349523125": ("oz", "ounce"),
    },
    "time": {
        "0.001": ("ms", "millisecond"),
        "1": ("s", "sec", "second"),
        "60": ("min", "mins", "minute"),
        "3600": ("h", "hr", "hrs", "hour"),
        "86400": ("day",),
        "604800": ("week",),
    },
    # Months have no fixed length in days.
    "months": {"1": ("month",), "12": ("year", "yr", "yrs")},
    "volume": {"0.001": ("ml", "millilitre", "milliliter"), "1": ("l", "litre", "liter")},
    "celsius": {"1": ("°c", "degrees celsius", "degree celsius")},
    "fahrenheit": {"1": ("°f", "degrees fahrenheit", "degree fahrenheit")},
}
PERCENT = "percent"


def _units() -> dict[str, tuple[str, Decimal]]:
    units = dict.fromkeys(
        ("%", "percent", "per cent", "pct", "percentage points", "percentage point"),
        (PERCENT, Decimal(1)),
    )
    for code, names in _CURRENCIES.items():
        units |= dict.fromkeys(names, (code, Decimal(1)))
    for dimension, measures in _MEASURES.items():
        for factor, names in measures.items():
            units |= dict.fromkeys(names, (dimension, Decimal(factor)))
            plurals = (f"{name}s" for name in names if len(name) > 2 and name.isalpha())
            units |= dict.fromkeys(plurals, (dimension, Decimal(factor)))
    return units


_UNITS = _units()
UNIT_WORDS = frozenset(word for unit in _UNITS for word in unit.split()) | set(_SCALES)


def _any(names: Iterable[str]) -> str:
    return "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))


_BOUNDS = {
    ">": ("more than", "over", "above", "greater than", "exceeding"),
    "<": ("less than", "under", "below", "fewer than", "almost", "nearly"),
    "≥": ("at least", "no less than", "a minimum of"),
    "≤": ("at most", "up to", "no more than", "a maximum of"),
}
_BOUND_OF = {name: sign for sign, names in _BOUNDS.items() for name in names}
_SIGNS = ("us$", "$", "€", "£", "¥", "₹", "usd", "eur", "gbp", "jpy", "inr")
_NUMBER = re.compile(
    rf"""
    (?:\b(?P<bound>{_any(_BOUND_OF)})\s+)?
    (?:(?<![\w)])(?P<minus>-\s?|minus\s))?
    (?:(?<!\w)(?P<before>{_any(_SIGNS)})\s?)?
    (?P<after>-)?
    (?<![\w.,:/])(?<!\w-)
    (?P<digits>\d{{1,3}}(?:,\d{{3}})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)
    (?![.,:/]?\d|-\d|\s?-\s?\d|[^\W\d_]*\d)
    (?:[\s-]?(?P<scale>thousand|million|billion|trillion|mn|bn|tn)s?\b|(?P<letter>(?-i:[kKMB]))\b)?
    (?:[\s-]?(?P<unit>{_any(_UNITS)})(?!\w))?
    (?!(?:st|nd|rd|th)\b|[^\W\d_])
    (?:\s+or\s+(?P<open>more|above|less|fewer|below)\b)?
    """,
    re.VERBOSE | re.IGNORECASE,
)
_WORD = re.compile(r"[^\W\d_][\w'-]*")
_YEARS_PLACE = re.compile(
    r"\b(?:in|of|by|since|for|from|until|during|fy|fiscal|year|and|to|between|\w+ber|"
    r"january|february|march|april|may|june|july|august)\s*,?\s*$|\($",
    re.IGNORECASE,
)
_CITATION = re.compile(
    r"\b(pages?|pp?\.|table|figure|fig\.|section|slide|chapter|appendix|exhibit)\s*$",
    re.IGNORECASE,
)
_COMPARED = re.compile(
    r"\b(?:up|down|compared (?:to|with)|versus|vs\.?|against|increase|decrease|rise|fall)"
    r"(?: from)?\s*$",
    re.IGNORECASE,
)
_ASKED_SCALE = re.compile(r"\bin (?:us )?\$?\s?(thousand|million|billion)s?\b", re.IGNORECASE)
_ASKED_UNIT = re.compile(
    rf"\b(?:how many|in|number of)\s+({_any(u for u in _UNITS if len(u) > 3)})\b", re.IGNORECASE
)
ASKS_FOR_SHARE = re.compile(
    r"%|percent|per cent|\bshare\b|\bproportion\b|\brate\b|\bratio\b|\bfraction\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number as it is stated."""

    number: Decimal
    """As written, before its scale word and unit."""
    step: Decimal
    """One in its last digit, as written."""
    scale: Decimal
    dimension: str
    """Of its unit: a currency's code, "percent", "length" …; empty without a unit."""
    factor: Decimal
    """From its unit to the dimension's base unit."""
    bound: str
    """">" for "more than", and so on; empty for the number itself."""
    start: int
    end: int


def quantities(text: str) -> list[Quantity]:
    """The numbers of a tidied text; no parts of dates, times, ranges, codes or ordinals.

    >>> [str(q.number * q.scale) for q in quantities("$1.5 million in 2019 for K-27 and QX50")]
    ['1500000.0', '2019']
    """
    matches = _NUMBER.finditer(text)
    return [_quantity(match) for match in matches if len(match["digits"]) <= MOST_DIGITS]


def _quantity(match: re.Match[str]) -> Quantity:
    written = match["digits"].replace(",", "")
    number = Decimal(written)
    step = Decimal(1).scaleb(-len(written.partition(".")[2]))
    scale = (match["scale"] or match["letter"] or "").lower()
    unit = (match["unit"] or "").lower()
    if match["before"] and unit == "m":  # "$5m"
        scale, unit = "million", ""
    power = 9 if scale == "b" else 6 if scale == "m" else _SCALES.get(scale, 0)
    dimension, factor = _UNITS.get(unit or (match["before"] or "").lower(), ("", Decimal(1)))
    bound = _BOUND_OF.get((match["bound"] or "").lower(), "")
    if match["open"]:
        bound = "≥" if match["open"].lower() in ("more", "above") else "≤"
    negative = match["minus"] or match["after"]
    return Quantity(
        number=-number if negative else number,
        step=step,
        scale=Decimal(10) ** power,
        dimension=dimension,
        factor=factor,
        bound=bound,
        start=match.start(),
        end=match.end(),
    )


def whole_quantity(text: str) -> tuple[Quantity, str] | None:
    """A tidied text that is a number, and up to three words of what it counts."""
    text = text.strip(" .;\"'")
    if re.fullmatch(r"\([^()]+\)", text) and (inner := whole_quantity(text[1:-1])):
        # Accountants put what is below zero in parentheses.
        return (
            (replace(inner[0], number=-inner[0].number), "")
            if not inner[1] and inner[0].number > 0
            else None
        )
    found = quantities(text)
    if len(found) != 1 or found[0].start != 0:
        return None
    noun = text[found[0].end :].strip()
    if len(noun.split()) > 3 or not all(_WORD.fullmatch(word) for word in noun.split()):
        return None
    return found[0], noun


def is_year(quantity: Quantity) -> bool:
    """Whether a number can be a year: four plain digits from 1000 to 2999."""
    plain = quantity.scale == 1 and not quantity.dimension and quantity.step == 1
    return plain and 1000 <= quantity.number < 3000


def is_aside(quantity: Quantity, text: str, question: str, *, asked_for_year: bool) -> bool:
    """Whether a number only says when, on which page, or what another one was before."""
    before = text[max(0, quantity.start - 30) : quantity.start]
    if _COMPARED.search(before):
        return True
    if cited := _CITATION.search(before):
        # "Page 12" is an answer to "On which page …?".
        return cited[1].lower().rstrip("s.") not in question.lower()
    recent = is_year(quantity) and 1900 <= quantity.number <= 2100
    return recent and not asked_for_year and bool(_YEARS_PLACE.search(before))


def same_quantity(reference: Quantity, stated: Quantity, question: str) -> bool:
    """Whether two numbers are the same, as far as they are stated.

    They may differ by half a step of the one that is stated less exactly, and by 1 % at most.
    Plain whole numbers have a step of one: two counts must be equal, and a year is nothing else.
    """
    if reference.bound != stated.bound:
        return False
    if is_year(reference) and stated.step < 1 and stated.scale == 1:
        return reference.number == stated.number
    if reference.dimension == stated.dimension:
        same_scale = _in_asked_scale(reference, stated, question)
        return same_scale or _equal(reference, stated, with_units=True)
    if reference.dimension and stated.dimension:
        return False
    if PERCENT in (reference.dimension, stated.dimension):
        return _same_share(reference, stated, question)
    return _same_without_unit(reference, stated, question)


def _same_without_unit(reference: Quantity, stated: Quantity, question: str) -> bool:
    """One of the two has no unit: the question's is meant, or that of the other."""
    asked = _ASKED_UNIT.search(question)
    bare, full = (stated, reference) if reference.dimension else (reference, stated)
    if asked and (unit := _UNITS[asked[1].lower()])[0] == full.dimension:
        return _equal(replace(bare, factor=unit[1]), full, with_units=True)
    return _in_asked_scale(reference, stated, question) or _equal(
        reference, stated, with_units=False
    )


def _same_share(reference: Quantity, stated: Quantity, question: str) -> bool:
    """One is in percent, the other without a unit: 62 or 0.62, where a share is asked for."""
    bare, percent = (stated, reference) if reference.dimension else (reference, stated)
    if not reference.dimension and not ASKS_FOR_SHARE.search(question):
        return abs(bare.number) < 1 and _equal(_hundredfold(bare), percent, with_units=False)
    return _equal(reference, stated, with_units=False) or (
        abs(bare.number) <= 1
        and bare.step < 1
        and _equal(_hundredfold(bare), percent, with_units=False)
    )


def _hundredfold(share: Quantity) -> Quantity:
    return replace(share, number=share.number * 100, step=share.step * 100)


def _in_asked_scale(reference: Quantity, stated: Quantity, question: str) -> bool:
    """Whether they are equal as written, one of them leaving out the scale asked for."""
    asked = _ASKED_SCALE.search(question)
    if not asked or {reference.scale, stated.scale} != {
        Decimal(1),
        Decimal(10) ** _SCALES[asked[1].lower()],
    }:
        return False
    return _close(reference.number, stated.number, max(reference.step, stated.step))


def _equal(one: Quantity, other: Quantity, *, with_units: bool) -> bool:
    def of(quantity: Quantity, value: Decimal) -> Decimal:
        return value * quantity.scale * (quantity.factor if with_units else 1)

    coarser = max(of(one, one.step), of(other, other.step))
    return _close(of(one, one.number), of(other, other.number), coarser)


def _close(reference: Decimal, stated: Decimal, step: Decimal) -> bool:
    difference = abs(reference - stated)
    return difference == 0 or (
        difference <= step / 2 and difference <= MOST_DIFFERENCE * abs(reference)
    )
