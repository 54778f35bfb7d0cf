"""What a file is, told by its content: names lie."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["pdf", "image", "images", "office"]
"""``images`` is a folder whose files are the pages."""

IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".jpe", ".tif", ".tiff", ".webp"})
OFFICE_SUFFIXES = frozenset(
    {".doc", ".docx", ".odp", ".ods", ".odt", ".ppt", ".pptx", ".rtf", ".xls", ".xlsx"}
)
DOCUMENT_SUFFIXES = IMAGE_SUFFIXES | OFFICE_SUFFIXES | {".pdf"}

# Readers of PDF accept rubbish before the header, up to here.
_PDF_HEADER_WITHIN = 1024
_IMAGE_SIGNATURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_OLE_SIGNATURE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_OLE_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")
_OLE_STREAMS = {"WordDocument": ".doc", "PowerPoint Document": ".ppt", "Workbook": ".xls"}
_OPENXML_FOLDERS = {"word/": ".docx", "ppt/": ".pptx", "xl/": ".xlsx"}
_OPENDOCUMENT = {
    b"application/vnd.oasis.opendocument.text": ".odt",
    b"application/vnd.oasis.opendocument.presentation": ".odp",
    b"application/vnd.oasis.opendocument.spreadsheet": ".ods",
}


def is_pdf(head: bytes) -> bool:
    """Whether the first bytes of a file are those of a PDF."""
    return b"%PDF-" in head[:_PDF_HEADER_WITHIN]


def is_image(head: bytes) -> bool:
    """Whether the first bytes of a file are those of a PNG, JPEG, TIFF or WebP.

    >>> is_image(b"RIFF....WEBPVP8 ")
    True
    """
    return head.startswith(_IMAGE_SIGNATURES) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP")


def office_suffix(path: Path, head: bytes) -> str | None:
    """Which office format a file holds, as the suffix LibreOffice knows it by; None if none."""
    if head.startswith(b"{\\rtf"):
        return ".rtf"
    if head.startswith(b"PK\x03\x04"):
        return _zipped_suffix(path)
    if head.startswith(_OLE_SIGNATURE):
        content = path.read_bytes()
        for stream, suffix in _OLE_STREAMS.items():
            if stream.encode("utf-16-le") in content:
                return suffix
        return ".docx" if _OLE_ENCRYPTED in content else None
    return None


def is_encrypted_office(path: Path, head: bytes) -> bool:
    """Whether a file is the OLE wrapper that Microsoft Office puts around encrypted documents."""
    return head.startswith(_OLE_SIGNATURE) and _OLE_ENCRYPTED in path.read_bytes()


def _zipped_suffix(path: Path) -> str | None:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if "mimetype" in names:
                with archive.open("mimetype") as stream:
                    return _OPENDOCUMENT.get(stream.read(100).strip())
    except (zipfile.BadZipFile, OSError, ValueError, RuntimeError, NotImplementedError):
        return None
    for folder, suffix in _OPENXML_FOLDERS.items():
        if any(name.startswith(folder) for name in names):
            return suffix
    return None
