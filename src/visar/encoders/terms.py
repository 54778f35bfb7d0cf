"""Find the terms of a text (runs of letters and digits), their stems and exact-match vectors."""

from __future__ import annotations

import functools
import hashlib
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Dimensions of the exact-match signal. Two different stems have a random cosine of about
# 1/√64 = 0.13. Doubling the dimensions didn't measure better.
LEXICAL_DIMENSION = 64

# Each ideograph or kana is a term of its own, as in the model's tokenizer. Other terms are runs of
# letters and digits, which may contain periods, commas and apostrophes (3,500.25, U.S., don't).
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_RUN = rf"[^\W_{_CJK}]+"
_TERM = re.compile(rf"(?=\w)[{_CJK}]|{_RUN}(?:[.,'’]{_RUN})*")

# English words that say nothing about a page's topic.
_ENGLISH = """
    a about above after again against all also am an and any are aren't as at be because been
    before being below between both but by can can't could couldn't did didn't do does doesn't
    doing don't down during each few for from further had hadn't has hasn't have haven't having he
    her here hers herself him himself his how i i'm if in into is isn't it itself its just let's me
    might more most must mustn't my myself no nor not now of off on once only or other our ours
    ourselves out over own s same shall shan't she should shouldn't so some such t than that the
    their theirs them themselves then there these they this those through to too under until up
    very was wasn't we were weren't what when where which while who whom why will with won't would
    wouldn't you your yours yourself yourselves
"""
STOP_WORDS = frozenset(_ENGLISH.split())


@dataclass(frozen=True, slots=True)
class Term:
    """A run of letters and digits within a word."""

    word: int
    """The index of the word."""
    start: int
    end: int
    """End of the term in the word, exclusive."""
    key: str
    """The normalized spelling, without case, accents, digit grouping and possessive."""

    @property
    def is_stop_word(self) -> bool:
        return self.key in STOP_WORDS


def find_terms(words: Sequence[str]) -> list[Term]:
    """Return all terms of the words, in order.

    >>> [term.key for term in find_terms(["Zoë's", "(3,500.25)", "late-stage", "—"])]
    ['zoe', '3500.25', 'late', 'stage']
    """
    return [
        Term(index, start, end, key)
        for index, word in enumerate(words)
        for start, end, key in _parts(word)
    ]


@functools.lru_cache(maxsize=1 << 16)
def _parts(word: str) -> tuple[tuple[int, int, str], ...]:
    return tuple((m.start(), m.end(), _spelling(m.group())) for m in _TERM.finditer(word))


def _spelling(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text.lower().replace("’", "'"))
    bare = "".join(c for c in decomposed if not unicodedata.combining(c)).removesuffix("'s")
    return bare.replace(",", "") if bare[:1].isdigit() else bare


def lexical_vectors(terms: Sequence[Term]) -> NDArray[np.float32]:
    """Return a unit vector for each term, the same for all inflections; zero for stop words.

    >>> first, second, third = lexical_vectors(find_terms(["Connected", "connections", "the"]))
    >>> bool((first == second).all()), bool(third.any())
    (True, False)
    """
    if not terms:
        return np.zeros((0, LEXICAL_DIMENSION), np.float32)
    zero = np.zeros(LEXICAL_DIMENSION, np.float32)
    return np.stack([zero if t.is_stop_word else _signs(stem(t.key)) for t in terms])


@functools.lru_cache(maxsize=1 << 16)
def _signs(text: str) -> NDArray[np.float32]:
    """Return a direction derived from a hash, so it is the same on all machines and versions."""
    digest = hashlib.shake_128(text.encode("utf-8", "surrogatepass"))
    bits = np.unpackbits(np.frombuffer(digest.digest(LEXICAL_DIMENSION // 8), np.uint8))
    return (bits.astype(np.float32) * 2 - 1) / np.float32(np.sqrt(LEXICAL_DIMENSION))


@functools.lru_cache(maxsize=1 << 16)
def stem(word: str, language: str = "english") -> str:
    """Return the stem of a lowercase word, in a language supported by PyStemmer.

    >>> stem("connections"), stem("verbindungen", "german")
    ('connect', 'verbind')
    """
    import Stemmer

    # Stemmers keep state, so create a new one per call, which is cheap.
    try:
        return str(Stemmer.Stemmer(language).stemWord(word))
    except UnicodeEncodeError:  # a lone surrogate from a broken text layer
        return word
