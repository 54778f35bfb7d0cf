"""The text layer of a PDF page as words with places.

PDFium knows characters only. Their codes and boxes are fetched through C prototypes that take
plain addresses, which is several times faster than pypdfium2's checked ones, and grouped to
words with numpy.
"""

from __future__ import annotations

import ctypes
import math
import unicodedata
from dataclasses import dataclass
from typing import Any

import numpy as np
import pypdfium2.raw as pdfium
from numpy.typing import NDArray

from visar.documents.layout import Piece

# Two boxes further apart than this share of their size belong to different words.
_WIDEST_JOINT = 0.6
# How far, in quarter turns, text may lean and still count as written in a direction.
_STEEPEST_LEAN = 0.2
# PDFium marks a hyphen at the end of a line that it would remove to join the word.
_LINE_END_HYPHEN = "\x02"
_REPLACED = {
    _LINE_END_HYPHEN: "-",
    "\u00ad": "-",
    "\ufb00": "ff",
    "\ufb01": "fi",
    "\ufb02": "fl",
    "\ufb03": "ffi",
    "\ufb04": "ffl",
    "\ufb05": "st",
    "\ufb06": "st",
    # Letters of formulas are words too: mathematical bold A is A.
    **{chr(code): unicodedata.normalize("NFKC", chr(code)) for code in range(0x1D400, 0x1D800)},
    **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\ufffe\0", ""),
}
_TRANSLATION = str.maketrans(_REPLACED)

_address, _int = ctypes.c_void_p, ctypes.c_int


def _prototype(function: Any, result: Any, *arguments: Any) -> Any:
    return ctypes.CFUNCTYPE(result, *arguments)(ctypes.cast(function, _address).value or 0)


_unicode = _prototype(pdfium.FPDFText_GetUnicode, ctypes.c_uint, _address, _int)
_char_box = _prototype(pdfium.FPDFText_GetCharBox, _int, _address, _int, *[_address] * 4)
_loose_box = _prototype(pdfium.FPDFText_GetLooseCharBox, _int, _address, _int, _address)
_angle = _prototype(pdfium.FPDFText_GetCharAngle, ctypes.c_float, _address, _int)


@dataclass(frozen=True, slots=True)
class Geometry:
    """Where the displayed part of a page lies in the coordinates of its file, and how it turns."""

    left: float
    bottom: float
    right: float
    top: float
    rotation: int

    @property
    def width(self) -> float:
        """As displayed, in points."""
        return self.top - self.bottom if self.rotation % 180 else self.right - self.left

    @property
    def height(self) -> float:
        """As displayed, in points."""
        return self.right - self.left if self.rotation % 180 else self.top - self.bottom

    def displayed(self, boxes: NDArray[np.float64]) -> NDArray[np.float64]:
        """(n, 4) left, right, bottom, top in the file to left, top, right, bottom as displayed."""
        left, right, bottom, top = boxes.T
        west, east = left - self.left, right - self.left
        north, south = self.top - top, self.top - bottom
        wide, high = self.right - self.left, self.top - self.bottom
        turned = {
            0: (west, north, east, south),
            90: (high - south, west, high - north, east),
            180: (wide - east, high - south, wide - west, high - north),
            270: (north, wide - east, south, wide - west),
        }
        return np.stack(turned[self.rotation], axis=1)


def read_words(text_page: Any, geometry: Geometry) -> list[Piece]:
    """The words of a page in the order of the file; only those that are on the displayed page."""
    count = pdfium.FPDFText_CountChars(text_page)
    if count < 1:
        return []
    handle = ctypes.cast(text_page, _address).value
    text = [chr(_unicode(handle, index)) for index in range(count)]
    visible = np.array([not (char.isspace() or char == "\0") for char in text])
    indices = np.flatnonzero(visible)
    if not len(indices):
        return []
    boxes = geometry.displayed(_boxes(handle, indices))
    starts = _word_starts(indices, boxes)
    corners = np.concatenate(
        [
            np.minimum.reduceat(boxes[:, :2], starts),
            np.maximum.reduceat(boxes[:, 2:], starts),
        ],
        axis=1,
    )
    middles = (corners[:, :2] + corners[:, 2:]) / 2
    shown = ((middles >= 0) & (middles <= (geometry.width, geometry.height))).all(axis=1)
    ends = np.append(starts[1:], len(indices)).tolist()
    firsts = indices[starts].tolist()
    letters = [text[index] for index in indices.tolist()]
    pieces = []
    for word in np.flatnonzero(shown).tolist():
        string = "".join(letters[starts[word] : ends[word]]).translate(_TRANSLATION)
        if not string:
            continue
        if not string.isascii():
            string = unicodedata.normalize("NFC", string)
        left, top, right, bottom = corners[word].tolist()
        turn = _turn(handle, firsts[word], geometry)
        size = _size(handle, firsts[word], turn, geometry, (right - left, bottom - top))
        pieces.append(Piece(string, left, top, right, bottom, size, turn))
    return pieces


def _boxes(handle: int | None, indices: NDArray[np.int64]) -> NDArray[np.float64]:
    """Left, right, bottom, top of each character."""
    boxes = np.zeros((len(indices), 4))
    address = boxes.ctypes.data
    for index in indices.tolist():
        _char_box(handle, index, address, address + 8, address + 16, address + 24)
        address += 32
    return np.nan_to_num(boxes)


def _word_starts(indices: NDArray[np.int64], boxes: NDArray[np.float64]) -> NDArray[np.int64]:
    """Where a word begins: after a space, or where the next character stands somewhere else."""
    sides = boxes[:, 2:] - boxes[:, :2]
    size = sides.max(axis=1)
    apart = np.maximum(
        np.maximum(boxes[1:, :2], boxes[:-1, :2]) - np.minimum(boxes[1:, 2:], boxes[:-1, 2:]), 0
    ).max(axis=1)
    away = apart > _WIDEST_JOINT * np.maximum(size[1:], size[:-1])
    return np.flatnonzero(np.concatenate([[True], (np.diff(indices) > 1) | away]))


def _turn(handle: int | None, index: int, geometry: Geometry) -> int:
    """The direction of writing as displayed: quarter turns clockwise, 4 for none of them."""
    quarters: float = geometry.rotation / 90 + _angle(handle, index) / (math.pi / 2)
    nearest = round(quarters)
    return nearest % 4 if abs(quarters - nearest) <= _STEEPEST_LEAN else 4


def _size(
    handle: int | None, index: int, turn: int, geometry: Geometry, sides: tuple[float, float]
) -> float:
    """Font size from the loose box of a character, which some fonts exaggerate."""
    rect = (ctypes.c_float * 4)()
    _loose_box(handle, index, ctypes.addressof(rect))
    left, top, right, bottom = rect
    upright_in_file = (turn - geometry.rotation // 90) % 2 == 0
    loose = abs(top - bottom) if upright_in_file else abs(right - left)
    tight = sides[1 - turn % 2]
    return float(min(max(loose, tight), 4 * max(tight, 1.0)))
