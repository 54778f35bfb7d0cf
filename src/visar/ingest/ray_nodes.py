"""Code for the nodes of a Ray cluster: tasks that read pages, actors that encode and commit."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from visar._version import __version__
from visar.documents import OpenedDocument, Page, ReadOptions, open_document
from visar.encoders.encoder import Encoder
from visar.encoders.registry import get_encoder
from visar.errors import DocumentError, InvalidOption, VisarError
from visar.ingest.batch import Input
from visar.ingest.pipeline import ReadPage, Stage, add_document, read_pages
from visar.results import Document, EncoderRef, Refusal
from visar.store import Store, open_store

ATTEMPTS = 5
"""Number of lost processes after which a document, or some pages, are given up."""
# Pages per task, which take seconds with a text layer, or half a minute with OCR.
_CHUNK = 8
# Number of documents to keep open, because the next task is often about the same one.
_MAX_OPEN = 2

Task = TypeVar("Task")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of an addition for every process."""

    location: str
    storage_options: Mapping[str, str]
    encoder: str
    reference: EncoderRef
    device: str
    options: ReadOptions
    metadata: Mapping[str, Any] | None
    collection: str | None
    version: str = __version__


@dataclass(frozen=True, slots=True)
class Shipment:
    """A document that is sent to other machines."""

    input: Input
    source: str
    """Source of the document, from its original machine."""
    files: Any = None
    """Reference to the contents of local files by name, because nodes can't access the disk of the
    original machine. The name of a single file is empty."""

    @contextlib.contextmanager
    def local(self, settings: Settings) -> Iterator[Path]:
        """Context manager: a path of the document on this node."""
        if self.files is None:
            with self.input.local(settings.options.limits, settings.storage_options) as path:
                yield path
            return
        import ray

        content: dict[str, bytes] = ray.get(self.files)
        with tempfile.TemporaryDirectory(prefix="visar-") as folder:
            path = Path(folder) / Path(self.input.path).name
            if "" in content:
                path.write_bytes(content[""])
            else:
                path.mkdir()
                for name, data in content.items():
                    (path / name).write_bytes(data)
            yield path


class EncoderActor:
    """An actor that adds documents on a node of the cluster."""

    def __init__(self, settings: Settings, ahead: int) -> None:
        # An actor has one CPU, however many the node has.
        os.environ["VISAR_CORES"] = "1"
        self._settings = settings
        self._ahead = ahead
        self._store_and_encoder: tuple[Store, Encoder] | None = None
        self._progress: tuple[str, Stage, int, int] | None = None

    def progress(self) -> tuple[str, Stage, int, int] | None:
        """Return the document's path and stage, and the number of pages done and in total."""
        return self._progress

    def add(self, shipment: Shipment) -> Document | Refusal | VisarError:
        """Add a document; return errors, because not all can be sent as exceptions."""
        input_path = shipment.input.path

        def report(stage: Stage, done: int, total: int) -> None:
            self._progress = input_path, stage, done, total

        def read(
            document: OpenedDocument | None,
            numbers: Sequence[int],
            *,
            words: Sequence[Page] | None,
            images: bool,
        ) -> Generator[ReadPage, None, None]:
            # Office and text documents are converted once, on this node.
            if document is None or document.kind in ("office", "text"):
                return read_pages(document, numbers, words=words, images=images, workers=1)
            reading = _Reading(shipment, self._settings, document.id, images)
            return reading.pages(numbers, words, self._ahead)

        try:
            store, encoder = self._prepare()
            with shipment.local(self._settings) as path:
                return add_document(
                    store,
                    path,
                    encoder,
                    self._settings.options,
                    report,
                    source=shipment.source,
                    read=read,
                    metadata=self._settings.metadata,
                    collection=self._settings.collection,
                )
        except DocumentError as error:
            return Refusal(input_path, str(error))
        except VisarError as error:
            return error

    def _prepare(self) -> tuple[Store, Encoder]:
        """Return the index and the encoder, which are opened for the first document."""
        if self._store_and_encoder is None:
            settings, node = self._settings, socket.gethostname()
            if settings.version != __version__:
                raise InvalidOption(
                    f"{node} has ViSAR {__version__}, but {settings.version} is needed. Install "
                    "the same version on all nodes."
                )
            encoder = get_encoder(settings.encoder, device=settings.device)
            if EncoderRef.of(encoder) != settings.reference:
                raise InvalidOption(
                    f"{node} has the encoder {EncoderRef.of(encoder)}, but {settings.reference} "
                    "is needed. Pin its revision (--encoder NAME@REVISION)."
                )
            store = open_store(settings.location, options=settings.storage_options)
            self._store_and_encoder = store, encoder
        return self._store_and_encoder


@dataclass(frozen=True, slots=True)
class _Reading:
    """The reading of a document by tasks."""

    shipment: Shipment
    settings: Settings
    document: str
    images: bool

    def pages(
        self, numbers: Sequence[int], words: Sequence[Page] | None, ahead: int
    ) -> Generator[ReadPage, None, None]:
        """Yield pages in order, while tasks read ahead."""
        import ray

        task = ray.remote(num_cpus=1, max_retries=ATTEMPTS)(_read_chunk)
        waiting: deque[Any] = deque()
        try:
            for start in range(0, len(numbers), _CHUNK):
                part = slice(start, start + _CHUNK)
                part_words = None if words is None else words[part]
                waiting.append(task.remote(self, numbers[part], part_words))
                if len(waiting) > ahead:
                    yield from unwrap(ray.get(waiting.popleft()))
            while waiting:
                yield from unwrap(ray.get(waiting.popleft()))
        finally:
            for reference in waiting:
                ray.cancel(reference)


_open_documents: OrderedDict[
    tuple[str, ReadOptions], tuple[contextlib.ExitStack, OpenedDocument]
] = OrderedDict()
"""The documents that this process has used most recently."""


def _read_chunk(
    reading: _Reading, numbers: Sequence[int], words: Sequence[Page] | None
) -> list[ReadPage] | VisarError:
    options = replace(reading.settings.options, ocr_threads=1)
    key = reading.document, options
    try:
        if key not in _open_documents:
            with contextlib.ExitStack() as stack:
                path = stack.enter_context(reading.shipment.local(reading.settings))
                document = stack.enter_context(open_document(path, options))
                _open_documents[key] = stack.pop_all(), document
        _open_documents.move_to_end(key)
        while len(_open_documents) > _MAX_OPEN:
            _open_documents.popitem(last=False)[1][0].close()
        document = _open_documents[key][1]
        return list(read_pages(document, numbers, words=words, images=reading.images, workers=1))
    except VisarError as error:
        if key in _open_documents:  # closed by the error
            _open_documents.pop(key)[0].close()
        return error


def return_errors(function: Callable[[Task], Value], task: Task) -> Value | VisarError:
    """Call a function, and return its error instead of raising it."""
    try:
        return function(task)
    except VisarError as error:
        return error


def unwrap(result: Value | VisarError) -> Value:
    """Return a result, or raise it if it is an error."""
    if isinstance(result, VisarError):
        raise result
    return result
