"""From a path to a document: what it is, whether it may be opened, and what it is known by."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from visar.documents import ocr as ocr_engines
from visar.documents.document import Document, Ocr
from visar.documents.finding import head_of, page_images
from visar.documents.kinds import (
    DOCUMENT_SUFFIXES,
    Kind,
    is_encrypted_office,
    is_image,
    is_pdf,
    office_suffix,
)
from visar.documents.limits import Limits
from visar.documents.ocr import OcrEngine
from visar.documents.office import convert
from visar.documents.unchanged import UnchangedFile, refusals
from visar.documents.worker import Worker
from visar.errors import DocumentError, InvalidOption

_DEFAULT_LIMITS = Limits()


def open_document(
    path: str | Path,
    *,
    password: str | None = None,
    ocr: Ocr = "auto",
    ocr_engine: OcrEngine = "rapidocr",
    limits: Limits = _DEFAULT_LIMITS,
) -> Document:
    """Open a PDF, an image, a folder of page images, or an office document.

    The content decides what a file is, not its name.

    Parameters
    ----------
    path
        PDF; PNG, JPEG, WebP, TIFF (each frame a page); a folder with such images and nothing
        else, whose pages come in natural order; DOCX, PPTX, XLSX, ODT and the like, for which
        LibreOffice must be installed.
    password
        Of an encrypted PDF.
    ocr
        ``"auto"`` reads pages without a usable text layer, and pictures large enough to hold
        words, with OCR; ``"always"`` every page, whatever text it has; ``"never"`` none.
    ocr_engine
        ``"rapidocr"`` (``pip install 'visar[ocr]'``) or ``"tesseract"`` (the program).
    limits
        What the document may cost.
    """
    path = Path(path)
    if ocr not in ("auto", "always", "never"):
        raise InvalidOption(f'ocr must be "auto", "always" or "never", not {ocr!r}.')
    ocr_engines.check_engine(ocr_engine)
    files, folder_of_pages = _files(path, limits)
    head = head_of(files[0].path)
    kind: Kind = "images" if folder_of_pages else _kind(path, head)
    identity = _identity(files, named=folder_of_pages)
    with contextlib.ExitStack() as cleanup:
        paths = [file.path for file in files]
        if kind == "office":
            folder = cleanup.enter_context(tempfile.TemporaryDirectory(prefix="visar-"))
            with refusals(path.name):
                paths = [_converted(path, head, Path(folder), limits)]
        reads: Literal["pdf", "images"] = "pdf" if kind in ("pdf", "office") else "images"
        worker = Worker(path.name, reads, paths, password, limits)
        cleanup.callback(worker.close)
        pages = worker.open()
        _check_pages(path, pages, limits)
        return Document(
            path,
            kind,
            identity,
            files,
            worker,
            pages=pages,
            ocr=ocr,
            ocr_engine=ocr_engine,
            cleanup=cleanup.pop_all(),
        )


def _files(path: Path, limits: Limits) -> tuple[list[UnchangedFile], bool]:
    """The files of a document, and whether it is a folder of pages."""
    if path.is_dir():
        paths = page_images(path)
        if not paths:
            raise DocumentError(
                str(path),
                "is a folder that is not made of page images only: name the documents in it",
            )
    elif path.exists() and not path.is_file():
        raise DocumentError(path.name, "is neither a file nor a folder")
    else:
        paths = [path]
    files = [UnchangedFile(file, path.name) for file in paths]
    size = sum(file.size for file in files)
    if size > limits.max_bytes:
        raise DocumentError(
            path.name,
            f"has {size:,} bytes, more than the limit of {limits.max_bytes:,} (Limits.max_bytes)",
        )
    return files, path.is_dir()


def _kind(path: Path, head: bytes) -> Kind:
    if not head:
        raise DocumentError(path.name, "is empty")
    if is_pdf(head):
        return "pdf"
    if is_image(head):
        return "image"
    with refusals(path.name):
        if office_suffix(path, head):
            return "office"
    claim = path.suffix.lower()
    if claim in DOCUMENT_SUFFIXES:
        raise DocumentError(path.name, f"does not contain what its name says: it is no {claim[1:]}")
    raise DocumentError(
        path.name, "is of no kind that can be read: PDF, PNG, JPEG, TIFF, WebP, or an office format"
    )


def _identity(files: Sequence[UnchangedFile], *, named: bool) -> str:
    """SHA-256 of the content; of the pages' names too if there are several files."""
    digests = []
    for file in files:
        with refusals(file.path.name), file.path.open("rb") as stream:
            digests.append(hashlib.file_digest(stream, "sha256"))
        file.check()
    if not named:
        return digests[0].hexdigest()
    whole = hashlib.sha256()
    for file, digest in zip(files, digests, strict=True):
        # Digests, not names, so that no name can be mistaken for another's content.
        whole.update(hashlib.sha256(file.path.name.encode(errors="surrogateescape")).digest())
        whole.update(digest.digest())
    return whole.hexdigest()


def _converted(path: Path, head: bytes, folder: Path, limits: Limits) -> Path:
    if is_encrypted_office(path, head):
        raise DocumentError(
            path.name,
            "is an encrypted office document, which cannot be opened here: save it without a "
            "password, or as PDF",
        )
    suffix = office_suffix(path, head)
    if suffix is None:
        raise DocumentError(path.name, "was changed while it was read: open it again")
    return convert(path, suffix, folder, limits)


def _check_pages(path: Path, pages: int, limits: Limits) -> None:
    if pages < 1:
        raise DocumentError(path.name, "has no pages")
    if pages > limits.max_pages:
        raise DocumentError(
            path.name,
            f"has more pages than the limit of {limits.max_pages:,} (Limits.max_pages)",
        )
