from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pikepdf
import pytest

from tests.documents.conftest import embedded_font, ink, lines_at, lines_of, text_at, write_pdf


def test_words_and_text_source(tmp_path: Path, opened: Any) -> None:
    document = opened(write_pdf(tmp_path / "a.pdf", lines_at(50, 500, ["One two", "three"])))
    page = document.page(1)
    assert [(word.text, word.line) for word in page.words] == [("One", 0), ("two", 0), ("three", 1)]
    assert (page.number, page.width, page.height, page.rotation) == (1, 420, 595, 0)
    assert page.text_source == "text layer"
    assert not document.needs_ocr(1)


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_boxes_match_the_rendered_page(tmp_path: Path, opened: Any, rotation: int) -> None:
    """The rendered page doesn't depend on our coordinates."""
    path = write_pdf(tmp_path / "plain.pdf", text_at(60, 420, "Wagon"))
    with pikepdf.open(path) as pdf:
        pdf.pages[0].Rotate = rotation
        pdf.pages[0].CropBox = [40, 300, 300, 560]
        pdf.save(tmp_path / "turned.pdf")
    document = opened(tmp_path / "turned.pdf")
    page = document.page(1)
    assert page.rotation == rotation
    assert (page.width, page.height) == (260, 260)
    assert [word.text for word in page.words] == ["Wagon"]
    np.testing.assert_allclose(page.words[0].box, ink(document.image(1)), atol=0.008)


def test_rotated_page_has_its_displayed_size_and_order(tmp_path: Path, opened: Any) -> None:
    def sideways(canvas: Any) -> None:
        canvas.rotate(90)
        lines_at(100, -100, ["first line here", "second line here"])(canvas)

    path = write_pdf(tmp_path / "plain.pdf", sideways)
    with pikepdf.open(path) as pdf:
        pdf.pages[0].Rotate = 90
        pdf.save(tmp_path / "turned.pdf")
    page = opened(tmp_path / "turned.pdf").page(1)
    assert (page.width, page.height) == (595, 420)
    assert lines_of(page) == ["first line here", "second line here"]
    # On a page without rotation, the same text is vertical, and still read in order.
    assert lines_of(opened(path).page(1)) == ["first line here", "second line here"]


def test_text_outside_of_the_crop_box_is_dropped(tmp_path: Path, opened: Any) -> None:
    path = write_pdf(tmp_path / "plain.pdf", lines_at(60, 500, ["kept", "lost"], leading=300))
    with pikepdf.open(path) as pdf:
        pdf.pages[0].CropBox = [0, 400, 420, 595]
        pdf.save(tmp_path / "cropped.pdf")
    assert lines_of(opened(tmp_path / "cropped.pdf").page(1)) == ["kept"]


def test_separately_positioned_letters_form_words(tmp_path: Path, opened: Any) -> None:
    """Many programs write positions instead of spaces."""

    def spaced(canvas: Any) -> None:
        for line, text in enumerate(lines):
            x = 50.0
            for letter in text:
                if letter != " ":
                    canvas.drawString(x, 500 - 12 * line, letter)
                x += canvas.stringWidth(letter)

    lines = ["word by word", "line by line"]
    assert lines_of(opened(write_pdf(tmp_path / "a.pdf", spaced)).page(1)) == lines


def test_ligatures_and_hyphens_are_normalized(tmp_path: Path, opened: Any) -> None:
    def draw(canvas: Any) -> None:
        canvas.setFont(embedded_font(), 10)
        lines_at(50, 500, ["The \ufb01rst \ufb02ood of an inter-", "national kind"])(canvas)

    page = opened(write_pdf(tmp_path / "a.pdf", draw)).page(1)
    assert lines_of(page) == ["The first flood of an inter-", "national kind"]


