from __future__ import annotations

import json
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
    """A program in the place of LibreOffice: it gets the same arguments."""
    folder.mkdir()
    program = folder / "soffice"
    program.write_text(f"#!{sys.executable}\nimport pathlib, shutil, sys, time\n{body}\n")
    program.chmod(0o755)


def test_without_libreoffice_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        DocumentError, match=r"^a.docx is an office document: .*LibreOffice .*as PDF"
    ):
        open_document(write_docx(tmp_path / "a.docx"))


def test_the_conversion_is_read_under_the_document_s_name_and_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pdf = write_pdf(tmp_path / "made.pdf", text_at(50, 500, "converted"))
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
        ("time.sleep(60)", "took LibreOffice longer than 1 seconds"),
        ("sys.exit('no such filter')", r"could not be converted by LibreOffice \(no such filter\)"),
    ],
)
def test_conversions_that_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, reason: str
) -> None:
    fake_soffice(tmp_path / "bin", body)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(DocumentError, match=f"^a.docx {reason}"):
        open_document(
            write_docx(tmp_path / "a.docx"), ReadOptions(limits=Limits(conversion_seconds=1))
        )


def test_a_zip_directory_is_read_in_the_worker_with_its_limits(tmp_path: Path) -> None:
    """A zip directory takes many times its size in memory: of this one, 140 MB."""
    count = 400_000
    entry = struct.pack("<4s6H3L5H2L", b"PK\1\2", *[0] * 9, 4, *[0] * 6) + b"x.md"
    start = b"PK\3\4" + bytes(26)
    end = struct.pack(
        "<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, count * len(entry), len(start), 0
    )
    path = tmp_path / "bomb.docx"
    path.write_bytes(start + entry * count + end)
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
    assert error == "bomb.docx needs more memory than 0.2 GB (Limits.worker_memory)."
    assert int(kilobytes) < 40_000


def test_old_office_documents_are_told_without_reading_them_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of a stream may stand anywhere, and across the pieces in which the file is read."""
    for place in (600, (1 << 20) - 7, (1 << 20) + 99):
        content = bytearray(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(3 << 20))
        name = "PowerPoint Document".encode("utf-16-le")
        content[place : place + len(name)] = name
        (tmp_path / "a.bin").write_bytes(content)
        assert office_format(tmp_path / "a.bin") == ".ppt"
    monkeypatch.setattr(Path, "read_bytes", lambda _: pytest.fail("read whole"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DocumentError, match=r"^a.bin is an office document: .*LibreOffice"):
        open_document(tmp_path / "a.bin")


def test_libreoffice_is_given_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_soffice(
        tmp_path / "bin",
        f"""
import json, os
pathlib.Path({str(tmp_path / "environment")!r}).write_text(json.dumps(dict(os.environ)))""",
    )
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for name in SECRETS:
        monkeypatch.setenv(name, "s3cret")
    with pytest.raises(DocumentError):
        open_document(write_docx(tmp_path / "a.docx"))
    given = json.loads((tmp_path / "environment").read_text())
    assert given["PATH"] == str(tmp_path / "bin")
    assert not SECRETS & given.keys()


def test_encrypted_office_documents_are_refused_as_such(tmp_path: Path) -> None:
    marker = "EncryptedPackage".encode("utf-16-le")
    content = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600) + marker + bytes(600)
    (tmp_path / "a.xlsx").write_bytes(content)
    with pytest.raises(DocumentError, match=r"^a.xlsx is an encrypted office document"):
        open_document(tmp_path / "a.xlsx")


def test_a_zip_that_is_no_office_document(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.docx", "w") as archive:
        archive.writestr("readme.txt", "only a zip")
    with pytest.raises(DocumentError, match=r"^a.docx does not contain what its name says"):
        open_document(tmp_path / "a.docx")


@pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed")
def test_libreoffice_itself(tmp_path: Path, opened: Any) -> None:
    document = opened(write_docx(tmp_path / "a.docx"))
    assert lines_of(document.page(1)) == ["Written in an office"]
