"""Texts as the rules compare them: words and numbers without case, articles or punctuation."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

ARTICLES = frozenset({"a", "an", "the"})
_FILLERS = """
    according all also and answer are as at based be been both by contain contains document
    final following for from given had has have i in include includes including is it its just
    list listed namely of on only page pages report respectively says shown shows so text that
    their there these they this those to total was we were which who with
"""
_DENIALS = """
    not no never neither nor none without except excluding unlike instead rather than cannot isn't
    aren't wasn't weren't don't doesn't didn't can't won't hasn't haven't hadn't
"""
_SMALL_NUMBERS = """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen twenty
"""
_TENS = "thirty forty fifty sixty seventy eighty ninety hundred"
# Words that add nothing to an answer. No word of doubt, denial or choice is among them.
FILLERS = ARTICLES | frozenset(_FILLERS.split())
DENIALS = frozenset(_DENIALS.split())
NUMBER_WORDS = {word: number for number, word in enumerate(_SMALL_NUMBERS.split())} | {
    word: 10 * tens for tens, word in enumerate(_TENS.split(), start=3)
}

# Decimal counts exactly up to 28 digits; longer numbers are codes.
LONGEST_NUMBER = 25
_DIGITS = r"\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d+)?|\d+(?:\.\d+)?"
_TOKEN = re.compile(
    rf"(?:(?<![\w)])-)?(?:{_DIGITS})"  # a sign counts where no range or code can be meant
    r"|[^\W\d_]+(?:'[^\W\d_]+)?(?:\+\+|\#(?!\w))?"  # C++ and C# are not C
    r"|[%$€£¥₹]"
)
_NUMBER_WORD = re.compile(
    rf"\b(?:(twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)[- ]"
    rf"(one|two|three|four|five|six|seven|eight|nine)|({'|'.join(NUMBER_WORDS)}))\b",
    re.IGNORECASE,
)
# "No one", "one of", "the other one": words, not numbers.
_PRONOUN = re.compile(
    r"\b(?:no|the|this|that|which|each|every|any|some|other|\w+er|\w+est)\s+one\b"
    r"|\bone(?=\s+(?:of|another|or)\b)",
    re.IGNORECASE,
)
_DASHES = str.maketrans(dict.fromkeys("‐‑‒–—―−", "-") | dict.fromkeys("‘’ʼ`´", "'"))
_SPACED_THOUSANDS = re.compile(r"(?<=\d)[\u00a0\u2009\u202f'](?=\d{3}(?!\d))")
_PARENTHESIS = re.compile(r"\([^()]*\)|\[[^\[\]]*\]")


@dataclass(frozen=True, slots=True)
class Token:
    """A word or number of a text, and where it stands in the tidied text."""

    text: str
    start: int
    end: int


def tidy(text: str) -> str:
    """One form for letters, dashes, apostrophes and spaces; emphasis and lead-ins dropped."""
    text = _SPACED_THOUSANDS.sub(",", text)
    text = unicodedata.normalize("NFKC", text).translate(_DASHES).replace("&", " and ")
    text = re.sub(r"[*_]{2,}|(?<!\w)[*#>]+(?=\s)", "", text)
    text = re.sub(r"[^\S\n]+", " ", text).strip()
    return re.sub(r"^(?:the )?(?:final )?answer(?: is:?|\s*:)\s+", "", text, flags=re.IGNORECASE)


def tokens(text: str) -> list[Token]:
    """The words and numbers of a tidied text, without articles.

    >>> [token.text for token in tokens("The U.S. paid 1,500.50 (53 percent) in 2018-2019")]
    ['u', 's', 'paid', '1500.5', '53', '%', 'in', '2018', '2019']
    """
    found = [Token(_plain(match[0]), match.start(), match.end()) for match in _TOKEN.finditer(text)]
    kept = [token for token in found if token.text not in ARTICLES] or found
    return [
        token
        for place, token in enumerate(kept)
        # "2018 to 2019" is "2018-2019".
        if not (
            token.text == "to"
            and is_number(_at(kept, place - 1))
            and is_number(_at(kept, place + 1))
        )
    ]


def words(text: str) -> list[str]:
    """The tokens' texts alone."""
    return [token.text for token in tokens(text)]


def _at(found: Sequence[Token], place: int) -> str:
    return found[place].text if 0 <= place < len(found) else ""


def _plain(token: str) -> str:
    token = token.casefold()
    if is_number(token) and len(token) <= LONGEST_NUMBER:
        number = Decimal(token.replace(",", ""))
        return format(number.normalize(), "f") if number else "0"
    if token in ("percent", "pct"):
        return "%"
    return token.removesuffix("'s")


def is_number(token: str) -> bool:
    """Whether a token is a number."""
    return token[-1:].isdecimal()


def squeezed(found: Sequence[str]) -> str:
    """Without spaces, so that "U.S." is "US" and "K-27" is "K27"; numbers stay apart."""
    joined = ""
    for token in found:
        joined += "|" if joined[-1:].isdecimal() and token[:1].isdecimal() else ""
        joined += token
    return joined


def with_digits(text: str) -> str:
    """Number words as digits, in a text that has no digits.

    >>> with_digits("twenty-one of them")
    '21 of them'
    """
    if any(character.isdecimal() for character in text):
        return text
    pronouns = [match.span() for match in _PRONOUN.finditer(text)]

    def digits(match: re.Match[str]) -> str:
        if any(start <= match.start() and match.end() <= end for start, end in pronouns):
            return match[0]
        if match[3]:
            return str(NUMBER_WORDS[match[3].lower()])
        return str(NUMBER_WORDS[match[1].lower()] + NUMBER_WORDS[match[2].lower()])

    return _NUMBER_WORD.sub(digits, text)


def without_parentheses(text: str) -> str:
    """A text without what stands in round or square brackets."""
    return _PARENTHESIS.sub(" ", text)


def stem(word: str) -> str:
    """A word without the commonest endings."""
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word.removesuffix("e") if len(word) > 4 else word


def stems(found: Iterable[str]) -> set[str]:
    """The words' stems."""
    return {stem(word) for word in found}


def same_word(one: str, other: str) -> bool:
    """Equal, or one letter more or less inside or at the end of a long word.

    A letter too few or too many is a typing error or a plural; another letter is another name.

    >>> same_word("erosion", "erosio"), same_word("francis", "frances"), same_word("cat", "cats")
    (True, False, False)
    """
    if one == other:
        return True
    short, long = sorted((one, other), key=len)
    if len(short) < 6 or len(long) != len(short) + 1 or not long.isalpha():
        return False
    return any(long[:cut] + long[cut + 1 :] == short for cut in range(1, len(long)))


def find(needle: Sequence[str], hay: Sequence[str], start: int = 0) -> int:
    """Where some words first stand in a row among others, -1 for nowhere."""
    for place in range(start, len(hay) - len(needle) + 1):
        if all(same_word(a, b) for a, b in zip(needle, hay[place:], strict=False)):
            return place
    return -1


def rivals(question: str, reference: Sequence[str]) -> set[str]:
    """The other choices of a question that offers some: the words beside its "or".

    >>> sorted(rivals("Is it on the left or the right side?", ["right"]))
    ['left']
    """
    asked = words(tidy(question))
    beside = {
        asked[place + step]
        for place, word in enumerate(asked)
        if word == "or"
        for step in (-1, 1)
        if 0 <= place + step < len(asked)
    }
    return beside - set(reference) - FILLERS
