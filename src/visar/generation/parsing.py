"""Reading an answer out of whatever a model wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_THINKING = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_FENCE = re.compile(r"```[a-zA-Z]*")
# What a terminal or a page would act upon instead of showing it: control characters but line ends
# and tabs, signs that turn the direction of writing, and halves of characters.
_UNSEEN = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u202a-\\u202e\\u2066-\\u2069\\ud800-\\udfff]"
)
_LABEL = re.compile(r"\d+(?:\s*:\s*\d+)?")
# Matched with a whole text, without its punctuation. Words such as "none" or "n/a" can be answers.
_NOT_ANSWERABLE = re.compile(
    r"(?:(?:the|this) question (?:is )?|it (?:is )?)?"
    r"(?:not answerable|unanswerable|no answer|(?:cannot|can not|can t) be answered"
    r"|(?:not enough|insufficient) information)"
    r"(?: (?:from|in|by|with|using|based on) (?:the|these|this)(?: \w+)? "
    r"(?:pages?|documents?|images?|text|context))?"
)


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """What a reply says, in the form that was asked for or as near as it comes."""

    text: str
    """Empty if it says that the pages do not hold the answer."""
    pages: tuple[str, ...]
    """The labels it cites, each once, in its order."""
    well_formed: bool
    """Whether it was the JSON object asked for; otherwise the whole reply is the answer."""


def parse_answer(reply: str) -> ParsedAnswer:
    r"""Find the answer in a reply: in code fences, after stray text, among several objects.

    >>> parse_answer('Here: ```json\n{"answer": ["A", "B"], "pages": [3, "page 7"]}\n```')
    ParsedAnswer(text='A, B', pages=('3', '7'), well_formed=True)
    >>> parse_answer("It is 42.")
    ParsedAnswer(text='It is 42.', pages=(), well_formed=False)
    """
    said = _said(reply)
    answers = [found for found in _objects(said) if "answer" in found]
    if not answers:
        plain = _shown(_cut_object(said))
        return ParsedAnswer("" if is_not_answerable(plain) else plain, (), well_formed=False)
    # A model that writes several corrects itself: the last one counts.
    chosen = answers[-1]
    text = _shown(_as_text(chosen["answer"]))
    refuses = is_not_answerable(text)
    pages = () if refuses else tuple(dict.fromkeys(_labels(chosen.get("pages"))))
    return ParsedAnswer("" if refuses else text, pages, well_formed=True)


def is_not_answerable(text: str) -> bool:
    """True if a text as a whole says that there is no answer, or holds no letter or digit.

    Generators and judges, of references and of answers, all ask this function.

    >>> is_not_answerable("Not answerable from these pages."), is_not_answerable("None of them")
    (True, False)
    """
    bare = re.sub(r"[^a-z0-9]+", " ", text.casefold()).strip()
    return not any(c.isalnum() for c in text) or bool(_NOT_ANSWERABLE.fullmatch(bare))


def answer_so_far(reply: str) -> str:
    """What can be shown of an answer while its reply is still being written.

    >>> answer_so_far('{"answer": "The rate is 1')
    'The rate is 1'
    >>> answer_so_far('{"ans')
    ''
    """
    said = _said(reply)
    if said.startswith("{") and not _CUT_ANSWER.match(said):
        return ""
    return _shown(_cut_object(said))


def _said(reply: str) -> str:
    """A reply without its thoughts and code fences."""
    return _FENCE.sub("", _THINKING.sub("", reply)).strip()


def _shown(text: str) -> str:
    return _UNSEEN.sub("", text).strip()


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Every JSON object in a text that is not inside another."""
    decoder = json.JSONDecoder(strict=False)
    place = 0
    while (place := text.find("{", place)) >= 0:
        try:
            value, place = decoder.raw_decode(text, place)
        except (json.JSONDecodeError, RecursionError):
            place += 1
        else:
            if isinstance(value, dict):
                yield value


_CUT_ESCAPE = re.compile(r"\\u[0-9a-fA-F]{0,3}\Z")
_CUT_ANSWER = re.compile(r'\{\s*"answer"\s*:\s*"((?:[^"\\]|\\.)*)')


def _cut_object(text: str) -> str:
    """The answer of an object that was cut off while it was written; else the text itself."""
    cut = _CUT_ANSWER.search(text)
    if cut is None:
        return text
    whole = _CUT_ESCAPE.sub("", cut[1])
    try:
        return str(json.loads(f'"{whole}"', strict=False))
    except json.JSONDecodeError:
        return whole


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, list):
        return ", ".join(_as_text(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_as_text(item)}" for key, item in value.items())
    return json.dumps(value, ensure_ascii=False)


def _labels(value: Any) -> Iterator[str]:
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, int | str) and not isinstance(item, bool):
            yield from (re.sub(r"\s", "", label) for label in _LABEL.findall(str(item)))
