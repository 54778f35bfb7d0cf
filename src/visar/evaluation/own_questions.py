"""Questions made from a document's own words, for measuring speed where nobody has asked any."""

from __future__ import annotations

from collections.abc import Sequence

from visar.documents.page import Page
from visar.encoders.terms import find_terms

WORDS_PER_QUESTION = 8
"""About as many as people's questions have, without function words."""

WITHOUT_WORDS = (
    "What is this document about?",
    "What do the figures and tables show?",
    "Which numbers are given, and for which years?",
)
"""The questions about documents without words."""


def questions_about(pages: Sequence[Page], count: int) -> list[str]:
    """Ask about up to ``count`` pages, evenly spread over those that have words.

    Each question names up to ``WORDS_PER_QUESTION`` words of one line of a page: the line with the
    most different ones, function words and numbers left out. Deterministic.
    """
    with_words = [words for page in pages if (words := _richest_line(page))]
    if not with_words:
        return list(WITHOUT_WORDS[:count])
    asked = min(count, len(with_words))
    spread = [with_words[(2 * i + 1) * len(with_words) // (2 * asked)] for i in range(asked)]
    return [f"What does it say about {' '.join(words)}?" for words in spread]


def _richest_line(page: Page) -> list[str]:
    lines = [
        _content_words([page.words[index].text for index in indices]) for indices in page.lines()
    ]
    return max(lines, key=len, default=[])[:WORDS_PER_QUESTION]


def _content_words(words: Sequence[str]) -> list[str]:
    """The different words of a line that are neither function words nor numbers."""
    terms = [term for term in find_terms(words) if not term.is_stop_word and term.key.isalpha()]
    return list({term.key: words[term.word][term.start : term.end] for term in terms}.values())
