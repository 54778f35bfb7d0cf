"""Judges without a model: the benchmarks' scoring by answer type, and quotes.

``BenchmarkJudge`` implements the published scoring rules of MMLongBench-Doc and LongDocURL;
docs/evaluation-reference.md lists the rules and the differences.
"""

from __future__ import annotations

import ast
import json
import re
import unicodedata
from collections.abc import Sequence
from decimal import Decimal
from importlib.util import find_spec
from typing import Literal, TypeAlias, get_args

from visar.errors import MissingExtra
from visar.evaluation.judge.judge import Verdict, usable_references
from visar.generation.parsing import is_not_answerable

AnswerType: TypeAlias = Literal["Int", "Float", "Str", "List", "None"]

# Raised whenever a rule changes: verdicts of another version are not comparable.
RULES_VERSION = 2
QUOTES_VERSION = 2
# Texts that are less similar than this score 0.
LEAST_SIMILARITY = 0.5
TOLERANCE = Decimal("0.01")

# LongDocURL writes two of them in full.
_TYPES: dict[str, AnswerType] = {"integer": "Int", "string": "Str"}
_TYPES.update((name.casefold(), name) for name in get_args(AnswerType))
# Longer texts are not parsed as lists, longer digits not as numbers.
_LONGEST_LIST = 20_000
_LONGEST_NUMBER = 30
_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"
_NUMBER = re.compile(rf"-?{_DIGITS}")
_NUMBER_INSIDE = re.compile(rf"(?<![\w.,/:-])-?\$?{_DIGITS}(?![\w/:-]|[.,]\d)")
_WORD = re.compile(r"\d+(?:\.\d+)?|[^\W\d_]+")
_NUMBER_WORDS = "zero one two three four five six seven eight nine ten eleven twelve"
_SMALL_NUMBERS = {word: str(number) for number, word in enumerate(_NUMBER_WORDS.split())}
_DASHES = str.maketrans("‐‑–—−", "-----")
_PARENTHESES = re.compile(r"\s*\([^()]*\)")
_BULLET = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+")
_SEPARATOR = re.compile(r"[;\n]|,(?!\d)|\band\b")
_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
# References that nearly right answers do not match.
_EXACT = re.compile(
    rf"""
    (?:\w+://|www\.)\S+                             # address of a page
    | \S+@\S+\.\w+                                  # e-mail
    | [^\s.][^\s]*\.[a-z][a-z0-9]{{1,4}}            # file name
    | pages?\s\d.*
    | [+-]?[\d\s().,/:-]+                           # number, telephone number, date, time, range
    | .*\d\s?[ap]\.?m\b\.?.*                        # time of day
    | \d{{1,2}}(?:st|nd|rd|th)?\s{_MONTH}\.?,?(?:\s\d{{4}})?
    | {_MONTH}\.?\s\d{{1,4}}(?:st|nd|rd|th)?(?:,?\s\d{{4}})?
    """,
    re.VERBOSE,
)


class BenchmarkJudge:
    """A judge with the benchmarks' scoring, which works offline without a model.

    In the published scoring, a language model first shortens the answer. Here the original answer
    is scored, so an answer in full sentences scores 0 if the reference is a name. Raises
    MissingExtra if rapidfuzz isn't installed.
    """

    name = f"rules {RULES_VERSION}"

    def __init__(self) -> None:
        if find_spec("rapidfuzz") is None:
            raise MissingExtra("The judge 'rules'", "eval")

    def judge(
        self, question: str, references: Sequence[str], answer: str, *, kind: str | None = None
    ) -> Verdict:
        """Return the best score of any of the references."""
        scores: list[tuple[float, str]] = []
        for reference in usable_references(question, references):
            type_ = answer_type(reference, kind)
            scores.append((score_answer(reference, answer, type_), type_))
        score, reason = max(scores)
        return Verdict(score, self.name, reason)


class QuoteJudge:
    """A judge of extractive answers: correct if the quotes contain all items of a reference.

    This overestimates accuracy, because a short reference such as "3" may be in a quote by
    coincidence.

    >>> judge = QuoteJudge()
    >>> quoted = "We give 7 years on the lantern and five years on its battery."
    >>> judge.judge("How long?", ["['7 years', '5 years']"], quoted).correct
    True
    >>> judge.judge("How long?", ["6 years"], quoted).correct
    False
    """

    name = f"quotes {QUOTES_VERSION}"

    def judge(
        self,
        question: str,
        references: Sequence[str],
        answer: str,
        *,
        kind: str | None = None,  # noqa: ARG002 - every kind is searched for alike
    ) -> Verdict:
        """Search the answer for any of the references."""
        quoted = _words(answer)
        for reference in usable_references(question, references):
            if is_not_answerable(reference):
                found = is_not_answerable(answer)
            else:
                items = map(_words, parse_list(reference) or [reference])
                found = all(item.strip() and item in quoted for item in items)
            if found:
                return Verdict(1.0, self.name, "quoted")
        return Verdict(0.0, self.name, "not quoted")


