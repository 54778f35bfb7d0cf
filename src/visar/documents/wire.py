"""What crosses between the program and its worker process: JSON and raw bytes, nothing else.

The worker reads files nobody vouches for, so what it answers is checked like any other input.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from visar.documents.layout import Piece
from visar.documents.page import Box, Word

_HEADER = struct.Struct(">IQ")
_LONGEST_MESSAGE = 256_000_000
# Places finer than a hundred thousandth of the page mean nothing.
_DIGITS = 5


@dataclass(frozen=True, slots=True)
class PageContent:
    """What a page holds without OCR."""

    width: float
    height: float
    rotation: int
    blank: bool
    """Nothing is drawn on it."""
    figures: tuple[Box, ...]
    words: tuple[Word, ...]
    """Empty if there is no text layer, or none that can be trusted."""

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> PageContent:
        """Rebuild what :func:`to_json` gave."""
        return cls(
            width=float(values["width"]),
            height=float(values["height"]),
            rotation=int(values["rotation"]),
            blank=bool(values["blank"]),
            figures=tuple(_box(figure) for figure in values["figures"]),
            words=tuple(
                Word(str(text), _box(box), int(line)) for text, box, line in values["words"]
            ),
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "width": self.width,
            "height": self.height,
            "rotation": self.rotation,
            "blank": self.blank,
            "figures": self.figures,
            "words": [(word.text, word.box, word.line) for word in self.words],
        }


@dataclass(frozen=True, slots=True)
class Raster:
    """A page as pixels, three bytes each, row by row."""

    width: int
    height: int
    pixels: bytes


def as_words(
    lines: Sequence[Sequence[Piece]], width: float, height: float, *, written: Sequence[Piece] = ()
) -> tuple[Word, ...]:
    """Lines in points as words in shares of the page.

    Words come line by line, or in the order in which the file has ``written`` them.
    """
    pieces = [(piece, number) for number, line in enumerate(lines) for piece in line]
    if not pieces:
        return ()
    if written:
        place = {id(piece): index for index, piece in enumerate(written)}
        pieces.sort(key=lambda placed: place[id(placed[0])])
    corners = np.array([(p.left, p.top, p.right, p.bottom) for p, _ in pieces])
    shares = np.clip(corners / (width, height, width, height), 0, 1).round(_DIGITS).tolist()
    return tuple(
        Word(piece.text, _box(share), number)
        for (piece, number), share in zip(pieces, shares, strict=True)
    )


def send(stream: BinaryIO, message: dict[str, Any], payload: bytes = b"") -> None:
    """Write a message, and bytes that go with it."""
    text = json.dumps(message).encode()
    stream.write(_HEADER.pack(len(text), len(payload)) + text)
    stream.write(payload)
    stream.flush()


def receive(stream: BinaryIO, max_payload: int) -> tuple[dict[str, Any], bytes]:
    """Read what :func:`send` wrote; EOFError when the other side is gone."""
    text_length, payload_length = _HEADER.unpack(_exactly(stream, _HEADER.size))
    if text_length > _LONGEST_MESSAGE or payload_length > max_payload:
        raise EOFError(f"a message of {text_length} + {payload_length} bytes")
    message = json.loads(_exactly(stream, text_length))
    if not isinstance(message, dict):
        raise ValueError("a message that is no object")  # noqa: TRY004 - of the other side's making
    return message, _exactly(stream, payload_length)


def _exactly(stream: BinaryIO, count: int) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        raise EOFError
    return data


def _box(values: Any) -> Box:
    left, top, right, bottom = values
    return float(left), float(top), float(right), float(bottom)
