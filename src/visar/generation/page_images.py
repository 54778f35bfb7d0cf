"""Page images as data URIs."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

QUALITY = 90
# Rendered pages have hundreds to thousands, and there PNG gains nothing: it is not even tried.
_FEW_COLOURS = 64


def data_uri(image: Image) -> str:
    """An image as a data URI: PNG if that loses nothing and is smaller, else JPEG.

    A drawing, or a page scanned in black and white, has few colours: as PNG it arrives exactly,
    without the shadows that JPEG leaves around letters. Scans in grey or colour would be several
    times larger as PNG; at quality 90 their JPEG reads the same.
    """
    plain = _on_white(image)
    jpeg = _encoded(plain, "jpeg", quality=QUALITY)
    if plain.getcolors(_FEW_COLOURS) is not None:
        png = _encoded(plain, "png")
        if len(png) <= len(jpeg):
            return _uri("png", png)
    return _uri("jpeg", jpeg)


def _on_white(image: Image) -> Image:
    """An image without transparency, which JPEG lacks and servers paint black."""
    if image.mode in ("L", "RGB"):
        return image
    if not image.has_transparency_data:
        return image.convert("RGB")
    from PIL import Image as Images

    seen = image.convert("RGBA")
    white = Images.new("RGBA", seen.size, "white")
    return Images.alpha_composite(white, seen).convert("RGB")


def _encoded(image: Image, kind: str, **options: int) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def _uri(kind: str, content: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
