"""Seeds and mutations: hostile documents made from a few small ones."""

from __future__ import annotations

import contextlib
import io
import itertools
import random
import re
import warnings
import zipfile
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

import pikepdf
from PIL import Image
from reportlab.pdfgen.canvas import Canvas

from tests.documents.conftest import embedded_font, text_image
from tests.documents.test_office import DOCX_PARTS

NUMBERS = (0, 1, -1, 2, 7, 255, 65_536, 2**31 - 1, -(2**31), 2**32, 2**63, 10**40, 0.5, 1e-9, -1e9)
# How often a kind of document comes. LibreOffice takes seconds for each of the last three.
WEIGHTS = {".pdf": 60, ".png": 8, ".jpg": 6, ".tiff": 8, ".webp": 5, "": 5}
WEIGHTS |= {".txt": 3, ".md": 3, ".html": 8, ".csv": 4, ".tsv": 2, ".eml": 4, ".xlsx": 6}
WEIGHTS |= {".docx": 1, ".odt": 1, ".rtf": 1}


@cache
def seeds() -> dict[str, list[bytes]]:
    """Contents by suffix; those of the suffix "" become folders of page images."""
    images = [_image("PNG"), _image("PNG", "P"), _image("PNG", "I;16"), _image("PNG", "LA")]
    frames = [Image.new("RGB", (60, 40), color) for color in ("white", "red")]
    return {
        ".pdf": _pdfs(),
        ".png": images,
        ".jpg": [_image("JPEG", exif=_turned()), _image("JPEG", "CMYK", progressive=True)],
        ".tiff": [
            _image("TIFF", compression="tiff_lzw", save_all=True, append_images=frames),
            _image("TIFF", "1", compression="group4", dpi=(300, 300)),
        ],
        ".webp": [_image("WEBP", lossless=True), _image("WEBP", "RGBA")],
        "": images[:2],
        ".txt": [
            "Größe\n\n• one\n• two\n\nName    Price\nLamp    12\n".encode(e) for e in _ENCODINGS
        ],
        ".md": [_MARKDOWN],
        ".html": [_HTML],
        ".csv": [b'id,name,price\n1,"Lamp, old",12.50\n2,Desk,3\n', b"a;b\n1;2\n"],
        ".tsv": [b"name\tcity\nAnna\tKiel\nJan\tK\xf6ln\n"],
        ".eml": [_EMAIL],
        ".docx": [_zipped(DOCX_PARTS)],
        ".odt": [_zipped(_ODT_PARTS)],
        ".xlsx": [_zipped(_XLSX_PARTS)],
        ".rtf": [rb"{\rtf1\ansi{\fonttbl\f0 Arial;}\f0 Warranty \b period\b0\par twelve\par}"],
    }


def _pdfs() -> list[bytes]:
    stream = io.BytesIO()
    canvas = Canvas(stream, pagesize=(420, 595), invariant=True)
    for number in range(3):
        canvas.setFont("Helvetica-Bold", 16)
        canvas.drawString(50, 540, f"{number + 1} Warranty and repairs")
        canvas.setFont(embedded_font(), 9)
        for line in range(12):
            canvas.drawString(50, 500 - 12 * line, f"• The period of part {line} is 24 months. Äé")
        for row, column in itertools.product(range(4), range(3)):
            canvas.drawString(50 + 90 * column, 300 - 14 * row, f"{row * column:,}.5")
            canvas.rect(48 + 90 * column, 296 - 14 * row, 90, 14)
        canvas.drawInlineImage(text_image("inside", size=(300, 90)), 50, 100, 200, 60)
        canvas.saveState()
        canvas.rotate(90)
        canvas.drawString(100, -400, "upwards")
        canvas.restoreState()
        canvas.acroForm.textfield(value="filled in", x=250, y=100, width=90, height=20)
        canvas.bookmarkPage(f"page{number}")
        canvas.addOutlineEntry(f"Part {number}", f"page{number}")
        canvas.linkAbsolute("next", "page0", (50, 50, 90, 70))
        canvas.showPage()
    canvas.setTitle("Warranty")
    canvas.save()
    plain = stream.getvalue()
    return [plain, _saved(plain, _labelled), _saved(plain, _rotated), _saved(plain, _encrypted)]


