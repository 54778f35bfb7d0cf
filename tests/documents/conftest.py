"""Helpers that generate documents with known contents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reportlab
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen.canvas import Canvas

from visar.documents import OpenedDocument, Page, ReadOptions, open_document

Draw = Callable[[Any], None]
A5 = (420.0, 595.0)
# Environment variables that programs for reading files must not get.
SECRETS = {"OPENAI_API_KEY", "VISAR_TOKEN", "VISAR_PASSWORD", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN"}


def write_pdf(path: Path, *pages: Draw, size: tuple[float, float] = A5, **options: Any) -> Path:
    """Write a PDF with one page per function, which draws on a reportlab canvas."""
    canvas = Canvas(str(path), pagesize=size, **options)
    for draw in pages:
        canvas.setFont("Helvetica", 10)
        draw(canvas)
        canvas.showPage()
    canvas.save()
    return path


def text_at(x: float, y: float, text: str) -> Draw:
    return lambda canvas: canvas.drawString(x, y, text)


def lines_at(x: float, y: float, lines: Sequence[str], leading: float = 12) -> Draw:
    """Return a function that draws lines, the first at height y."""

    def draw(canvas: Any) -> None:
        for number, line in enumerate(lines):
            canvas.drawString(x, y - number * leading, line)

    return draw


def embedded_font() -> str:
    """Return the name of a font with more letters than the standard fonts of PDF."""
    path = Path(reportlab.__file__).parent / "fonts" / "Vera.ttf"
    pdfmetrics.registerFont(TTFont("Vera", str(path)))
    return "Vera"


def text_image(text: str, *, size: tuple[int, int] = (900, 200), height: int = 60) -> Image.Image:
    """Return an image of black letters on white, like a scan."""
    image = Image.new("RGB", size, "white")
    font = ImageFont.load_default(height)
    ImageDraw.Draw(image).multiline_text((40, 40), text, fill="black", font=font)
    return image


def lines_of(page: Page) -> list[str]:
    """Return the lines of a page in reading order."""
    return [" ".join(page.words[index].text for index in line) for line in page.lines()]


def ink(image: Image.Image) -> NDArray[np.float64]:
    """Return the bounding box of all dark pixels, as shares of the image."""
    rows, columns = np.nonzero(np.asarray(image.convert("L")) < 128)
    return np.array(
        [
            columns.min() / image.width,
            rows.min() / image.height,
            (columns.max() + 1) / image.width,
            (rows.max() + 1) / image.height,
        ]
    )


@pytest.fixture
def opened() -> Iterator[Callable[..., OpenedDocument]]:
    """``open_document`` with ``ReadOptions``; closes the documents after the test."""
    documents = []

    def open_one(path: Path, **options: Any) -> OpenedDocument:
        documents.append(open_document(path, ReadOptions(**options)))
        return documents[-1]

    yield open_one
    for document in documents:
        document.close()
