"""Finding the year of a document in its title or on its first page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

_EARLIEST = 1900
# A year, optionally with the next one, as for a season or a fiscal year: 2024/25, 2023–2024.
_YEAR = re.compile(
    r"(?<![\d.,$€£])((?:19|20)\d\d)(?:\s?[/–-]\s?((?:\d\d)?\d\d)(?!\w))?(?!\w|[.,]\d)"
)
# The heading consists of the words of at least this share of the largest font size.
_LARGE = 0.9
_LONGEST_HEADING = 20


def document_year(
    title: str, first_page: Sequence[tuple[str, float]], created: int | None
) -> int | None:
    """Return the year of a document, or None if it is uncertain.

    Parameters
    ----------
    title
        Title in the metadata of the file.
    first_page
        Words of the first page in reading order, with their font sizes.
    created
        Year in which the file was created. It is only used if the first page has text without
        any other year, because a document may be scanned or exported years later.

    >>> document_year("Annual Report 2023/24", [], 2025)
    2023
    >>> document_year("", [("Report", 30.0), ("2024", 30.0), ("Since", 10.0), ("1951", 10.0)], 2000)
    2024
    >>> document_year("", [("Minutes", 30.0), ("since", 10.0), ("1951", 10.0)], 2000)
    """
    largest = _LARGE * max((size for _, size in first_page), default=0)
    heading = [text for text, size in first_page if size >= largest]
    for text in (title, " ".join(heading) if len(heading) <= _LONGEST_HEADING else ""):
        if len(years := _years(text)) == 1:
            return years.pop()
    years = _years(" ".join(text for text, _ in first_page)) | _years(title)
    if created is None:
        return years.pop() if len(years) == 1 else None
    return created if first_page and (not years or created in years) else None


def _years(text: str) -> set[int]:
    """Return the plausible years in a text."""
    years = set()
    for match in _YEAR.finditer(text):
        first, second = int(match[1]), match[2] or ""
        years.add(first)
        last = int(second) if len(second) == 4 else first // 100 * 100 + int(second or 0)
        if last > first + 1:
            years.add(last)
    return {year for year in years if _EARLIEST <= year <= datetime.now(UTC).year + 1}
