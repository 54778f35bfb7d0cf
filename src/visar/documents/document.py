"""A document: the words and images of its pages, whatever the file is."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from visar.documents import ocr as ocr_engines
from visar.documents.blocks import find_blocks, margin_texts, placed_words
from visar.documents.finding import Identity, identify, refusals, unknown_kind
from visar.documents.layout import EMPTY, Piece, WordTable, arrange, unread_figures
from visar.documents.ocr import OcrFailed
from visar.documents.office import ENCRYPTED, convert
from visar.documents.options import Limits, ReadOptions
from visar.documents.page import Box, Page, TextSource
from visar.documents.worker import PageContent, Worker
from visar.documents.years import document_year
from visar.errors import DocumentError, InvalidOption, MissingExtra, PageError

if TYPE_CHECKING:
    from PIL.Image import Image

_USUAL_OPTIONS = ReadOptions()
_WHOLE_PAGE: Box = (0.0, 0.0, 1.0, 1.0)
_SOURCES: dict[tuple[bool, bool], TextSource] = {
    (True, False): "text layer",
    (False, True): "ocr",
    (True, True): "both",
    (False, False): "none",
}
# Pages and pictures whose words by OCR are kept: enough for a banner that returns, and for a page
# that is asked for again.
_KEPT = 64
# Pages before and after a page that are compared with it to find running heads: left and right
# pages may have heads of their own.
_NEARBY = 2

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def open_document(
    path: str | os.PathLike[str],
    options: ReadOptions = _USUAL_OPTIONS,
    *,
    identity: Identity | None = None,
) -> OpenedDocument:
    """Open a PDF, an image, a folder of page images, or an office document.

    The content decides what a file is, not its name.

    Parameters
    ----------
    path
        PDF; PNG, JPEG, WebP, TIFF (each frame a page); a folder with such images and nothing
        else, whose pages come in natural order; DOCX, PPTX, XLSX, ODT and the like, for which
        LibreOffice must be installed.
    options
        Password, OCR and limits.
    identity
        What `identify` gave for this path, if it was asked before: the content is not
        hashed again.

    Raises
    ------
    DocumentError
        The document cannot be read; the message names it and says why.
    EncryptedDocument
        It needs a password, or another one.
    """
    path = Path(path)
    limits = options.limits
    identity = identity or identify(path, limits)
    identity.check()
    name = identity.name
    with contextlib.ExitStack() as cleanup:
        worker = _worker_for(identity, limits)
        cleanup.callback(worker.close)
        paths = [file.path for file in identity.files]
        if identity.kind == "office":
            suffix = worker.office_format(paths[0])
            if suffix is None:
                raise unknown_kind(path, name)
            if suffix == ENCRYPTED:
                raise DocumentError(
                    name,
                    "is an encrypted office document, which cannot be opened here: save it "
                    "without a password, or as PDF",
                )
            folder = cleanup.enter_context(tempfile.TemporaryDirectory(prefix="visar-"))
            with refusals(name):
                paths = [convert(paths[0], name, suffix, Path(folder), limits)]
        worker.set_source(paths, options.password)
        pages, metadata = worker.open()
        if pages < 1:
            raise DocumentError(name, "has no pages")
        if pages > limits.max_pages:
            raise DocumentError(
                name, f"has more pages than the limit of {limits.max_pages:,} (Limits.max_pages)"
            )
        if identity.kind == "office":
            metadata.pop("year", None)  # that of the conversion
        closing = cleanup.pop_all()
        return OpenedDocument(path, options, identity, paths, pages, worker, closing, metadata)


class OpenedDocument:
    """An open document. Made by `open_document`; close it, or use it in a ``with`` block.

    Its methods may be called from several threads, which take turns where the file is read.

    To read pages in several processes, send it to them: a copy made by pickling starts a worker
    of its own with its first page, and neither hashes nor converts anything again. The copies of
    an office document read a file that is removed when the original is closed.
    """

    def __init__(
        self,
        path: Path,
        options: ReadOptions,
        identity: Identity,
        read_paths: Sequence[Path],
        pages: int,
        worker: Worker,
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
        self._pages = pages
        self._worker = worker
        self._cleanup = cleanup
        self._contents: OrderedDict[int, PageContent] = OrderedDict()
        self._read_by_ocr: OrderedDict[int, Page] = OrderedDict()
        self._read_pictures: OrderedDict[bytes, list[Piece]] = OrderedDict()
        self.read_image = ocr_engines.read_image
        """Runs OCR on a picture; may be replaced, to run it in another process."""

    def __repr__(self) -> str:
        return f"OpenedDocument(id={self.id[:12]!r}, name={self.name!r}, pages={len(self)})"

    def __len__(self) -> int:
        return self._pages

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _copy, (self.path, self.options, self.identity, self._read_paths, self._pages)

    def close(self) -> None:
        """End the process that reads the document, and remove what was made to read it."""
        self._worker.close()
        self._cleanup.close()

    @cached_property
    def metadata(self) -> dict[str, str | int]:
        """Title, author and year, as far as the file and its first page tell."""
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
        """Read the words and the size of a page.

        OCR is run where the page needs it. Its result is kept for the last pages read.

        Parameters
        ----------
        number
            1 is the first page.

        Raises
        ------
        PageError
            The page cannot be read; others may be fine.
        DocumentError
            The file was changed or removed.
        InvalidOption
            There is no such page.
        """
        known = self._read_by_ocr.get(number)
        if known is not None:
            return known
        content = self._content(number)
        regions = self._regions_to_read(content)
        layer = EMPTY if self.options.ocr == "always" else content.words
        table = self._read_regions(number, content, regions, layer)
        words = table.words()
        size = content.width, content.height
        placed = placed_words(words, *size, (table.sizes / 100).tolist(), table.turns.tolist())
        page = Page(
            number=number,
            width=content.width,
            height=content.height,
            rotation=content.rotation,
            words=words,
            text_source=_SOURCES[len(layer) > 0, len(words) > len(layer)],
            label="" if content.label == str(number) else content.label,
            blocks=find_blocks(placed, content.height, self._recurring(number)),
        )
        if regions:
            _remember(self._read_by_ocr, number, page)
        return page

    def pages(self, numbers: Iterable[int] | None = None) -> Iterator[Page]:
        """Read pages one after the other.

        Parameters
        ----------
        numbers
            The pages to read, in this order; None for all.

        Raises
        ------
        DocumentError
            As `page`; the first page that cannot be read ends it.
        """
        return map(self.page, range(1, len(self) + 1) if numbers is None else numbers)

    def needs_ocr(self, number: int) -> bool:
        """Whether `page` will run OCR, which takes seconds. Asking takes milliseconds."""
        if number in self._read_by_ocr:
            return False
        return bool(self._regions_to_read(self._content(number)))

    def image(self, number: int, dpi: float = 144) -> Image:
        """Draw a page.

        Parameters
        ----------
        number
            1 is the first page.
        dpi
            Pixels per inch. Images are never enlarged beyond the pixels they have.

        Returns
        -------
        PIL.Image.Image
            In RGB.

        Raises
        ------
        DocumentError, InvalidOption
            As `page`.
        """
        if not 0 < dpi < float("inf"):
            raise InvalidOption(f"dpi must be above 0, not {dpi!r}.")
        from PIL import Image

        self._check(number)
        raster = self._worker.render(number, dpi)
        return Image.frombytes("RGB", (raster.width, raster.height), raster.pixels)

    def _check(self, number: int) -> None:
        if not 1 <= number <= len(self):
            raise InvalidOption(f"{self.name} has pages 1 to {len(self)}, not {number!r}.")
        self.identity.check()

    def _content(self, number: int) -> PageContent:
        self._check(number)
        content = self._contents.get(number)
        if content is None:
            content = self._worker.read(number)
            _remember(self._contents, number, content)
        return content

    def _recurring(self, number: int) -> set[str]:
        """Return the texts at the edges of the pages around one: running heads stand there too."""
        texts: set[str] = set()
        for other in range(max(1, number - _NEARBY), min(len(self), number + _NEARBY) + 1):
            if other == number:
                continue
            try:
                content = self._content(other)
            except PageError:  # reported when that page is read
                continue
            known = self._read_by_ocr.get(other)
            words = content.words.words() if known is None else known.words
            placed = placed_words(words, content.width, content.height)
            texts |= margin_texts(placed, content.height)
        return texts

    def _regions_to_read(self, content: PageContent) -> list[Box]:
        """What OCR has to look at: nothing, the whole page, or figures in it."""
        if self.options.ocr == "never" or content.blank:
            return []
        if self.options.ocr == "always" or not len(content.words):
            return [_WHOLE_PAGE]
        # A page that can be read without OCR is not refused for the lack of it.
        if not content.figures or not ocr_engines.installed(self.options.ocr_engine):
            return []
        return unread_figures(content.figures, content.words)

    def _read_regions(
        self, number: int, content: PageContent, regions: Sequence[Box], known: WordTable
    ) -> WordTable:
        """The known words, and those that OCR finds in regions where none of them stands."""
        if not regions:
            return known
        inches = max(content.width, content.height) / 72
        image = self.image(number, min(ocr_engines.DPI, ocr_engines.LONGEST_SIDE / inches))
        ordered = ocr_engines.orders_columns(self.options.ocr_engine)
        words = known
        for left, top, right, bottom in regions:
            corner = round(left * image.width), round(top * image.height)
            crop = image.crop((*corner, round(right * image.width), round(bottom * image.height)))
            try:
                pieces = [piece.moved(*corner) for piece in self._read_picture(crop)]
            except OcrFailed as failure:
                raise PageError(self.name, number, str(failure)) from failure
            except MissingExtra as missing:
                reason = f"has no text that can be used. {missing}; or go without: --ocr never"
                raise PageError(self.name, number, reason) from missing
            lines = arrange(pieces, file_order=ordered)
            found = WordTable.of(
                lines, image.width, image.height, scale=content.height / image.height
            )
            words = words.joined(found.outside(known))
        return words

    def _read_picture(self, picture: Image) -> list[Piece]:
        """Words of a picture; one that returns, like the banner of every page, is read once."""
        key = hashlib.sha256(picture.tobytes()).digest()
        pieces = self._read_pictures.get(key)
        if pieces is None:
            pieces = self.read_image(picture, self.options.ocr_engine, self.options.ocr_threads)
            _remember(self._read_pictures, key, pieces)
        return pieces


def _copy(
    path: Path, options: ReadOptions, identity: Identity, read_paths: Sequence[Path], pages: int
) -> OpenedDocument:
    worker = _worker_for(identity, options.limits)
    worker.set_source(read_paths, options.password)
    return OpenedDocument(
        path, options, identity, read_paths, pages, worker, contextlib.ExitStack()
    )


def _worker_for(identity: Identity, limits: Limits) -> Worker:
    return Worker(identity.name, "pdf" if identity.kind in ("pdf", "office") else "images", limits)


def _remember(known: OrderedDict[_Key, _Value], key: _Key, value: _Value) -> None:
    known[key] = value
    while len(known) > _KEPT:
        known.popitem(last=False)
