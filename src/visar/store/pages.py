"""Pages as both stores keep them: plain values, and a checksum over these."""

from __future__ import annotations

import json
from typing import Any
from zlib import crc32

from visar.documents.page import Page, Word
from visar.errors import StoreError

PAGE_COLUMNS = "number, width, height, rotation, text_source, label, words, boxes, lines"
# Between the words of a page; full text takes it for a space.
_SEPARATOR = "\x1f"


def page_values(page: Page) -> tuple[Any, ...]:
    """A page's columns after its number, and its checksum. Boxes are rounded to float32."""
    texts = [word.text for word in page.words]
    try:
        encoded = _SEPARATOR.join(texts).encode()
    except UnicodeEncodeError as error:
        raise StoreError(
            f"page {page.number} has a word that is not valid text: {error.object!r}"
        ) from error
    if encoded.count(_SEPARATOR.encode()) != max(len(texts) - 1, 0):
        raise StoreError(f"page {page.number} has a word with the control character U+001F")
    import numpy as np

    boxes = np.array([word.box for word in page.words], "<f4").tobytes()
    lines = np.array([word.line for word in page.words], "<i4").tobytes()
    values = (
        # SQLite does not know −0.0.
        *(float(page.width) + 0.0, float(page.height) + 0.0, page.rotation, page.text_source),
        *(page.label, encoded.decode(), boxes, lines),
    )
    return *values, page_checksum(page.number, *values)


def page_checksum(number: int, *values: Any) -> int:
    """A checksum over everything a row says of a page."""
    *plain, boxes, lines = values
    text = json.dumps([number, *plain], ensure_ascii=False).encode()
    return crc32(lines, crc32(boxes, crc32(text)))


def page_of(row: tuple[Any, ...]) -> Page:
    """The page of a row of `PAGE_COLUMNS`."""
    import numpy as np

    number, width, height, rotation, text_source, label, words, boxes, lines = row[:9]
    corners = np.frombuffer(boxes, "<f4").reshape(-1, 4).tolist()
    numbers = np.frombuffer(lines, "<i4").tolist()
    texts = words.split(_SEPARATOR) if corners else []
    placed = zip(texts, corners, numbers, strict=True)
    return Page(
        number=number,
        width=width,
        height=height,
        rotation=rotation,
        words=tuple(Word(text, tuple(box), line) for text, box, line in placed),
        text_source=text_source,
        label=label,
    )
