"""Test broken and hostile files, which must raise an error that names the file."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pikepdf
import pytest
from PIL import Image

from tests.documents.conftest import lines_of, text_at, write_pdf
from visar.documents import Limits, ReadOptions, open_document
from visar.errors import DocumentError, EncryptedDocument, InvalidOption, PageError


def plain_pdf(path: Path, pages: int = 2) -> Path:
    return write_pdf(path, *[text_at(50, 500, f"page {n + 1}") for n in range(pages)])


def with_content(path: Path, content: bytes, **page: Any) -> Path:
    """Write a one-page PDF with this content stream, without compressing it again."""
    pdf = pikepdf.new()
    pdf.add_blank_page(page_size=(400, 400))
    pdf.pages[0].obj["/Contents"] = pdf.make_stream(content, **page)
    pdf.save(path, compress_streams=False, stream_decode_level=pikepdf.StreamDecodeLevel.none)
    return path


def test_encrypted_file_needs_a_password(tmp_path: Path, opened: Any) -> None:
    path = tmp_path / "secret.pdf"
    with pikepdf.open(plain_pdf(tmp_path / "plain.pdf")) as pdf:
        pdf.save(path, encryption=pikepdf.Encryption(user="open sesame", owner="o"))
    with pytest.raises(EncryptedDocument, match=r"^secret.pdf .*--password.*VISAR_P"):
        open_document(path)
    with pytest.raises(EncryptedDocument, match=r"^secret.pdf "):
        open_document(path, ReadOptions(password="wrong"))  # noqa: S106
    document = opened(path, password="open sesame")  # noqa: S106
    assert lines_of(document.page(2)) == ["page 2"]


def test_file_with_only_an_owner_password_is_readable(tmp_path: Path, opened: Any) -> None:
    with pikepdf.open(plain_pdf(tmp_path / "plain.pdf")) as pdf:
        pdf.save(tmp_path / "a.pdf", encryption=pikepdf.Encryption(user="", owner="o"))
    assert lines_of(opened(tmp_path / "a.pdf").page(1)) == ["page 1"]


def empty(path: Path) -> None:
    path.write_bytes(b"")


def not_a_pdf(path: Path) -> None:
    path.write_bytes(b"just some notes\n" * 100)


def header_only(path: Path) -> None:
    path.write_bytes(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n")


def cut_off(path: Path) -> None:
    content = plain_pdf(path).read_bytes()
    path.write_bytes(content[: len(content) // 3])


def no_pages(path: Path) -> None:
    pikepdf.new().save(path)


@pytest.mark.parametrize("make", [empty, not_a_pdf, header_only, cut_off, no_pages])
def test_invalid_pdfs_raise_document_error(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "bad.pdf"
    make(path)
    with pytest.raises(DocumentError, match=r"^bad\.pdf "):
        open_document(path)


def test_wrong_suffix_does_not_matter(tmp_path: Path, opened: Any) -> None:
    path = plain_pdf(tmp_path / "plain.pdf").rename(tmp_path / "report.docx")
    document = opened(path)
    assert (document.kind, document.name, len(document)) == ("pdf", "report.docx", 2)


def test_unsupported_kind_raises_document_error(tmp_path: Path) -> None:
    (tmp_path / "song.mp3").write_bytes(b"ID3\x04" + bytes(500))
    with pytest.raises(DocumentError, match=r"^song.mp3 .*PDF"):
        open_document(tmp_path / "song.mp3")


def test_missing_paths_and_other_folders(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"^gone.pdf "):
        open_document(tmp_path / "gone.pdf")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_text("notes")
    with pytest.raises(DocumentError, match="folder"):
        open_document(tmp_path / "folder")


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
def test_file_without_read_permission(tmp_path: Path) -> None:
    path = plain_pdf(tmp_path / "private.pdf")
    path.chmod(0)
    with pytest.raises(DocumentError, match=r"^private.pdf "):
        open_document(path)


def test_file_deleted_or_changed_while_it_is_read(tmp_path: Path, opened: Any) -> None:
    document = opened(plain_pdf(tmp_path / "a.pdf"))
    content = document.path.read_bytes()
    document.page(1)
    document.path.unlink()
    with pytest.raises(DocumentError, match=r"^a.pdf "):
        document.page(2)
    with pytest.raises(DocumentError, match=r"^a.pdf "):
        document.image(1)
    document.path.write_bytes(content + b"\n%more")
    with pytest.raises(DocumentError, match=r"^a.pdf "):
        document.page(2)


def test_limits_on_bytes_and_pages(tmp_path: Path) -> None:
    path = plain_pdf(tmp_path / "a.pdf", pages=4)
    size = path.stat().st_size
    with pytest.raises(DocumentError, match=rf"^a.pdf .*{size:,}.*{size - 1:,}"):
        open_document(path, ReadOptions(limits=Limits(max_bytes=size - 1)))
    with pytest.raises(DocumentError, match=r"^a.pdf .*\b3 .*max_pages"):
        open_document(path, ReadOptions(limits=Limits(max_pages=3)))
    open_document(path, ReadOptions(limits=Limits(max_bytes=size, max_pages=4))).close()


def test_giant_page_is_scaled_down(tmp_path: Path, opened: Any) -> None:
    path = write_pdf(
        tmp_path / "a.pdf", text_at(500, 500, "lost in space"), size=(200_000, 100_000)
    )
    document = opened(path, limits=Limits(max_pixels=1_000_000))
    image = document.image(1)
    assert 990_000 < image.width * image.height < 1_010_000
    assert image.width == pytest.approx(2 * image.height, abs=2)
    assert lines_of(document.page(1)) == ["lost in space"]


@pytest.mark.parametrize("size", [(99_000_000, 1), (1, 100_000)])
def test_image_with_a_very_long_side(tmp_path: Path, opened: Any, size: tuple[int, int]) -> None:
    path = tmp_path / "line.png"
    Image.new("1", size).save(path)
    document = opened(path)
    with pytest.raises(PageError, match=rf"^line.png, page 1, .*{size[0]}.*{size[1]}"):
        document.image(1)
    with pytest.raises(PageError, match=rf"^line.png, page 1, .*{size[0]}.*{size[1]}"):
        document.page(1)


def test_text_without_height_has_a_size(tmp_path: Path, opened: Any) -> None:
    """Line sizes are compared by division, so they must not be zero."""

    def flat(canvas: Any) -> None:
        for y in (500, 500, 499):
            text = canvas.beginText()
            text.setTextTransform(1, 0, 0, 0, 50, y)
            text.textLine("squeezed flat")
            canvas.drawText(text)

    page = opened(write_pdf(tmp_path / "a.pdf", flat), ocr="never").page(1)
    assert "flat" in {word.text for word in page.words}
    assert all(block.size > 0 for block in page.blocks)


def flate_bomb(path: Path) -> Path:
    """Write a few kilobytes that inflate to a gigabyte, compressed twice."""
    packer = zlib.compressobj(9)
    head = packer.compress(b"\n") + packer.flush(zlib.Z_FULL_FLUSH)
    # After a full flush, a compressed block is independent and can be repeated.
    block = packer.compress(b"0 0 m 1 1 l S\n" * 75_000) + packer.flush(zlib.Z_FULL_FLUSH)
    once = head + 1000 * block
    return with_content(
        path,
        zlib.compress(once, 9),
        Filter=pikepdf.Array([pikepdf.Name.FlateDecode, pikepdf.Name.FlateDecode]),
    )


def test_flate_bomb_is_only_an_error(tmp_path: Path, opened: Any) -> None:
    path = flate_bomb(tmp_path / "bomb.pdf")
    assert path.stat().st_size < 1_000_000
    document = opened(path, limits=Limits(worker_memory=600_000_000, seconds_per_page=5))
    with pytest.raises(PageError, match=r"^bomb.pdf, page 1, "):
        document.page(1)
    with pytest.raises(PageError, match=r"^bomb.pdf, page 1, "):
        document.image(1)


def exponential_pdf(path: Path) -> Path:
    """Write nested forms that draw 10^9 strokes on page 1; page 2 is harmless."""
    pdf = pikepdf.new()
    form = pdf.make_stream(b"0 0 m 9 9 l S\n", Type=pikepdf.Name.XObject, Subtype=pikepdf.Name.Form)
    form["/BBox"] = [0, 0, 400, 400]
    for _ in range(9):
        outer = pdf.make_stream(b"/F Do\n" * 10, Type=pikepdf.Name.XObject)
        outer["/Subtype"], outer["/BBox"] = pikepdf.Name.Form, [0, 0, 400, 400]
        outer["/Resources"] = pikepdf.Dictionary(XObject=pikepdf.Dictionary(F=form))
        form = outer
    for content in (b"/F Do", b"0 0 m 9 9 l S"):
        pdf.add_blank_page(page_size=(400, 400))
        pdf.pages[-1].obj["/Contents"] = pdf.make_stream(content)
        pdf.pages[-1].obj["/Resources"] = pikepdf.Dictionary(XObject=pikepdf.Dictionary(F=form))
    pdf.save(path)
    return path


def test_page_timeout(tmp_path: Path, opened: Any) -> None:
    path = exponential_pdf(tmp_path / "slow.pdf")
    document = opened(path, ocr="never", limits=Limits(seconds_per_page=1.5))
    with pytest.raises(PageError, match=r"^slow.pdf, page 1, ") as error:
        document.page(1)
    assert error.value.page == 1
    # Other pages can still be read.
    assert document.page(2).width == 400
    assert document.image(2).size == (800, 800)


def test_invalid_page_numbers_and_resolutions(tmp_path: Path, opened: Any) -> None:
    document = opened(plain_pdf(tmp_path / "a.pdf"))
    for number in (0, 3, -1):
        with pytest.raises(InvalidOption, match=rf"a.pdf .*{number}"):
            document.page(number)
    with pytest.raises(InvalidOption, match="dpi"):
        document.image(1, dpi=0)


def test_invalid_options(tmp_path: Path) -> None:
    path = plain_pdf(tmp_path / "a.pdf")
    with pytest.raises(InvalidOption, match=r"ocr .*'sometimes'"):
        open_document(path, ReadOptions(ocr="sometimes"))  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match=r"ocr_engine .*'guess'"):
        open_document(path, ReadOptions(ocr_engine="guess"))  # type: ignore[arg-type]


def pixel_bomb(path: Path) -> Path:
    Image.new("1", (20_000, 20_000)).save(path)
    return path


def test_image_with_too_many_pixels(tmp_path: Path, opened: Any) -> None:
    path = pixel_bomb(tmp_path / "bomb.png")
    assert path.stat().st_size < 100_000
    document = opened(path, ocr="never")
    with pytest.raises(PageError, match=r"^bomb.png, page 1, .*20000.*20000"):
        document.image(1)


def test_damaged_image(tmp_path: Path, opened: Any) -> None:
    path = tmp_path / "half.png"
    Image.effect_noise((300, 300), 50).save(path)
    path.write_bytes(path.read_bytes()[:20_000])
    with pytest.raises(PageError, match=r"^half.png, page 1, "):
        opened(path, ocr="never").image(1)
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(DocumentError, match=r"^half.png "):
        open_document(path)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_truncated_files_are_read_or_raise_document_error(tmp_path: Path, share: float) -> None:
    """PDFium can repair some of them."""
    content = plain_pdf(tmp_path / "a.pdf", pages=3).read_bytes()
    path = tmp_path / "cut.pdf"
    path.write_bytes(content[: int(len(content) * share)])
    try:
        with open_document(path, ReadOptions(ocr="never")) as document:
            texts = [lines_of(page) for page in document.pages()]
    except DocumentError as error:
        assert str(error).startswith("cut.pdf")  # noqa: PT017
    else:
        assert 1 <= len(texts) <= 3
