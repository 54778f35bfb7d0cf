"""Open documents: the words and images of pages, for files of any type."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from visar.documents import ocr as ocr_engines
from visar.documents.blocks import find_blocks, margin_texts, place_words
from visar.documents.finding import (
    Identity,
    document_errors,
    identify,
    text_format,
    unsupported_error,
)
from visar.documents.layout import EMPTY, Piece, WordTable, arrange, unread_figures
from visar.documents.ocr import OcrFailed
from visar.documents.office import ENCRYPTED, convert
from visar.documents.options import ReadOptions
from visar.documents.page import Box, Page, TextSource
from visar.documents.worker import DocumentWorker, PageContent, SourceFormat
from visar.errors import DocumentError, InvalidOption, MissingExtra, PageError

if TYPE_CHECKING:
    from PIL.Image import Image

_DEFAULT_OPTIONS = ReadOptions()
_WHOLE_PAGE: Box = (0.0, 0.0, 1.0, 1.0)
_SOURCES: dict[tuple[bool, bool], TextSource] = {
    (True, False): "text layer",
    (False, True): "ocr",
    (True, True): "both",
    (False, False): "none",
}
# Number of pages and pictures to cache: enough for repeated banners and repeated reads of a page.
_CACHE_SIZE = 64
# Number of pages before and after a page to compare it with for running heads. Left and right
# pages may have different ones.
_NEARBY = 2
_EARLIEST = 1900
# A year, optionally with the next one, as for a season or a fiscal year: 2024/25, 2023–2024.
_YEAR = re.compile(
    r"(?<![\d.,$€£])((?:19|20)\d\d)(?:\s?[/–-]\s?((?:\d\d)?\d\d)(?!\w))?(?!\w|[.,]\d)"
)
# The heading consists of the words of at least this share of the largest font size.
_LARGE = 0.9
_LONGEST_HEADING = 20

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def open_document(
    path: str | os.PathLike[str],
    options: ReadOptions = _DEFAULT_OPTIONS,
    *,
    identity: Identity | None = None,
) -> OpenedDocument:
    """Open a PDF, an image, a folder of page images, an office document, or a text.

    The type of a file is detected from its content, not its name, except for the format of a text.
    Supported are PDF; PNG, JPEG, WebP and TIFF images (each frame of a TIFF is a page); folders
    that only contain such images, sorted in natural order; XLSX workbooks; DOCX, PPTX, ODT and
    similar documents, which need LibreOffice; text, Markdown, HTML, CSV, TSV and email (EML) files.

    ``identity`` is the result of `identify` for this path, to avoid hashing the content again.
    Raises DocumentError if the document can't be read; the message names it and the reason. This is
    EncryptedDocument if it needs a password, or the password is wrong.
    """
    path = Path(path)
    limits = options.limits
    identity = identity or identify(path, limits)
    identity.check()
    name = identity.name
    with contextlib.ExitStack() as cleanup:
        paths = readable = [file.path for file in identity.files]
        if identity.kind == "office":
            folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="visar-")))
            readable = [*paths, folder]
        source_format = _source_format(identity)
        worker = DocumentWorker(name, source_format, limits, readable)
        cleanup.callback(worker.close)
        if identity.kind == "office":
            suffix = worker.office_format(paths[0])
            if suffix is None:
                raise unsupported_error(name)
            if suffix == ENCRYPTED:
                raise DocumentError(
                    name,
                    "is an encrypted office document, which can't be opened: save it without "
                    "a password, or as PDF",
                )
            if suffix == ".xlsx":
                source_format = "workbook"
            else:
                with document_errors(name):
                    paths = [convert(paths[0], name, suffix, folder, limits)]
        worker.set_source(paths, options.password, source_format)
        pages, metadata = worker.open()
        if pages < 1:
            raise DocumentError(name, "has no pages")
        if pages > limits.max_pages:
            raise DocumentError(
                name, f"has more pages than the limit of {limits.max_pages:,} (Limits.max_pages)"
            )
        if identity.kind == "office" and source_format == "pdf":
            metadata.pop("year", None)  # the year of the conversion
        closing = cleanup.pop_all()
        return OpenedDocument(
            path, options, identity, paths, source_format, pages, worker, closing, metadata
        )


class OpenedDocument:
    """An open document. `open_document` returns it; close it, or use it in a ``with`` block.

    It is thread-safe; threads take turns at reading the file.

    To read pages in several processes, send the document to them: a pickled copy starts its own
    worker, without hashing or converting the file again. Copies of an office document use a
    converted file that is deleted when the original is closed.
    """

    def __init__(
        self,
        path: Path,
        options: ReadOptions,
        identity: Identity,
        read_paths: Sequence[Path],
        source_format: SourceFormat,
        pages: int,
        worker: DocumentWorker,
        cleanup: contextlib.ExitStack,
        metadata: Mapping[str, str | int] | None = None,
    ) -> None:
        self.path = path
        self.options = options
        self.identity = identity
        self.name = identity.name
        self.kind = identity.kind
        self.id = identity.id
        self._file_metadata = dict(metadata or {})
        self._read_paths = read_paths
        self._source_format = source_format
        # Text formats never need OCR.
        self._ocr = options.ocr if source_format in ("pdf", "images") else "never"
        self._pages = pages
        self._worker = worker
        self._cleanup = cleanup
        self._contents: OrderedDict[int, PageContent] = OrderedDict()
        self._ocr_pages: OrderedDict[int, Page] = OrderedDict()
        self._picture_words: OrderedDict[bytes, list[Piece]] = OrderedDict()
        self.read_image = ocr_engines.read_image
        """Function that runs OCR on a picture; can be replaced to run it in another process."""

    def __repr__(self) -> str:
        return f"OpenedDocument(id={self.id[:12]!r}, name={self.name!r}, pages={len(self)})"

    def __len__(self) -> int:
        return self._pages

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        read = self._read_paths, self._source_format
        return _copy, (self.path, self.options, self.identity, *read, self._pages)

    def close(self) -> None:
        """End the worker process, and delete temporary files."""
        self._worker.close()
        self._cleanup.close()

    @cached_property
    def metadata(self) -> dict[str, str | int]:
        """Title, author and year, as far as the file and its first page contain them."""
        metadata = dict(self._file_metadata)
        created = metadata.pop("year", None)
        try:
            words = self._content(1).words
        except PageError:  # reported when the page is read
            words = EMPTY
        first_page = list(zip(words.texts, words.sizes.tolist(), strict=True))
        title = str(metadata.get("title", ""))
        year = document_year(title, first_page, created if isinstance(created, int) else None)
        return metadata if year is None else {**metadata, "year": year}

    def page(self, number: int) -> Page:
        """Read the words and the size of a page, from 1, with OCR if the page needs it.

        The OCR results of the last pages are cached. Raises PageError if the page can't be read
        (others may be fine), DocumentError if the file was changed or removed, and InvalidOption if
        the page doesn't exist.
        """
        cached = self._ocr_pages.get(number)
        if cached is not None:
            return cached
        content = self._content(number)
        regions = self._ocr_regions(content)
        layer = EMPTY if self._ocr == "always" else content.words
        table = self._read_regions(number, content, regions, layer)
        words = table.words()
        size = content.width, content.height
        placed = place_words(words, *size, (table.sizes / 100).tolist(), table.turns.tolist())
        page = Page(
            number=number,
            width=content.width,
            height=content.height,
            rotation=content.rotation,
            words=words,
            text_source=_SOURCES[len(layer) > 0, len(words) > len(layer)],
            label="" if content.label == str(number) else content.label,
            blocks=find_blocks(
                placed,
                content.height,
                self._nearby_margins(number),
                content.tables if layer is content.words else (),
            ),
        )
        if regions:
            _add_to_cache(self._ocr_pages, number, page)
        return page

    def pages(self, numbers: Iterable[int] | None = None) -> Iterator[Page]:
        """Read pages with these numbers, or all pages, one by one."""
        return map(self.page, range(1, len(self) + 1) if numbers is None else numbers)

    def needs_ocr(self, number: int) -> bool:
        """Return whether `page` will run OCR, which takes seconds."""
        if number in self._ocr_pages:
            return False
        return bool(self._ocr_regions(self._content(number)))

    def image(self, number: int, dpi: float = 144) -> Image:
        """Render a page in RGB with ``dpi`` pixels per inch; images are never enlarged.

        Raises the same errors as `page`.
        """
        if not 0 < dpi < float("inf"):
            raise InvalidOption(f"dpi must be above 0, not {dpi!r}.")
        from PIL import Image

        self._check(number)
        width, height, pixels = self._worker.render(number, dpi)
        return Image.frombytes("RGB", (width, height), pixels)

    def _check(self, number: int) -> None:
        if not 1 <= number <= len(self):
            raise InvalidOption(f"{self.name} has no page {number!r}, only 1 to {len(self)}.")
        self.identity.check()

    def _content(self, number: int) -> PageContent:
        self._check(number)
        content = self._contents.get(number)
        if content is None:
            content = self._worker.read(number)
            _add_to_cache(self._contents, number, content)
        return content

    def _nearby_margins(self, number: int) -> set[str]:
        """Return the texts at the edges of nearby pages, to recognize running heads."""
        texts: set[str] = set()
        for other in range(max(1, number - _NEARBY), min(len(self), number + _NEARBY) + 1):
            if other == number:
                continue
            try:
                content = self._content(other)
            except PageError:  # reported when that page is read
                continue
            cached = self._ocr_pages.get(other)
            words = content.words.words() if cached is None else cached.words
            placed = place_words(words, content.width, content.height)
            texts |= margin_texts(placed, content.height)
        return texts

    def _ocr_regions(self, content: PageContent) -> list[Box]:
        """Return the regions of a page that need OCR: none, the whole page, or figures."""
        if self._ocr == "never" or content.blank:
            return []
        if self._ocr == "always" or not len(content.words):
            return [_WHOLE_PAGE]
        # A page with a text layer can be read without an OCR engine.
        if not content.figures or not ocr_engines.is_installed(self.options.ocr_engine):
            return []
        return unread_figures(content.figures, content.words)

    def _read_regions(
        self, number: int, content: PageContent, regions: Sequence[Box], layer: WordTable
    ) -> WordTable:
        """Return the known words, and the words that OCR finds in regions without them."""
        if not regions:
            return layer
        inches = max(content.width, content.height) / 72
        image = self.image(number, min(ocr_engines.DPI, ocr_engines.LONGEST_SIDE / inches))
        ordered = ocr_engines.has_column_order(self.options.ocr_engine)
        words = layer
        for left, top, right, bottom in regions:
            corner = round(left * image.width), round(top * image.height)
            crop = image.crop((*corner, round(right * image.width), round(bottom * image.height)))
            try:
                pieces = [piece.shifted(*corner) for piece in self._read_picture(crop)]
            except OcrFailed as failure:
                raise PageError(self.name, number, str(failure)) from failure
            except MissingExtra as missing:
                reason = f"has no usable text layer. {missing}, or read without OCR: --ocr never"
                # The engine is missing for all pages, so this is an error of the document.
                raise DocumentError(f"{self.name}, page {number},", reason) from missing
            lines = arrange(pieces, file_order=ordered)
            new = WordTable.of(
                lines, image.width, image.height, scale=content.height / image.height
            )
            words = words.concat(new.outside(layer))
        return words

    def _read_picture(self, picture: Image) -> list[Piece]:
        """Return the words of a picture; repeated pictures, such as banners, are cached."""
        key = hashlib.sha256(picture.tobytes()).digest()
        pieces = self._picture_words.get(key)
        if pieces is None:
            pieces = self.read_image(picture, self.options.ocr_engine, self.options.ocr_threads)
            _add_to_cache(self._picture_words, key, pieces)
        return pieces


def _copy(
    path: Path,
    options: ReadOptions,
    identity: Identity,
    read_paths: Sequence[Path],
    source_format: SourceFormat,
    pages: int,
) -> OpenedDocument:
    worker = DocumentWorker(identity.name, source_format, options.limits, read_paths)
    worker.set_source(read_paths, options.password, source_format)
    return OpenedDocument(
        path, options, identity, read_paths, source_format, pages, worker, contextlib.ExitStack()
    )


def _source_format(identity: Identity) -> SourceFormat:
    """Return the format to read a document in; office documents are converted to PDF."""
    if identity.kind == "text":
        return text_format(identity.name)
    return "pdf" if identity.kind in ("pdf", "office") else "images"


def _add_to_cache(cache: OrderedDict[_Key, _Value], key: _Key, value: _Value) -> None:
    cache[key] = value
    while len(cache) > _CACHE_SIZE:
        cache.popitem(last=False)


def document_year(
    title: str, first_page: Sequence[tuple[str, float]], created: int | None
) -> int | None:
    """Return the year of a document, or None if it is uncertain.

    It is found in the title, and in the words of the first page with their font sizes. ``created``,
    the year in which the file was created, is only used if the first page has text without any
    other year, because a document may be scanned or exported years later.

    >>> document_year("Annual Report 2023/24", [], 2025)
    2023
    >>> document_year("", [("Report", 30.0), ("2024", 30.0), ("Since", 10.0), ("1951", 10.0)], 2000)
    2024
    >>> document_year("", [("Minutes", 30.0), ("since", 10.0), ("1951", 10.0)], 2000)
    """
    largest = _LARGE * max((size for _, size in first_page), default=0)
    heading = [text for text, size in first_page if size >= largest]
    for text in (title, " ".join(heading) if len(heading) <= _LONGEST_HEADING else ""):
        if len(years := _years(text)) == 1:
            return years.pop()
    years = _years(" ".join(text for text, _ in first_page)) | _years(title)
    if created is None:
        return years.pop() if len(years) == 1 else None
    return created if first_page and (not years or created in years) else None


def _years(text: str) -> set[int]:
    years = set()
    for match in _YEAR.finditer(text):
        first, second = int(match[1]), match[2] or ""
        years.add(first)
        last = int(second) if len(second) == 4 else first // 100 * 100 + int(second or 0)
        if last > first + 1:
            years.add(last)
    return {year for year in years if _EARLIEST <= year <= datetime.now(UTC).year + 1}
