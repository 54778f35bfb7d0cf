"""Adding documents on a Ray cluster: tasks read pages, actors encode and commit them.

The three steps are those of `visar.ingest.pipeline`. An actor takes one document at a time
through them: it has tasks on any CPU of the cluster read the pages, encodes them where it is, and
commits to the index, which all nodes reach. What an actor has written when its node is lost is in
the index as the draft of an interrupted addition: the next actor goes on with it, and since a
document is known by its content and a page by its number, each is there once.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from visar.documents import identify
from visar.errors import DocumentError, InvalidOption, MissingExtra, NotInIndex
from visar.ingest.inputs import Input
from visar.ingest.pipeline import Progress, Stage
from visar.ingest.ray_nodes import (
    ATTEMPTS,
    EncoderActor,
    Settings,
    Shipment,
    returning_errors,
    value_of,
)
from visar.results import Document, EncoderRef, Refusal

if TYPE_CHECKING:
    from visar.ingest.batch import Batch, BeginProgress, Result

_SECONDS_PER_POLL = 1.0
_SECONDS_TO_CONNECT = 10.0

Task = TypeVar("Task")
Value = TypeVar("Value")


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
            with warnings.catch_warnings():
                # LanceDB warns of forks; the processes that Ray starts run other programs.
                warnings.filterwarnings("ignore", "lancedb fork support", RuntimeWarning)
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, ValueError, RuntimeError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise InvalidOption(f"There is no Ray cluster at {address!r}: {reason}") from error
        self._ray: Any = ray

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
        remote = ray.remote(num_cpus=1, max_retries=ATTEMPTS)(returning_errors)
        waiting = [remote.remote(function, task) for task in tasks]
        try:
            while waiting:
                ready, waiting = ray.wait(waiting, timeout=_SECONDS_PER_POLL)
                for reference in ready:
                    yield value_of(ray.get(reference))
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
        settings = self._settings(batch)
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
                    if isinstance(shipment, Document):
                        yield item, shipment
                    else:
                        worker.start(shipment, progress(item.place) if progress else None)
                for item, result in pool.results():
                    if result is not None:
                        yield item, result
                    elif losses[item] < ATTEMPTS:
                        losses[item] += 1
                        waiting.appendleft(item)
                    else:
                        reason = f"{Path(item.place).name} made {ATTEMPTS} processes stop."
                        yield item, Refusal(item.place, reason)
        finally:
            pool.close()

    def _settings(self, batch: Batch) -> Settings:
        """What nodes are told; raises InvalidOption if they could do nothing with it."""
        self.check_location(batch.store.location)
        if not isinstance(batch.encoder_name, str):
            raise InvalidOption("Other machines need the name of an encoder, not an object.")
        if self._ray.cluster_resources().get("CPU", 0) == 1:
            raise InvalidOption("The cluster has one CPU: one reads, and another one encodes.")
        return Settings(
            batch.store.location,
            batch.store.storage_options,
            batch.encoder_name,
            EncoderRef.of(batch.encoder),
            batch.device,
            batch.options,
            batch.metadata,
            batch.collection,
        )

    def _ship(self, item: Input, batch: Batch) -> Shipment | Document:
        """Make a document ready to be sent; one that is in the store already is given instead."""
        if item.is_object:
            return Shipment(item, item.source)
        identity = identify(item.place, batch.options.limits)
        with contextlib.suppress(NotInIndex):
            if batch.store.get(identity.id).has(EncoderRef.of(batch.encoder)):
                # Not opened; only where it lies may change.
                return batch.add_here(item.place, source=item.source)
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
        # One at least: a cluster that grows with its work begins with it.
        wanted = max(1, int(resources.get("GPU", 0)) if self._on_gpu else cpus // 2)
        ahead = max(4, cpus // wanted)
        while len(self._workers) < wanted:
            self._workers.append(_Worker(self._ray, self._settings, self._on_gpu, ahead))
        taken = []
        # More actors than that would take the CPUs that read for them.
        self._workers.sort(key=lambda worker: worker.job is None)
        for worker in self._workers[wanted:]:
            if worker.input is not None:
                taken.append(worker.input)
            self._remove(worker)
        return taken

    def results(self) -> Iterator[tuple[Input, Document | Refusal | None]]:
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
                    result = value_of(ray.get(worker.job))
                    worker.finish(result)
                    yield _known(item), result
            except ray.exceptions.RayActorError as error:
                self._remove(worker)
                if item is not None:
                    yield item, None
                elif not worker.ready:
                    self._failed_starts += 1
                    if self._failed_starts > ATTEMPTS:
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

    def finish(self, result: Document | Refusal) -> None:
        """Free it for the next document."""
        if self._progress and isinstance(result, Document):
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


def _known(item: Input | None) -> Input:
    assert item is not None  # noqa: S101 - it has a job
    return item
