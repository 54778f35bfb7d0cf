"""What a question wants to know: a number, a date, a name; and where a text has one.

Question words of a few languages are known. A question in another language wants nothing special,
and its quotes are chosen by its words and vectors alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

Answer: TypeAlias = Literal[
    "number", "percentage", "money", "duration", "measure", "date", "name", "place", "contact",
    "thing", "list", "definition", "comparison", "yes or no", "text",
]  # fmt: skip

_SPELLED = (
    "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen"
    "|seventeen|eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred"
    "|thousand|million|billion|dozens?|half|third|quarter|both|zero|none|single|twice|double"
)
_FIGURE = r"\d+(?:[.,’']\d+)*"
_SCALE = r"(?:\s?(?:thousand|million|billion|trillion|mn|bn|m|k|M|K|B|Mio\.?|Mrd\.?)\b)?"
_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?"
    r"|Sept?(?:ember)?"
    r"|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?|Januar|Februar|März|Mai|Juni|Juli|Oktober|Dezember"
    r"|janvier|février|mars|avril|juin|juillet|août|septembre|octobre|novembre|décembre"
    r"|enero|febrero|marzo|abril|mayo|junio|julio|agosto|septiembre|octubre|noviembre|diciembre)\.?"
)
_DAY = r"\d{1,2}(?:st|nd|rd|th|\.)?(?:\s?[-–]\s?\d{1,2})?"
_TIME = (
    r"(?:years?|months?|weeks?|days?|hours?|minutes?|mins?|seconds?|secs?|decades?|centur(?:y|ies)"
)
_TIME += r"|Jahre?n?|Monate?n?|Wochen?|Tagen?|Stunden?|Minuten?|ans?|mois|semaines?|jours?"
_TIME += r"|heures?|años?)"
_UNIT = (
    r"(?:kg|kilograms?|g|grams?|tonnes?|tons?|lbs?|pounds?|mm|cm|m|km|metres?|meters?|miles?|feet"
    r"|ft"
    r"|inch(?:es)?|°\s?[CF]|degrees?|W|kW|MW|V|volts?|Hz|GHz|MHz|GB|MB|TB|ml|litres?|liters?|l"
    r"|bar|psi"
    r"|acres?|hectares?|square\s\w+|km/h|mph|nautical\s\w+|pages?|points?|percentage\spoints?"
    r"|ppt)\b"
)
_NAME = r"(?:[A-ZÀ-ÖØ-Þ][\w’'.-]*|[A-Z]\.)"

# As text: compiling them all takes a noticeable part of a start, and a question needs few.
_SPANS = {
    "percentage": (
        "(?i)"
        rf"[±~≈<>+−-]?\b{_FIGURE}\s?(?:%|per\s?cent\b|percent\b|Prozent\b|pour cent\b"
        rf"|percentage points?)"
        rf"|\b(?:{_SPELLED})[\s-](?:in|out of)[\s-](?:{_SPELLED})\b"
        r"|\b(?:two|three)[\s-](?:thirds|quarters|fifths)\b|\b(?:half|a (?:third|quarter|fifth))\b"
    ),
    "money": (
        rf"(?:[£$€¥]|\b(?:USD|EUR|GBP|INR|CHF|Rs\.?)\s?)\s?{_FIGURE}{_SCALE}"
        rf"|\b{_FIGURE}{_SCALE}\s?(?:[£$€¥]|(?:dollars?|euros?|pounds?|cents?|USD|EUR|GBP|crore)\b)"
    ),
    "duration": (
        "(?i)"
        rf"\b(?:{_FIGURE}|{_SPELLED})(?:\s?(?:[-–]|to|or)\s?(?:{_FIGURE}"
        rf"|{_SPELLED}))?[\s-]{_TIME}\b"
    ),
    "measure": rf"[+−-]?{_FIGURE}(?:\s?(?:[-–]|to|x|×)\s?[+−-]?{_FIGURE})?\s?{_UNIT}",
    "date": (
        rf"\b{_DAY}\s(?:de\s)?{_MONTH}(?:\s(?:de\s)?\d{{4}})?\b"
        rf"|\b{_MONTH}\s{_DAY}(?:,?\s\d{{4}})?(?!\d)|\b{_MONTH}\s\d{{4}}\b"
        r"|\b\d{1,4}[./-]\d{1,2}[./-]\d{2,4}\b|\b(?:1[5-9]|20)\d\d(?:\s?[-–/]\s?\d{2,4})?\b"
        rf"|\b{_MONTH}(?:\s(?:and|or)\s{_MONTH})?(?=\W|$)"
    ),
    "number": (
        "(?i)"
        rf"[(£$€¥±+−-]*\b{_FIGURE}{_SCALE}(?:\s?%|\b)(?:\s(?:million|billion|thousand)\b)?\)?"
        rf"|\b(?:{_SPELLED})\b(?:[\s-](?:{_SPELLED})\b)*"
    ),
    "name": rf"\b{_NAME}(?:\s(?:(?:of|de|van|von|der|and|&|the)\s)?{_NAME})*",
    "contact": (
        r"\+?\d[\d\s().–-]{5,}\d|[\w.+-]+@[\w-]+\.[\w.]+|(?:https?://|www\.)\S+|\b\w+\.(?:com|org"
        r"|net|edu)\b"
    ),
}
_SPANS["place"] = _SPANS["name"]
# What a model, a tool or a code is called: in capitals, or with a digit in it.
_SPANS["thing"] = rf"\b[\w-]*(?:\d[A-Za-z]|[A-Za-z]\d|[a-z][A-Z])[\w-]*|{_SPANS['name']}"
_YEARS = re.compile(r"\b(?:19|20)\d\d\b")
_PLACED = re.compile(r"\b(?:in|at|near|from|to|of|im|bei|à|en|a)\s(?:the\s)?$", re.IGNORECASE)
_YEAR = re.compile(r"^(?:1[6-9]|20)\d\d$")
# Capitalised because they begin a sentence, not because they name something.
_NO_NAMES_TEXT = """
    the a an this that these those it its in on at for from by of and or but if as we our he she
    they their there when where while who what which how why since after before during between
    although however according among about over under total note table figure source see page
    chapter section i you your is are was were has have had not no yes all each both some many most
    more other one january february march april may june july august september october november
    december der die das le la les el los las und et y
