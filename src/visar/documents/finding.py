"""Which files are documents: told by their content, and found in folders."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from visar.errors import DocumentError
from visar.text import clean_line

Kind: TypeAlias = Literal["pdf", "image", "images", "office"]
"""What a document is; ``images`` is a folder whose files are the pages."""

_IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".jpe", ".tif", ".tiff", ".webp"})
_OFFICE_SUFFIXES = frozenset(
    {".doc", ".docx", ".odp", ".ods", ".odt", ".ppt", ".pptx", ".rtf", ".xls", ".xlsx"}
)
DOCUMENT_SUFFIXES = _IMAGE_SUFFIXES | _OFFICE_SUFFIXES | {".pdf"}

# PDF readers accept other bytes before the header, up to here.
_HEAD = 1024
_IMAGE_SIGNATURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
ZIP_SIGNATURE = b"PK\x03\x04"
OLE_SIGNATURE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
RTF_SIGNATURE = b"{\\rtf"


@dataclass(frozen=True, slots=True)
class FoundDocuments:
    """What :func:`find_documents` found."""

    paths: tuple[Path, ...]
    """Documents, each once."""
    refused: tuple[tuple[Path, str], ...]
    """Paths that cannot be used, each with a sentence that says why."""


def find_documents(paths: Iterable[str | os.PathLike[str]]) -> FoundDocuments:
    """Expand folders to the documents in them, at any depth, in natural order.

    - A file that is named is taken as it is, whatever its suffix.
    - A folder that holds page images and nothing else is one document.
    - In any other folder, files with the suffix of a known kind are documents, each image one of
      its own; other files, hidden ones and links to folders are passed over.

    A path that does not exist, a folder that cannot be listed and one without documents are
    reported in the result; they do not stop the search.
    """
    found: dict[Path, None] = {}
    refused: list[tuple[Path, str]] = []
    for given in map(Path, paths):
        before = len(refused)
        documents = list(_documents_at(given, refused))
        if not documents and len(refused) == before:
            empty = DocumentError(clean_line(given), "is a folder without documents")
            refused.append((given, str(empty)))
        found.update(dict.fromkeys(documents))
    return FoundDocuments(tuple(found), tuple(refused))


def _documents_at(given: Path, refused: list[tuple[Path, str]]) -> Iterator[Path]:
    # A stack, not recursion: folders can be nested deeper than Python calls.
    waiting = [given]
    while waiting:
        path = waiting.pop()
        try:
            mode = file_mode(path, clean_line(path), follow_links=path is given)
            if stat.S_ISDIR(mode):
                if page_images(path):
                    yield path
                else:
                    waiting.extend(reversed(visible_files(path)))
            elif path is given or _is_document_file(path):
                yield path
        except DocumentError as error:
            refused.append((path, str(error)))


def _is_document_file(path: Path) -> bool:
    if path.suffix.lower() not in DOCUMENT_SUFFIXES:
        return False
    return stat.S_ISREG(file_mode(path, clean_line(path)))


def kind_of(head: bytes) -> Kind | None:
    """What a file is, by its first bytes; None if nothing that can be read.

    ``"office"`` is a guess: the zip and OLE containers hold other things too. Only the worker
    process looks inside (:func:`visar.documents.office.office_format`).

    >>> kind_of(b"%PDF-1.7"), kind_of(b"RIFF....WEBPVP8 "), kind_of(b"ID3")
    ('pdf', 'image', None)
    """
    if b"%PDF-" in head[:_HEAD]:
        return "pdf"
    if head.startswith(_IMAGE_SIGNATURES) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP"):
        return "image"
    if head.startswith((ZIP_SIGNATURE, OLE_SIGNATURE, RTF_SIGNATURE)):
        return "office"
    return None


def natural_key(name: str) -> tuple[tuple[int, str], ...]:
    """Sort names as people count: page 2 before page 10.

    >>> sorted(["p10.png", "p2.png", "P1.png"], key=natural_key)
    ['P1.png', 'p2.png', 'p10.png']
    """
    parts = re.split(r"(\d+)", name.casefold())
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in parts)


def visible_files(folder: Path) -> list[Path]:
    """The files and folders directly in a folder that are not hidden, in natural order."""
    with refusals(clean_line(folder)):
        entries = [entry for entry in folder.iterdir() if not entry.name.startswith((".", "~$"))]
    return sorted(entries, key=lambda entry: (natural_key(entry.name), entry.name))


def page_images(folder: Path) -> list[Path]:
    """The pages of a folder that is one document: it holds images and nothing else. Else none.

    Raises
    ------
    DocumentError
        The folder cannot be listed, or one of its images cannot be read.
    """
    entries = visible_files(folder)
    failure: DocumentError | None = None
    for entry in entries:
        try:
            name = f"{clean_line(folder)}: {document_name(entry)}"
            if not stat.S_ISREG(file_mode(entry, name)) or kind_of(head_of(entry, name)) != "image":
                return []
        except DocumentError as error:
            # Anything else in the folder makes it one whose files are looked at one by one.
            failure = failure or error
    if failure:
        raise failure
    return entries


def document_name(path: Path) -> str:
    """The name a document is shown by: that of its file, safe for a terminal and for UTF-8."""
    # "." and ".." are no names.
    name = path.name if path.name.strip(".") else path.resolve().name or str(path)
    return name if name.isprintable() else clean_line(name)


def head_of(path: Path, document: str) -> bytes:
    """The first bytes of a file."""
    with refusals(document), path.open("rb") as stream:
        return stream.read(_HEAD)


def file_mode(path: Path, document: str, *, follow_links: bool = True) -> int:
    """The type and permissions of what is at a path."""
    with refusals(document):
        return path.stat(follow_symlinks=follow_links).st_mode


@contextmanager
def refusals(document: str) -> Iterator[None]:
    """Turn what the operating system refuses into a :class:`DocumentError` of this document."""
    try:
        yield
    except FileNotFoundError as error:
        raise DocumentError(document, "does not exist, or not any more") from error
    except OSError as error:
        raise DocumentError(document, f"cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        # A null character in a name.
        raise DocumentError(document, f"cannot be read: {error}") from error
