"""The pages of a PDF: words of the text layer with their positions, figures, and pixels.

This module runs in the worker process. PDFium only provides characters; numpy groups them to
words. Their boxes are fetched with C prototypes that take plain addresses, which is several times
as fast as the checked prototypes of pypdfium2.
"""

from __future__ import annotations

import ctypes
import math
import re
import unicodedata
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pypdfium2
import pypdfium2.raw as pdfium
from numpy.typing import NDArray

from visar.documents.layout import Piece, WordTable, arrange, figure_regions
from visar.documents.page import Box
from visar.documents.repair import clean_pieces, repair_pieces
from visar.documents.worker import PageContent, Raster, ReadError
from visar.text import clean_line, clean_text

# Maximum gap between characters of a word, as a share of their size.
_WIDEST_JOINT = 0.6
# Maximum deviation from a writing direction, in quarter turns.
_STEEPEST_LEAN = 0.2
# PDFium replaces a hyphen at the end of a line by the first character, or by the second one in the
# text of a whole page.
_LINE_END_HYPHEN, _MARK_IN_TEXT = "\x02", 0xFFFE
_REPLACED = {
    _LINE_END_HYPHEN: "-",
    "\u00ad": "-",
    # Ligatures, and letters of formulas: mathematical bold A becomes A.
    **{
        chr(code): unicodedata.normalize("NFKC", chr(code))
        for code in (*range(0xFB00, 0xFB07), *range(0x1D400, 0x1D800))
    },
    **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\ufffe\0", ""),
}
_TRANSLATION = str.maketrans(_REPLACED)
# The table covers all code points of spaces.
_IS_SPACE = np.array([chr(code).isspace() or code == 0 for code in range(0x3002)])

# A larger share of unprintable characters in a text layer means that a font is broken.
_MAX_UNPRINTABLE = 0.3
# Minimum text for detecting missing spaces, in scripts that use spaces.
_ENOUGH_CHARACTERS = 60
_LONGEST_WORD = 40
_MAX_UNBROKEN = 0.5
_SPACED_LETTERS = re.compile("[A-Za-z\u00c0-\u058f\u0600-\u06ff\u1e00-\u1fff]")

# Maximum nesting depth for finding figures.
_FORM_DEPTH = 4
_MOST_IMAGES = 2000
_TITLES = ("title", "author")
_LONGEST_TITLE = 300
_CREATED = re.compile(r"(?:D:)?\s*((?:19|20)\d\d)")
# PDFium can render bitmaps up to about this length.
_LONGEST_SIDE = 30_000

_address, _int = ctypes.c_void_p, ctypes.c_int


def _declare(function: Any, result: Any, *arguments: Any) -> Any:
    return ctypes.CFUNCTYPE(result, *arguments)(ctypes.cast(function, _address).value or 0)


_unicode = _declare(pdfium.FPDFText_GetUnicode, ctypes.c_uint, _address, _int)
_text = _declare(pdfium.FPDFText_GetText, _int, _address, _int, _int, _address)
_char_box = _declare(pdfium.FPDFText_GetCharBox, _int, _address, _int, *[_address] * 4)
_loose_box = _declare(pdfium.FPDFText_GetLooseCharBox, _int, _address, _int, _address)
_angle = _declare(pdfium.FPDFText_GetCharAngle, ctypes.c_float, _address, _int)
_object = _declare(pdfium.FPDFPage_GetObject, _address, _address, _int)
_form_object = _declare(pdfium.FPDFFormObj_GetObject, _address, _address, ctypes.c_ulong)
_object_type = _declare(pdfium.FPDFPageObj_GetType, _int, _address)


