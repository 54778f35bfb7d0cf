from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.documents.conftest import text_image, write_pdf
from visar.documents import Limits, ReadOptions, open_document
from visar.errors import DocumentError

CORNERS = np.array([[[255, 0, 0], [0, 255, 0]], [[0, 0, 255], [255, 255, 0]]], np.uint8)


def quarters(width: int = 300, height: int = 200) -> Image.Image:
    """Return an image with red and green above blue and yellow."""
    tile = np.ones((height // 2, width // 2, 1), np.uint8)
    return Image.fromarray(np.kron(CORNERS, tile))


def corner_colors(image: Image.Image) -> list[str]:
    names = {(255, 0, 0): "red", (0, 255, 0): "green", (0, 0, 255): "blue", (255, 255, 0): "yellow"}
    right, bottom = image.width - 5, image.height - 5
    colors = []
    for position in ((4, 4), (right, 4), (4, bottom), (right, bottom)):
        pixel = image.getpixel(position)
        assert isinstance(pixel, tuple)
        colors.append(
            min(names, key=lambda c: sum(abs(a - b) for a, b in zip(c, pixel, strict=True)))
        )
    return [names[color] for color in colors]


@pytest.mark.parametrize("suffix", ["png", "jpg", "tiff", "webp"])
def test_every_image_format_has_one_page(tmp_path: Path, opened: Any, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    quarters().save(path)
    document = opened(path, ocr="never")
    assert (document.kind, len(document)) == ("image", 1)
    image = document.image(1)
    assert (image.mode, image.size) == ("RGB", (300, 200))
    assert corner_colors(image) == ["red", "green", "blue", "yellow"]
    assert document.page(1).text_source == "none"


def test_page_size_depends_on_the_resolution(tmp_path: Path, opened: Any) -> None:
    quarters(600, 300).save(tmp_path / "a.png", dpi=(300, 300))
    document = opened(tmp_path / "a.png", ocr="never")
    page = document.page(1)
    assert (page.width, page.height) == pytest.approx((144, 72), rel=1e-3)
    assert document.image(1, dpi=150).size == (300, 150)
    # Images aren't enlarged.
    assert document.image(1, dpi=1200).size == (600, 300)


def test_rotated_photo_is_displayed_upright(tmp_path: Path, opened: Any) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees clockwise for display
    quarters().save(tmp_path / "a.jpg", exif=exif, quality=95)
    document = opened(tmp_path / "a.jpg", ocr="never")
    page, image = document.page(1), document.image(1)
    assert page.rotation == 90
    assert (page.width, page.height) == (100, 150)
    assert image.size == (200, 300)
    assert corner_colors(image) == ["blue", "red", "yellow", "green"]


def test_frames_of_a_tiff_are_pages(tmp_path: Path, opened: Any) -> None:
    frames = [Image.new("L", (100 + n, 50), 40 * n) for n in range(4)]
    frames[0].save(tmp_path / "a.tif", save_all=True, append_images=frames[1:])
    document = opened(tmp_path / "a.tif", ocr="never")
    assert len(document) == 4
    assert [document.image(n).width for n in (3, 1, 4)] == [102, 100, 103]
    assert document.image(3).getpixel((0, 0)) == (80, 80, 80)
    with pytest.raises(DocumentError, match=r"^a.tif .*\b3 .*max_pages"):
        open_document(tmp_path / "a.tif", ReadOptions(limits=Limits(max_pages=3)))


def test_transparency_is_white_and_16_bit_gray_stays_gray(tmp_path: Path, opened: Any) -> None:
    Image.new("RGBA", (50, 50), (0, 0, 0, 0)).save(tmp_path / "clear.png")
    assert opened(tmp_path / "clear.png").image(1).getpixel((5, 5)) == (255, 255, 255)
    Image.fromarray(np.full((50, 50), 32768, np.uint16)).save(tmp_path / "deep.png")
    assert opened(tmp_path / "deep.png").image(1).getpixel((5, 5)) == (127, 127, 127)


def test_folder_of_images_is_one_document_in_natural_order(tmp_path: Path, opened: Any) -> None:
    folder = tmp_path / "scan"
    folder.mkdir()
    for number in (1, 2, 10):
        Image.new("RGB", (100 + number, 50)).save(folder / f"page{number}.png")
    (folder / ".DS_Store").write_bytes(b"hidden files are ignored")
    document = opened(folder, ocr="never")
    assert (document.kind, document.name) == ("images", "scan")
    assert [document.image(n).width for n in (1, 2, 3)] == [101, 102, 110]


def test_id_depends_on_the_content(tmp_path: Path, opened: Any) -> None:
    one = write_pdf(tmp_path / "one.pdf", lambda canvas: canvas.drawString(50, 50, "x"))
    copy = shutil.copy(one, tmp_path / "renamed.bin")
    other = write_pdf(tmp_path / "two.pdf", lambda canvas: canvas.drawString(50, 50, "y"))
    ids = [opened(path).id for path in (one, copy, other)]
    assert ids[0] == ids[1] != ids[2]
    assert len(ids[0]) == 64
    assert int(ids[0], 16)


def test_id_of_a_folder_depends_on_names_and_contents(tmp_path: Path, opened: Any) -> None:
    def make(folder: str, *pages: tuple[str, int]) -> str:
        (tmp_path / folder).mkdir()
        for name, grey in pages:
            Image.new("L", (50, 50), grey).save(tmp_path / folder / name)
        document_id = opened(tmp_path / folder, ocr="never").id
        assert isinstance(document_id, str)
        return document_id

    first = make("a", ("1.png", 0), ("2.png", 9))
    assert make("same", ("2.png", 9), ("1.png", 0)) == first
    assert make("swapped", ("1.png", 9), ("2.png", 0)) != first
    assert make("renamed", ("1.png", 0), ("3.png", 9)) != first


def test_error_names_a_broken_page_in_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "scan"
    folder.mkdir()
    text_image("fine").save(folder / "1.png")
    (folder / "2.png").write_bytes(b"\x89PNG\r\n\x1a\nnothing more")
    with pytest.raises(DocumentError, match=r"^scan .*2.png"):
        open_document(folder)