def test_mathematical_letters_are_normalized(tmp_path: Path, opened: Any) -> None:
    """Mathematical letters are beyond 16 bits, so PDFium returns two surrogates."""

    def draw(canvas: Any) -> None:
        canvas.setFont(embedded_font(), 10)
        canvas.drawString(50, 500, "rate")

    with pikepdf.open(write_pdf(tmp_path / "a.pdf", draw)) as pdf:
        (font,) = [f for f in pdf.pages[0].Resources.Font.values() if "/ToUnicode" in f]
        table = font.ToUnicode.read_bytes()
        # Map the r of the font to a mathematical bold r.
        font.ToUnicode.write(table.replace(b"<0072>", b"<D835DC2B>"))
        pdf.save(tmp_path / "formula.pdf")
    assert lines_of(opened(tmp_path / "formula.pdf").page(1)) == ["rate"]


def test_control_and_private_use_characters_are_removed(tmp_path: Path, opened: Any) -> None:
    """Bullets of private fonts and terminal control characters aren't words."""

    def draw(canvas: Any) -> None:
        canvas.setFont(embedded_font(), 10)
        lines_at(50, 500, ["\uf0b7 First of all, red\x9b31m paint"])(canvas)

    page = opened(write_pdf(tmp_path / "a.pdf", draw)).page(1)
    assert lines_of(page) == ["First of all, red 31m paint"]


def test_empty_page_has_no_words_and_needs_no_ocr(tmp_path: Path, opened: Any) -> None:
    document = opened(write_pdf(tmp_path / "a.pdf", lambda _: None))
    assert document.page(1).text_source == "none"
    assert not document.needs_ocr(1)


def test_pages_are_returned_in_the_requested_order(tmp_path: Path, opened: Any) -> None:
    texts = [text_at(50, 500, name) for name in ("one", "two", "three")]
    document = opened(write_pdf(tmp_path / "a.pdf", *texts))
    assert len(document) == 3
    assert [lines_of(page) for page in document.pages()] == [["one"], ["two"], ["three"]]
    assert [page.number for page in document.pages([3, 1])] == [3, 1]


def test_image_resolution(tmp_path: Path, opened: Any) -> None:
    document = opened(write_pdf(tmp_path / "a.pdf", text_at(50, 500, "x")))
    assert document.image(1).size == (840, 1190)
    assert document.image(1, dpi=72).size == (420, 595)
    assert document.image(1).mode == "RGB"


def test_form_fields_are_read(tmp_path: Path, opened: Any) -> None:
    def form(canvas: Any) -> None:
        canvas.drawString(50, 500, "Name:")
        canvas.acroForm.textfield(value="Ada Lovelace", x=100, y=490, width=200, height=20)

    document = opened(write_pdf(tmp_path / "form.pdf", form))
    assert lines_of(document.page(1)) == ["Name: Ada Lovelace"]


def test_page_labels(tmp_path: Path, opened: Any) -> None:
    sheets = [text_at(60, 420, "Wagon")] * 4
    with pikepdf.open(write_pdf(tmp_path / "plain.pdf", *sheets)) as pdf:
        # Two Roman numbers, then 3 as in the file, then an appendix with a control character.
        roman = pikepdf.Dictionary(S=pikepdf.Name.r)
        plain = pikepdf.Dictionary(S=pikepdf.Name.D, St=3)
        appendix = pikepdf.Dictionary(S=pikepdf.Name.D, P="A\u202e")
        labels = [0, roman, 2, plain, 3, appendix]
        pdf.Root.PageLabels = pikepdf.Dictionary(Nums=pikepdf.Array(labels))
        pdf.save(tmp_path / "labels.pdf")
    document = opened(tmp_path / "labels.pdf")
    assert [document.page(number).label for number in range(1, 5)] == ["i", "ii", "", "A 1"]


def test_invalid_page_label_is_dropped(tmp_path: Path, opened: Any) -> None:
    with pikepdf.open(write_pdf(tmp_path / "plain.pdf", text_at(60, 420, "Wagon"))) as pdf:
        broken = pikepdf.Dictionary(P=pikepdf.String(b"\xfe\xff\xd8\x00"))
        pdf.Root.PageLabels = pikepdf.Dictionary(Nums=pikepdf.Array([0, broken]))
        pdf.save(tmp_path / "labels.pdf")
    assert opened(tmp_path / "labels.pdf").page(1).label == ""
