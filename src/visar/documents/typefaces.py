"""The fonts of this package, with their characters and widths."""

from __future__ import annotations

import struct
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

Face: TypeAlias = Literal["DejaVuSans", "DejaVuSans-Bold", "DejaVuSansMono", "Boxes"]
PLAIN: Face = "DejaVuSans"
BOLD: Face = "DejaVuSans-Bold"
FIXED: Face = "DejaVuSansMono"
# The font needs its own name, because PDFium identifies fonts by name.
BOXES: Face = "Boxes"
LAST_CODE = 0xFFFF
_FONTS = Path(__file__).parent / "fonts"
# Replaces characters that a font lacks.
_BOX = "\u25a1"


@cache
def font_file(face: Face) -> bytes:
    return (_FONTS / f"{face}.ttf").read_bytes()


def _font_table(data: bytes, name: bytes) -> int:
    (count,) = struct.unpack_from(">H", data, 4)
    entries = (struct.unpack_from(">4sLLL", data, 12 + 16 * n) for n in range(count))
    return next(int(offset) for tag, _, offset, _ in entries if tag == name)


@cache
def characters(face: Face) -> dict[str, int]:
    """Return the characters of a font and their glyphs, from its table of format 4."""
    data = font_file(face)
    start = _font_table(data, b"cmap")
    (count,) = struct.unpack_from(">H", data, start + 2)
    offsets = (struct.unpack_from(">HHL", data, start + 4 + 8 * n)[2] for n in range(count))
    table = next(
        start + offset
        for offset in offsets
        if struct.unpack_from(">H", data, start + offset)[0] == 4
    )
    length, _, doubled = struct.unpack_from(">HHH", data, table + 2)
    words = np.frombuffer(data, ">u2", (length - 14) // 2, table + 14).astype(int)
    n = doubled // 2
    ends, starts, deltas, ranges = (
        words[:n],
        *(words[1 + k * n : 1 + (k + 1) * n] for k in (1, 2, 3)),
    )
    glyphs: dict[str, int] = {}
    for segment in range(n):
        for code in range(starts[segment], min(ends[segment], LAST_CODE - 1) + 1):
            if ranges[segment]:
                index = 1 + 3 * n + segment + ranges[segment] // 2 + code - starts[segment]
                glyph = words[index] and (words[index] + deltas[segment]) % 65536
            else:
                glyph = (code + deltas[segment]) % 65536
            if glyph:
                glyphs[chr(code)] = int(glyph)
    return glyphs


class _Advances(dict[str, float]):
    """The width of each character of a font at size 1."""

    def __init__(self, face: Face) -> None:
        data = font_file(face)
        (units,) = struct.unpack_from(">H", data, _font_table(data, b"head") + 18)
        (count,) = struct.unpack_from(">H", data, _font_table(data, b"hhea") + 34)
        metrics = np.frombuffer(data, ">u2", 2 * count, _font_table(data, b"hmtx"))[::2] / units
        super().__init__(
            (character, float(metrics[min(glyph, count - 1)]))
            for character, glyph in characters(face).items()
        )
        self._missing = self[_BOX]

    def __missing__(self, character: str) -> float:
        return self._missing


advances = cache(_Advances)


def text_width(text: str, face: Face, size: float) -> float:
    """Return the width of a line in points."""
    return size * sum(map(advances(face).__getitem__, text))
