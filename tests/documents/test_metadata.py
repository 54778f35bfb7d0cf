"""What a file says of itself: title, author and year, as far as it can be trusted to be text."""

from __future__ import annotations

from pathlib import Path

import pikepdf
import pytest
from PIL import Image

from visar.documents import open_document


def pdf_saying(path: Path, **said: str) -> Path:
    with pikepdf.new() as pdf:
        pdf.add_blank_page()
        for name, value in said.items():
            pdf.docinfo[f"/{name}"] = value
        pdf.save(path)
    return path


def test_a_pdf_names_its_title_author_and_year(tmp_path: Path) -> None:
    path = pdf_saying(
        tmp_path / "a.pdf",
        Title="Über uns",
        Author="N. N.",
        CreationDate="D:20210304120000+01'00'",
        Producer="a printer",
    )
    with open_document(path) as document:
        assert document.metadata == {"title": "Über uns", "author": "N. N.", "year": 2021}


@pytest.mark.parametrize(
    "said",
    [{}, {"Title": "", "Author": "  ", "CreationDate": "yesterday"}, {"CreationDate": "D:0001"}],
)
def test_what_it_does_not_say_is_not_there(tmp_path: Path, said: dict[str, str]) -> None:
    with open_document(pdf_saying(tmp_path / "a.pdf", **said)) as document:
        assert document.metadata == {}


def test_a_title_cannot_do_harm(tmp_path: Path) -> None:
    path = pdf_saying(tmp_path / "a.pdf", Title="one\x07\u202e\ntwo " + "x" * 10_000)
    with open_document(path) as document:
        title = str(document.metadata["title"])
    assert title.startswith("one two xxx")
    assert len(title) <= 300


def test_an_image_says_nothing(tmp_path: Path) -> None:
    Image.new("RGB", (20, 20)).save(tmp_path / "a.png")
    with open_document(tmp_path / "a.png") as document:
        assert document.metadata == {}
