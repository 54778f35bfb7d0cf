"""Which files are documents, and what they are known by: told by their content alone."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from visar.documents.options import Limits
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
_USUAL_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class FoundDocuments:
    """What `find_documents` found."""

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


@dataclass(frozen=True, slots=True)
class FileState:
    """A file and its state when its content was hashed."""

    path: Path
    size: int
    modified: int
    """In nanoseconds."""

    @classmethod
    def of(cls, path: Path, document: str) -> FileState:
        """The state of a file now; DocumentError if it cannot be read."""
        with refusals(document):
            found = path.stat()
        return cls(path, found.st_size, found.st_mtime_ns)

    def check(self, document: str) -> None:
        """Raise a DocumentError if the file vanished or changed."""
        if FileState.of(self.path, document) != self:
            raise DocumentError(document, "was changed while it was read: open it again")


@dataclass(frozen=True, slots=True)
class Identity:
    """What a document is known by, from the content of its files alone."""

    id: str
    """SHA-256 in hexadecimal: the same content has the same id wherever it lies."""
    name: str
    """That of the file or folder, fit to be shown."""
    kind: Kind
    """Whether an ``"office"`` file really is one shows when it is opened."""
    files: tuple[FileState, ...]
    """One, or the pages of a folder of images in their order."""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def check(self) -> None:
        """Raise a DocumentError if one of the files vanished or changed."""
        for file in self.files:
            file.check(self.name)


def identify(path: str | os.PathLike[str], limits: Limits = _USUAL_LIMITS) -> Identity:
    """Tell what a document is and compute its id, without opening it.

    Reads every byte once; starts no process and converts nothing. An index that knows the id
    needs no more.

    Parameters
    ----------
    path
        A file, or a folder of page images.
    limits
        Of which ``max_bytes`` counts here.

    Raises
    ------
    DocumentError
        The path does not exist, cannot be read, is too large, or is of no known kind.
    """
    path = Path(path)
    with refusals(clean_line(path)):
        # Absolute: a worker that starts later, or in another process, finds the files too.
        path = path.absolute()
        name = document_name(path)
    files, is_folder = _files(path, name, limits)
    kind: Kind = "images" if is_folder else _kind(path, name)
    digests = []
    for file in files:
        with refusals(name), file.path.open("rb") as stream:
            digests.append(hashlib.file_digest(stream, "sha256"))
        file.check(name)
    if not is_folder:
        return Identity(digests[0].hexdigest(), name, kind, files)
    whole = hashlib.sha256()
    for file, digest in zip(files, digests, strict=True):
        # Digests, not names, so that no name can be mistaken for another's content.
        whole.update(hashlib.sha256(file.path.name.encode(errors="surrogateescape")).digest())
        whole.update(digest.digest())
    return Identity(whole.hexdigest(), name, kind, files)


def _files(path: Path, name: str, limits: Limits) -> tuple[tuple[FileState, ...], bool]:
    """The files of a document, and whether it is a folder of pages."""
    mode = file_mode(path, name)
    if stat.S_ISDIR(mode):
        paths = page_images(path)
        if not paths:
            raise DocumentError(
                clean_line(path),
                "is a folder that is not made of page images only: name the documents in it",
            )
    elif stat.S_ISREG(mode):
        paths = [path]
    else:
        raise DocumentError(name, "is neither a file nor a folder")
    files = tuple(FileState.of(file, name) for file in paths)
    size = sum(file.size for file in files)
    if size > limits.max_bytes:
        raise DocumentError(
            name,
            f"has {size:,} bytes, more than the limit of {limits.max_bytes:,} (Limits.max_bytes)",
        )
    return files, stat.S_ISDIR(mode)


def _kind(path: Path, name: str) -> Kind:
    head = head_of(path, name)
    if not head:
        raise DocumentError(name, "is empty")
    kind = kind_of(head)
    if kind is None:
        raise unknown_kind(path, name)
    return kind


def unknown_kind(path: Path, name: str) -> DocumentError:
    """The error for a file whose content is of no known kind."""
    claim = path.suffix.lower()
    if claim in DOCUMENT_SUFFIXES:
        return DocumentError(name, f"does not contain what its name says: it is no {claim[1:]}")
    return DocumentError(
        name, "is of no kind that can be read: PDF, PNG, JPEG, TIFF, WebP, or an office format"
    )


def kind_of(head: bytes) -> Kind | None:
    """What a file is, by its first bytes; None if nothing that can be read.

    ``"office"`` is a guess: the zip and OLE containers hold other things too. Only the worker
    process looks inside (`visar.documents.office.office_format`).

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
    # ".." is no name, and "." has none.
    name = path.name if path.name not in ("", "..") else Path(os.path.realpath(path)).name
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
    """Turn what the operating system refuses into a `DocumentError` of this document."""
    try:
        yield
    except FileNotFoundError as error:
        raise DocumentError(document, "does not exist, or not any more") from error
    except OSError as error:
        raise DocumentError(document, f"cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        # A null character in a name.
        raise DocumentError(document, f"cannot be read: {error}") from error
