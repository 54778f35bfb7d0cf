"""Adding documents on a Ray cluster: tasks read pages, actors encode and commit them.

The three steps are those of :mod:`visar.ingest.pipeline`. An actor takes one document at a time
through them: it has tasks on any CPU of the cluster read the pages, encodes them where it is, and
commits to the index, which all nodes reach. What an actor has written when its node is lost is in
the index as the draft of an interrupted addition: the next actor goes on with it, and since a
document is known by its content and a page by its number, each is there once.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from visar._version import __version__
from visar.documents import Document, Page, ReadOptions, identify, open_document
from visar.errors import DocumentError, InvalidOption, MissingExtra, NotInIndex, VisarError
from visar.ingest.inputs import Input
from visar.ingest.pipeline import Progress, ReadPage, Stage, add_document, read_pages
from visar.results import Refusal
from visar.store import EncoderRef, StoredDocument, open_store

if TYPE_CHECKING:
    from visar.ingest.batch import Batch, BeginProgress, Result

# Pages that one task reads: seconds of work with a text layer, half a minute with OCR.
_CHUNK = 8
# How many processes may be lost with a document before it is refused.
_ATTEMPTS = 5
_SECONDS_PER_POLL = 1.0
_SECONDS_TO_CONNECT = 10.0
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
    version: str = __version__


@dataclass(frozen=True, slots=True)
class Shipment:
    """A document on its way to other machines."""

    input: Input
    source: str
    """As the machine that it comes from names it."""
    files: Any = None
    """A reference to its content by file name, if it lies on this machine: nodes need not see it.
    A folder of page images has several; a single file is named as it is."""

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


class RayCluster:
    """A connection to a Ray cluster; close it, or use it in a ``with`` block.

    Parameters
    ----------
    address
        Of the head, such as ``10.0.0.1:6379``; "auto" finds the cluster of this machine, "local"
        starts one for as long as it is needed.

    Raises
    ------
    InvalidOption
        There is no cluster at the address.
    """

    def __init__(self, address: str) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray
        except ImportError as error:
            raise MissingExtra("A Ray cluster", "ray") from error
        host, _, port = address.rpartition(":")
        try:
            if host and port.isdecimal() and "://" not in address:
                # Ray itself tries for minutes.
                socket.create_connection((host, int(port)), _SECONDS_TO_CONNECT).close()
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except (OSError, ValueError, RuntimeError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise InvalidOption(f"There is no Ray cluster at {address!r}: {reason}") from error
        self._ray = ray

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection, and with it everything that was started through it."""
        self._ray.shutdown()

    def check_location(self, location: str) -> None:
        """Raise InvalidOption if other machines of the cluster cannot open the index."""
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        others = {node["NodeManagerHostname"] for node in nodes} - {socket.gethostname()}
        if "://" not in location and others:
            raise InvalidOption(
                f"The index {location} is a folder of this machine, which {', '.join(others)} "
                "cannot write to: use an index in object storage (--index s3://bucket/prefix)."
            )

    def map(self, function: Callable[[Task], Value], tasks: Iterable[Task]) -> Iterator[Value]:
        """Call a function with each task on any CPU of the cluster; give results as they come.

        A task whose node is lost is done again. An error that the function raises is raised here.
        """
        ray = self._ray
        remote = ray.remote(num_cpus=1, max_retries=_ATTEMPTS)(_returning_errors)
        waiting = [remote.remote(function, task) for task in tasks]
        try:
            while waiting:
                ready, waiting = ray.wait(waiting, timeout=_SECONDS_PER_POLL)
                for reference in ready:
                    yield _value(ray.get(reference))
        except BaseException:
            for reference in waiting:
                ray.cancel(reference, force=True)
            raise

    def add(
        self, batch: Batch, inputs: Iterable[Input], progress: BeginProgress | None
    ) -> Iterator[Result]:
        """Add documents to an index that all nodes reach.

        Interrupted, it can be called again: what is in the index is not read again.

        Raises
        ------
        VisarError
            The index or the encoder fails; documents that cannot be read are refused one by one.
        """
        self.check_location(batch.store.location)
        if not isinstance(batch.encoder_name, str):
            raise InvalidOption("Other machines need the name of an encoder, not an object.")
        settings = Settings(
            batch.store.location,
            batch.store.storage_options,
            batch.encoder_name,
            EncoderRef.of(batch.encoder),
            batch.device,
            batch.options,
        )
        pool = _EncoderPool(self._ray, settings, on_gpu=batch.encoder.reads == "image")
        waiting = deque(inputs)
        losses: Counter[Input] = Counter()
        try:
            while waiting or pool.busy:
                waiting.extendleft(pool.resize())
                for worker in pool.idle():
                    if not waiting:
                        break
                    item = waiting.popleft()
                    try:
                        shipment = self._ship(item, batch)
                    except DocumentError as error:
                        yield item, Refusal(item.place, str(error))
                        continue
                    if isinstance(shipment, StoredDocument):
                        yield item, shipment
                    else:
                        worker.start(shipment, progress(item.place) if progress else None)
                for item, result in pool.results():
                    if result is not None:
                        yield item, result
                    elif losses[item] < _ATTEMPTS:
                        losses[item] += 1
                        waiting.appendleft(item)
                    else:
                        reason = f"{Path(item.place).name} made {_ATTEMPTS} processes stop."
                        yield item, Refusal(item.place, reason)
        finally:
            pool.close()

    def _ship(self, item: Input, batch: Batch) -> Shipment | StoredDocument:
        """Make a document ready to be sent; one that is in the store already is given instead."""
        if item.is_object:
            return Shipment(item, item.source)
        identity = identify(item.place, batch.options.limits)
        with contextlib.suppress(NotInIndex):
            if batch.store.get(identity.id).has(EncoderRef.of(batch.encoder)):
                # Not opened; only where it lies may change.
                return add_document(batch.store, item.place, batch.encoder, batch.options)
        is_folder = identity.kind == "images"
        content = {
            file.path.name if is_folder else "": file.path.read_bytes() for file in identity.files
        }
        return Shipment(item, item.source, self._ray.put(content))


