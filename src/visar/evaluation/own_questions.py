"""Questions made from a document's own words, where nobody has asked any."""

from __future__ import annotations

from collections.abc import Sequence

from visar.documents.page import Page
from visar.encoders.terms import find_terms

# As long as people's questions are, without their function words.
WORDS_PER_QUESTION = 8

# For documents without words: page images, read by an encoder that looks at them.
WITHOUT_WORDS = (
    "What is this document about?",
    "What do the figures and tables show?",
    "Which numbers are given, and for which years?",
)


def questions_about(pages: Sequence[Page], count: int) -> list[str]:
    """Ask about up to ``count`` pages, evenly spread over those that have words.

    Each question names the first words of the line of the page that has the most different
    ones, without function words and numbers. The same pages always give the same questions.
    """
    with_words = [words for page in pages if (words := _richest_line(page))]
    if not with_words:
        return list(WITHOUT_WORDS[:count])
    asked = min(count, len(with_words))
    spread = [with_words[(2 * i + 1) * len(with_words) // (2 * asked)] for i in range(asked)]
    return [f"What does it say about {' '.join(words)}?" for words in spread]


def _richest_line(page: Page) -> list[str]:
    lines = [
        _telling_words([page.words[index].text for index in indices]) for indices in page.lines()
    ]
    return max(lines, key=len, default=[])[:WORDS_PER_QUESTION]


def _telling_words(words: Sequence[str]) -> list[str]:
    """The different words of a line that say what it is about."""
    terms = [term for term in find_terms(words) if not term.is_stop_word and term.key.isalpha()]
    return list({term.key: words[term.word][term.start : term.end] for term in terms}.values())
