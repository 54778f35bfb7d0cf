from __future__ import annotations

import re
import shutil
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pikepdf
import pytest
from PIL import Image

from tests.documents.conftest import (
    SECRETS,
    embedded_font,
    ink,
    lines_at,
    lines_of,
    text_at,
    text_image,
    write_pdf,
)
from visar.documents import ReadOptions, ocr, open_document
from visar.documents.pdf import is_usable
from visar.errors import DocumentError, InvalidOption, MissingExtra, PageError

needs_tesseract = pytest.mark.skipif(
    shutil.which("tesseract") is None, reason="Tesseract is not installed"
)
ENGINES = ["rapidocr", pytest.param("tesseract", marks=needs_tesseract)]


def scanned_pdf(path: Path, text: str = "Warranty period\ntwelve months") -> Path:
    return write_pdf(
        path,
        lambda canvas: canvas.drawInlineImage(text_image(text, size=(900, 300)), 20, 300, 380, 127),
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_scan_is_read_with_the_boxes_of_its_words(tmp_path: Path, opened: Any, engine: str) -> None:
    document = opened(scanned_pdf(tmp_path / "scan.pdf"), ocr_engine=engine)
    assert document.needs_ocr(1)
    page = document.page(1)
    assert lines_of(page) == ["Warranty period", "twelve months"]
    assert page.text_source == "ocr"
    boxes = np.array([word.box for word in page.words])
    around = np.concatenate([boxes[:, :2].min(axis=0), boxes[:, 2:].max(axis=0)])
    np.testing.assert_allclose(around, ink(document.image(1)), atol=0.03)
    assert boxes[0][2] < boxes[1][0] + 0.02, "words of a line must not overlap"


def test_ocr_results_are_cached(
    tmp_path: Path, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = opened(scanned_pdf(tmp_path / "scan.pdf"))
    page = document.page(1)
    monkeypatch.setitem(ocr._ENGINES, "rapidocr", lambda *_: pytest.fail("read again"))
    assert document.page(1) is page
    assert not document.needs_ocr(1)


def test_ocr_never_and_always(tmp_path: Path, opened: Any) -> None:
    never = opened(scanned_pdf(tmp_path / "scan.pdf"), ocr="never")
    assert not never.needs_ocr(1)
    assert never.page(1).text_source == "none"
    path = write_pdf(tmp_path / "text.pdf", text_at(50, 500, "Printed words"))
    always = opened(path, ocr="always")
    assert always.needs_ocr(1)
    assert (lines_of(always.page(1)), always.page(1).text_source) == (["Printed words"], "ocr")


def test_pictures_in_a_page_with_text_are_read(tmp_path: Path, opened: Any) -> None:
    def draw(canvas: Any) -> None:
        canvas.drawString(50, 550, "Text of the page")
        canvas.drawInlineImage(text_image("inside picture"), 50, 300, 300, 66)
        canvas.drawInlineImage(text_image("tiny"), 50, 100, 40, 9)

    document = opened(write_pdf(tmp_path / "a.pdf", draw))
    assert document.needs_ocr(1)
    page = document.page(1)
    assert lines_of(page) == ["Text of the page", "inside picture"]
    assert [word.line for word in page.words] == [0, 0, 0, 0, 1, 1]
    assert page.text_source == "both"


def test_repeated_picture_is_read_once(
    tmp_path: Path, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def draw(canvas: Any) -> None:
        canvas.drawString(50, 300, f"Text of page {canvas.getPageNumber()}")
        canvas.drawInlineImage(text_image("banner"), 0, 500, 420, 93)

    document = opened(write_pdf(tmp_path / "a.pdf", draw, draw))
    assert lines_of(document.page(1)) == ["Text of page 1", "banner"]
    monkeypatch.setitem(ocr._ENGINES, "rapidocr", lambda *_: pytest.fail("read again"))
    assert lines_of(document.page(2)) == ["Text of page 2", "banner"]


def test_words_of_a_scan_with_a_text_layer_are_not_duplicated(tmp_path: Path, opened: Any) -> None:
    def draw(canvas: Any) -> None:
        canvas.drawInlineImage(text_image("double words"), 50, 300, 300, 66)
        text = canvas.beginText(63, 335)
        text.setTextRenderMode(3)  # invisible, as in scans with a text layer
        text.setFont("Helvetica", 20)
        text.textOut("double words")
        canvas.drawText(text)

    page = opened(write_pdf(tmp_path / "a.pdf", draw)).page(1)
    assert [word.text for word in page.words] == ["double", "words"]
    assert page.text_source == "text layer"


def test_text_over_a_background_picture(tmp_path: Path, opened: Any) -> None:
    def draw(canvas: Any) -> None:
        background = Image.new("RGB", (840, 1190), "white")
        background.paste(text_image("in the picture"), (0, 600))
        canvas.drawInlineImage(background, 0, 0, 420, 595)
        canvas.drawString(50, 550, "Over the picture")

    page = opened(write_pdf(tmp_path / "a.pdf", draw)).page(1)
    assert lines_of(page) == ["Over the picture", "in the picture"]
    assert [word.line for word in page.words] == [0, 0, 0, 1, 1, 1]
    assert page.text_source == "both"


def test_background_under_long_text_is_not_read(tmp_path: Path, opened: Any) -> None:
    def draw(canvas: Any) -> None:
        canvas.drawInlineImage(Image.effect_noise((300, 300), 20).convert("RGB"), 0, 0, 420, 595)
        lines_at(50, 500, ["five words on a line"] * 6)(canvas)

    assert not opened(write_pdf(tmp_path / "a.pdf", draw)).needs_ocr(1)


def test_broken_text_layer_is_replaced_by_ocr(tmp_path: Path, opened: Any) -> None:
    """The letters of the font look right, but have invalid codes."""

    def draw(canvas: Any) -> None:
        canvas.setFont(embedded_font(), 24)
        canvas.drawString(50, 500, "Readable")

    with pikepdf.open(write_pdf(tmp_path / "a.pdf", draw)) as pdf:
        (font,) = [f for f in pdf.pages[0].Resources.Font.values() if "/ToUnicode" in f]
        table = font.ToUnicode.read_bytes()
        # Map the codes of the letters to the private use area.
        font.ToUnicode.write(re.sub(rb"<00(\w\w)>", rb"<E0\1>", table))
        pdf.save(tmp_path / "broken.pdf")
    page = opened(tmp_path / "broken.pdf").page(1)
    assert (lines_of(page), page.text_source) == (["Readable"], "ocr")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["Ordinary", "text,", "with", "\uf0b7", "a", "bullet"], True),
        (["\x01\x02\x03", "\x04\x05", "ab"], False),
        (["\ufffd\ufffd\ufffd", "ab"], False),
        (["\ue001\ue002\ue003\ue004"], False),
        (
            ["thistextlayerhaslostallofitsspacessothatnothingcanbefoundinit" * 2, "the", "end"],
            False,
        ),
        (["這是一個沒有空格的很長的中文句子" * 5], True),
        (["See", "https://example.org/a/very/long/address/that/goes/on/and/on/and/on"], True),
        (["7"], True),
        ([], False),
    ],
)
def test_is_usable(words: list[str], expected: bool) -> None:
    assert is_usable(words) is expected