class PdfSource:
    """The pages of a PDF file."""

    _is_trusted = False
    """True if the text layer is known to be valid, so that it needs no check and no repair."""

    def __init__(self, pdf: pypdfium2.PdfDocument) -> None:
        self._pdf = pdf
        # Without this, filled-in form fields aren't rendered.
        self._pdf.init_forms()

    @classmethod
    def open(cls, path: Path, password: str | None) -> PdfSource:
        """Open a file; raise ReadError if it is damaged, or encrypted with another password."""
        try:
            return cls(pypdfium2.PdfDocument(path, password=password))
        except pypdfium2.PdfiumError as error:
            code = pdfium.FPDF_GetLastError()
            if code == pdfium.FPDF_ERR_PASSWORD:
                raise ReadError("password", "") from error
            if code == pdfium.FPDF_ERR_SECURITY:
                raise ReadError("broken", "uses an unsupported encryption method") from error
            raise ReadError(
                "broken", "isn't a readable PDF: it is damaged or incomplete"
            ) from error

    def __len__(self) -> int:
        return len(self._pdf)

    def metadata(self) -> dict[str, str | int]:
        """Return the title, author and year of creation, as far as the file contains them."""
        try:
            fields = self._pdf.get_metadata_dict(skip_empty=True)
        except (pypdfium2.PdfiumError, UnicodeDecodeError):
            return {}
        texts = {name: clean_line(fields.get(name.title(), ""), _LONGEST_TITLE) for name in _TITLES}
        metadata: dict[str, str | int] = {name: text for name, text in texts.items() if text}
        if created := _CREATED.match(fields.get("CreationDate", "")):
            metadata["year"] = int(created[1])
        return metadata

    def read(self, number: int) -> PageContent:
        """Return the size, words in reading order, and figures of a page."""
        page = self._page(number)
        if _has_text_annotations(page) and pdfium.FPDFPage_Flatten(
            page.raw, pdfium.FLAT_NORMALDISPLAY
        ):
            # After reloading, the text of form fields and notes is part of the page.
            page.close()
            page = self._page(number)
        left, bottom, right, top = page.get_bbox()
        geometry = Geometry(left, bottom, right, top, page.get_rotation())
        text_page = pdfium.FPDFText_LoadPage(page.raw)
        try:
            pieces = read_words(text_page, geometry) if text_page else []
        finally:
            pdfium.FPDFText_ClosePage(text_page)
        words = clean_pieces(pieces)
        if not self._is_trusted:
            words = repair_pieces(words) if is_usable([piece.text for piece in pieces]) else []
        lines = arrange(words, file_order=True)
        objects = pdfium.FPDFPage_CountObjects(page.raw)
        width, height = geometry.width, geometry.height
        return PageContent(
            width=width,
            height=height,
            rotation=geometry.rotation,
            blank=not objects and not pieces,
            figures=tuple(figure_regions(_images(page, geometry), width, height)),
            words=WordTable.of(lines, width, height, written=words),
            label=self._label(number),
        )

    def render(self, number: int, dpi: float, max_pixels: int) -> Raster:
        """Return a page as RGB pixels, at a lower resolution if it would be too large."""
        page = self._page(number)
        width, height = page.get_size()
        scale = min(
            dpi / 72, math.sqrt(max_pixels / (width * height)), _LONGEST_SIDE / max(width, height)
        )
        bitmap = page.render(
            scale=scale, rev_byteorder=True, force_bitmap_format=pdfium.FPDFBitmap_BGR
        )
        pixels = np.ascontiguousarray(bitmap.to_numpy())
        return bitmap.width, bitmap.height, pixels.tobytes()

    def _label(self, number: int) -> str:
        """Return the printed number of a page, or "" if the file has no valid one."""
        try:
            return str(self._pdf.get_page_label(number - 1))
        except UnicodeDecodeError:
            return ""

    def _page(self, number: int) -> Any:
        try:
            page = self._pdf[number - 1]
        except pypdfium2.PdfiumError as error:
            raise ReadError("broken", "is damaged") from error
        width, height = page.get_size()
        if not (0 < width < math.inf and 0 < height < math.inf):
            raise ReadError("broken", f"has an impossible size of {width} × {height} points")
        return page


