"""Inside the worker process: the files that have pages, each behind the same two methods."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import pypdfium2
import pypdfium2.raw as pdfium
from PIL import Image, UnidentifiedImageError

from visar.documents.figures import figure_regions
from visar.documents.layout import arrange
from visar.documents.pdftext import Geometry, read_words
from visar.documents.quality import readable, usable
from visar.documents.wire import PageContent, Raster, as_words

Reason: TypeAlias = Literal["password", "broken", "limit"]

# Deeper nesting is not followed when figures are looked for.
_FORM_DEPTH = 4
_MOST_IMAGES = 2000
# PDFium draws bitmaps up to about this length.
_LONGEST_SIDE = 30_000
_IMAGE_FORMATS = ("PNG", "JPEG", "TIFF", "WEBP")
# Of an image that does not say how large it is printed.
_ASSUMED_DPI = 144.0
# Programs that do not know write 72.
_CREDIBLE_DPI = (73.0, 2400.0)
_EXIF_ORIENTATION = 0x0112
_EXIF_ROTATIONS = {3: 180, 6: 90, 8: 270}
_EXIF_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class Refused(Exception):
    """A file or page that cannot be read, for a known reason."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Source(Protocol):
    """A file with pages; page numbers are 1-based."""

    def __len__(self) -> int: ...

    def read(self, number: int) -> PageContent:
        """Size, words in reading order, and figures of a page."""
        ...

    def render(self, number: int, dpi: float, max_pixels: int) -> Raster:
        """A page as RGB pixels."""
        ...


class PdfSource:
    """Pages of a PDF."""

    def __init__(self, path: Path, password: str | None) -> None:
        try:
            self._pdf = pypdfium2.PdfDocument(path, password=password)
        except pypdfium2.PdfiumError as error:
            code = pdfium.FPDF_GetLastError()
            if code == pdfium.FPDF_ERR_PASSWORD:
                raise Refused("password", "") from error
            if code == pdfium.FPDF_ERR_SECURITY:
                raise Refused("broken", "is encrypted in a way that is not supported") from error
            raise Refused("broken", "is not a readable PDF: it is damaged or cut off") from error
        # Filled-in form fields are only drawn with this.
        self._pdf.init_forms()

    def __len__(self) -> int:
        return len(self._pdf)

    def read(self, number: int) -> PageContent:
        """Size, words in reading order, and figures of a page."""
        page = self._page(number)
        if _has_written_annotations(page) and pdfium.FPDFPage_Flatten(
            page.raw, pdfium.FLAT_NORMALDISPLAY
        ):
            # What stands in form fields and notes becomes text of the page, once it is reloaded.
            page.close()
            page = self._page(number)
        geometry = _geometry(page)
        text_page = pdfium.FPDFText_LoadPage(page.raw)
        try:
            pieces = read_words(text_page, geometry) if text_page else []
        finally:
            pdfium.FPDFText_ClosePage(text_page)
        trusted = usable([piece.text for piece in pieces])
        words = [replace(piece, text=readable(piece.text)) for piece in pieces if trusted]
        words = [piece for piece in words if piece.text]
        lines = arrange(words, file_order=True)
        objects = pdfium.FPDFPage_CountObjects(page.raw)
        width, height = geometry.width, geometry.height
        return PageContent(
            width=width,
            height=height,
            rotation=geometry.rotation,
            blank=not objects and not pieces,
            figures=tuple(figure_regions(_images(page, geometry), width, height)),
            words=as_words(lines, width, height, written=words),
        )

    def render(self, number: int, dpi: float, max_pixels: int) -> Raster:
        """A page as RGB pixels, at a lower resolution than asked for if it would be too large."""
        page = self._page(number)
        width, height = page.get_size()
        scale = min(
            dpi / 72, math.sqrt(max_pixels / (width * height)), _LONGEST_SIDE / max(width, height)
        )
        bitmap = page.render(
            scale=scale, rev_byteorder=True, force_bitmap_format=pdfium.FPDFBitmap_BGR
        )
        pixels = np.ascontiguousarray(bitmap.to_numpy())
        return Raster(bitmap.width, bitmap.height, pixels.tobytes())

    def _page(self, number: int) -> Any:
        try:
            page = self._pdf[number - 1]
        except pypdfium2.PdfiumError as error:
            raise Refused("broken", "is damaged") from error
        width, height = page.get_size()
        if not (0 < width < math.inf and 0 < height < math.inf):
            raise Refused("broken", f"has an impossible size of {width} × {height} points")
        return page


def _has_written_annotations(page: Any) -> bool:
    for index in range(pdfium.FPDFPage_GetAnnotCount(page.raw)):
        annotation = pdfium.FPDFPage_GetAnnot(page.raw, index)
        subtype = pdfium.FPDFAnnot_GetSubtype(annotation)
        pdfium.FPDFPage_CloseAnnot(annotation)
        if subtype in (pdfium.FPDF_ANNOT_WIDGET, pdfium.FPDF_ANNOT_FREETEXT):
            return True
    return False


def _geometry(page: Any) -> Geometry:
    left, bottom, right, top = page.get_bbox()
    return Geometry(left, bottom, right, top, page.get_rotation())


def _images(page: Any, geometry: Geometry) -> list[tuple[float, float, float, float]]:
    """Where raster images with enough pixels for words stand on the displayed page."""
    corners = []
    for image, matrix in _image_objects(page.raw):
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
    boxes = geometry.displayed(np.nan_to_num(np.array(corners)))
    return [(left, top, right, bottom) for left, top, right, bottom in boxes.tolist()]


