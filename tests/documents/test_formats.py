"""Test text, Markdown, HTML, CSV, TSV, email and workbook files."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Callable
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.documents.conftest import ink, lines_of
from tests.documents.placing import block_texts, table_blocks, table_cells
from visar.documents import Limits, OpenedDocument, identify, open_document
from visar.errors import DocumentError

Open = Callable[..., OpenedDocument]
_OPENXML = "http://schemas.openxmlformats.org"

MARKDOWN = """# Harbour Light

The lamp was built in *1897* and has been [restored](https://example.org) twice.

## Opening hours

- Tuesday to Sunday from ten to six
- Closed on Mondays
  - except in August

1. Turn the key

| Year | Visitors |
| --- | ---: |
| 2022 | 12,300 |
| 2023 | 14,100 |

```
def answer():
    return 42
```

<script>alert("no")</script>
"""

HTML = """<!doctype html><html><head><title>The plan</title><style>p { color: red }</style></head>
<body><h1>Annual plan</h1><p>The harbour earned <b>3.4</b> million.<p hidden>Invisible.
<div style="display: none">Unseen <div>deeper</div></div>
<table><tr><th>Harbour<th>Ships<th>Chief<tr><td>Kiel<td>120<td>Anna Schmidt, since the great flood
<tr><td>L&uuml;beck<td>87<td>Jan Holm</table>
<ul><li>One<ul><li>Inner</ul><li>Two</ul><img src="https://example.org/a.png" alt="A ship">
<table><tr><td><p>Layout</p><table><tr><td>a<td>1<tr><td>b<td>2</table></table>
<script>document.write("<p>scripted</p>")</script></body></html>"""


def write_file(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def write_workbook(path: Path, *rows: str, more: dict[str, str] | None = None) -> Path:
    """Write a workbook with a sheet of these rows of cells, given as XML."""
    sheet = "".join(f'<row r="{number}">{row}</row>' for number, row in enumerate(rows, 1) if row)
    office = f"{_OPENXML}/officeDocument/2006/relationships"
    package = f"{_OPENXML}/package/2006/relationships"
    main = f'xmlns="{_OPENXML}/spreadsheetml/2006/main"'
    parts = {
        "_rels/.rels": f'<Relationships xmlns="{package}"><Relationship Id="r1" '
        f'Type="{office}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}">'
        f'<Relationship Id="r1" Type="{office}/worksheet" Target="worksheets/one.xml"/>'
        f'<Relationship Id="r2" Type="{office}/worksheet" Target="/xl/worksheets/two.xml"/>'
        f'<Relationship Id="r3" Type="{office}/sharedStrings" Target="strings.xml"/>'
        f'<Relationship Id="r4" Type="{office}/styles" Target="styles.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook {main} xmlns:r="{office}"><sheets>'
        '<sheet name="Sales" sheetId="1" r:id="r1"/>'
        '<sheet name="Secret" sheetId="2" state="hidden" r:id="r2"/></sheets></workbook>',
        "xl/styles.xml": f'<styleSheet {main}><numFmts><numFmt numFmtId="170" '
        'formatCode="#,##0.0 [$€-407]"/></numFmts><cellXfs><xf numFmtId="0"/><xf numFmtId="10"/>'
        '<xf numFmtId="14"/><xf numFmtId="170"/></cellXfs></styleSheet>',
        "xl/strings.xml": f"<sst {main}><si><t>Product</t></si><si><r><t>Desk </t></r>"
        "<r><t>lamp</t></r></si></sst>",
        "xl/worksheets/one.xml": f"<worksheet {main}><sheetData>{sheet}</sheetData></worksheet>",
        "xl/worksheets/two.xml": f"<worksheet {main}><sheetData><row><c><v>666</v></c></row>"
        "</sheetData></worksheet>",
        **(more or {}),
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return path


def test_text_keeps_its_words_and_paragraphs(tmp_path: Path, opened: Open) -> None:
    text = (
        "Warranty\n\nThe period is 24 months.\nRepairs are free.\n\n\nParts: Gdańsk, Αθήνα, Москва."
    )
    document = opened(write_file(tmp_path / "notes.txt", text))
    page = document.page(1)
    assert (document.kind, len(document), page.text_source) == ("text", 1, "text layer")
    assert " ".join(word.text for word in page.words) == " ".join(text.split())
    assert "The period is 24 months." in block_texts(page, "sentence")
    left, top, right, bottom = ink(document.image(1))
    boxes = np.array([word.box for word in page.words])
    assert np.allclose([left, top], boxes.min(axis=0)[:2], atol=0.005)
    assert np.allclose([right, bottom], boxes.max(axis=0)[2:], atol=0.005)


def test_long_lines_are_wrapped_and_columns_stay_aligned(tmp_path: Path, opened: Open) -> None:
    words = " ".join(f"word{number}" for number in range(300))
    columns = "Name          Price\nLamp          12.50\nDesk lamp    149.00\n"
    path = write_file(tmp_path / "a.log", f"{words}\n\n{'x' * 500}\n\n{columns}")
    page = opened(path).page(1)
    assert [word.text for word in page.words][:300] == words.split()
    assert "".join(word.text for word in page.words if set(word.text) == {"x"}) == "x" * 500
    assert max(word.box[2] for word in page.words) < 0.95
    (table,) = table_blocks(page)
    assert table_cells(page, table)[2, 1] == "149.00"


def test_markdown_has_headings_items_tables_and_code(tmp_path: Path, opened: Open) -> None:
    document = opened(write_file(tmp_path / "readme.md", MARKDOWN))
    page = document.page(1)
    assert document.metadata["title"] == "Harbour Light"
    assert block_texts(page, "heading") == ["Harbour Light", "Opening hours"]
    assert (
        block_texts(page, "sentence")[0]
        == "The lamp was built in 1897 and has been restored twice."
    )
    assert block_texts(page, "item") == [
        "• Tuesday to Sunday from ten to six",
        "• Closed on Mondays",
        "• except in August",
        "1. Turn the key",
    ]
    (table,) = table_blocks(page)
    assert table.header_rows == 1
    assert table_cells(page, table) == {
        (0, 0): "Year", (0, 1): "Visitors", (1, 0): "2022", (1, 1): "12,300",
        (2, 0): "2023", (2, 1): "14,100",
    }  # fmt: skip
    lines = lines_of(page)
    assert "return 42" in lines
    assert not any("alert" in line for line in lines)


def test_html_is_read_without_scripts_and_hidden_content(tmp_path: Path, opened: Open) -> None:
    document = opened(write_file(tmp_path / "page.html", HTML))
    page = document.page(1)
    assert document.metadata["title"] == "The plan"
    assert block_texts(page, "heading") == ["Annual plan"]
    assert block_texts(page, "sentence")[0] == "The harbour earned 3.4 million."
    first, second = table_blocks(page)
    assert table_cells(page, first)[2, 0] == "Lübeck"
    assert table_cells(page, first)[1, 2] == "Anna Schmidt, since the great flood"
    assert first.header_rows == 1
    assert table_cells(page, second) == {(0, 0): "a", (0, 1): "1", (1, 0): "b", (1, 1): "2"}
    assert block_texts(page, "item") == ["• One", "• Inner", "• Two"]
    text = " ".join(word.text for word in page.words)
    assert "A ship" in text
    assert not any(word in text for word in ("Invisible", "Unseen", "deeper", "scripted", "color"))


def test_csv_is_a_table_on_every_page(tmp_path: Path, opened: Open) -> None:
    long = "Sold out in May, and back in June after a long wait for a part from another country"
    rows = ["id;product;price;comment", f'1;"Desk; lamp";149,00;{long}']
    rows += [f"{number};Lamp {number};{number},50;" for number in range(2, 200)]
    document = opened(write_file(tmp_path / "stock.csv", "\n".join(rows)))
    assert len(document) > 2
    seen: list[str] = []
    for page in document.pages():
        (table,) = table_blocks(page)
        grid = table_cells(page, table)
        assert table.header_rows == 1
        assert [grid[0, column] for column in range(4)] == ["id", "product", "price", "comment"]
        seen += [text for (row, column), text in sorted(grid.items()) if row and not column]
    assert seen == [str(number) for number in range(1, 200)]
    first = document.page(1)
    assert table_cells(first, table_blocks(first)[0])[1, 1] == "Desk; lamp"
    assert table_cells(first, table_blocks(first)[0])[1, 3] == long


def test_wide_tables_become_list_items(tmp_path: Path, opened: Open) -> None:
    rows = [",".join(f"{name}{n}" for n in range(60)) for name in ("column", "first", "second")]
    page = opened(write_file(tmp_path / "wide.csv", "\n".join(rows))).page(1)
    assert not table_blocks(page)
    assert block_texts(page, "item")[0].startswith("• column0: first0; column1: first1;")


def test_tsv_without_numbers(tmp_path: Path, opened: Open) -> None:
    page = opened(
        write_file(tmp_path / "people.tsv", "name\tcity\nAnna, Eva\tKiel\nJan\tKöln\n")
    ).page(1)
    (table,) = table_blocks(page)
    assert table_cells(page, table) == {
        (0, 0): "name", (0, 1): "city", (1, 0): "Anna, Eva", (1, 1): "Kiel",
        (2, 0): "Jan", (2, 1): "Köln",
    }  # fmt: skip


def test_email_has_headers_text_and_names_of_attachments(tmp_path: Path, opened: Open) -> None:
    mail = EmailMessage()
    mail["From"] = "Anna Schmidt <anna@example.org>"
    mail["Subject"] = "Übergabe"
    mail["Date"] = "Mon, 02 Mar 2026 10:00:00 +0100"
    mail.set_content("Hello Jan,\n\nThe keys are handed over on 14 März.\n", charset="latin-1")
    mail.add_alternative("<p>In HTML</p>", subtype="html")
    mail.add_attachment(b"inside", maintype="text", subtype="plain", filename="form.txt")
    document = opened(write_file(tmp_path / "mail.eml", mail.as_bytes()))
    page = document.page(1)
    assert document.metadata == {
        "title": "Übergabe", "author": "Anna Schmidt <anna@example.org>", "year": 2026,
    }  # fmt: skip
    assert block_texts(page, "heading") == ["Übergabe"]
    assert "The keys are handed over on 14 März." in block_texts(page, "sentence")
    text = " ".join(word.text for word in page.words)
    assert "Attachments form.txt" in text
    assert "inside" not in text
    assert "HTML" not in text


def test_workbook_is_read_without_libreoffice(
    tmp_path: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    path = write_workbook(
        tmp_path / "sales.xlsx",
        '<c r="A1" t="inlineStr"><is><t>Sales of lamps</t></is></c>',
        "",
        '<c r="A3" t="s"><v>0</v></c><c r="B3" t="str"><v>Share</v></c>'
        '<c r="D3" t="str"><v>Day</v></c><c r="E3" t="str"><v>Income</v></c>',
        '<c r="A4" t="s"><v>1</v></c><c r="B4" s="1"><v>0.125</v></c>'
        '<c r="D4" s="2"><v>45000</v></c><c r="E4" s="3"><v>1234.5</v></c>',
    )
    document = opened(path)
    page = document.page(1)
    assert (document.kind, len(document)) == ("office", 1)
    assert lines_of(page)[0] == "Sales of lamps"
    (table,) = table_blocks(page)
    grid = table_cells(page, table)
    assert [grid[0, column] for column in range(4)] == ["Product", "Share", "Day", "Income"]
    assert [grid[1, column] for column in range(4)] == [
        "Desk lamp", "12.50%", "2023-03-15", "1,234.5 €",
    ]  # fmt: skip
    assert "666" not in [word.text for word in page.words]


def test_damaged_and_hostile_workbooks(tmp_path: Path) -> None:
    bomb = "<!DOCTYPE a [<!ENTITY a '1234567890'>" + "".join(
        f"<!ENTITY {b} '{f'&{a};' * 10}'>" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    sheet = {"xl/worksheets/one.xml": f"{bomb}]><x><row><c><v>&i;</v></c></row></x>"}
    for path in (
        write_workbook(tmp_path / "bomb.xlsx", more=sheet),
        write_workbook(tmp_path / "string.xlsx", '<c t="s"><v>99</v></c>'),
        write_workbook(tmp_path / "cut.xlsx", "<c><v>1"),
    ):
        with pytest.raises(DocumentError, match=path.name):
            open_document(path)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_encodings(tmp_path: Path, opened: Open, encoding: str) -> None:
    text = "Größe und Übermaß, 12 €"
    page = opened(write_file(tmp_path / "a.txt", text.encode(encoding))).page(1)
    assert lines_of(page) == [text]


def test_html_with_a_declared_encoding(tmp_path: Path, opened: Open) -> None:
    html = '<meta charset="iso-8859-2"><p>Zażółć gęślą jaźń</p>'.encode("iso-8859-2")
    assert lines_of(opened(write_file(tmp_path / "a.html", html)).page(1)) == ["Zażółć gęślą jaźń"]


def test_characters_without_a_glyph_are_drawn_as_boxes(tmp_path: Path, opened: Open) -> None:
    document = opened(write_file(tmp_path / "a.txt", f"港の灯台 and {'語' * 100} and שלום"))
    page = document.page(1)
    text = "".join(word.text for word in page.words)
    assert text == f"港の灯台and{'語' * 100}andשלום"
    left, *_ = ink(document.image(1))
    assert abs(left - page.words[0].box[0]) < 0.01


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", bytes(range(256))),
        ("a.bin", bytes(range(256))),
        ("a.md", b"text " * 1000 + b"\0\1\2"),
        ("a.csv", "a,b\n1,2".encode("utf-16-le")),
        ("a.txt", b" \n\n"),
        ("a.html", b"<script>1</script>"),
        ("a.pdf", b"only text"),
    ],
)
def test_invalid_text_files_raise_document_error(tmp_path: Path, name: str, content: bytes) -> None:
    with pytest.raises(DocumentError, match=f"^{name} "):
        open_document(write_file(tmp_path / name, content))


def test_page_limit_of_a_long_text(tmp_path: Path, opened: Open) -> None:
    path = write_file(
        tmp_path / "long.txt", "A line of a text that has very many lines.\n" * 240_000
    )
    assert path.stat().st_size > 10_000_000
    with pytest.raises(DocumentError, match=r"^long.txt .*\b100\b.*max_pages"):
        opened(path, limits=Limits(max_pages=100))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.html", "<div>" * 100_000 + "deep"),
        ("a.html", "<table><tr><td>" * 20_000 + "deep"),
        ("a.html", "<ul><li>" * 20_000 + "deep"),
        ("a.md", "".join(f"{'  ' * n}- deep\n" for n in range(200))),
        ("a.csv", ",".join(["deep"] * 20_000)),
    ],
)
def test_deep_nesting_is_read(tmp_path: Path, opened: Open, name: str, content: str) -> None:
    page = opened(write_file(tmp_path / name, content)).page(1)
    assert "deep" in [word.text.strip("•:;") for word in page.words]
    assert max(word.box[2] for word in page.words) <= 1


def test_format_depends_on_the_name_and_id_on_the_content(tmp_path: Path, opened: Open) -> None:
    text, markdown = (write_file(tmp_path / name, "# One\n\nTwo") for name in ("a.txt", "a.md"))
    assert identify(text).id == identify(markdown).id
    assert lines_of(opened(text).page(1))[0] == "# One"
    assert lines_of(opened(markdown).page(1))[0] == "One"
    assert lines_of(opened(write_file(tmp_path / "Makefile", "all: it")).page(1)) == ["all: it"]


def test_pickled_copy_has_the_same_pages(tmp_path: Path, opened: Open) -> None:
    for path in (
        write_file(tmp_path / "readme.md", MARKDOWN),
        write_workbook(tmp_path / "a.xlsx", "<c><v>17</v></c><c><v>18</v></c>"),
    ):
        document = opened(path)
        with pickle.loads(pickle.dumps(document)) as copy:  # noqa: S301
            assert copy.page(1) == document.page(1)
            assert np.array_equal(np.asarray(copy.image(1)), np.asarray(document.image(1)))


def test_ocr_is_not_used_for_text_files(
    tmp_path: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        pytest.fail("OCR was used")

    document = opened(write_file(tmp_path / "a.txt", "x" * 3000), ocr="always")
    monkeypatch.setattr(document, "read_image", fail)
    assert document.page(1).text_source == "text layer"
