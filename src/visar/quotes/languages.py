"""Language detection, stop words and stems."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources

from visar.encoders.terms import STOP_WORDS, find_terms, stem

LANGUAGES = (
    "english", "german", "french", "spanish", "italian", "portuguese", "dutch", "danish", "swedish",
    "norwegian", "finnish",
)  # fmt: skip
"""Languages that can be detected, with the names that PyStemmer uses."""
# Maximum length of articles and prepositions that are joined to a word: l'année, dell'anno.
_ELIDED = {"french": 4, "italian": 5}
_TOKEN = re.compile(r"\S+")
# Minimum number of different stop words that a language needs to be detected.
_MIN_DIFFERENT = 2
# Minimum share of stop words among all words: some are words of other languages too.
_MIN_SHARE = 0.1


@functools.cache
def _stop_words(language: str) -> frozenset[str]:
    """Return the stop words of a language in the spelling of `find_terms`, without accents."""
    if language == "english":
        return STOP_WORDS
    return frozenset(term.key for term in find_terms(_words()[language].split()))


@functools.cache
def _words() -> dict[str, str]:
    """Return the stop words by language, from a file that few commands need."""
    import tomllib

    file = resources.files("visar.quotes") / "stop_words.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))


def detect_language(words: Iterable[str]) -> str | None:
    """Return the language with the most stop words among the words; None if it is unclear.

    >>> detect_language("Wie hoch war der Umsatz im Jahr 2024?".split())
    'german'
    >>> detect_language(["Umsatz", "2024"])
    """
    counts = Counter(key for word in words for _, key in _keys(word))
    scores = {
        language: (sum(counts[one] for one in present), len(present))
        for language in LANGUAGES
        if (present := _stop_words(language) & counts.keys())
    }
    ranked = sorted(scores, key=scores.__getitem__, reverse=True)
    if not ranked:
        return None
    hits, different = scores[ranked[0]]
    if different < _MIN_DIFFERENT or hits < _MIN_SHARE * counts.total():
        return None
    if len(ranked) > 1 and scores[ranked[1]][0] == hits:
        return None
    return ranked[0]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Stop words and stems of a language; of English if the language is None."""

    language: str | None = None

    def is_stop_word(self, word: str) -> bool:
        stop_words = _stop_words(self.language or "english")
        return all(key in stop_words for _, key in _keys(word))

    def word_stems(self, word: str) -> list[str]:
        return [found for _, found in _stems(self.language or "english", word)]

    def stems(self, text: str) -> list[tuple[int, str]]:
        """Return the position, in characters, and the stem of each term that isn't a stop word.

        >>> Vocabulary("german").stems("Die Häuser der Stadt")
        [(4, 'haus'), (15, 'stadt')]
        """
        language = self.language or "english"
        return [
            (token.start() + start, found)
            for token in _TOKEN.finditer(text)
            for start, found in _stems(language, token.group())
        ]


@functools.lru_cache(maxsize=1 << 16)
def _keys(word: str) -> tuple[tuple[int, str], ...]:
    return tuple((term.start, term.key) for term in find_terms([word]))


@functools.lru_cache(maxsize=1 << 16)
def _stems(language: str, word: str) -> tuple[tuple[int, str], ...]:
    """Return the position and the stem of each term of a word that isn't a stop word."""
    stop_words = _stop_words(language)
    stems = []
    for start, key in _keys(word):
        article, mark, noun = key.partition("'")
        if noun and len(article) <= _ELIDED.get(language, 0):
            start, key = start + len(article + mark), noun
        if key not in stop_words:
            stems.append((start, stem(key, language)))
    return tuple(stems)