class _EncoderPool:
    """As many actors as the cluster has room for at the moment.

    An actor takes a GPU, or one of two CPUs: the other one reads.
    """

    def __init__(self, ray: Any, settings: Settings, *, on_gpu: bool) -> None:
        self._ray = ray
        self._settings = settings
        self._on_gpu = (
            on_gpu
            and settings.device in ("auto", "cuda")
            and ray.cluster_resources().get("GPU", 0) >= 1
        )
        self._workers: list[_Worker] = []
        self._failed_starts = 0

    @property
    def busy(self) -> bool:
        return any(worker.job is not None for worker in self._workers)

    def idle(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.ready and worker.job is None]

    def resize(self) -> list[Input]:
        """Follow the cluster as it grows and shrinks; return what was taken from actors."""
        resources = self._ray.cluster_resources()
        cpus = int(resources.get("CPU", 0))
        wanted = int(resources.get("GPU", 0)) if self._on_gpu else cpus // 2
        ahead = max(4, cpus // max(1, wanted))
        while len(self._workers) < wanted:
            self._workers.append(_Worker(self._ray, self._settings, self._on_gpu, ahead))
        taken = []
        # More actors than that would take the CPUs that read for them.
        self._workers.sort(key=lambda worker: worker.job is None)
        for worker in self._workers[max(1, wanted) :]:
            if worker.input is not None:
                taken.append(worker.input)
            self._remove(worker)
        return taken

    def results(self) -> Iterator[tuple[Input, StoredDocument | Refusal | None]]:
        """Wait a moment; give what was done since, with None for what was lost with a node."""
        ray = self._ray
        for worker in self._workers:
            worker.poll()
        references = [one for w in self._workers for one in (w.job, w.polling) if one is not None]
        if not references:
            time.sleep(_SECONDS_PER_POLL)  # no node is there
            return
        ready, _ = ray.wait(references, timeout=_SECONDS_PER_POLL)
        for worker in list(self._workers):
            item = worker.input
            try:
                if worker.polling in ready:
                    worker.report(ray.get(worker.polling))
                    self._failed_starts = 0
                if worker.job in ready:
                    result = _value(ray.get(worker.job))
                    worker.finish(result)
                    yield _known(item), result
            except ray.exceptions.RayActorError as error:
                self._remove(worker)
                if item is not None:
                    yield item, None
                elif not worker.ready:
                    self._failed_starts += 1
                    if self._failed_starts > _ATTEMPTS:
                        said = str(error).strip().splitlines()[-1]
                        raise InvalidOption(f"No process could be started there: {said}") from error

    def close(self) -> None:
        """End all actors; what they have written waits for the next addition."""
        for worker in list(self._workers):
            self._remove(worker)

    def _remove(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        self._ray.kill(worker.actor)


class _Worker:
    """An actor as this process knows it."""

    def __init__(self, ray: Any, settings: Settings, on_gpu: bool, ahead: int) -> None:
        resources = {"num_gpus": 1} if on_gpu else {"num_cpus": 1}
        # One thread works, another one tells how far it is.
        remote = ray.remote(max_concurrency=2, scheduling_strategy="SPREAD", **resources)
        self.actor = remote(EncoderActor).remote(settings, ahead)
        self.ready = False
        self.job: Any = None
        self.input: Input | None = None
        self.polling: Any = self.actor.progress.remote()
        self._polled = time.monotonic()
        self._progress: Progress | None = None

    def start(self, shipment: Shipment, progress: Progress | None) -> None:
        """Give it a document."""
        self.input, self._progress = shipment.input, progress
        self.job = self.actor.add.remote(shipment)

    def finish(self, result: StoredDocument | Refusal) -> None:
        """Free it for the next document."""
        if self._progress and isinstance(result, StoredDocument):
            self._progress("encoding", result.pages, result.pages)
        self.job = self.input = self._progress = None

    def poll(self) -> None:
        """Ask how far it is, unless it was asked a moment ago."""
        if self.job is None or self.polling is not None:
            return
        if time.monotonic() - self._polled >= _SECONDS_PER_POLL:
            self.polling, self._polled = self.actor.progress.remote(), time.monotonic()

    def report(self, told: tuple[str, Stage, int, int] | None) -> None:
        """Pass on how far it is."""
        self.ready, self.polling = True, None
        if told and self.input and self._progress and told[0] == self.input.place:
            self._progress(*told[1:])


class EncoderActor:
    """Takes documents through the three steps on a node of the cluster."""

    def __init__(self, settings: Settings, ahead: int) -> None:
        # It has one CPU, however many the node has.
        os.environ["VISAR_CORES"] = "1"
        self._settings = settings
        self._ahead = ahead
        self._parts: tuple[Any, Any] | None = None
        self._progress: tuple[str, Stage, int, int] | None = None

    def progress(self) -> tuple[str, Stage, int, int] | None:
        """Return the place of the document, its stage, and how many of its pages are done."""
        return self._progress

    def add(self, shipment: Shipment) -> StoredDocument | Refusal | VisarError:
        """Add a document; an error is returned, since not all can be sent as exceptions."""
        place = shipment.input.place

        def report(stage: Stage, done: int, total: int) -> None:
            self._progress = place, stage, done, total

        def read(
            document: Document | None,
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
                )
        except DocumentError as error:
            return Refusal(place, str(error))
        except VisarError as error:
            return error

    def _prepare(self) -> tuple[Any, Any]:
        if self._parts is None:
            from visar.encoders.registry import get_encoder

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

        task = ray.remote(num_cpus=1, max_retries=_ATTEMPTS)(_read_chunk)
        waiting: deque[Any] = deque()
        try:
            for start in range(0, len(numbers), _CHUNK):
                part = slice(start, start + _CHUNK)
                known = None if words is None else words[part]
                waiting.append(task.remote(self, numbers[part], known))
                if len(waiting) > ahead:
                    yield from _value(ray.get(waiting.popleft()))
            while waiting:
                yield from _value(ray.get(waiting.popleft()))
        finally:
            for reference in waiting:
                ray.cancel(reference)


_opened: OrderedDict[tuple[str, ReadOptions], tuple[contextlib.ExitStack, Document]] = OrderedDict()
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


def _returning_errors(function: Callable[[Task], Value], task: Task) -> Value | VisarError:
    try:
        return function(task)
    except VisarError as error:
        return error


def _value(result: Value | VisarError) -> Value:
    if isinstance(result, VisarError):
        raise result
    return result


def _known(item: Input | None) -> Input:
    assert item is not None  # noqa: S101 - it has a job
    return item