def _labelled(pdf: pikepdf.Pdf) -> dict[str, Any]:
    labels = pikepdf.Dictionary(Nums=[0, pikepdf.Dictionary(S=pikepdf.Name.r, St=4)])
    pdf.Root.PageLabels = pdf.make_indirect(labels)
    return {"object_stream_mode": pikepdf.ObjectStreamMode.generate}


def _rotated(pdf: pikepdf.Pdf) -> dict[str, Any]:
    for page, angle in zip(pdf.pages, (90, 180, 270), strict=True):
        page.rotate(angle, relative=False)
        page.cropbox = pikepdf.Array([30, 20, 400, 570])
    return {"compress_streams": False, "stream_decode_level": pikepdf.StreamDecodeLevel.all}


def _encrypted(_: pikepdf.Pdf) -> dict[str, Any]:
    # Without AES, whose random numbers would make another file each time.
    weak = pikepdf.Encryption(user="", owner="o", R=3, aes=False, metadata=False)
    return {"encryption": weak}


def _saved(content: bytes, change: Callable[[pikepdf.Pdf], dict[str, Any]]) -> bytes:
    stream = io.BytesIO()
    with pikepdf.open(io.BytesIO(content)) as pdf:
        options = {"static_id": True, **change(pdf)}
        pdf.save(stream, **options)
    return stream.getvalue()


def _image(file_format: str, mode: str = "RGB", **options: Any) -> bytes:
    stream = io.BytesIO()
    image = text_image("Warranty", size=(120, 60), height=20)
    image = image.convert("L") if mode == "I;16" else image
    image.convert(mode).save(stream, file_format, **options)
    return stream.getvalue()


def _turned() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