def test_columns_of_a_scan(tmp_path: Path, opened: Any) -> None:
    left = [f"left side number {n} here" for n in range(4)]
    right = [f"right side number {n} here" for n in range(4)]
    image = Image.new("RGB", (1200, 400), "white")
    image.paste(text_image("\n".join(left), size=(580, 400), height=32), (0, 0))
    image.paste(text_image("\n".join(right), size=(580, 400), height=32), (600, 0))
    image.save(tmp_path / "scan.png")
    assert lines_of(opened(tmp_path / "scan.png").page(1)) == left + right


def test_ocr_needs_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        pytest.fail("OCR tried to use the network")

    monkeypatch.setattr(socket.socket, "connect", fail)
    monkeypatch.setattr(socket, "getaddrinfo", fail)
    ocr._rapidocr_reader.cache_clear()
    assert [piece.text for piece in ocr.read_image(text_image("offline"), "rapidocr")] == [
        "offline"
    ]


def test_missing_model_is_not_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ocr, "_RECOGNITION_MODEL", "not-there.onnx")
    ocr._rapidocr_reader.cache_clear()
    with pytest.raises(MissingExtra, match=r"not-there.onnx"):
        ocr.read_image(text_image("x"), "rapidocr")


def test_blank_image_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ocr._ENGINES, "rapidocr", lambda *_: pytest.fail("nothing to read"))
    assert ocr.read_image(Image.new("RGB", (500, 500), "beige"), "rapidocr") == []


