"""Parsing of replies: the answer and the pages it cites, or one of a few choices."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from visar.text import clean_line, clean_text

_THINKING = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
# A code fence around the whole reply, perhaps not closed yet. Fences inside an answer belong to it.
_FENCE = re.compile(r"\A```[a-zA-Z]*\n((?:(?!```).)*)(?:```)?\Z", re.DOTALL)
_LABEL = re.compile(r"\d+(?:\s*:\s*\d+)?")
# Must match the whole text, without punctuation. "None" and "n/a" are missing: they can be answers.
_NOT_ANSWERABLE = re.compile(
    r"(?:(?:the|this) question (?:is )?|it (?:is )?)?"
    r"(?:not answerable|unanswerable|no answer|(?:cannot|can not|can t) be answered"
    r"|(?:not enough|insufficient) information)"
    r"(?: (?:from|in|by|with|using|based on) (?:the|these|this)(?: \w+)? "
    r"(?:pages?|documents?|images?|text|context))?"
)
# The beginning of an answer object that is cut off inside the answer, or inside an escape.
_CUT_ANSWER = re.compile(r'\{\s*"[aA]nswer"\s*:\s*"((?:[^"\\]|\\.)*)')
_CUT_ESCAPE = re.compile(r"\\u[0-9a-fA-F]{0,3}\Z")
# Text that can turn into an answer object, a code fence or reasoning with the next piece.
_PENDING = re.compile(r'(?:(?:`{1,3}[a-zA-Z]*\s*)?(?:\{\s*"?\w*"?\s*:?\s*)?|<\w{0,5})\Z')
# Characters at the end of a reply that are searched for a choice: reasoning comes before it.
_CHOICE_TAIL = 10_000
_MAX_QUESTION = 1_000


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """The answer in a reply."""

    text: str
    """The answer; empty if the reply says that the pages don't have it."""
    pages: tuple[str, ...]
    """Labels of the cited pages, without repetitions, in the order of the reply."""
    well_formed: bool
    """Whether the reply has a JSON object with the answer; otherwise all of it is the answer."""


def parse_answer(reply: str, *, may_refuse: bool = True) -> ParsedAnswer:
    r"""Find the answer in a reply, also in code fences, after other text, or in several objects.

    ``may_refuse`` tells whether the prompt lets the model say that there is no answer. The
    paper's prompt doesn't; then a text such as "not answerable" is an answer like any other.

    >>> parse_answer('Here: ```json\n{"answer": ["A", "B"], "pages": [3, "page 7"]}\n```')
    ParsedAnswer(text='A, B', pages=('3', '7'), well_formed=True)
    >>> parse_answer("It is 42.")
    ParsedAnswer(text='It is 42.', pages=(), well_formed=False)
    """
    visible = _visible(reply)
    # The paper's prompt asks for the key "Answer".
    folded = ({key.casefold(): found[key] for key in found} for found in _objects(visible))
    answers = [found for found in folded if "answer" in found]
    if answers:
        # A model that writes several answers corrects itself: use the last.
        text = _clean(_as_text(answers[-1]["answer"]))
        pages = tuple(dict.fromkeys(_labels(answers[-1].get("pages"))))
    else:
        cut = _CUT_ANSWER.search(visible)
        text, pages = _clean(visible if cut is None else _unescaped(cut[1])), ()
    if may_refuse and is_not_answerable(text):
        text, pages = "", ()
    return ParsedAnswer(text, pages, well_formed=bool(answers))


def is_not_answerable(text: str) -> bool:
    """Return whether a text only says that there is no answer, or has no letters or digits.

    The one definition for generators and judges, for references and answers.

    >>> is_not_answerable("Not answerable from these pages."), is_not_answerable("None of them")
    (True, False)
    """
    bare = re.sub(r"[^a-z0-9]+", " ", text.casefold()).strip()
    return not any(c.isalnum() for c in text) or bool(_NOT_ANSWERABLE.fullmatch(bare))


class AnswerPieces:
    """Converter from the pieces of a streamed reply to pieces of its answer."""

    def __init__(self) -> None:
        self._reply = ""
        self._shown = ""

    def add(self, piece: str) -> str:
        """Add a piece of the reply; return the text it adds to the answer, often empty."""
        self._reply += piece
        text = answer_so_far(self._reply)
        return "" if self._shown.startswith(text) else self._advance(text)

    def end(self, answer: str) -> str:
        """Finish with the whole answer; return the rest that was not shown yet."""
        return self._advance(answer) if answer else ""

    def _advance(self, text: str) -> str:
        # Text before an answer object isn't part of the answer, which starts on a new line.
        restarts = not text.startswith(self._shown)
        new = f"\n{text}" if restarts else text[len(self._shown) :]
        self._shown = text
        return new


def answer_so_far(reply: str) -> str:
    """Return the part of an answer that can be shown while its reply is still being written.

    >>> answer_so_far('{"answer": "The rate is 1')
    'The rate is 1'
    >>> answer_so_far('{"ans')
    ''
    """
    visible = _visible(reply)
    if (cut := _CUT_ANSWER.search(visible)) is not None:
        return _clean(_unescaped(cut[1]))
    return "" if visible.startswith("{") else _clean(_PENDING.sub("", visible))


def choice_text(choice: str) -> str:
    """Return a choice as the JSON object of a reply.

    >>> choice_text("correct")
    '{"choice": "correct"}'
    """
    return json.dumps({"choice": choice}, ensure_ascii=False)


def find_choice(text: str, choices: Sequence[str]) -> str | None:
    """Return the choice in a reply; None if there is none, or more than one.

    >>> find_choice('Sure! {"choice": "no"}', ("yes", "no"))
    'no'
    >>> find_choice("Yes.", ("yes", "no"))
    'yes'
    >>> find_choice('{"choice": "yes"} {"choice": "no"}', ("yes", "no"))
    >>> find_choice("<think>yes? no?</think>no", ("yes", "no"))
    'no'
    """
    visible = text.rpartition("</think>")[2][-_CHOICE_TAIL:]
    named = {str(found["choice"]) for found in _objects(visible) if found.get("choice") in choices}
    if not named:
        bare = visible.strip().strip("\"'`*.").casefold()
        named = {choice for choice in choices if choice.casefold() == bare}
    return named.pop() if len(named) == 1 else None


def find_rewritten(reply: str) -> str | None:
    """Return the rewritten question in a reply; None if there is none.

    >>> find_rewritten('Sure: {"question": "When was the auditor appointed?"}')
    'When was the auditor appointed?'
    >>> find_rewritten("I can't answer that.")
    """
    found = [clean_line(one["question"]) for one in _objects(_visible(reply)) if _has_question(one)]
    return found[-1] if found else None


def _has_question(found: dict[str, Any]) -> bool:
    question = found.get("question")
    return isinstance(question, str) and 0 < len(question.strip()) <= _MAX_QUESTION


def _visible(reply: str) -> str:
    """Return a reply without reasoning and the code fence around it."""
    return _FENCE.sub(r"\1", _THINKING.sub("", reply).strip()).strip()


def _clean(text: str) -> str:
    return clean_text(text).strip()


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the outermost JSON objects in a text."""
    decoder = json.JSONDecoder(strict=False)
    position = 0
    while (position := text.find("{", position)) >= 0:
        try:
            value, position = decoder.raw_decode(text, position)
        except (json.JSONDecodeError, RecursionError):
            position += 1
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
