"""Read, encode, commit: the three steps that add a document to an index.

Each is a function of plain values, so that they can run in one process, in several, or on several
machines: pages in, pages with vectors out, one commit at the end. `add_document` joins them
in this process, with the next pages being read in other processes while these are encoded.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from visar.documents import (
    Identity,
    Limits,
    OpenedDocument,
    Page,
    ReadOptions,
    identify,
    open_document,
)
from visar.encoders.protocol import Encoder, PageEmbedding, page_without_vectors
from visar.errors import DocumentError, NotInIndex
from visar.ingest.ocr_processes import OcrClient
from visar.ingest.sources import file_source, is_object_source, source_path
from visar.models.devices import usable_cores
from visar.models.loading import load_ahead
from visar.results import NO_TEXT, Document, EncoderRef
from visar.store import Store
from visar.store.checks import check_metadata

if TYPE_CHECKING:
    from PIL.Image import Image

Stage: TypeAlias = Literal["reading", "ocr", "encoding"]
Progress: TypeAlias = Callable[[Stage, int, int], None]
"""Called with a stage, how many pages it has done, and how many there are."""

# Pages encoded in one call: few at first, so that it begins soon, then twice as many each time up
# to these. Words take no room; an image of a page takes 6 MB.
_FIRST_BATCH = 4
_BATCH = {"words": 16, "image": 8}
# Starting a process takes as long as reading so many pages.
_PAGES_WORTH_A_READER = 32
# How often a document is added again that another process removes meanwhile.
_ATTEMPTS = 5

EncodedPage: TypeAlias = tuple[Page, PageEmbedding]


@dataclass(frozen=True, slots=True, eq=False)
class ReadPage:
    """A page that was read."""

    page: Page
    image: Image | None = None
    """For encoders that look at pages."""


class PageReader(Protocol):
    """Reads pages, as `read_pages` does."""

    def __call__(
        self,
        document: OpenedDocument | None,
        numbers: Sequence[int],
        *,
        words: Sequence[Page] | None = None,
        images: bool = False,
    ) -> Generator[ReadPage, None, None]:
        """Read pages in the order of their numbers."""
        ...


def add_document(
    store: Store,
    path: str | PathLike[str],
    encoder: Encoder,
    options: ReadOptions | None = None,
    progress: Progress | None = None,
    *,
    name: str | None = None,
    source: str | None = None,
    workers: int | None = None,
    metadata: Mapping[str, Any] | None = None,
    collection: str | None = None,
    read: PageReader | None = None,
) -> Document:
    """Add a document to a store, or the vectors of another encoder to one that is there.

    A document that is there with vectors of this encoder is only identified, not opened. An
    interrupted call goes on where it stopped. Words that the store has are not read again.
    The same content at another path keeps its name and source as long as the first file is there;
    after that it has moved.

    Parameters
    ----------
    store
        Several threads and processes may add to it, also the same document.
    path
        A file, or a folder of page images.
    encoder
        Is called in this thread.
    options
        How the document is read.
    progress
        Is called in this thread.
    name
        Of the document, if not that of the file. The file then counts as a passing copy: what the
        store keeps of it is all there is.
    source
        Where the document lies, if ``path`` is a passing copy of it.
    workers
        How many pages are read at once; each page that needs OCR takes a process. All usable
        cores by default.
    metadata
        Are set beside, or in place of, those that the file or the store has.
    collection
        The document is put into it.
    read
        What reads pages; `read_pages` by default.

    Raises
    ------
    DocumentError
        The document cannot be read; a ``PageError`` names the page.
    StoreError
        The store cannot be written.
    """
    path = Path(path)
    options = options or ReadOptions()
    progress = progress or _ignore
    identity = identify(path, options.limits)
    if source is None:
        source = file_source(path) if name is None else ""
    identity = replace(identity, name=name or identity.name)
    given = check_metadata(metadata or {})
    read = read or partial(read_pages, workers=workers)

    def add() -> Document:
        added = _add(store, path, source, identity, encoder, options, progress, read, given)
        return describe(store, added, given, collection)

    for _ in range(_ATTEMPTS - 1):
        try:
            return add()
        except NotInIndex:  # removed since it was found there
            continue
    return add()


def describe(
    store: Store, document: Document, metadata: Mapping[str, Any], collection: str | None
) -> Document:
    """Set metadata of a stored document beside those it has, and put it into a collection."""
    known = document.metadata
    if any(name not in known or known[name] != metadata[name] for name in metadata):
        document = store.set_metadata(document.id, {**known, **metadata})
    if collection is not None and collection not in document.collections:
        store.collect(collection, [document.id])
        document = store.get(document.id)
    return document


def _add(
    store: Store,
    path: Path,
    source: str,
    identity: Identity,
    encoder: Encoder,
    options: ReadOptions,
    progress: Progress,
    read: PageReader,
    metadata: Mapping[str, Any],
) -> Document:
    reference = EncoderRef.of(encoder)
    known = _known(store, identity.id)
    with ExitStack() as stack:
        document = None
        complete = known is not None and known.has(reference)
        if not complete:
            load_ahead(encoder)  # while the file is opened
        if not complete and (known is None or encoder.reads == "image"):
            document = stack.enter_context(open_document(path, options, identity=identity))
        total = known.pages if known is not None else len(document or ())
        name = identity.name
        if known is not None and (known.source == source or _still_there(known)):
            name, source = known.name, known.source
        said = {**document.metadata, **metadata} if document is not None else metadata
        new = Document(identity.id, name, total, identity.size, source=source, metadata=said)
        addition = stack.enter_context(store.adding(new, reference, path))
        if addition.stored is not None:
            return addition.stored
        written = addition.written
        missing = [number for number in range(1, total + 1) if number not in written]
        words = store.pages(identity.id, missing) if known is not None else None
        images = encoder.reads == "image"
        reading = read(document, missing, words=words, images=images)
        # Closed here: after an error in the store its traceback keeps the generators alive.
        pages: Iterator[ReadPage] = stack.enter_context(closing(reading))
        if words is None:
            pages = _reported(pages, progress, len(written), total)
        for done, (page, embedding) in enumerate(encode_pages(encoder, pages), len(written) + 1):
            addition.put(page, embedding)
            progress("encoding", done, total)
        return addition.commit()


def read_pages(
    document: OpenedDocument | None,
    numbers: Sequence[int],
    *,
    words: Sequence[Page] | None = None,
    images: bool = False,
    workers: int | None = None,
) -> Generator[ReadPage, None, None]:
    """Read pages in the order of their numbers, several at once and ahead of the caller.

    Parameters
    ----------
    document
        None if ``words`` are given and no images are wanted.
    numbers
        Of the pages, from 1.
    words
        The same pages with their words, if these are known already.
    images
        Whether the images of the pages are wanted too.
    workers
        How many pages are read at once; all usable cores by default.

    Raises
    ------
    DocumentError
        A page cannot be read. After an error, or if the iterator is closed before its end, the
        document is closed: what is still being read for it ends at once.
    """
    known = dict(zip(numbers, words, strict=True)) if words is not None else {}
    if document is None:
        yield from (ReadPage(known[number]) for number in numbers)
        return
    workers = max(1, min(workers or usable_cores(), len(numbers)))
    readers = [document, *(copy.copy(document) for _ in range(1, _readers(workers, len(numbers))))]
    ocr = OcrClient(threads=max(1, usable_cores() // workers))
    for reader in readers:
        reader.read_image = ocr.read_image

    def read(number: int) -> ReadPage:
        reader = readers[number % len(readers)]
        page = known[number] if words is not None else reader.page(number)
        return ReadPage(page, reader.image(number) if images else None)

    pool = ThreadPoolExecutor(workers, "visar-read")
    # The next batch is read while one is encoded.
    ahead = 2 * _BATCH["image" if images else "words"]
    waiting: deque[Future[ReadPage]] = deque()
    try:
        for number in numbers:
            waiting.append(pool.submit(read, number))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BaseException:
        for future in waiting:
            future.cancel()
        ocr.stop()
        document.close()
        raise
    finally:
        for reader in readers[1:]:
            reader.close()
        pool.shutdown()


def _readers(workers: int, pages: int) -> int:
    """How many processes read the file: as a rule encoding and OCR need the other cores."""
    return max(1, min(workers // 2, pages // _PAGES_WORTH_A_READER))


def encode_pages(encoder: Encoder, pages: Iterable[ReadPage]) -> Iterator[EncodedPage]:
    """Encode pages in batches, in order. An encoder of words gets no vectors of blank pages.

    Parameters
    ----------
    encoder
        Is called in the thread that takes the pages.
    pages
        With images, if the encoder reads them.
    """
    waiting, size = iter(pages), _FIRST_BATCH
    while batch := list(islice(waiting, size)):
        size = min(2 * size, _BATCH[encoder.reads])
        images = [read.image for read in batch] if encoder.reads == "image" else []
        read = [item.page for item in batch]
        for page, embedding in zip(read, encoder.encode_pages(read, images), strict=True):
            if encoder.reads == "words" and not page.words:
                embedding = page_without_vectors(encoder.dimension, NO_TEXT)
            yield page, embedding


def _known(store: Store, identity: str) -> Document | None:
    try:
        return store.get(identity)
    except NotInIndex:
        return None


def _still_there(known: Document) -> bool:
    """Whether the file that a document was added from is on this computer as it was then.

    Of an object that is taken for granted: to look would be a download.
    """
    if is_object_source(known.source):
        return True
    path = source_path(known.source)
    try:
        return path is not None and identify(path, Limits(max_bytes=known.size)).id == known.id
    except DocumentError:
        return False


def _reported(
    pages: Iterable[ReadPage], progress: Progress, done: int, total: int
) -> Iterator[ReadPage]:
    for count, read in enumerate(pages, start=done + 1):
        by_ocr = read.page.text_source in ("ocr", "both")
        progress("ocr" if by_ocr else "reading", count, total)
        yield read


def _ignore(stage: Stage, done: int, total: int) -> None:
    """Report no progress."""
