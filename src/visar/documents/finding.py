"""Finding documents, and identifying them by their content."""

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

Kind: TypeAlias = Literal["pdf", "image", "images", "office", "text"]
"""Kind of a document; ``images`` is a folder of page images, ``text`` any text format."""
TextFormat: TypeAlias = Literal["text", "markdown", "html", "csv", "tsv", "email"]

_IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".jpe", ".tif", ".tiff", ".webp"})
_OFFICE_SUFFIXES = frozenset(
    {".doc", ".docx", ".odp", ".ods", ".odt", ".ppt", ".pptx", ".rtf", ".xls", ".xlsx"}
)
_TEXT_FORMATS: dict[str, TextFormat] = {
    **dict.fromkeys((".txt", ".text", ".log"), "text"),
    **dict.fromkeys((".md", ".markdown"), "markdown"),
    **dict.fromkeys((".html", ".htm", ".xhtml"), "html"),
    ".csv": "csv",
    ".tsv": "tsv",
    ".eml": "email",
}
_OTHER_SUFFIXES = _IMAGE_SUFFIXES | _OFFICE_SUFFIXES | {".pdf"}
# The text of an SVG file describes a drawing, which is useless for questions.
_DRAWING_SUFFIX = ".svg"
DOCUMENT_SUFFIXES = _OTHER_SUFFIXES | _TEXT_FORMATS.keys()
SUPPORTED = "PDF, images, Office, text, Markdown, HTML, CSV, TSV and email"

# PDF readers accept a header anywhere in this many bytes.
_HEAD = 1024
_IMAGE_SIGNATURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
ZIP_SIGNATURE = b"PK\x03\x04"
OLE_SIGNATURE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
RTF_SIGNATURE = b"{\\rtf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
TEXT_CONTROLS = re.compile("[\0-\x08\x0e-\x1a\x1c-\x1f\x7f]")
"""Control characters that don't occur in text files."""
_DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class FoundDocuments:
    """The result of `find_documents`."""

    paths: tuple[Path, ...]
    """Documents, without duplicates."""
    refused: tuple[tuple[Path, str], ...]
    """Paths that can't be used, each with an error message."""
    skipped: tuple[Path, ...] = ()
    """Files in folders with an unsupported suffix."""


def find_documents(paths: Iterable[str | os.PathLike[str]]) -> FoundDocuments:
    """Expand folders to the documents in them, recursively, in natural order.

    - A file in ``paths`` is always a document, whatever its suffix.
    - A folder that only contains page images is one document.
    - In any other folder, each file with a supported suffix is a document. Other files are
      skipped. Hidden files and links to folders are ignored.

    Missing paths, folders that can't be listed and folders without documents are reported in the
    result; they don't stop the search.
    """
    results: dict[Path, None] = {}
    refused: list[tuple[Path, str]] = []
    skipped: dict[Path, None] = {}
    for path in map(Path, paths):
        before = len(refused)
        documents = list(_documents_at(path, refused, skipped))
        if not documents and len(refused) == before:
            empty = DocumentError(clean_line(path), "is a folder without documents")
            refused.append((path, str(empty)))
        results.update(dict.fromkeys(documents))
    unread = tuple(path for path in skipped if path not in results)
    return FoundDocuments(tuple(results), tuple(refused), unread)


def _documents_at(
    root: Path, refused: list[tuple[Path, str]], skipped: dict[Path, None]
) -> Iterator[Path]:
    # A stack instead of recursion, because folders can be nested deeper than Python's call stack.
    stack = [root]
    while stack:
        path = stack.pop()
        try:
            mode = file_mode(path, clean_line(path), follow_links=path is root)
            if stat.S_ISDIR(mode):
                if page_images(path):
                    yield path
                else:
                    stack.extend(reversed(visible_files(path)))
            elif path is root:
                yield path
            elif path.suffix.lower() in DOCUMENT_SUFFIXES:
                if stat.S_ISREG(file_mode(path, clean_line(path))):
                    yield path
            elif stat.S_ISREG(mode):
                skipped[path] = None
        except DocumentError as error:
            refused.append((path, str(error)))


@dataclass(frozen=True, slots=True)
class FileState:
    """A file and its state when its content was hashed."""

    path: Path
    size: int
    modified: int
    """Modification time in nanoseconds."""

    @classmethod
    def of(cls, path: Path, document: str) -> FileState:
        """Return the current state of a file; raise DocumentError if it can't be read."""
        with document_errors(document):
            status = path.stat()
        return cls(path, status.st_size, status.st_mtime_ns)

    def check(self, document: str) -> None:
        if FileState.of(self.path, document) != self:
            raise DocumentError(document, "changed while it was being read: open it again")


@dataclass(frozen=True, slots=True)
class Identity:
    """The id, name and kind of a document."""

    id: str
    """SHA-256 of the content in hexadecimal, independent of the file's path."""
    name: str
    """Name of the file or folder, safe to display."""
    kind: Kind
    """Kind of the document; ``"office"`` is a guess until the document is opened."""
    files: tuple[FileState, ...]
    """The file, or the page images of a folder in their order."""

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    def check(self) -> None:
        for file in self.files:
            file.check(self.name)