def _image_objects(page: Any) -> Iterator[tuple[Any, Any]]:
    """Image objects with the matrix that brings the unit square to their place."""

    def walk(
        count: int, get: Callable[[int], Any], outer: Any, depth: int
    ) -> Iterator[tuple[Any, Any]]:
        for index in range(count):
            item = get(index)
            kind = pdfium.FPDFPageObj_GetType(item)
            if kind == pdfium.FPDF_PAGEOBJ_IMAGE:
                yield item, outer @ _matrix(item)
            elif kind == pdfium.FPDF_PAGEOBJ_FORM and depth < _FORM_DEPTH:
                inner = outer @ _matrix(item)
                inner_count = pdfium.FPDFFormObj_CountObjects(item)
                yield from walk(
                    inner_count,
                    lambda i, form=item: pdfium.FPDFFormObj_GetObject(form, i),  # type: ignore[misc]
                    inner,
                    depth + 1,
                )

    count = pdfium.FPDFPage_CountObjects(page)
    return walk(count, lambda i: pdfium.FPDFPage_GetObject(page, i), np.eye(3), 0)


def _matrix(item: Any) -> Any:
    m = pdfium.FS_MATRIX()
    pdfium.FPDFPageObj_GetMatrix(item, m)
    return np.array([[m.a, m.c, m.e], [m.b, m.d, m.f], [0, 0, 1]])


class ImageSource:
    """Image files as pages: each frame of a TIFF is one, of other files the first only."""

    def __init__(self, paths: Sequence[Path], max_pages: int) -> None:
        # The sizes of all pages are checked by whoever opens them; here only what is there.
        Image.MAX_IMAGE_PIXELS = None
        self._frames: list[tuple[Path, int]] = []
        for path in paths:
            with _opened(path) as image:
                frames = getattr(image, "n_frames", 1) if image.format == "TIFF" else 1
            self._frames += [(path, frame) for frame in range(min(frames, max_pages + 1))]

    def __len__(self) -> int:
        return len(self._frames)

    def read(self, number: int) -> PageContent:
        """Size of a page; an image has no words of its own."""
        with self._frame(number) as image:
            width, height = image.size
            x_dpi, y_dpi = _resolution(image)
            orientation = _orientation(image)
        if orientation >= 5:
            width, height, x_dpi, y_dpi = height, width, y_dpi, x_dpi
        return PageContent(
            width=width / x_dpi * 72,
            height=height / y_dpi * 72,
            rotation=_EXIF_ROTATIONS.get(orientation, 0),
            blank=False,
            figures=(),
            words=(),
        )

    def render(self, number: int, dpi: float, max_pixels: int) -> Raster:
        """A page as RGB pixels, never enlarged beyond those it has."""
        with self._frame(number) as image:
            width, height = image.size
            if width * height > max_pixels:
                raise Refused(
                    "limit",
                    f"has {width} × {height} pixels, more than the limit of {max_pixels:,} "
                    "(Limits.max_pixels)",
                )
            x_dpi, y_dpi = _resolution(image)
            size = (
                max(1, round(width * min(1, dpi / x_dpi))),
                max(1, round(height * min(1, dpi / y_dpi))),
            )
            try:
                picture = _as_rgb(image)
                if size != picture.size:
                    picture = picture.resize(size, Image.Resampling.LANCZOS, reducing_gap=2.0)
                turn = _EXIF_TURNS.get(_orientation(image))
                picture = picture if turn is None else picture.transpose(turn)
            except (OSError, SyntaxError, ValueError, EOFError) as error:
                raise Refused("broken", f"is damaged or cut off ({error})") from error
            return Raster(*picture.size, picture.tobytes())

    def _frame(self, number: int) -> Image.Image:
        path, frame = self._frames[number - 1]
        image = _opened(path)
        try:
            image.seek(frame)
        except (EOFError, OSError, SyntaxError, ValueError) as error:
            raise Refused("broken", f"is damaged or cut off ({error})") from error
        return image


def _opened(path: Path) -> Image.Image:
    try:
        return Image.open(path, formats=_IMAGE_FORMATS)
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise Refused("broken", f"is not a readable image: {path.name} is damaged") from error


def _orientation(image: Image.Image) -> int:
    try:
        value = image.getexif().get(_EXIF_ORIENTATION, 1)
    except (OSError, SyntaxError, ValueError):
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def _resolution(image: Image.Image) -> tuple[float, float]:
    given = image.info.get("dpi")
    low, high = _CREDIBLE_DPI
    try:
        x, y = (float(value) for value in given or ())
    except (TypeError, ValueError, ZeroDivisionError):
        return _ASSUMED_DPI, _ASSUMED_DPI
    return (x, y) if low <= x <= high and low <= y <= high else (_ASSUMED_DPI, _ASSUMED_DPI)


def _as_rgb(image: Image.Image) -> Image.Image:
    """On white where it is transparent; grey values beyond 8 bits scaled down to them."""
    if image.mode.startswith("I") or image.mode == "F":
        values = np.asarray(image, np.float32)
        top = max(float(values.max(initial=0)), 255.0 if image.mode == "F" else 65535.0)
        scaled = (np.clip(values, 0, top) / top * 255).astype(np.uint8)
        return Image.fromarray(scaled).convert("RGB")
    if image.has_transparency_data:
        layered = image.convert("RGBA")
        result = Image.new("RGB", image.size, "white")
        result.paste(layered, mask=layered.getchannel("A"))
        return result
    return image.convert("RGB")
