"""What a model wrote: the answer and the pages it cites, or one of a few choices."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from visar.text import clean_text

_THINKING = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_FENCE = re.compile(r"```[a-zA-Z]*")
_LABEL = re.compile(r"\d+(?:\s*:\s*\d+)?")
# Matched with a whole text, without its punctuation. Words such as "none" or "n/a" can be answers.
_NOT_ANSWERABLE = re.compile(
    r"(?:(?:the|this) question (?:is )?|it (?:is )?)?"
    r"(?:not answerable|unanswerable|no answer|(?:cannot|can not|can t) be answered"
    r"|(?:not enough|insufficient) information)"
    r"(?: (?:from|in|by|with|using|based on) (?:the|these|this)(?: \w+)? "
    r"(?:pages?|documents?|images?|text|context))?"
)
# The beginning of an answer object that was cut off in the text of the answer, or in an escape.
_CUT_ANSWER = re.compile(r'\{\s*"[aA]nswer"\s*:\s*"((?:[^"\\]|\\.)*)')
_CUT_ESCAPE = re.compile(r"\\u[0-9a-fA-F]{0,3}\Z")
# What may become an answer object, a code fence or a thought with the next piece.
_PENDING = re.compile(r'(?:\{\s*"?\w*"?\s*:?\s*|`{1,2}|<\w{0,5})\Z')
# A model may think aloud for long; its choice comes last.
_LONGEST_LOOK = 10_000


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """What a reply says."""

    text: str
    """Empty if it says, as our own prompt asks for, that the pages do not hold the answer."""
    pages: tuple[str, ...]
    """The labels it cites, each once, in its order."""
    well_formed: bool
    """True if it was the JSON object asked for; otherwise the whole reply is the answer."""


def parse_answer(reply: str, *, may_refuse: bool = True) -> ParsedAnswer:
    r"""Find the answer in a reply: in code fences, after stray text, among several objects.

    ``may_refuse`` is whether the prompt offers to say that there is no answer; the paper's does
    not, and an answer's words stand whatever they say.

    >>> parse_answer('Here: ```json\n{"answer": ["A", "B"], "pages": [3, "page 7"]}\n```')
    ParsedAnswer(text='A, B', pages=('3', '7'), well_formed=True)
    >>> parse_answer("It is 42.")
    ParsedAnswer(text='It is 42.', pages=(), well_formed=False)
    """
    said = _said(reply)
    # The paper's prompt asks for the key "Answer".
    folded = ({key.casefold(): found[key] for key in found} for found in _objects(said))
    answers = [found for found in folded if "answer" in found]
    if answers:
        # A model that writes several corrects itself: the last one counts.
        text = _shown(_as_text(answers[-1]["answer"]))
        pages = tuple(dict.fromkeys(_labels(answers[-1].get("pages"))))
    else:
        cut = _CUT_ANSWER.search(said)
        text, pages = _shown(said if cut is None else _unescaped(cut[1])), ()
    if may_refuse and is_not_answerable(text):
        text, pages = "", ()
    return ParsedAnswer(text, pages, well_formed=bool(answers))


def is_not_answerable(text: str) -> bool:
    """True if a text as a whole says that there is no answer, or holds no letter or digit.

    Generators and judges, of references and of answers, all ask this function.

    >>> is_not_answerable("Not answerable from these pages."), is_not_answerable("None of them")
    (True, False)
    """
    bare = re.sub(r"[^a-z0-9]+", " ", text.casefold()).strip()
    return not any(c.isalnum() for c in text) or bool(_NOT_ANSWERABLE.fullmatch(bare))


class AnswerPieces:
    """Turns the pieces of a reply, as they come, into pieces of the answer that can be shown."""

    def __init__(self) -> None:
        self._reply = ""
        self._shown = ""

    def add(self, piece: str) -> str:
        """Take a piece of the reply; return what it adds to the answer, often nothing."""
        self._reply += piece
        text = answer_so_far(self._reply)
        return "" if self._shown.startswith(text) else self._advance(text)

    def end(self, answer: str) -> str:
        """Take the whole answer; return what was not shown of it."""
        return self._advance(answer) if answer else ""

    def _advance(self, text: str) -> str:
        # Text before an answer object was no part of the answer: that begins on a new line.
        begins_anew = not text.startswith(self._shown)
        new = f"\n{text}" if begins_anew else text[len(self._shown) :]
        self._shown = text
        return new


def answer_so_far(reply: str) -> str:
    """Return what can be shown of an answer while its reply is still being written.

    >>> answer_so_far('{"answer": "The rate is 1')
    'The rate is 1'
    >>> answer_so_far('{"ans')
    ''
    """
    said = _said(reply)
    if (cut := _CUT_ANSWER.search(said)) is not None:
        return _shown(_unescaped(cut[1]))
    return "" if said.startswith("{") else _shown(_PENDING.sub("", said))


def choice_text(choice: str) -> str:
    """Return the reply that makes a choice.

    >>> choice_text("correct")
    '{"choice": "correct"}'
    """
    return json.dumps({"choice": choice}, ensure_ascii=False)


def find_choice(text: str, choices: Sequence[str]) -> str | None:
    """Return the one choice that a reply makes; None if there is none, or more than one.

    >>> find_choice('Sure! {"choice": "no"}', ("yes", "no"))
    'no'
    >>> find_choice("Yes.", ("yes", "no"))
    'yes'
    >>> find_choice('{"choice": "yes"} {"choice": "no"}', ("yes", "no"))
    >>> find_choice("<think>yes? no?</think>no", ("yes", "no"))
    'no'
    """
    said = text.rpartition("</think>")[2][-_LONGEST_LOOK:]
    named = {str(found["choice"]) for found in _objects(said) if found.get("choice") in choices}
    if not named:
        bare = said.strip().strip("\"'`*.").casefold()
        named = {choice for choice in choices if choice.casefold() == bare}
    return named.pop() if len(named) == 1 else None


def _said(reply: str) -> str:
    """Return a reply without its thoughts and code fences."""
    return _FENCE.sub("", _THINKING.sub("", reply)).strip()


def _shown(text: str) -> str:
    return clean_text(text).strip()


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield every JSON object in a text that is not inside another."""
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


def _unescaped(text: str) -> str:
    whole = _CUT_ESCAPE.sub("", text)
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