"""
_NO_NAMES = frozenset(_NO_NAMES_TEXT.split())

# The first pattern that a question matches tells what it wants.
_QUESTIONS: tuple[tuple[Answer, str], ...] = (
    ("comparison", r"\b(?:how (?:did|has|have|do|does)\b.*\b(?:chang|develop|evolv|compar|differ"
                   r"|grow)"
                   r"|change[ds]? (?:from|between|since)|compared? (?:to|with)|difference between"
                   r"|versus|vs\.?)\b|\b(?:19|20)\d\d\b.*\b(?:and|to|with)\b.*\b(?:19|20)\d\d\b"),
    ("percentage", r"\b(?:what|which|how (?:big|large|high|much))\b.*\b(?:percent(?:age)?s?"
                   r"|(?<!per )share|proportion"
                   r"|fraction|portion)\b|\bpercent(?:age)?\b|\bwie viel prozent\b"
                   r"|\bquel pourcentage\b"),
    ("contact", r"\b(?:phone|telephone|fax|e-?mail|website|web ?site|url|hotline|call)\b"),
    ("duration", r"\bhow (?:long|old|often|soon)\b|\bwhat (?:is the )?(?:duration|term|period)\b"
                 r"|\bwie (?:lange|alt)\b|\bcombien de temps\b|\bcuánto tiempo\b"),
    ("measure", r"\bhow (?:heavy|high|tall|wide|deep|far|fast|large|big|thick|hot|cold|warm"
                r"|strong)\b"
                r"|\b(?:weight|height|width|temperatures?|humidity|mass|distance|speed|voltage"
                r"|power) (?:of|is|can"
                r"|does|may|must)\b|\bwie (?:schwer|hoch|groß|weit|schnell)\b"),
    ("money", r"\bhow much\b.*\b(?:cost|pay|paid|spen[dt]|earn|invest|price|worth|revenue|profit"
              r"|debt|fund"
              r"|donat|raise|fee|sales|charge)|\bwhat\b.*\b(?:price|cost|fee|salary|revenue"
              r"|profit|income"
              r"|earnings|debt|budget|liabilities|assets|expenditure|expenses|stipend|turnover"
              r"|sales)\b"),
    ("number", r"\bhow (?:many|much)\b|\bwhat(?: was| is| were| are|'s)?(?: the)?\b.*\b(?:number"
               r"|amount|total"
               r"|rate|ratio|score|accuracy|average|margin|maximum|minimum|size|value|count|f1"
               r"|level|limit"
               r"|population|capacity|quantity|temperature|sum)\b|\bby how\b|\bwie ?viele?\b"
               r"|\bcombien\b"
               r"|\bcu[aá]nt[oa]s?\b|\bquant[oiae]\b|\bhoeveel\b|多少|几"),
    ("date", r"\bwhen\b|\b(?:what|which|in which|in what)\b.*\b(?:year|date|day|month|time"
             r"|deadline)s?\b"
             r"|\buntil\b|\bhow (?:recent|late|early)\b|\bwann\b|\bquand\b|\bcu[aá]ndo\b|\bquando\b"
             r"|\bwanneer\b"),
    ("name", r"\bwho(?:se|m)?\b|\bwhat(?: is| was|'s)? the (?:full )?name\b|\bwhat .*\b(?:called"
             r"|named|title)\b"
             r"|\bwer\b|\bwem\b|\bwen\b|^qui\b|\bqui[eé]n(?:es)?\b|^chi\b|\bwie hei(?:ß|ss)"),
    ("place", r"\bwhere\b|\b(?:what|which|in which|in what) (?:\w+ )?(?:country|countries|city"
              r"|cities|state"
              r"|place|location|region|town|county|university|institution)\b|\bwo\b|\bwoher\b|^où\b"
              r"|\bd[oó]nde\b|\bdove\b|\bwaar\b"),
    ("list", r"^(?:list|name|enumerate)\b|\b(?:what|which) (?:are|were)\b|\b(?:what"
             r"|which)\b.*\b(?:kinds|types"
             r"|steps|reasons|factors|examples|areas|goals|aims|requirements|tools|formats"
             r"|weaknesses"
             r"|strengths|topics|components|features|methods|parts)\b|\bwelche\b|\bquels?\b"
             r"|\bcu[aá]les\b"),
    ("definition", r"\bwhat (?:is|are|does|do|'s) (?:an? |the )?[\w -]+(?:mean|stand for"
                   r"|refer to)?\??$"
                   r"|\bdefin(?:e|ition)\b|\bmeaning of\b|\bwas (?:ist|bedeutet|sind)\b"
                   r"|\bqu'est-ce que?\b"),
    ("thing", r"\b(?:which|what) \w+|\bwhat(?:'s| is| was) (?:the|its|their)\b"),
    ("yes or no", r"^(?:is|are|was|were|do|does|did|has|have|had|can|could|may|must|should|will"
                  r"|would)\b"),
)  # fmt: skip

# If a text has no span of the first kind, one of these may still be the answer.
_OTHERWISE: dict[str, tuple[str, ...]] = {
    "number": ("percentage", "money", "duration", "measure"),
    "percentage": ("number",),
    "money": ("number",),
    "duration": ("date", "number"),
    "measure": ("number", "percentage"),
    "comparison": ("percentage", "money", "number"),
}
# Signs that stand alone in a table's title or heads say what all of its numbers are.
_UNITS = {
    "percentage": re.compile(r"(?<!\w)%(?!\w)"),
    "money": re.compile(r"[£$€¥](?!\s?\d)"),
}
# Forms that tell the answer from the rest of a text.
MARKED = frozenset(
    {"number", "percentage", "money", "duration", "measure", "date", "name", "place", "contact"}
)
NUMERIC = frozenset({"number", "percentage", "money", "duration", "measure", "comparison"})


_SENTENCE = re.compile(r"(?<=[.?!])\s+(?=[A-Z\[\"'])")
# How to answer, not what is asked.
_INSTRUCTION = re.compile(
    r"^(?:please\b|(?:directly |just |only )?(?:answer|reply|respond)\b|(?:write|return|give|format"
    r"|express|round|represent|present)\b.*\b(?:answer|integer|number|list|float|format|value)"
    r"|(?:your|the) (?:answer|output)\b|note that\b|for example\b|e\.g\.|i\.e\.)",
    re.IGNORECASE,
)
_ON_PAGE = re.compile(
    r"\s*\b(?:(?:on|of|in|at|from) )?(?:the )?(?:page|slide) (?:no\.? |number )?"
    rf"(\d{{1,4}}|{_SPELLED})\b",
    re.IGNORECASE,
)
_EXTREME = re.compile(
    r"\b(?:most|least|highest|lowest|largest|biggest|smallest|greatest|fewest|best|worst|longest"
    r"|shortest|oldest|youngest|slowest|fastest|top|(?:more|less|fewer"
    r"|higher|lower|larger) than)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class AnswerSpan:
    """A part of a text that can be an answer by its form."""

    start: int
    end: int
    fit: float
    """1 if it has exactly the form asked for, less if it has a form that can stand for it."""


def wanted(question: str) -> Answer:
    """Tell what a question wants to know.

    >>> wanted("How many ships were piloted?"), wanted("When does it end?"), wanted("Why?")
    ('number', 'date', 'text')
    """
    asked = question.strip().lower()
    for answer, pattern in _QUESTIONS:
        if re.search(pattern, asked):
            return answer
    return "text"


def without_instructions(question: str) -> tuple[str, str | None]:
    """Return what is asked without how to answer it, and the page it names, if it names one.

    >>> without_instructions("What is the fax number on page four? Answer with digits.")
    ('What is the fax number?', '4')
    """
    asked = _SENTENCE.split(question.strip())
    kept = [sentence for sentence in asked if not _INSTRUCTION.match(sentence)]
    text = " ".join(kept) or question
    pages = {match.group(1).lower() for match in _ON_PAGE.finditer(text)}
    if len(pages) != 1:
        return text, None
    rest = _ON_PAGE.sub("", text)
    page = pages.pop()
    spelled = _SPELLED.split("|")
    number = page if page.isdigit() else str(spelled.index(page) + 1)
    return (rest if any(c.isalnum() for c in rest) else text), number


def asks_for_extreme(question: str) -> bool:
    """Whether a question asks which of several is the largest, first or the like.

    >>> asks_for_extreme("Which city has the most bridges?"), asks_for_extreme("Who sings?")
    (True, False)
    """
    return bool(_EXTREME.search(question))


def answer_spans(answer: Answer, text: str, question: str) -> Iterator[AnswerSpan]:
    """Find the parts of a text that have the form of an answer and are not in the question.

    >>> text = "In 2024 we piloted 31,240 ships."
    >>> [text[span.start : span.end] for span in answer_spans("number", text, "How many ships?")]
    ['31,240']
    """
    asked = question.casefold()
    taken: list[tuple[int, int]] = []
    if answer in NUMERIC:
        # The day of a date is no number of its own.
        taken += [m.span() for m in _span_pattern("date").finditer(text) if not m.group().isdigit()]
    for kind, pattern in answer_patterns(answer).items():
        for match in pattern.finditer(text):
            found = match.group().strip(" (,.;")
            if not found or any(s < match.end() and match.start() < e for s, e in taken):
                continue
            if found.casefold() in asked or not _is_answer(kind, found):
                continue
            start = match.start() + match.group().index(found)
            taken.append((start, start + len(found)))
            # A number of something else, like days, is hardly the number of ships.
            fits = kind in (answer, "percentage") or found.casefold().split()[-1] in asked
            if answer == "thing":
                # Most names are not of what is asked for.
                fits = False
            elif answer == "place":
                fits = bool(_PLACED.search(text[:start]))
            elif answer == "name":
                # Of persons more than one name is given, and none that is in the question.
                words = found.casefold().split()
                fits = len(words) > 1 and not any(word in asked for word in words if len(word) > 3)
            fit = 1.0 if fits else 0.5
            if kind == "number" and answer in _UNITS and _UNITS[answer].search(text, 0, start):
                fit = max(fit, 0.9)
            yield AnswerSpan(start, start + len(found), fit)


def value_of_year(row: str, heads: str, question: str) -> AnswerSpan | None:
    """Find the number of a table's row that stands under the one year a question names.

    >>> row = "2024 2023 | Revenue 412.6 373.6"
    >>> found = value_of_year(row, "2024 2023", "What was revenue in 2023?")
    >>> row[found.start : found.end]
    '373.6'
    """
    years = _YEARS.findall(heads)
    asked = set(_YEARS.findall(question))
    values = [
        m for m in _span_pattern("number").finditer(row, len(heads)) if m.group()[-1:].strip()
    ]
    if len(asked) != 1 or len(values) < len(years) or years.count(next(iter(asked))) != 1:
        return None
    value = values[len(values) - len(years) + years.index(asked.pop())]
    return AnswerSpan(value.start(), value.end(), 1.0)


@cache
def answer_patterns(answer: Answer) -> dict[str, re.Pattern[str]]:
    """Return the forms an answer can have, best first; the first call compiles them."""
    others = _OTHERWISE.get(answer, ())
    # A number with its unit comes before the number alone.
    kinds = (*others, answer) if answer == "number" else (answer, *others)
    return {kind: _span_pattern(kind) for kind in kinds if kind in _SPANS}


@cache
def _span_pattern(kind: str) -> re.Pattern[str]:
    return re.compile(_SPANS[kind])


def _is_answer(kind: str, found: str) -> bool:
    if kind in ("name", "place", "thing"):
        words = found.casefold().split()
        return any(word.strip(".,’'") not in _NO_NAMES and len(word) > 1 for word in words)
    return not (kind == "number" and _YEAR.match(found))
