"""Test the title, author and year of documents."""

from __future__ import annotations

from pathlib import Path

import pikepdf
import pytest
from PIL import Image
from reportlab.pdfgen.canvas import Canvas

from visar.documents import open_document
from visar.index import Index


def write_pdf_with_metadata(path: Path, text: str = "Notes", **said: str) -> Path:
    """Write a PDF with lines of decreasing font size."""
    sheet = Canvas(str(path), pagesize=(400, 500))
    for number, line in enumerate(text.split("\n")):
        sheet.setFontSize(30 / (number + 1))
        sheet.drawString(40, 440 - 30 * number, line)
    sheet.showPage()
    sheet.save()
    with pikepdf.open(path, allow_overwriting_input=True) as pdf:
        del pdf.trailer["/Info"]
        for name, value in said.items():
            pdf.docinfo[f"/{name}"] = value
        pdf.save(path)
    return path


def test_pdf_metadata(tmp_path: Path) -> None:
    path = write_pdf_with_metadata(
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
def test_missing_metadata(tmp_path: Path, said: dict[str, str]) -> None:
    with open_document(write_pdf_with_metadata(tmp_path / "a.pdf", **said)) as document:
        assert document.metadata == {}


@pytest.mark.parametrize(
    ("title", "text", "created", "year"),
    [
        ("Annual Report 2024", "Annual Report", "2000", 2024),
        ("Annual Report 2023/24", "Founded in 1951", "2025", 2023),
        ("Annual Report 2023–2024", "", "", 2023),
        ("", "Report 2024\nFounded in 1951", "2000", 2024),
        ("Report", "Minutes\nheld in 2018", "", 2018),
        ("Report", "Minutes\nheld in 2018 and 2019", "", None),
        ("Report", "Minutes\nheld in 2018 and 2019", "2019", 2019),
        ("From 1990 to 2020", "Minutes", "2021", None),
        # The year in the text may refer to something else.
        ("Report", "Minutes\nfounded in 1951", "2021", None),
        ("Report", "Minutes", "2021", 2021),
        # A scan may be much later than the document.
        ("Report", "", "2021", None),
        ("Model 1900S, part 2,015 for $2000", "Manual", "2015", 2015),
    ],
)
def test_year_of_a_document(
    tmp_path: Path, title: str, text: str, created: str, year: int | None
) -> None:
    path = write_pdf_with_metadata(
        tmp_path / "a.pdf", text, Title=title, CreationDate=f"D:{created}0101"
    )
    with open_document(path) as document:
        assert document.metadata.get("year") == year


def test_sample_report_is_found_by_its_year(library: Index) -> None:
    assert [one.metadata["year"] for one in library.documents(where="year >= 2020")] == [2024]


def test_title_is_cleaned_and_truncated(tmp_path: Path) -> None:
    path = write_pdf_with_metadata(tmp_path / "a.pdf", Title="one\x07\u202e\ntwo " + "x" * 10_000)
    with open_document(path) as document:
        title = str(document.metadata["title"])
    assert title.startswith("one two xxx")
    assert len(title) <= 300


def test_image_has_no_metadata(tmp_path: Path) -> None:
    Image.new("RGB", (20, 20)).save(tmp_path / "a.png")
    with open_document(tmp_path / "a.png") as document:
        assert document.metadata == {}
