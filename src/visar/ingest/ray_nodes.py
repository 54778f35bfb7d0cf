"""What runs on the nodes of a Ray cluster: tasks that read pages, actors that encode and commit."""

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
from visar.encoders.protocol import Encoder
from visar.encoders.registry import get_encoder
from visar.errors import DocumentError, InvalidOption, VisarError
from visar.ingest.inputs import Input
from visar.ingest.pipeline import ReadPage, Stage, add_document, read_pages
from visar.results import Document, EncoderRef, Refusal
from visar.store import Store, open_store

ATTEMPTS = 5
"""How many processes may be lost with a document, or with some pages, before it is given up."""
# Pages that one task reads: seconds of work with a text layer, half a minute with OCR.
_CHUNK = 8
# Documents that a reading process keeps open: its next task is often of the same one.
_KEPT_OPEN = 2

Task = TypeVar("Task")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Settings:
    """What every process of an addition is told."""

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
    """A document on its way to other machines."""

    input: Input
    source: str
    """As the machine that it comes from names it."""
    files: Any = None
    """A reference to the bytes of its files by their names, if they lie on the machine it comes
    from, whose disk nodes need not see. The name of a single file is empty."""

    @contextlib.contextmanager
    def local(self, settings: Settings) -> Iterator[Path]:
        """Give a path where it can be read on this node."""
        if self.files is None:
            with self.input.local(settings.options.limits, settings.storage_options) as path:
                yield path
            return
        import ray

        content: dict[str, bytes] = ray.get(self.files)
        with tempfile.TemporaryDirectory(prefix="visar-") as folder:
            path = Path(folder) / Path(self.input.place).name
            if "" in content:
                path.write_bytes(content[""])
            else:
                path.mkdir()
                for name, data in content.items():
                    (path / name).write_bytes(data)
            yield path


class EncoderActor:
    """Takes documents through the three steps on a node of the cluster."""

    def __init__(self, settings: Settings, ahead: int) -> None:
        # It has one CPU, however many the node has.
        os.environ["VISAR_CORES"] = "1"
        self._settings = settings
        self._ahead = ahead
        self._parts: tuple[Store, Encoder] | None = None
        self._progress: tuple[str, Stage, int, int] | None = None

    def progress(self) -> tuple[str, Stage, int, int] | None:
        """Return the place of the document, its stage, and how many of its pages are done."""
        return self._progress

    def add(self, shipment: Shipment) -> Document | Refusal | VisarError:
        """Add a document; an error is returned, since not all can be sent as exceptions."""
        place = shipment.input.place

        def report(stage: Stage, done: int, total: int) -> None:
            self._progress = place, stage, done, total

        def read(
            document: OpenedDocument | None,
            numbers: Sequence[int],
            *,
            words: Sequence[Page] | None = None,
            images: bool = False,
        ) -> Generator[ReadPage, None, None]:
            if document is None or document.kind == "office":  # converted here, once
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
            return Refusal(place, str(error))
        except VisarError as error:
            return error

    def _prepare(self) -> tuple[Store, Encoder]:
        """Open the index and the encoder, with the first document."""
        if self._parts is None:
            settings, node = self._settings, socket.gethostname()
            if settings.version != __version__:
                raise InvalidOption(
                    f"{node} has ViSAR {__version__}, and {settings.version} is needed: install "
                    "the same version on all nodes."
                )
            encoder = get_encoder(settings.encoder, device=settings.device)
            if EncoderRef.of(encoder) != settings.reference:
                raise InvalidOption(
                    f"{node} has another version of the encoder: {EncoderRef.of(encoder)}, not "
                    f"{settings.reference}. Name its revision (--encoder NAME@REVISION)."
                )
            store = open_store(settings.location, options=settings.storage_options)
            self._parts = store, encoder
        return self._parts


@dataclass(frozen=True, slots=True)
class _Reading:
    """Pages of a document that tasks read."""

    shipment: Shipment
    settings: Settings
    document: str
    images: bool

    def pages(
        self, numbers: Sequence[int], words: Sequence[Page] | None, ahead: int
    ) -> Generator[ReadPage, None, None]:
        """Give pages in order while some tasks read ahead."""
        import ray

        task = ray.remote(num_cpus=1, max_retries=ATTEMPTS)(_read_chunk)
        waiting: deque[Any] = deque()
        try:
            for start in range(0, len(numbers), _CHUNK):
                part = slice(start, start + _CHUNK)
                known = None if words is None else words[part]
                waiting.append(task.remote(self, numbers[part], known))
                if len(waiting) > ahead:
                    yield from value_of(ray.get(waiting.popleft()))
            while waiting:
                yield from value_of(ray.get(waiting.popleft()))
        finally:
            for reference in waiting:
                ray.cancel(reference)


_opened: OrderedDict[tuple[str, ReadOptions], tuple[contextlib.ExitStack, OpenedDocument]] = (
    OrderedDict()
)
"""The documents that this process has read from last."""


def _read_chunk(
    reading: _Reading, numbers: Sequence[int], words: Sequence[Page] | None
) -> list[ReadPage] | VisarError:
    """Read some pages on a node of the cluster."""
    options = replace(reading.settings.options, ocr_threads=1)
    key = reading.document, options
    try:
        if key not in _opened:
            with contextlib.ExitStack() as stack:
                path = stack.enter_context(reading.shipment.local(reading.settings))
                document = stack.enter_context(open_document(path, options))
                _opened[key] = stack.pop_all(), document
        _opened.move_to_end(key)
        while len(_opened) > _KEPT_OPEN:
            _opened.popitem(last=False)[1][0].close()
        document = _opened[key][1]
        return list(read_pages(document, numbers, words=words, images=reading.images, workers=1))
    except VisarError as error:
        if key in _opened:  # closed by the error
            _opened.pop(key)[0].close()
        return error


def returning_errors(function: Callable[[Task], Value], task: Task) -> Value | VisarError:
    """Call a function; an error is returned."""
    try:
        return function(task)
    except VisarError as error:
        return error


def value_of(result: Value | VisarError) -> Value:
    """Return a result, or raise the error that it is."""
    if isinstance(result, VisarError):
        raise result
    return result
