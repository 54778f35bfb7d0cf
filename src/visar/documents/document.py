"""A document: its pages' words and images, whatever the file is."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

from visar.documents import ocr as ocr_engines
from visar.documents.figures import uncovered, unread
from visar.documents.kinds import Kind
from visar.documents.layout import Piece, arrange
from visar.documents.ocr import OcrEngine, OcrFailed
from visar.documents.page import Box, Page, TextSource, Word
from visar.documents.unchanged import UnchangedFile
from visar.documents.wire import PageContent, as_words
from visar.documents.worker import Worker
from visar.errors import InvalidOption, MissingExtra, PageError

if TYPE_CHECKING:
    from PIL.Image import Image

Ocr: TypeAlias = Literal["auto", "always", "never"]

_WHOLE_PAGE: Box = (0.0, 0.0, 1.0, 1.0)
_SOURCES: dict[tuple[bool, bool], TextSource] = {
    (True, False): "text layer",
    (False, True): "ocr",
    (True, True): "both",
    (False, False): "none",
}


class Document:
    """An open document; close it, or use it in a ``with`` block. Made by :func:`open_document`."""

    def __init__(
        self,
        path: Path,
        kind: Kind,
        identity: str,
        files: Sequence[UnchangedFile],
        worker: Worker,
        *,
        pages: int,
        ocr: Ocr,
        ocr_engine: OcrEngine,
        cleanup: contextlib.ExitStack,
    ) -> None:
        self.path = path
        self.name = path.name
        self.kind = kind
        self.id = identity
        """From the content: the same file has the same id wherever it lies."""
        self._files = files
        self._worker = worker
        self._ocr = ocr
        self._ocr_engine: OcrEngine = ocr_engine
        self._cleanup = cleanup
        self._pages = pages
        self._last_read: tuple[int, PageContent] | None = None
        self._read_by_ocr: dict[int, Page] = {}
        self._read_pictures: dict[bytes, list[Piece]] = {}
        self.read_image = ocr_engines.read_image
        """Runs OCR on a picture; may be replaced, to run it in another process."""

    def __repr__(self) -> str:
        return f"Document(id={self.id[:12]!r}, name={self.name!r}, pages={len(self)})"

    def __len__(self) -> int:
        return self._pages

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process that reads the document, and remove what was made to read it."""
        self._worker.close()
        self._cleanup.close()

    def page(self, number: int) -> Page:
        """Words and size of a page; 1 is the first. OCR is run where the page needs it, once."""
        if number in self._read_by_ocr:
            return self._read_by_ocr[number]
        content = self._content(number)
        regions = self._regions_to_read(content)
        layer = () if self._ocr == "always" else content.words
        by_ocr = self._read_regions(number, content, regions, layer) if regions else ()
        page = Page(
            number=number,
            width=content.width,
            height=content.height,
            rotation=content.rotation,
            words=layer + by_ocr,
            text_source=_SOURCES[bool(layer), bool(by_ocr)],
        )
        if regions:
            self._read_by_ocr[number] = page
        return page

    def pages(self, numbers: Iterable[int] | None = None) -> Iterator[Page]:
        """The pages of the given numbers, or all; the first that cannot be read ends it."""
        for number in range(1, len(self) + 1) if numbers is None else numbers:
            yield self.page(number)

    def needs_ocr(self, number: int) -> bool:
        """Whether :meth:`page` will run OCR, which takes seconds. Asking takes milliseconds."""
        if number in self._read_by_ocr:
            return False
        return bool(self._regions_to_read(self._content(number)))

    def image(self, number: int, dpi: float = 144) -> Image:
        """A page as an RGB image. Images are never enlarged beyond the pixels they have."""
        if not 0 < dpi < float("inf"):
            raise InvalidOption(f"dpi must be above 0, not {dpi!r}.")
        from PIL import Image

        self._check(number)
        raster = self._worker.render(number, dpi)
        return Image.frombytes("RGB", (raster.width, raster.height), raster.pixels)

    def _check(self, number: int) -> None:
        if not 1 <= number <= len(self):
            raise InvalidOption(f"{self.name} has pages 1 to {len(self)}, not {number!r}.")
        for file in self._files:
            file.check()

    def _content(self, number: int) -> PageContent:
        self._check(number)
        # Taken once: another thread may be reading another page.
        last = self._last_read
        if last is None or last[0] != number:
            last = self._last_read = (number, self._worker.read(number))
        return last[1]

    def _regions_to_read(self, content: PageContent) -> list[Box]:
        """What OCR has to look at: nothing, the whole page, or figures in it."""
        if self._ocr == "never" or content.blank:
            return []
        if self._ocr == "always" or not content.words:
            return [_WHOLE_PAGE]
        # A page that can be read without OCR is not refused for the lack of it.
        if not content.figures or not ocr_engines.installed(self._ocr_engine):
            return []
        return unread(content.figures, content.words)

    def _read_regions(
        self, number: int, content: PageContent, regions: Iterable[Box], known: Sequence[Word]
    ) -> tuple[Word, ...]:
        inches = max(content.width, content.height) / 72
        image = self.image(number, min(ocr_engines.DPI, ocr_engines.LONGEST_SIDE / inches))
        found: list[Word] = []
        line = max((word.line for word in known), default=-1) + 1
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
            lines = arrange(pieces, file_order=ocr_engines.orders_columns(self._ocr_engine))
            new = uncovered(as_words(lines, image.width, image.height), known)
            numbers = dict.fromkeys(word.line for word in new)
            places = {old: line + place for place, old in enumerate(numbers)}
            found += [replace(word, line=places[word.line]) for word in new]
            line += len(places)
        return tuple(found)

    def _read_picture(self, picture: Image) -> list[Piece]:
        """Words of a picture; one that returns, like the banner of every page, is read once."""
        key = hashlib.sha256(picture.tobytes()).digest()
        if key not in self._read_pictures:
            self._read_pictures[key] = self.read_image(picture, self._ocr_engine)
        return self._read_pictures[key]