@dataclass(frozen=True, slots=True)
class Geometry:
    """The displayed part of a page in the coordinates of the file, and its rotation."""

    left: float
    bottom: float
    right: float
    top: float
    rotation: int

    @property
    def width(self) -> float:
        """Displayed width in points."""
        return self.top - self.bottom if self.rotation % 180 else self.right - self.left

    @property
    def height(self) -> float:
        """Displayed height in points."""
        return self.right - self.left if self.rotation % 180 else self.top - self.bottom

    def to_display(self, boxes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Convert boxes of shape (n, 4) from file to display coordinates.

        The columns are left, right, bottom, top before, and left, top, right, bottom after.
        """
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


def is_usable(words: Sequence[str]) -> bool:
    r"""Return whether the words of a text layer are text, rather than codes of a broken font.

    >>> is_usable(["An", "ordinary", "page"]), is_usable(["\ue001\ue04f", "\x01\x03"])
    (True, False)
    """
    text = "".join(words)
    unprintable = len(text) - len(clean_text(text))
    return (
        bool(text)
        and unprintable <= _MAX_UNPRINTABLE * len(text)
        and not _lacks_spaces(words, text)
    )


def _lacks_spaces(words: Sequence[str], text: str) -> bool:
    """Return whether most letters are in implausibly long words."""
    letters = len(_SPACED_LETTERS.findall(text))
    if letters < _ENOUGH_CHARACTERS:
        return False
    counts = [len(_SPACED_LETTERS.findall(word)) for word in words if len(word) > _LONGEST_WORD]
    return sum(count for count in counts if count > _LONGEST_WORD) > _MAX_UNBROKEN * letters


def read_words(text_page: Any, geometry: Geometry) -> list[Piece]:
    """Return the words in the displayed part of a page, in the order of the file."""
    count = pdfium.FPDFText_CountChars(text_page)
    if count < 1:
        return []
    handle = ctypes.cast(text_page, _address).value
    codes = _codes(handle, count)
    indices = np.flatnonzero(~_IS_SPACE[np.minimum(codes, len(_IS_SPACE) - 1)])
    if not len(indices):
        return []
    boxes = geometry.to_display(_boxes(handle, indices))
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
    # A word is a run of characters without a space, so its text is a slice.
    firsts = indices[starts][shown]
    lasts = indices[np.append(starts[1:], len(indices)) - 1][shown]
    corners = corners[shown]
    turns = _turns(handle, firsts, geometry)
    sizes = _sizes(handle, firsts, turns, geometry, corners[:, 2:] - corners[:, :2])
    text = codes.astype("<u4").tobytes().decode("utf-32-le", "surrogatepass")
    pieces = []
    positions = zip(firsts.tolist(), lasts.tolist(), corners.tolist(), strict=True)
    for (first, last, corner), size, turn in zip(
        positions, sizes.tolist(), turns.tolist(), strict=True
    ):
        word = _normalize(text[first : last + 1])
        if word:
            left, top, right, bottom = corner
            pieces.append(Piece(word, left, top, right, bottom, size, turn))
    return pieces


def _codes(handle: int | None, count: int) -> NDArray[np.uint32]:
    """Return the code of each character of a page; codes beyond 16 bits are two surrogates."""
    # Twice the size, in case a version of PDFium writes surrogates for one character.
    buffer = np.zeros(2 * count + 2, np.uint16)
    # One call is enough unless some characters have no code, which this call leaves out.
    if _text(handle, 0, count, buffer.ctypes.data) == count + 1:
        codes = buffer[:count].astype(np.uint32)
        missing = np.flatnonzero(codes == _MARK_IN_TEXT)
    else:
        codes, missing = np.zeros(count, np.uint32), np.arange(count)
    codes[missing] = [_unicode(handle, index) for index in missing.tolist()]
    return np.where(codes <= 0x10FFFF, codes, 0)


def _normalize(word: str) -> str:
    if word.isascii() and word.isprintable():
        return word
    whole = word.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return unicodedata.normalize("NFC", whole.translate(_TRANSLATION))


def _boxes(handle: int | None, indices: NDArray[np.int64]) -> NDArray[np.float64]:
    boxes = np.zeros((len(indices), 4))
    start, step = boxes.ctypes.data, 4 * boxes.itemsize
    columns = [
        range(start + 8 * column, start + 8 * column + boxes.nbytes, step) for column in range(4)
    ]
    # Consumes the map without a Python loop.
    deque(map(_char_box, repeat(handle), indices.tolist(), *columns), maxlen=0)
    return np.nan_to_num(boxes)


def _word_starts(indices: NDArray[np.int64], boxes: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the indices at which words begin: after a space or a gap."""
    sides = boxes[:, 2:] - boxes[:, :2]
    size = sides.max(axis=1)
    apart = np.maximum(
        np.maximum(boxes[1:, :2], boxes[:-1, :2]) - np.minimum(boxes[1:, 2:], boxes[:-1, 2:]), 0
    ).max(axis=1)
    away = apart > _WIDEST_JOINT * np.maximum(size[1:], size[:-1])
    return np.flatnonzero(np.concatenate([[True], (np.diff(indices) > 1) | away]))


def _turns(handle: int | None, indices: NDArray[np.int64], geometry: Geometry) -> NDArray[np.int64]:
    """Return the displayed writing directions: quarter turns clockwise, 4 for any other."""
    angles = np.array([_angle(handle, index) for index in indices.tolist()], np.float64)
    quarters = geometry.rotation / 90 + angles / (math.pi / 2)
    nearest = np.rint(quarters)
    return np.where(abs(quarters - nearest) <= _STEEPEST_LEAN, nearest % 4, 4).astype(np.int64)


def _sizes(
    handle: int | None,
    indices: NDArray[np.int64],
    turns: NDArray[np.int64],
    geometry: Geometry,
    sides: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return font sizes from the loose boxes of characters, with a limit for some fonts."""
    boxes = np.zeros((len(indices), 4), np.float32)
    start, step = boxes.ctypes.data, 4 * boxes.itemsize
    addresses = range(start, start + boxes.nbytes, step)
    deque(map(_loose_box, repeat(handle), indices.tolist(), addresses), maxlen=0)
    left, top, right, bottom = np.nan_to_num(boxes.astype(np.float64)).T
    upright_in_file = (turns - geometry.rotation // 90) % 2 == 0
    loose = np.where(upright_in_file, abs(top - bottom), abs(right - left))
    tight = np.where(turns % 2 == 0, sides[:, 1], sides[:, 0])
    sizes: NDArray[np.float64] = np.minimum(np.maximum(loose, tight), 4 * np.maximum(tight, 1.0))
    return sizes


def _has_text_annotations(page: Any) -> bool:
    for index in range(pdfium.FPDFPage_GetAnnotCount(page.raw)):
        annotation = pdfium.FPDFPage_GetAnnot(page.raw, index)
        subtype = pdfium.FPDFAnnot_GetSubtype(annotation)
        pdfium.FPDFPage_CloseAnnot(annotation)
        if subtype in (pdfium.FPDF_ANNOT_WIDGET, pdfium.FPDF_ANNOT_FREETEXT):
            return True
    return False


def _images(page: Any, geometry: Geometry) -> list[Box]:
    """Return the boxes on the displayed page of raster images with enough pixels for words."""
    corners = []
    handle = ctypes.cast(page.raw, _address).value
    count = pdfium.FPDFPage_CountObjects(page.raw)
    for image, matrix in _image_objects(handle, count, _object, np.eye(3), _FORM_DEPTH):
        width, height = ctypes.c_uint(), ctypes.c_uint()
        pdfium.FPDFImageObj_GetImagePixelSize(image, width, height)
        if width.value < 60 or height.value < 12:
            continue
        x, y = matrix[0, 2], matrix[1, 2]
        across, along = matrix[:2, 0], matrix[:2, 1]
        xs = sorted([x, x + across[0], x + along[0], x + across[0] + along[0]])
        ys = sorted([y, y + across[1], y + along[1], y + across[1] + along[1]])
        corners.append((xs[0], xs[-1], ys[0], ys[-1]))
        if len(corners) == _MOST_IMAGES:
            break
    if not corners:
        return []
    boxes = geometry.to_display(np.nan_to_num(np.array(corners)))
    return [(left, top, right, bottom) for left, top, right, bottom in boxes.tolist()]


def _image_objects(
    parent: int | None, count: int, get: Callable[[int | None, int], int], outer: Any, depth: int
) -> Iterator[tuple[Any, Any]]:
    """Yield image objects with the matrix that maps the unit square to their position."""
    objects = list(map(get, repeat(parent), range(count)))
    for address, kind in zip(objects, map(_object_type, objects), strict=True):
        if kind not in (pdfium.FPDF_PAGEOBJ_IMAGE, pdfium.FPDF_PAGEOBJ_FORM):
            continue
        item = ctypes.cast(address, pdfium.FPDF_PAGEOBJECT)
        matrix = outer @ _matrix(item)
        if kind == pdfium.FPDF_PAGEOBJ_IMAGE:
            yield item, matrix
        elif depth:
            inside = pdfium.FPDFFormObj_CountObjects(item)
            yield from _image_objects(address, inside, _form_object, matrix, depth - 1)


def _matrix(item: Any) -> Any:
    m = pdfium.FS_MATRIX()
    pdfium.FPDFPageObj_GetMatrix(item, m)
    return np.array([[m.a, m.c, m.e], [m.b, m.d, m.f], [0, 0, 1]])