def test_missing_ocr_only_matters_for_pages_without_text(
    tmp_path: Path, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ocr, "is_installed", lambda _: False)
    ocr._rapidocr_reader.cache_clear()

    def draw(canvas: Any) -> None:
        canvas.drawString(50, 550, "Text of the page")
        canvas.drawInlineImage(text_image("inside picture"), 50, 300, 300, 66)

    document = opened(write_pdf(tmp_path / "a.pdf", draw))
    assert not document.needs_ocr(1)
    assert lines_of(document.page(1)) == ["Text of the page"]
    with pytest.raises(DocumentError, match=r"scan.pdf, page 1, .*visar-rag\[ocr\].*--ocr never"):
        opened(scanned_pdf(tmp_path / "scan.pdf")).page(1)


def test_failing_engine_raises_page_error(
    tmp_path: Path, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "tesseract"
    program.write_text(f"#!{sys.executable}\nimport sys\nsys.exit('no language data')\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    document = opened(scanned_pdf(tmp_path / "scan.pdf"), ocr_engine="tesseract")
    with pytest.raises(PageError, match=r"^scan.pdf, page 1, .*Tesseract.*no language data"):
        document.page(1)


def test_tesseract_gets_no_secrets_and_one_thread(
    tmp_path: Path, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "tesseract"
    program.write_text(
        f"#!{sys.executable}\nimport os, sys\n"
        f"secrets = len({SECRETS!r} & os.environ.keys())\n"
        "sys.exit('%d secrets, threads: %s' % (secrets, os.environ['OMP_THREAD_LIMIT']))\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for name in SECRETS:
        monkeypatch.setenv(name, "s3cret")
    document = opened(scanned_pdf(tmp_path / "scan.pdf"), ocr_engine="tesseract")
    with pytest.raises(PageError, match="Tesseract: 0 secrets, threads: 1"):
        document.page(1)


def test_rapidocr_threads(tmp_path: Path, opened: Any) -> None:
    document = opened(scanned_pdf(tmp_path / "scan.pdf"), ocr_threads=1)
    assert lines_of(document.page(1)) == ["Warranty period", "twelve months"]
    reader = ocr._rapidocr_reader(1)
    for part in (reader.text_det, reader.text_rec):
        assert part.session.session.get_session_options().intra_op_num_threads == 1


def test_threads_read_different_scans(tmp_path: Path, opened: Any) -> None:
    names = [tmp_path / f"scan{number}.pdf" for number in range(3)]
    documents = [opened(scanned_pdf(path, f"scan {n}")) for n, path in enumerate(names)]
    with ThreadPoolExecutor(3) as pool:
        pages = list(pool.map(lambda document: document.page(1), documents))
    assert [lines_of(page) for page in pages] == [["scan 0"], ["scan 1"], ["scan 2"]]


def test_error_without_tesseract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        open_document(
            scanned_pdf(tmp_path / "scan.pdf"), ReadOptions(ocr_engine="tesseract")
        ) as document,
        pytest.raises(InvalidOption, match=r"tesseract.*rapidocr"),
    ):
        document.page(1)