def answer_type(reference: str, kind: str | None = None) -> AnswerType:
    """Return the type that a reference is scored by.

    "Not answerable" is always None. Otherwise ``kind`` determines the type if it is one of the
    benchmarks' types. If not, the form of the reference does: a list in brackets, an integer,
    another number or percentage, or text.

    >>> [answer_type(text) for text in ("14", "62%", "['A', 'B']", "14 ferries")]
    ['Int', 'Float', 'List', 'Str']
    """
    if is_not_answerable(reference):
        return "None"
    known = _TYPES.get((kind or "").casefold())
    if known is not None and known != "None":
        return known
    if parse_list(reference) is not None:
        return "List"
    cleaned = _clean(reference)
    if not _NUMBER.fullmatch(cleaned):
        return "Str"
    return "Float" if "." in cleaned or "%" in reference else "Int"


def score_answer(reference: str, answer: str, type_: AnswerType) -> float:
    """Return the score of an answer from 0 to 1, for a reference of a type.

    >>> score_answer("14", "14 ferries", "Int"), score_answer("0.62", "62%", "Float")
    (1.0, 1.0)
    >>> score_answer("Coastal erosion", "coastal erosio", "Str")
    0.9333333333333333
    >>> score_answer("['Oban', 'Coll']", "Coll and Oban", "List")
    1.0
    """
    if type_ == "None" or is_not_answerable(answer):
        return float(is_not_answerable(reference) and is_not_answerable(answer))
    if type_ == "List":
        return _score_list(reference, answer)
    wanted = _number(reference) if type_ in ("Int", "Float") else None
    if wanted is None:
        return _score_text(_clean(reference), _clean(answer))
    given = _number(answer)
    if given is None:
        return 0.0
    if type_ == "Int":
        return float(wanted == given)
    # A share may be given as a percentage, and the other way round.
    forms = (wanted, wanted / 100, wanted * 100)
    return float(any(abs(form - given) <= TOLERANCE * abs(form) for form in forms))


def parse_list(text: str) -> list[str] | None:
    """Return the items of a JSON or Python list; None if a text isn't a list.

    >>> parse_list("['Oban', 12]"), parse_list("Oban")
    (['Oban', '12'], None)
    """
    text = text.strip()
    if not text.startswith("[") or len(text) > _LONGEST_LIST:
        return None
    for parse in (json.loads, ast.literal_eval):
        try:
            items = parse(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        return [str(item) for item in items] if isinstance(items, list) and items else None
    return None


def _score_list(reference: str, answer: str) -> float:
    """Return the minimum score of the sorted pairs; 0 if the lengths differ."""
    wanted = sorted(map(_clean, parse_list(reference) or [reference]))
    items = parse_list(answer)
    if items is None:
        parts = (_BULLET.sub("", part) for part in _SEPARATOR.split(answer))
        items = [part for part in parts if part.strip()] if len(wanted) > 1 else [answer]
    given = sorted(map(_clean, items))
    return min(map(_score_text, wanted, given)) if len(wanted) == len(given) else 0.0


def _score_text(reference: str, answer: str) -> float:
    """Return the average normalized Levenshtein similarity (ANLS) of two cleaned texts."""
    if reference == answer:
        return 1.0
    if _EXACT.fullmatch(reference):
        return 0.0
    from rapidfuzz.distance import Levenshtein

    similarity = Levenshtein.normalized_similarity(reference, answer)
    return similarity if similarity > LEAST_SIMILARITY else 0.0


def _clean(text: str) -> str:
    """Lowercase a text; remove parentheses, outer quotes, emphasis, final period, $ and %."""
    text = " ".join(text.translate(_DASHES).casefold().split())
    bare = _PARENTHESES.sub("", text).strip(" .'\"*“”‘’`").lstrip("$").rstrip("%").strip()
    return bare or text


def _number(text: str) -> Decimal | None:
    """Return the number that a text is or contains; None if it has none or several."""
    cleaned = _clean(text)
    found = [cleaned] if _NUMBER.fullmatch(cleaned) else _NUMBER_INSIDE.findall(cleaned)
    if len(found) != 1 or len(found[0]) > _LONGEST_NUMBER:
        return None
    return Decimal(found[0].replace(",", "").replace("$", ""))


def _words(text: str) -> str:
    """Return the words and numbers in lowercase with single spaces, and small numbers as digits."""
    text = re.sub(r"(?<=\d),(?=\d{3})", "", unicodedata.normalize("NFKC", text).casefold())
    return f" {' '.join(_SMALL_NUMBERS.get(word, word) for word in _WORD.findall(text))} "
