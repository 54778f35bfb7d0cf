"""The judge without a model: rules that compare an answer with the references, offline.

Each reference is of one kind, found from its form, and one rule belongs to each kind; docs/judge.md
describes them. Where a rule cannot be sure it says "incorrect": what it calls correct can be
relied on more than what it calls incorrect.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from visar.evaluation.judge.containment import says
from visar.evaluation.judge.listings import enumerated, listed, names_all
from visar.evaluation.judge.moments import Moment, dates, times, whole_moment
from visar.evaluation.judge.protocol import Verdict, usable_references
from visar.evaluation.judge.quantities import (
    Quantity,
    is_aside,
    is_year,
    quantities,
    same_quantity,
    whole_quantity,
)
from visar.evaluation.judge.refusals import means_not_answerable, refuses
from visar.evaluation.judge.wording import (
    stems,
    tidy,
    with_digits,
    without_parentheses,
    words,
)

# Raised whenever a rule changes: verdicts of another version are not these.
VERSION = 1
_YES_NO = {"yes": True, "true": True, "no": False, "false": False}
_CONCLUSION = re.compile(
    r"=|\b(?:so|therefore|thus|hence|which is|which makes|total of|in total|altogether|"
    r"the answer is|equals)\b",
    re.IGNORECASE,
)
_NONE_AT_ALL = re.compile(
    r"^(?:none|zero|no(?= \w))\b|\bthere (?:is|are|was|were) (?:no|none)\b", re.I
)
_NO_KNOWLEDGE = re.compile(
    r"\bno (?:such )?(?:information|mention|data|detail|answer|evidence)", re.I
)
_DENIED = re.compile(r"\b(?:not|never|neither|nor)\b|n't\b", re.IGNORECASE)


class RuleJudge:
    """Judges by rules alone: no model, no network, the same verdict everywhere."""

    name = f"rules {VERSION}"

    def judge(self, question: str, references: Sequence[str], answer: str) -> Verdict:
        """Correct if a rule finds the answer to say what any one of the references says."""
        usable = usable_references(question, references)
        reason = "an empty answer"
        if answer.strip():
            for reference in usable:
                correct, reason = _compare(tidy(question), reference, answer)
                if correct:
                    return Verdict(True, self.name, reason)
        return Verdict(False, self.name, reason)


def _compare(question: str, reference: str, answer: str) -> tuple[bool, str]:
    """Whether an answer says what one reference says, and by which rule."""
    if " ".join(reference.casefold().split()) == " ".join(answer.casefold().split()):
        return True, "identical"
    items = listed(reference)
    if items is not None and len(items) == 1:
        return _compare(question, items[0], _only_item(answer))
    reference, answer = tidy(reference), tidy(_only_item(answer))
    if means_not_answerable(reference):
        return refuses(answer), "not answerable"
    if _is_none(reference, answer):
        return True, "number: none is zero"
    if refuses(answer) and not refuses(reference):
        return False, "the answer says that there is none"
    if items is not None:
        return names_all(question, items, answer), "list"
    return _compare_single(question, reference, answer)


def _compare_single(question: str, reference: str, answer: str) -> tuple[bool, str]:
    """The rules for references that are one thing."""
    if (meant := _YES_NO.get(reference.casefold().strip(" ."))) is not None:
        return _opens_with(answer) is meant, "yes or no"
    for kind, find_moments in (("date", dates), ("time", times)):
        if moment := whole_moment(reference, find_moments(reference)):
            stated, asked = find_moments(answer), find_moments(question)
            return _states_moment(moment, stated, asked), kind
    if number := _number(reference):
        return _states_number(question, *number, with_digits(answer)), "number"
    if rule := says(question, reference, answer):
        return True, f"text: {rule}"
    several = enumerated(reference)
    if several is not None and names_all(question, several, answer):
        return True, "list"
    return False, "text: other words"


def _number(reference: str) -> tuple[Quantity, str] | None:
    """The number that a reference is, with what it counts; "Three Rivers" is a name."""
    spelled = whole_quantity(with_digits(reference))
    is_name = spelled is not None and spelled[1][:1].isupper()
    return whole_quantity(reference) if is_name else spelled


def _only_item(answer: str) -> str:
    """An answer written as a list of one item is that item."""
    items = listed(answer)
    return items[0] if items is not None and len(items) == 1 else answer


def _opens_with(answer: str) -> bool | None:
    """What an answer's first word says; None if it is neither yes nor no, or both."""
    said = words(answer)
    if not said or said[0] not in _YES_NO:
        return None
    first = _YES_NO[said[0]]
    # A later "no" may be that of "no cars"; any other word of this kind is meant.
    contrary = {"false"} if first else {"yes", "true"}
    undecided = said[1:2] in (["and"], ["or"]) and said[2:3] in (["yes"], ["no"])
    return None if undecided or contrary & set(said) else first


def _is_none(reference: str, answer: str) -> bool:
    """Whether nothing is what the reference counts: 0, and "there are no …"."""
    number = _number(reference)
    if number is None or number[0].number != 0 or any(c.isdecimal() for c in answer):
        return False
    return bool(_NONE_AT_ALL.search(answer)) and not _NO_KNOWLEDGE.search(answer)


def _states_moment(moment: Moment, stated: Sequence[Moment], asked: Sequence[Moment]) -> bool:
    """Whether an answer states this date or time and no other but those of the question."""
    new = [one for one in stated if not any(one.same(other) for other in asked)] or list(stated)
    return bool(new) and all(moment.same(one) for one in new)


def _states_number(question: str, reference: Quantity, noun: str, answer: str) -> bool:
    """Whether the one number that an answer comes to is that of the reference."""
    whole = whole_quantity(answer)
    if whole is not None and (not noun or not whole[1]):
        return same_quantity(reference, whole[0], question)
    claims = _claims(question, reference, answer)
    same = bool(claims) and all(same_quantity(reference, claim, question) for claim in claims)
    return same and (not noun or _speaks_of(noun, question, answer))


def _claims(question: str, reference: Quantity, answer: str) -> list[Quantity]:
    """The numbers an answer may come to; of a calculation, the one it concludes with."""
    found = quantities(answer)
    if not found or _DENIED.search(answer[: found[0].start]):
        return []
    plain = without_parentheses(answer)
    for text in (answer, plain, _conclusion(answer), _conclusion(plain)):
        claims = _new_numbers(question, reference, text)
        if len(claims) == 1:
            return claims
    return _new_numbers(question, reference, answer)


def _conclusion(text: str) -> str:
    """What follows the last "so", "=" and the like that a number follows; empty if none does."""
    following = (text[match.end() :] for match in _CONCLUSION.finditer(text))
    return next((rest for rest in reversed(list(following)) if quantities(rest)), "")


def _new_numbers(question: str, reference: Quantity, text: str) -> list[Quantity]:
    """The numbers of a text but for those that say when, where, or what was asked."""
    asked = {(q.number, q.dimension) for q in quantities(question)}
    found = quantities(text)
    new = [
        one
        for one in found
        if (one.number, one.dimension) not in asked or same_quantity(reference, one, question)
    ]
    year = is_year(reference)
    new = [one for one in new if not is_aside(one, text, question, asked_for_year=year)]
    alike = [one for one in new if reference.dimension and one.dimension == reference.dimension]
    return alike or new


def _speaks_of(noun: str, question: str, answer: str) -> bool:
    """Whether an answer counts what the reference counts: nothing else is named."""
    return stems(words(noun)) <= stems(words(answer)) | stems(words(question))
