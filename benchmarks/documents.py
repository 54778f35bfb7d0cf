"""Measure the speed of reading text and images of pages, compared with plain PDFium.

    python benchmarks/documents.py [file.pdf]

Without a file, it creates one with 40 two-column pages. Times are CPU milliseconds of reading,
which are less sensitive to other load than wall time, and wall milliseconds through the worker
process.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pypdfium2

from visar.documents import ReadOptions, open_document
from visar.documents.pdf import PdfSource

PAGES = 40


def make(path: Path) -> Path:
    from reportlab.pdfgen.canvas import Canvas

    canvas = Canvas(str(path), pagesize=(595, 842))
    for page in range(PAGES):
        canvas.setFont("Times-Roman", 10)
        for column in (50, 310):
            for line in range(60):
                text = f"Line {line} of page {page} tells something about nothing at all."
                canvas.drawString(column, 780 - 12 * line, text)
        canvas.showPage()
    canvas.save()
    return path


def characters_one_by_one(pdf: pypdfium2.PdfDocument, number: int) -> None:
    """Read the characters and boxes of a page with pypdfium2's own functions, unordered."""
    text_page = pdf[number - 1].get_textpage()
    word: list[tuple[str, tuple[float, ...]]] = []
    for index in range(text_page.count_chars()):
        character = text_page.get_text_range(index, 1)
        if character.strip():
            word.append((character, text_page.get_charbox(index)))
        else:
            word = []


def milliseconds(read: Callable[[int], object], pages: int, clock: Callable[[], float]) -> float:
    started = clock()
    for number in range(1, pages + 1):
        read(number)
    return 1000 * (clock() - started) / pages


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(sys.argv[1]) if len(sys.argv) > 1 else make(Path(folder) / "made.pdf")
        pdf, source = pypdfium2.PdfDocument(path), PdfSource.open(path, None)
        pages = min(len(source), 100)
        cpu, wall = time.process_time, time.perf_counter
        with open_document(path, ReadOptions(ocr="never")) as document:
            rows = {
                "characters one by one, no order (CPU)": milliseconds(
                    lambda number: characters_one_by_one(pdf, number), pages, cpu
                ),
                "words in reading order (CPU)": milliseconds(source.read, pages, cpu),
                "image at 144 dpi (CPU)": milliseconds(
                    lambda number: source.render(number, 144, 10**8), pages, cpu
                ),
                "Document.page (wall)": milliseconds(document.page, pages, wall),
                "Document.image (wall)": milliseconds(document.image, pages, wall),
            }
    print(f"{path.name}, {pages} pages\n\n| what | ms a page |\n| --- | ---: |")
    for what, value in rows.items():
        print(f"| {what} | {value:.1f} |")


if __name__ == "__main__":
    main()
