"""Two pages that look scanned: a picture of paper, without any text behind it."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pypdfium2
from PIL import Image, ImageFilter
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas

from harbour_light import theme
from harbour_light.sheet import Sheet

SECTION = "Documents"

DPI = 144

ASSURANCE = """
Northgate Verification Ltd
7 Assay Street, Tolland

To the directors of Harbour Light plc                         3 March 2025

INDEPENDENT STATEMENT OF LIMITED ASSURANCE

We were engaged to examine the greenhouse gas emissions of scope 1 and
scope 2 stated in the annual report of Harbour Light plc for 2024.

Figures examined
Scope 1: 33.5 thousand tonnes of CO2 equivalent
Scope 2: 2.6 thousand tonnes of CO2 equivalent

What we did
We visited the ports of Port Ellery and Skarholm, recalculated the fuel
records of twelve vessels and compared bunker receipts with the tank
soundings of the masters. We set materiality at five per cent.

What we found
Nothing has come to our attention that causes us to believe that the
figures are not fairly stated in all material respects.

Recommendation
The four oldest tugs have no fuel meters and their consumption is
estimated. We recommend that meters be fitted before December 2025.

Our fee for this engagement was 48,000 pounds.




Beatrice Holloway
Lead verifier, Northgate Verification Ltd
""".strip().splitlines()

CERTIFICATE = """
MARITIME TYPE APPROVAL BOARD

CERTIFICATE OF TYPE APPROVAL

Certificate number       MTAB 24-0719

This is to certify that the product named below was found
to comply with the rules for lights on fixed and floating aids.

Maker              Harbour Light plc, Port Ellery
Product            Aurora 4 marine lantern
Nominal range      12 nautical miles, white
Protection         IP68, ten metres for 48 hours
Temperature        from -40 to +55 degrees Celsius
Vibration test     passed on 22 January 2024
Salt spray test    1,000 hours, passed

Issued             12 February 2024
Valid until        11 February 2029

Any change of design ends the validity of this certificate
unless the Board has agreed to it in writing.




Surveyor           Cornelis Brandt
""".strip().splitlines()

_HEADLINES = {
    "Northgate Verification Ltd": 17,
    "MARITIME TYPE APPROVAL BOARD": 19,
    "CERTIFICATE OF TYPE APPROVAL": 16,
    "INDEPENDENT STATEMENT OF LIMITED ASSURANCE": 13,
}


def certificate(sheet: Sheet) -> None:
    _place(sheet, _scan(_certificate_paper(), tilt=-0.9, seed=24))


def assurance(sheet: Sheet) -> None:
    _place(sheet, _scan(_letter_paper(), tilt=0.7, seed=7))


def _place(sheet: Sheet, jpeg: bytes) -> None:
    """Fill the page with the picture, so that nothing on it is text."""
    picture = ImageReader(io.BytesIO(jpeg))
    sheet.canvas.drawImage(picture, 0, 0, theme.PAGE_WIDTH, theme.PAGE_HEIGHT)


def _letter_paper() -> bytes:
    stream = io.BytesIO()
    canvas = _paper(stream)
    _write(canvas, ASSURANCE, left=84, top=752, leading=17.2)
    _sign(canvas, 92, 222)
    canvas.save()
    return stream.getvalue()


def _certificate_paper() -> bytes:
    stream = io.BytesIO()
    canvas = _paper(stream)
    for inset, weight in ((34, 3), (41, 0.8)):
        canvas.setLineWidth(weight)
        wide, tall = theme.PAGE_WIDTH - 2 * inset, theme.PAGE_HEIGHT - 2 * inset
        canvas.rect(inset, inset, wide, tall)
    _write(canvas, CERTIFICATE, left=88, top=736, leading=23)
    _sign(canvas, 216, 172)
    _stamp(canvas, 450, 140)
    canvas.save()
    return stream.getvalue()


def _paper(stream: io.BytesIO) -> Any:
    return Canvas(stream, pagesize=(theme.PAGE_WIDTH, theme.PAGE_HEIGHT), invariant=1)


def _write(canvas: Any, lines: list[str], left: float, top: float, leading: float) -> None:
    for i, line in enumerate(lines):
        y = top - i * leading
        if line in _HEADLINES:
            canvas.setFont("Times-Bold", _HEADLINES[line])
            canvas.drawString(left, y, line)
            continue
        canvas.setFont("Times-Roman", 13)
        caption, gap, value = line.partition("  ")
        canvas.drawString(left, y, caption)
        if gap:
            canvas.drawString(
                left + (286 if caption.startswith("To the") else 124), y, value.strip()
            )


def _sign(canvas: Any, x: float, y: float) -> None:
    """Scribble a signature."""
    canvas.setLineWidth(1.3)
    path = canvas.beginPath()
    path.moveTo(x, y)
    path.curveTo(x + 10, y + 44, x + 26, y + 40, x + 16, y - 6)
    path.curveTo(x + 30, y + 22, x + 40, y + 18, x + 42, y + 2)
    path.curveTo(x + 52, y + 20, x + 58, y + 14, x + 62, y)
    path.curveTo(x + 76, y + 46, x + 84, y + 40, x + 74, y - 10)
    path.curveTo(x + 96, y + 16, x + 122, y + 14, x + 150, y + 6)
    canvas.drawPath(path)


def _stamp(canvas: Any, x: float, y: float) -> None:
    canvas.setLineWidth(2)
    canvas.circle(x, y, 46)
    canvas.setLineWidth(0.8)
    canvas.circle(x, y, 38)
    canvas.setFont("Times-Bold", 12)
    canvas.drawCentredString(x, y + 4, "APPROVED")
    canvas.drawCentredString(x, y - 11, "MTAB")


def _scan(pdf: bytes, tilt: float, seed: int) -> bytes:
    """Render paper as a scanner would see it: tilted, unevenly lit, grainy, grey."""
    document = pypdfium2.PdfDocument(pdf)
    image = document[0].render(scale=DPI / 72, grayscale=True).to_pil()
    document.close()
    image = image.rotate(tilt, resample=Image.Resampling.BICUBIC, fillcolor=255)
    image = image.filter(ImageFilter.GaussianBlur(0.6))
    grey = np.asarray(image, dtype=np.float64)
    across = np.linspace(0.0, 1.0, grey.shape[1])
    light = 1.0 - 0.10 * across[None, :] ** 3
    grain = np.random.default_rng(seed).normal(0.0, 5.0, grey.shape)
    paper = np.clip((grey * 0.86 + 26.0) * light + grain, 0, 255).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(paper).save(stream, "JPEG", quality=48)
    return stream.getvalue()
