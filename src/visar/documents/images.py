"""Image files as pages. This module runs in the worker process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from visar.documents.finding import document_name
from visar.documents.layout import EMPTY
from visar.documents.worker import PageContent, Raster, ReadError

_IMAGE_FORMATS = ("PNG", "JPEG", "TIFF", "WEBP")
# Resolution of images without a plausible one.
_ASSUMED_DPI = 144.0
# Many programs write 72 if they don't know the resolution.
_CREDIBLE_DPI = (73.0, 2400.0)
# The maximum length of a side in JPEG. Longer images aren't pages, whatever their area.
_LONGEST_SIDE = 65_535
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


class ImageSource:
    """Image files as pages: every frame of a TIFF, or the first frame of other files."""

    def __init__(self, paths: Sequence[Path], max_pages: int) -> None:
        # `render` checks the size of each page.
        Image.MAX_IMAGE_PIXELS = None
        self._frames: list[tuple[Path, int]] = []
        for path in paths:
            with _open(path) as image:
                frames = getattr(image, "n_frames", 1) if image.format == "TIFF" else 1
            self._frames += [(path, frame) for frame in range(min(frames, max_pages + 1))]

    def __len__(self) -> int:
        return len(self._frames)

    def metadata(self) -> dict[str, str | int]:
        return {}

    def read(self, number: int) -> PageContent:
        """Return the size of a page; an image has no text layer."""
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
            words=EMPTY,
        )

    def render(self, number: int, dpi: float, max_pixels: int) -> Raster:
        """Return a page as RGB pixels, never enlarged."""
        with self._frame(number) as image:
            width, height = image.size
            if max(width, height) > _LONGEST_SIDE:
                raise ReadError(
                    "limit",
                    f"has {width} × {height} pixels, but the limit for a side is {_LONGEST_SIDE:,}",
                )
            if width * height > max_pixels:
                raise ReadError(
                    "limit",
                    f"has {width} × {height} pixels, but the limit is {max_pixels:,} "
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
                raise ReadError("broken", f"is damaged or cut off ({error})") from error
            return *picture.size, picture.tobytes()

    def _frame(self, number: int) -> Image.Image:
        path, frame = self._frames[number - 1]
        image = _open(path)
        try:
            image.seek(frame)
        except (EOFError, OSError, SyntaxError, ValueError) as error:
            raise ReadError("broken", f"is damaged or cut off ({error})") from error
        return image


def _open(path: Path) -> Image.Image:
    try:
        return Image.open(path, formats=_IMAGE_FORMATS)
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise ReadError(
            "broken", f"isn't a readable image: {document_name(path)} is damaged"
        ) from error


def _orientation(image: Image.Image) -> int:
    try:
        value = image.getexif().get(_EXIF_ORIENTATION, 1)
    except (OSError, SyntaxError, ValueError):
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def _resolution(image: Image.Image) -> tuple[float, float]:
    dpi = image.info.get("dpi")
    low, high = _CREDIBLE_DPI
    try:
        x, y = (float(value) for value in dpi or ())
    except (TypeError, ValueError, ZeroDivisionError):
        return _ASSUMED_DPI, _ASSUMED_DPI
    return (x, y) if low <= x <= high and low <= y <= high else (_ASSUMED_DPI, _ASSUMED_DPI)


def _as_rgb(image: Image.Image) -> Image.Image:
    """Convert an image to RGB, with transparency on white and gray scaled to 8 bits."""
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