def identify(path: str | os.PathLike[str], limits: Limits = _DEFAULT_LIMITS) -> Identity:
    """Compute the id of a document and detect its kind, without opening it.

    This reads every byte once, but starts no process and converts nothing. Raises DocumentError if
    the path doesn't exist, can't be read, is too large, or isn't a supported document.
    """
    path = Path(path)
    with document_errors(clean_line(path)):
        # Absolute, so that a worker that starts later, or in another process, finds the files.
        path = path.absolute()
        name = document_name(path)
    files, is_folder = _files(path, name, limits)
    kind: Kind = "images" if is_folder else _kind(path, name)
    digests = []
    for file in files:
        with document_errors(name), file.path.open("rb") as stream:
            digests.append(hashlib.file_digest(stream, "sha256"))
        file.check(name)
    if not is_folder:
        return Identity(digests[0].hexdigest(), name, kind, files)
    whole = hashlib.sha256()
    for file, digest in zip(files, digests, strict=True):
        # Hashing the names prevents ambiguous concatenations.
        whole.update(hashlib.sha256(file.path.name.encode(errors="surrogateescape")).digest())
        whole.update(digest.digest())
    return Identity(whole.hexdigest(), name, kind, files)


def _files(path: Path, name: str, limits: Limits) -> tuple[tuple[FileState, ...], bool]:
    """Return the files of a document, and whether it is a folder of page images."""
    mode = file_mode(path, name)
    if stat.S_ISDIR(mode):
        paths = page_images(path)
        if not paths:
            raise DocumentError(
                clean_line(path),
                "is a folder with other files than page images: pass the documents in it instead",
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
            f"has {size:,} bytes, but the limit is {limits.max_bytes:,} (Limits.max_bytes)",
        )
    return files, stat.S_ISDIR(mode)


def _kind(path: Path, name: str) -> Kind:
    head = read_head(path, name)
    if not head:
        raise DocumentError(name, "is empty")
    kind = detect_kind(head)
    if kind is None:
        raise unsupported_error(name)
    if kind == "text":
        text_format(name)
    return kind


def unsupported_error(name: str) -> DocumentError:
    suffix = Path(name).suffix.lower()
    if suffix in DOCUMENT_SUFFIXES:
        return DocumentError(name, f"isn't a valid {suffix[1:].upper()} file")
    return DocumentError(name, f"can't be read: supported types are {SUPPORTED}")


def detect_kind(head: bytes) -> Kind | None:
    r"""Return the kind of a file by its first bytes, or None if it isn't supported.

    ``"office"`` is a guess, because zip and OLE containers have other uses too. Only the worker
    process looks inside (`visar.documents.office.office_format`).

    >>> detect_kind(b"%PDF-1.7"), detect_kind(b"RIFF....WEBPVP8 ")
    ('pdf', 'image')
    >>> detect_kind(b"a,b"), detect_kind(b"ID3\3")
    ('text', None)
    """
    if b"%PDF-" in head[:_HEAD]:
        return "pdf"
    if head.startswith(_IMAGE_SIGNATURES) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP"):
        return "image"
    if head.startswith((ZIP_SIGNATURE, OLE_SIGNATURE, RTF_SIGNATURE)):
        return "office"
    is_text = head.startswith(_UTF16_MARKS) or not TEXT_CONTROLS.search(head.decode("latin-1"))
    return "text" if head and is_text else None


def text_format(name: str) -> TextFormat:
    """Return the format of a text file by its suffix; unknown suffixes are plain text.

    Raises DocumentError for the suffix of a PDF, an image or an office document.

    >>> text_format("Notes.MD"), text_format("Makefile")
    ('markdown', 'text')
    """
    suffix = Path(name).suffix.lower()
    if suffix in _OTHER_SUFFIXES or suffix == _DRAWING_SUFFIX:
        raise unsupported_error(name)
    return _TEXT_FORMATS.get(suffix, "text")


def natural_key(name: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key for natural order: page 2 before page 10.

    >>> sorted(["p10.png", "p2.png", "P1.png"], key=natural_key)
    ['P1.png', 'p2.png', 'p10.png']
    """
    parts = re.split(r"(\d+)", name.casefold())
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in parts)


def visible_files(folder: Path) -> list[Path]:
    """Return the files and folders in a folder that aren't hidden, in natural order."""
    with document_errors(clean_line(folder)):
        entries = [entry for entry in folder.iterdir() if not entry.name.startswith((".", "~$"))]
    return sorted(entries, key=lambda entry: (natural_key(entry.name), entry.name))


def page_images(folder: Path) -> list[Path]:
    """Return the images in a folder, or an empty list if it contains anything else.

    Raises DocumentError if the folder can't be listed, or one of its images can't be read.
    """
    entries = visible_files(folder)
    failure: DocumentError | None = None
    for entry in entries:
        try:
            name = f"{clean_line(folder)}: {document_name(entry)}"
            if (
                not stat.S_ISREG(file_mode(entry, name))
                or detect_kind(read_head(entry, name)) != "image"
            ):
                return []
        except DocumentError as error:
            # Raised only if all other entries are images.
            failure = failure or error
    if failure:
        raise failure
    return entries


def document_name(path: Path) -> str:
    """Return the display name of a document: its file name, safe for terminals and UTF-8."""
    # The paths ".." and "." have no usable name.
    name = path.name if path.name not in ("", "..") else Path(os.path.realpath(path)).name
    return name if name.isprintable() else clean_line(name)


def read_head(path: Path, document: str) -> bytes:
    with document_errors(document), path.open("rb") as stream:
        return stream.read(_HEAD)


def file_mode(path: Path, document: str, *, follow_links: bool = True) -> int:
    """Return the type and permissions of a file or folder."""
    with document_errors(document):
        return path.stat(follow_symlinks=follow_links).st_mode


@contextmanager
def document_errors(document: str) -> Iterator[None]:
    """Convert errors of the operating system to a `DocumentError` of this document."""
    try:
        yield
    except FileNotFoundError as error:
        raise DocumentError(document, "doesn't exist") from error
    except OSError as error:
        raise DocumentError(document, f"can't be read: {error.strerror or error}") from error
    except ValueError as error:
        # Raised for a null character in the path.
        raise DocumentError(document, f"can't be read: {error}") from error