def _zipped(parts: dict[str, str]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return stream.getvalue()


_ENCODINGS = ("utf-8", "utf-16", "cp1252")
_MARKDOWN = b"""# One\n\nText *with* `code` and [a link](b).\n\n- item\n  1. inner\n
| a | b |\n| - | - |\n| 1 | 2 |\n\n> quoted\n\n```\n  code\n```\n<b>bold</b> &amp; &#65;\n"""
_HTML = b"""<!doctype html><html><head><meta charset="utf-8"><title>A</title></head><body><h1>B</h1>
<p style="display:none">no</p><ol start="3"><li>one<li>two</ol><table><thead><tr><th colspan="2">a
<tbody><tr><td>1<td>2<tr><td><table><tr><td>3</table></table><pre> x  y</pre><br>&eacute;<img alt=c>
<script>1 < 2</script><blockquote>d</blockquote></body></html>"""
_EMAIL = b"""From: "A" <a@example.org>\nTo: b@example.org\nSubject: =?utf-8?b?w5xiZXI=?=
Date: Mon, 02 Mar 2026 10:00:00 +0100\nMIME-Version: 1.0
Content-Type: multipart/mixed; boundary="x"\n\n--x
Content-Type: multipart/alternative; boundary="y"
\n--y\nContent-Type: text/plain; charset="latin-1"\nContent-Transfer-Encoding: quoted-printable
\nGr=FC=DFe\n--y\nContent-Type: text/html\nContent-Transfer-Encoding: base64\n\nPHA+YTwvcD4=\n--y--
--x\nContent-Disposition: attachment; filename="a.pdf"\n\nb\n--x--\n"""
_OASIS = "urn:oasis:names:tc:opendocument:xmlns"
_ODT_PARTS = {
    "mimetype": "application/vnd.oasis.opendocument.text",
    "META-INF/manifest.xml": f"""<?xml version="1.0"?>
<m:manifest xmlns:m="{_OASIS}:manifest:1.0">
<m:file-entry m:full-path="/" m:media-type="application/vnd.oasis.opendocument.text"/>
<m:file-entry m:full-path="content.xml" m:media-type="text/xml"/></m:manifest>""",
    "content.xml": f"""<?xml version="1.0"?>
<o:document-content xmlns:o="{_OASIS}:office:1.0" xmlns:t="{_OASIS}:text:1.0"
 xmlns:b="{_OASIS}:table:1.0"><o:body><o:text><t:h t:outline-level="1">Warranty</t:h>
<t:p>twelve months</t:p><b:table><b:table-column b:number-columns-repeated="2"/><b:table-row>
<b:table-cell><t:p>1</t:p></b:table-cell><b:table-cell><t:p>2</t:p></b:table-cell></b:table-row>
</b:table></o:text></o:body></o:document-content>""",
}
_OPENXML = "http://schemas.openxmlformats.org"
_XLSX_PARTS = {
    "[Content_Types].xml": f"""<?xml version="1.0"?>
<Types xmlns="{_OPENXML}/package/2006/content-types">
<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>
<Override PartName="/xl/workbook.xml" ContentType=
"application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"/>
<Override PartName="/xl/sheet.xml" ContentType=
"application/vnd.openxmlformats-officedocument.spreadsheetml.worksheet+xml"/></Types>""",
    "_rels/.rels": f"""<?xml version="1.0"?>
<Relationships xmlns="{_OPENXML}/package/2006/relationships"><Relationship Id="r1"
 Target="xl/workbook.xml" Type="{_OPENXML}/officeDocument/2006/relationships/officeDocument"/>
</Relationships>""",
    "xl/_rels/workbook.xml.rels": f"""<?xml version="1.0"?>
<Relationships xmlns="{_OPENXML}/package/2006/relationships"><Relationship Id="r1"
 Target="sheet.xml" Type="{_OPENXML}/officeDocument/2006/relationships/worksheet"/>
</Relationships>""",
    "xl/workbook.xml": f"""<?xml version="1.0"?>
<workbook xmlns="{_OPENXML}/spreadsheetml/2006/main"
 xmlns:r="{_OPENXML}/officeDocument/2006/relationships"><sheets>
<sheet name="a" sheetId="1" r:id="r1"/></sheets></workbook>""",
    "xl/sheet.xml": f"""<?xml version="1.0"?>
<worksheet xmlns="{_OPENXML}/spreadsheetml/2006/main"><sheetData><row r="1">
<c r="A1"><v>17</v></c><c r="B1"><f>A1*2</f></c></row></sheetData></worksheet>""",
}


# Mutations


def mutated(rng: random.Random) -> tuple[str, bytes]:
    """A document that nobody has seen yet: its suffix and content."""
    suffix = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    content = rng.choice(seeds()[suffix])
    structural = {".pdf": _mutated_pdf, ".png": _mutated_png, "": _mutated_png}
    structural |= dict.fromkeys((".docx", ".odt", ".xlsx"), _mutated_zip)
    change = structural.get(suffix, _mutated_bytes)
    return suffix, (change if rng.random() < 0.7 else _mutated_bytes)(rng, content)


def _mutated_bytes(rng: random.Random, content: bytes) -> bytes:
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        start = rng.randrange(len(data) + 1)
        end = min(len(data), start + rng.choice((1, 1, 2, 4, 4, 32, 500)))
        match rng.randrange(7):
            case 0:
                data[start:end] = rng.randbytes(end - start)
            case 1:
                del data[start:end]
            case 2:
                data[start:start] = data[start:end] * rng.choice((1, 2, 50))
            case 3:
                value = rng.choice((0, 1, 127, 255, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF))
                data[start:end] = value.to_bytes(4, rng.choice(("big", "little")))[: end - start]
            case 4:
                del data[start:]
            case 5:
                data = bytearray(_with_other_number(rng, bytes(data)))
            case _:
                other = rng.choice(list(itertools.chain(*seeds().values())))
                data[start:end] = other[rng.randrange(len(other)) :][: rng.choice((8, 64, 2000))]
        if not data:
            return b""
    return bytes(data)


def _with_other_number(rng: random.Random, content: bytes) -> bytes:
    numbers = list(re.finditer(rb"-?\d+(?:\.\d+)?", content))
    if not numbers:
        return content
    start, end = rng.choice(numbers).span()
    return content[:start] + str(rng.choice(NUMBERS)).encode() + content[end:]


_REFUSALS = (pikepdf.PdfError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError)


def _mutated_pdf(rng: random.Random, content: bytes) -> bytes:
    stream = io.BytesIO()
    with pikepdf.open(io.BytesIO(content)) as pdf:
        for _ in range(rng.choice((1, 1, 2, 3, 8))):
            target = rng.choice(list(pdf.objects))
            # What pikepdf refuses to write is left as it was.
            with contextlib.suppress(*_REFUSALS):
                _change_object(rng, pdf, target)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # damage is what we are here for
                pdf.save(
                    stream,
                    compress_streams=False,
                    stream_decode_level=pikepdf.StreamDecodeLevel.none,
                    static_id=True,
                    qdf=rng.random() < 0.1,
                )
        except _REFUSALS:
            return _mutated_bytes(rng, content)
    return stream.getvalue()


def _change_object(rng: random.Random, pdf: pikepdf.Pdf, target: Any) -> None:
    if isinstance(target, pikepdf.Stream) and rng.random() < 0.5:
        try:
            data = target.read_bytes()
        except pikepdf.PdfError:
            data = target.read_raw_bytes()
        data = (_mutated_content if rng.random() < 0.5 else _mutated_bytes)(rng, data)
        if rng.random() < 0.5:
            target.write(data)
        else:  # stored as it is, whatever the filters say
            filters = target.get("/Filter")
            target.write(data)
            if filters is not None:
                target["/Filter"] = filters
    elif isinstance(target, pikepdf.Dictionary | pikepdf.Stream) and len(list(target.keys())):
        key = rng.choice(sorted(target.keys()))
        if rng.random() < 0.15:
            del target[key]
        elif isinstance(target[key], pikepdf.Array | pikepdf.Dictionary) and rng.random() < 0.5:
            _change_object(rng, pdf, target[key])
        else:
            target[key] = _value(rng, pdf)
    elif isinstance(target, pikepdf.Array) and len(target):
        target[rng.randrange(len(target))] = _value(rng, pdf)


def _value(rng: random.Random, pdf: pikepdf.Pdf) -> Any:
    match rng.randrange(7):
        case 0 | 1:
            number = rng.choice(NUMBERS)
            return number if abs(number) < 2**62 else 2**62
        case 2:
            return rng.choice(list(pdf.objects))
        case 3:
            return pikepdf.Array([rng.choice(NUMBERS[:8]) for _ in range(rng.choice((0, 2, 4, 6)))])
        case 4:
            names = ("/Page", "/Pages", "/Form", "/Image", "/FlateDecode", "/DCTDecode", "/Type0")
            return pikepdf.Name(rng.choice(names))
        case 5:
            return pikepdf.String(rng.choice(("", "\x00\x1b[31m", "\ud7ff\ufffe", "9" * 5000)))
        case _:
            return pikepdf.Dictionary(Type=pikepdf.Name.Page, Kids=[rng.choice(list(pdf.objects))])


def _mutated_content(rng: random.Random, content: bytes) -> bytes:
    """Operators in another order, and numbers beyond all measure."""
    tokens = content.split()
    if not tokens:
        return b"q " * 5000
    for _ in range(rng.choice((1, 3, 10))):
        place, other = rng.randrange(len(tokens)), rng.randrange(len(tokens))
        match rng.randrange(4):
            case 0:
                tokens[place] = str(rng.choice(NUMBERS)).encode()
            case 1:
                tokens[place] = tokens[other]
            case 2:
                tokens[place:place] = tokens[other : other + 20] * rng.choice((1, 3, 100))
            case _:
                tokens[place] = rng.choice((b"q", b"Q", b"BT", b"ET", b"Tj", b"cm", b"Tm", b"Do"))
    return b" ".join(tokens)


def _mutated_png(rng: random.Random, content: bytes) -> bytes:
    """A chunk is changed and its checksum is right, so that what comes after the check sees it."""
    place, chunks = 8, []
    while place < len(content):
        size = int.from_bytes(content[place : place + 4], "big")
        chunks.append((content[place + 4 : place + 8], content[place + 8 : place + 8 + size]))
        place += 12 + size
    changed = rng.randrange(len(chunks))
    name, data = chunks[changed]
    chunks[changed] = name, _mutated_bytes(rng, data)
    result = content[:8]
    for name, data in chunks:
        check = zlib.crc32(name + data)
        result += len(data).to_bytes(4, "big") + name + data + check.to_bytes(4, "big")
    return result


def _mutated_zip(rng: random.Random, content: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(sorted(parts))
    tags = list(re.finditer(rb"<[^>]*>", parts[name]))
    if tags and rng.random() < 0.7:
        (start, end), other = rng.choice(tags).span(), rng.choice(tags).group()
        text = parts[name]
        inserted = rng.choice((b"", other, other * 20_000, b"<!DOCTYPE a [<!ENTITY b 'c'>]>&b;"))
        parts[name] = text[:start] + inserted + text[end:]
    else:
        parts[name] = _mutated_bytes(rng, parts[name])
    return _zipped({name: part.decode("latin-1") for name, part in parts.items()})
