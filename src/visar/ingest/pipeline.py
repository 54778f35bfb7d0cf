"""The three steps of adding a document to an index: read, encode, commit.

Each step is a function of plain values, so that it can run in this process, in others, or on other
machines. `add_document` runs them in this process, and reads the next pages in other processes
while it encodes.
"""

from __future__ import annotations

import copy
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from visar.documents import (
    Identity,
    Limits,
    OpenedDocument,
    Page,
    ReadOptions,
    identify,
    open_document,
)
from visar.documents.finding import text_format
from visar.encoders.encoder import (
    Encoder,
    PageEmbedding,
    check_embeddings,
    page_without_vectors,
)
from visar.errors import DocumentError, EncoderError, NotInIndex, PageError
from visar.ingest.ocr_processes import OcrClient
from visar.ingest.sources import file_source, is_object_source, source_path
from visar.models.devices import usable_cores
from visar.models.loading import load_ahead
from visar.plugins import failing_as
from visar.query import check_collection
from visar.results import NO_TEXT, Document, EncoderRef
from visar.store import Store
from visar.store.checks import check_metadata

if TYPE_CHECKING:
    from PIL.Image import Image

Stage: TypeAlias = Literal["downloading", "reading", "ocr", "encoding"]
Progress: TypeAlias = Callable[[Stage, int, int], None]
"""Callback that takes a stage, the number of pages done, and the total.

Downloads count bytes instead; the total is 0 if the server doesn't send it."""

# Pages to encode in one call: few at first, so that encoding starts early, then doubled up to these
# limits. An image of a page takes 6 MB.
_FIRST_BATCH = 4
_BATCH = {"words": 16, "image": 8}
# The size of slower batches is halved, because progress, limits and commits work between batches.
_SECONDS_PER_BATCH = 5.0
# Starting a process takes as long as reading this many pages.
_PAGES_WORTH_A_READER = 32
# Size in points of a page that can't be read.
_A4 = (595.0, 842.0)
# Number of attempts if another process removes the document in the meantime.
_ATTEMPTS = 5

EncodedPage: TypeAlias = tuple[Page, PageEmbedding]


@dataclass(frozen=True, slots=True, eq=False)
class ReadPage:
    """A page, or the reason why it can't be read."""

    page: Page
    image: Image | None = None
    """Image of the page, for encoders that use images."""
    problem: str | None = None
    """Reason why the page can't be read, or None."""


PageReader: TypeAlias = Callable[..., Generator[ReadPage, None, None]]
"""Function with the parameters of `read_pages`, except ``workers``."""


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
    """Add a document to a store, or vectors of another encoder to a stored document.

    A document that is stored with vectors of this encoder is only identified, not opened. An
    interrupted call can be repeated to resume. Stored words aren't read again. If the same content
    is added from another path, its name and source change only if the first file is gone.

    ``path`` is a file, or a folder of page images. If it is a temporary copy, ``source`` is the
    source of the document, or ``name`` its name if there is no permanent one. ``workers`` is the
    number of pages to read in parallel, all usable cores by default; each page that needs OCR uses
    a process. ``metadata`` is added to that of the file or the stored document, or overrides it.
    ``read`` replaces `read_pages`. Encoder and progress callback are called in this thread. Several
    threads and processes can add to a store, even the same document.

    Raises DocumentError if the document can't be read, or none of its pages (single pages that
    can't be read are added without vectors, see `Document.invalid`), and StoreError if the store
    can't be written.
    """
    path = Path(path)
    options = options or ReadOptions()
    progress = progress or (lambda _stage, _done, _total: None)
    identity = identify(path, options.limits)
    if source is None:
        source = file_source(path) if name is None else ""
    identity = replace(identity, name=name or identity.name)
    values = check_metadata(metadata or {})
    if collection is not None:
        check_collection(collection)
    read = read or partial(read_pages, workers=workers)

    def add() -> Document:
        added = _add(store, path, source, identity, encoder, options, progress, read, values)
        return update_metadata(store, added, values, collection)

    for _ in range(_ATTEMPTS - 1):
        try:
            return add()
        except NotInIndex:  # another process removed the document
            continue
    return add()


