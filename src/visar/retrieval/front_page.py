"""Questions about a document itself, and the passages of its first page that answer them.

Who wrote a report, what it is called, and when and by whom it was published stands on its first
page, in words that the question does not share.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from statistics import median
from typing import Literal, TypeAlias

from visar.documents.page import Page
from visar.retrieval.passages import Span
from visar.retrieval.wanted import answer_spans

About: TypeAlias = Literal["author", "title", "date", "publisher", "page"]

_DOCUMENT = (
    r"(?:paper|report|document|documentation|article|study|guide|guidebook|book|booklet|manual"
    r"|brochure|presentation|slides?|slide deck|deck|thesis|handbook|publication|brief|policy brief"
    r"|white paper|leaflet|plan|release|it)"
)
_THIS = rf"(?:this|the|your)?\s*(?:\w+\s)?{_DOCUMENT}\b"
_QUESTIONS: tuple[tuple[About, str], ...] = (
    ("author", rf"\bwho (?:wrote|has written|authored|made|created|prepared) {_THIS}"
               rf"|\bauthors? of {_THIS}|\b{_DOCUMENT}[’']s authors?\b"
               r"|^who (?:is|are) the authors?\??$"
               rf"|\bwho (?:was|were|is) {_THIS} (?:written|authored|made|prepared) by\b"
               r"|\bwer hat\b.*\bgeschrieben\b|\bqui a (?:écrit|rédigé)\b"),
    ("title", rf"\btitle of {_THIS}|\b{_DOCUMENT}[’']s title\b|\bwhat is {_THIS} (?:called|titled)"
              r"|^what is the title\??$|\bwie heißt (?:der|dieser) bericht\b"),
    ("publisher", rf"\bwho (?:published|publishes|released|issued|produced) {_THIS}"
                  rf"|\bpublisher of {_THIS}|^who is the publisher\??$"
                  rf"|\b(?:company|organi[sz]ation|institution|agency)\b.*\b(?:created|published"
                  rf"|produced|wrote|released|issued|made) {_THIS}"),
    ("date", rf"\b(?:when|in which year|what year|on which date) (?:was|were|is) {_THIS} "
             r"(?:\w+ )?(?:published|released|written|issued|revised|updated|produced|printed)\b"
             rf"|\b(?:date|year) of {_THIS}|\bpublication date\b|\brelease date\b"),
    ("page", r"\b(?:cover|title|front|first) page\b|\bon the cover\b"),
)  # fmt: skip
_CAPITAL = re.compile(r"^[(“\"]*[A-ZÀ-ÖØ-Þ]")
_PUBLISHED = re.compile(r"©|\b(?:publish|copyright|press\b|produced by|citation)", re.IGNORECASE)
# Authors stand within about this share of the page's height below the title.
_NEAR = 0.15
_BYLINE = re.compile(r"^(?:written |prepared |edited )?by:?\s|^authors?:?\s", re.IGNORECASE)


def about_document(question: str) -> About | None:
    """Tell what a question wants to know of the document itself, None if it is not about that.

    >>> about_document("Who wrote this report?"), about_document("Who wrote the song?")
    ('author', None)
    """
    asked = question.strip().lower()
    for about, pattern in _QUESTIONS:
        if re.search(pattern, asked):
            return about
    return None


def front_matter(about: About, question: str, page: Page, spans: Sequence[Span]) -> list[float]:
    """Tell for each passage of a first page how well its place and form suit a question about it.

    The title has the largest letters; the names of the authors stand below it or after "by".
    """
    if about == "page":
        return [1.0] * len(spans)
    if about == "date":
        return [_share_of_dates(span.text, question) for span in spans]
    if about == "publisher":
        return [1.0 if _PUBLISHED.search(s.text) else _capitals(page, s) / 2 for s in spans]
    titles = _titles(page, spans)
    if about == "title":
        longest = max((len(span.words) for span in titles), default=1)
        return [len(s.words) / longest if s in titles else 0.0 for s in spans]
    bottom = max((page.words[w].box[3] for span in titles for w in span.words), default=0.0)
    result = []
    for span in spans:
        below = min(page.words[w].box[1] for w in span.words) - bottom
        near = 0.0 if span in titles or below < -0.01 else math.exp(-max(below, 0.0) / _NEAR)
        result.append(1.0 if _BYLINE.match(span.text) else near * _capitals(page, span))
    return result


def _share_of_dates(text: str, question: str) -> float:
    """How much of a text is dates, 1 for a third and more; a year that prose cites is little."""
    dates = sum(found.end - found.start for found in answer_spans("date", text, question))
    return min(3 * dates / len(text), 1.0)


def _titles(page: Page, spans: Sequence[Span]) -> list[Span]:
    """The passages in the largest letters of a page; no addresses, nothing that runs upwards."""
    sizes = [median(page.words[w].box[3] - page.words[w].box[1] for w in s.words) for s in spans]
    level = [all(_is_level(page, w) for w in s.words) and _capitals(page, s) > 0 for s in spans]
    largest = max((size for size, runs in zip(sizes, level, strict=True) if runs), default=0.0)
    return [
        span
        for span, size, runs in zip(spans, sizes, level, strict=True)
        if runs and size > 0.8 * largest
    ]


def _is_level(page: Page, word: int) -> bool:
    left, top, right, bottom = page.words[word].box
    wide = (right - left) * page.width > (bottom - top) * page.height
    return wide or len(page.words[word].text) < 4


def _capitals(page: Page, span: Span) -> float:
    """The share of words that begin with a capital letter."""
    words = [page.words[w].text for w in span.words if page.words[w].text[0].isalpha()]
    return sum(bool(_CAPITAL.match(word)) for word in words) / max(len(words), 1)
