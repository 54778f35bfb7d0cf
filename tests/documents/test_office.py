from __future__ import annotations

import re
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.documents.conftest import SECRETS, lines_of, text_at, write_pdf
from visar.documents import Limits, ReadOptions, open_document
from visar.documents.office import office_format
from visar.errors import DocumentError

DOCX_PARTS = {
    "[Content_Types].xml": """<?xml version="1.0"?>
<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>
<Override PartName="/word/document.xml" ContentType=\
"application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>""",
    "_rels/.rels": """<?xml version="1.0"?>
<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">
<Relationship Id="r1" Target="word/document.xml" Type=\
"http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"/>
</Relationships>""",
    "word/document.xml": """<?xml version="1.0"?>
<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body>
<w:p><w:r><w:t>Written in an office</w:t></w:r></w:p></w:body></w:document>""",
}


def write_docx(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in DOCX_PARTS.items():
            archive.writestr(name, content)
    return path


def fake_soffice(folder: Path, body: str) -> None:
    """Write a program that replaces LibreOffice and gets the same arguments.

    In the sandbox it can read its own folder, and write to the folder of the PDF.
    """
    folder.mkdir(exist_ok=True)
    program = folder / "soffice"
    program.write_text(f"#!{sys.executable}\nimport pathlib, shutil, sys, time\n{body}\n")
    program.chmod(0o755)


def test_error_without_libreoffice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DocumentError, match=r"^a.docx .*LibreOffice"):
        open_document(write_docx(tmp_path / "a.docx"))


def test_converted_document_keeps_its_name_and_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    pdf = write_pdf(tmp_path / "bin" / "made.pdf", text_at(50, 500, "converted"))
    fake_soffice(
        tmp_path / "bin",
        f"""
out = pathlib.Path(sys.argv[sys.argv.index("--outdir") + 1])
assert sys.argv[-1].endswith(".docx")
assert (out / "profile/user/registrymodifications.xcu").exists()
shutil.copy({str(pdf)!r}, out / "document.pdf")""",
    )
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    path = write_docx(tmp_path / "letter.bin")
    with open_document(path) as document:
        assert (document.kind, document.name) == ("office", "letter.bin")
        assert lines_of(document.page(1)) == ["converted"]
        made = Path(document._worker._source["paths"][0])
        assert made.exists()
        assert document.id not in made.read_text("latin-1")
        with open_document(pdf) as other:
            assert other.id != document.id
    assert not made.parent.exists()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("time.sleep(60)", "conversion_seconds"),
        ("sys.exit('no such filter')", "no such filter"),
        # The current folder is that of the PDF.
        ("pathlib.Path('document.pdf').symlink_to(sys.executable)", "LibreOffice"),
    ],
)
def test_failed_conversions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, reason: str
) -> None:
    fake_soffice(tmp_path / "bin", body)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(DocumentError, match=f"^a.docx .*{reason}"):
        open_document(
            write_docx(tmp_path / "a.docx"), ReadOptions(limits=Limits(conversion_seconds=1))
        )


def test_libreoffice_can_request_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does so with a new profile."""
    (tmp_path / "bin").mkdir()
    pdf = write_pdf(tmp_path / "bin" / "made.pdf", text_at(50, 500, "converted"))
    fake_soffice(
        tmp_path / "bin",
        f"""
if not pathlib.Path("started").exists():
    pathlib.Path("started").touch()
    sys.exit(81)
shutil.copy({str(pdf)!r}, "document.pdf")""",
    )
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with open_document(write_docx(tmp_path / "a.docx")) as document:
        assert lines_of(document.page(1)) == ["converted"]


def directory_bomb(path: Path) -> Path:
    """Write a zip file whose directory takes 140 MB of memory, many times its size."""
    count = 400_000
    entry = struct.pack("<4s6H3L5H2L", b"PK\1\2", *[0] * 9, 4, *[0] * 6) + b"x.md"
    start = b"PK\3\4" + bytes(26)
    end = struct.pack(
        "<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, count * len(entry), len(start), 0
    )
    path.write_bytes(start + entry * count + end)
    return path


def xml_bomb(path: Path) -> Path:
    """Write a document that inflates to 200 MB, a thousand times its size."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in DOCX_PARTS.items():
            head, found, tail = content.partition("<w:p>")
            with archive.open(name, "w") as stream:
                stream.write(head.encode())
                for _ in range(2000 if found else 0):
                    stream.write(b"<w:p><w:r><w:t>months of warranty</w:t></w:r></w:p>" * 2000)
                stream.write((found + tail).encode())
    return path


def test_zip_directory_is_read_in_the_worker(tmp_path: Path) -> None:
    path = directory_bomb(tmp_path / "bomb.docx")
    program = f"""
import resource
from visar.documents import Limits, ReadOptions, open_document
from visar.errors import DocumentError
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    open_document({str(path)!r}, ReadOptions(limits=Limits(worker_memory=200_000_000)))
except DocumentError as error:
    print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    error, kilobytes = ran.stdout.splitlines()
    assert "bomb.docx" in error
    assert "0.2 GB (Limits.worker_memory)" in error
    assert int(kilobytes) < 40_000


def test_old_office_format_is_detected_in_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of a stream may be anywhere, even across the boundary of two chunks."""
    for offset in (600, (1 << 20) - 7, (1 << 20) + 99):
        content = bytearray(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(3 << 20))
        name = "PowerPoint Document".encode("utf-16-le")
        content[offset : offset + len(name)] = name
        (tmp_path / "a.bin").write_bytes(content)
        assert office_format(tmp_path / "a.bin") == ".ppt"
    monkeypatch.setattr(Path, "read_bytes", lambda _: pytest.fail("read whole"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DocumentError, match=r"^a.bin .*LibreOffice"):
        open_document(tmp_path / "a.bin")


def test_libreoffice_gets_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_soffice(
        tmp_path / "bin",
        f"""
import os
sys.exit("secrets: %d, %s" % (len({SECRETS!r} & os.environ.keys()), os.environ["PATH"]))""",
    )
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for name in SECRETS:
        monkeypatch.setenv(name, "s3cret")
    with pytest.raises(DocumentError, match=rf"\(secrets: 0, {re.escape(str(tmp_path))}/bin\)"):
        open_document(write_docx(tmp_path / "a.docx"))


def test_encrypted_office_document(tmp_path: Path) -> None:
    marker = "EncryptedPackage".encode("utf-16-le")
    content = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600) + marker + bytes(600)
    (tmp_path / "a.xlsx").write_bytes(content)
    with pytest.raises(DocumentError, match=r"^a.xlsx .*encrypted"):
        open_document(tmp_path / "a.xlsx")


def test_other_zip_file(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.docx", "w") as archive:
        archive.writestr("readme.txt", "only a zip")
    with pytest.raises(DocumentError, match=r"^a.docx .*DOCX"):
        open_document(tmp_path / "a.docx")


@pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed")
def test_real_libreoffice(tmp_path: Path, opened: Any) -> None:
    document = opened(write_docx(tmp_path / "a.docx"))
    assert lines_of(document.page(1)) == ["Written in an office"]
