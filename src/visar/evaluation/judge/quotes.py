"""The judge of quotations: whether what was quoted from the pages holds the answer.

An extractive answer is sentences and rows of the document. The rules of ``rules.py`` ask whether an
answer says what the reference says and no more, which a quotation hardly ever does. This one asks
whether the reference stands in it, word for word: an upper estimate of what a reader would find,
since a short reference ("3") can stand there for another reason.
"""

from __future__ import annotations

from collections.abc import Sequence

from visar.evaluation.judge.listings import listed
from visar.evaluation.judge.protocol import Verdict, usable_references
from visar.evaluation.judge.refusals import means_not_answerable, refuses
from visar.evaluation.judge.wording import find, tidy, with_digits, words

# Raised whenever the rule changes: verdicts of another version are not these.
VERSION = 1


class QuoteJudge:
    """Correct if the quotation holds every part of a reference; of "not answerable", if it is none.

    >>> judge = QuoteJudge()
    >>> quoted = "We give 7 years on the lantern and five years on its battery."
    >>> judge.judge("How long?", ["['7 years', '5 years']"], quoted).correct
    True
    >>> judge.judge("How long?", ["6 years"], quoted).correct
    False
    """

    name = f"quotes {VERSION}"

    def judge(self, question: str, references: Sequence[str], answer: str) -> Verdict:
        """Whether any one of the references stands in the answer."""
        usable = usable_references(question, references)
        for reference in usable:
            if means_not_answerable(tidy(reference)):
                if refuses(tidy(answer)):
                    return Verdict(True, self.name, "not answerable")
            elif _holds(answer, reference):
                return Verdict(True, self.name, "quoted")
        return Verdict(False, self.name, "not quoted")


def _holds(answer: str, reference: str) -> bool:
    """Whether every item of a reference stands in an answer, each in a row."""
    items = listed(reference) or [reference]
    wanted = [[word for word in words(tidy(item)) if word != "%"] for item in items]
    given = [word for word in words(tidy(answer)) if word != "%"]
    return all(item and (find(item, given) >= 0 or _spelled(item, given)) for item in wanted)


def _spelled(item: Sequence[str], given: Sequence[str]) -> bool:
    """Whether a number stands there in letters instead of digits, or the other way round."""
    return find([with_digits(word) for word in item], [with_digits(word) for word in given]) >= 0
