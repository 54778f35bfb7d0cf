"""The judge ``paper``, which follows the protocol of the paper's evaluation in our own words.

The prompt has instructions and two examples. Replies are parsed leniently: prose with the word
CORRECT counts as correct, and unreadable replies as incorrect. If a data set gives a list as a
reference, each of its items is a correct answer; a string that looks like a list is one reference.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from visar.evaluation.judge.model import ModelJudge, case_line
from visar.evaluation.questions import read_list
from visar.generation.generator import Generator, Reply

VERSION = 3
# Matches JSON, other quotes, or a reply that is cut off after the word.
_VERDICT = re.compile(r"correctness\W{1,9}(correct|incorrect)\b", re.IGNORECASE)
_IN_PROSE = re.compile(r"\bCORRECT\b")

_INSTRUCTIONS = """\
You decide whether the answer to a question is correct, by comparing it with reference answers. You
are given a JSON object with "question", "references" and "answer".

1. The answer is CORRECT if it means the same as at least one of the references.
2. Wording, style, units and number formats may differ as long as the meaning is the same.
3. An answer that contradicts the references is INCORRECT.
4. An answer that adds claims of its own invention is INCORRECT.
5. An answer that holds only a part of what a reference says is INCORRECT.
6. Judge by the references alone, not by what you know.

Reply with one JSON object and nothing else: {"correctness": "CORRECT"} or
{"correctness": "INCORRECT"}.

Examples:
"""
# Invented examples.
_EXAMPLES = (
    ("How many bridges cross the canal?", ["12", "twelve"], "There are twelve of them.", "CORRECT"),
    (
        "Why was the mill closed?",
        ["because of the flood and the lack of workers"],
        "It was closed because of the flood.",
        "INCORRECT",
    ),
)


class PaperJudge(ModelJudge):
    """A judge that asks a language model as in the paper's evaluation."""

    # The requested reply takes about 10 tokens, but some models explain first.
    most_tokens = 256
    as_in_paper = True

    def __init__(self, generator: Generator) -> None:
        examples = (
            f'{case_line(question, references, answer)}\n{{"correctness": "{verdict}"}}'
            for question, references, answer, verdict in _EXAMPLES
        )
        super().__init__(generator, "paper", VERSION, _INSTRUCTIONS + "\n".join(examples))

    def _shown(self, question: str, references: Sequence[str], answer: str) -> str:
        return f"Judge this answer:\n{case_line(question, as_alternatives(references), answer)}"

    def _is_correct(self, reply: Reply) -> bool:
        return says_correct(reply.text)


def as_alternatives(references: Sequence[str]) -> list[str]:
    """Return the references, replacing each list that a data set gives by its items.

    Strings that look like a list, such as the Python lists of MMLongBench-Doc, remain one
    reference, whatever their quotes.

    >>> as_alternatives(['["Oban","Coll"]', "['Oban', 'Coll']", '["Oban", "Coll"]'])
    ['Oban', 'Coll', "['Oban', 'Coll']", '["Oban", "Coll"]']
    """
    items = (item for reference in references for item in read_list(reference) or [reference])
    return list(dict.fromkeys(item for item in items if item.strip())) or list(references)


def says_correct(reply: str) -> bool:
    """Return whether a reply says CORRECT; the last verdict counts.

    >>> says_correct('It is. {"correctness": "CORRECT"}'), says_correct("I am not sure.")
    (True, False)
    >>> says_correct("They agree, so it is CORRECT."), says_correct("It is INCORRECT.")
    (True, False)
    """
    text = reply.rpartition("</think>")[2]
    if verdicts := _VERDICT.findall(text):
        return str(verdicts[-1]).casefold() == "correct"
    is_one_word = text.strip(" \n\"'`*.").casefold() == "correct"
    return is_one_word or _IN_PROSE.search(text) is not None