def update_metadata(
    store: Store, document: Document, metadata: Mapping[str, Any], collection: str | None
) -> Document:
    """Add metadata to a stored document, and add it to a collection."""
    current = document.metadata
    if any(name not in current or current[name] != metadata[name] for name in metadata):
        document = store.set_metadata(document.id, {**current, **metadata})
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
    started = time.monotonic()
    reference = EncoderRef.of(encoder)
    stored = None
    with suppress(NotInIndex):
        stored = store.get(identity.id)
    if stored is not None and identity.kind == "text":
        stored_format = text_format(stored.name)
        # The stored pages depend on the format, which the name determines.
        if stored_format != text_format(identity.name):
            identity = replace(identity, name=stored.name)
    with ExitStack() as stack:
        document = None
        complete = stored is not None and stored.has(reference)
        if not complete:
            load_ahead(encoder)  # loads while the file is opened
        if not complete and (stored is None or encoder.reads == "image"):
            document = stack.enter_context(open_document(path, options, identity=identity))
        total = stored.pages if stored is not None else len(document or ())
        name = identity.name
        if stored is not None and (stored.source == source or _source_exists(stored)):
            name, source = stored.name, stored.source
        merged = {**document.metadata, **metadata} if document is not None else metadata
        new = Document(identity.id, name, total, identity.size, source=source, metadata=merged)
        addition = stack.enter_context(store.adding(new, reference, path))
        if addition.stored is not None:
            return addition.stored
        written = addition.written
        missing = [number for number in range(1, total + 1) if number not in written]
        words = store.pages(identity.id, missing) if stored is not None else None
        images = encoder.reads == "image"
        reading = read(document, missing, words=words, images=images)
        # Close explicitly: after an error in the store, its traceback keeps the generators alive.
        pages: Iterator[ReadPage] = stack.enter_context(closing(reading))
        pages = _with_timeout(pages, started, identity.name, options.limits)
        if not written:
            pages = _require_readable_page(pages, identity.name)
        if words is None:
            pages = _with_progress(pages, progress, len(written), total)
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
    """Read pages in the order of ``numbers``, in parallel and ahead of the caller.

    ``words`` has the same pages if their words are known; then ``document`` may be None if no
    images are needed. ``workers`` is the number of pages to read in parallel, all usable cores by
    default. After an error, or if the generator is closed early, the document is closed, which
    interrupts pending reads.
    """
    by_number = dict(zip(numbers, words, strict=True)) if words is not None else {}
    if document is None:
        yield from (ReadPage(by_number[number]) for number in numbers)
        return
    workers = max(1, min(workers or usable_cores(), len(numbers)))
    # Encoding and OCR need other cores.
    more = min(workers // 2, len(numbers) // _PAGES_WORTH_A_READER) - 1
    readers = [document, *(copy.copy(document) for _ in range(more))]
    ocr = OcrClient(threads=max(1, usable_cores() // workers))
    for reader in readers:
        reader.read_image = ocr.read_image

    def read(number: int) -> ReadPage:
        return _read_page(readers[number % len(readers)], number, by_number.get(number), images)

    pool = ThreadPoolExecutor(workers, "visar-read")
    # Read the next batch while one is being encoded.
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


def _read_page(
    reader: OpenedDocument, number: int, page: Page | None, with_image: bool
) -> ReadPage:
    try:
        page = page or reader.page(number)
        return ReadPage(page, reader.image(number) if with_image else None)
    except PageError as error:
        empty = Page(number, *_A4, rotation=0, words=(), text_source="none", blocks=())
        return ReadPage(page or empty, problem=f"it {error.reason}")


def encode_pages(encoder: Encoder, pages: Iterable[ReadPage]) -> Iterator[EncodedPage]:
    """Encode pages in batches, in order, in the thread of the consumer.

    Pages that can't be read get no vectors, nor do blank pages with an encoder of words.
    """
    waiting, size = iter(pages), _FIRST_BATCH
    while batch := list(islice(waiting, size)):
        readable = [item for item in batch if item.problem is None]
        images = [item.image for item in readable] if encoder.reads == "image" else []
        pages_read = [item.page for item in readable]
        started = time.monotonic()
        first = batch[0].page.number
        with failing_as(EncoderError, f"The encoder {encoder.name} failed, from page {first} on"):
            results = encoder.encode_pages(pages_read, images) if readable else []
        check_embeddings(encoder, pages_read, results)
        is_slow = time.monotonic() - started > _SECONDS_PER_BATCH
        size = max(1, size // 2) if is_slow else min(2 * size, _BATCH[encoder.reads])
        embeddings = dict(zip((page.number for page in pages_read), results, strict=True))
        for item in batch:
            problem = item.problem
            if problem is None and encoder.reads == "words" and not item.page.words:
                problem = NO_TEXT
            if problem is None:
                yield item.page, embeddings[item.page.number]
            else:
                yield item.page, page_without_vectors(encoder.dimension, problem)


def _require_readable_page(pages: Iterable[ReadPage], name: str) -> Iterator[ReadPage]:
    """Yield pages if at least one of them is readable; otherwise raise PageError."""
    unreadable: list[ReadPage] = []
    waiting = iter(pages)
    for read in waiting:
        unreadable.append(read)
        if read.problem is None:
            yield from unreadable
            yield from waiting
            return
    if unreadable:
        first = unreadable[0]
        raise PageError(name, first.page.number, str(first.problem).removeprefix("it "))


def _with_timeout(
    pages: Iterable[ReadPage], started: float, name: str, limits: Limits
) -> Iterator[ReadPage]:
    """Yield pages; raise DocumentError once adding the document takes too long."""
    for read in pages:
        if time.monotonic() - started > limits.seconds_per_document:
            raise DocumentError(
                name,
                f"took longer than the limit of {limits.seconds_per_document:,g} seconds "
                "(Limits.seconds_per_document, visar serve --seconds-per-document)",
            )
        yield read


def _source_exists(document: Document) -> bool:
    """Return whether the file of a document exists on this computer, unchanged.

    Objects in object storage are assumed to exist, because checking would need a download.
    """
    if is_object_source(document.source):
        return True
    path = source_path(document.source)
    try:
        return (
            path is not None and identify(path, Limits(max_bytes=document.size)).id == document.id
        )
    except DocumentError:
        return False


def _with_progress(
    pages: Iterable[ReadPage], progress: Progress, done: int, total: int
) -> Iterator[ReadPage]:
    for count, read in enumerate(pages, start=done + 1):
        by_ocr = read.page.text_source in ("ocr", "both")
        progress("ocr" if by_ocr else "reading", count, total)
        yield read
