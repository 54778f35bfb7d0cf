"""Adding documents on a Ray cluster: tasks read pages, actors encode and commit them.

The steps are those of `visar.ingest.pipeline`. An actor processes one document at a time: tasks on
any CPU of the cluster read the pages, the actor encodes them on its node and commits to the shared
index. If a node is lost, the pages of its actor are in the index as an interrupted addition, which
the next actor resumes. Since documents are identified by content and pages by number, nothing is
added twice.
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
from visar.ingest.batch import Input
from visar.ingest.pipeline import Progress, Stage
from visar.ingest.ray_nodes import (
    ATTEMPTS,
    EncoderActor,
    Settings,
    Shipment,
    return_errors,
    unwrap,
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

    ``address`` is that of the head node, such as ``10.0.0.1:6379``; "auto" finds the cluster on
    this machine, "local" starts a temporary one. Raises InvalidOption if there is no cluster.
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
                # Ray itself would retry for minutes.
                socket.create_connection((host, int(port)), _SECONDS_TO_CONNECT).close()
            with warnings.catch_warnings():
                # LanceDB warns about forks, but the processes that Ray starts run other programs.
                warnings.filterwarnings("ignore", "lancedb fork support", RuntimeWarning)
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, ValueError, RuntimeError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise InvalidOption(
                f"Can't connect to a Ray cluster at {address!r}: {reason}"
            ) from error
        self._ray: Any = ray

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, and end everything that was started through it."""
        self._ray.shutdown()

    def check_location(self, location: str) -> None:
        """Raise InvalidOption if other machines of the cluster can't open the index."""
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        others = {node["NodeManagerHostname"] for node in nodes} - {socket.gethostname()}
        if "://" not in location and others:
            raise InvalidOption(
                f"The index {location} is a local folder, which {', '.join(others)} can't write "
                "to. Use an index in object storage (--index s3://bucket/prefix)."
            )

    def map(self, function: Callable[[Task], Value], tasks: Iterable[Task]) -> Iterator[Value]:
        """Call a function with each task on the cluster; yield results as soon as they are ready.

        Tasks of lost nodes are repeated. Errors of the function are raised here.
        """
        ray = self._ray
        remote = ray.remote(num_cpus=1, max_retries=ATTEMPTS)(return_errors)
        waiting = [remote.remote(function, task) for task in tasks]
        try:
            while waiting:
                ready, waiting = ray.wait(waiting, timeout=_SECONDS_PER_POLL)
                for reference in ready:
                    yield unwrap(ray.get(reference))
        except BaseException:
            for reference in waiting:
                ray.cancel(reference, force=True)
            raise

    def add(
        self, batch: Batch, inputs: Iterable[Input], progress: BeginProgress | None
    ) -> Iterator[Result]:
        """Add documents to an index that all nodes can access.

        Repeat an interrupted call to resume it. Raises VisarError if the index or the encoder
        fails; documents that can't be read are yielded as refusals.
        """
        settings = self._settings(batch)
        pool = _EncoderPool(self._ray, settings, on_gpu=batch.encoder.reads == "image")
        waiting = deque(inputs)
        losses: Counter[Input] = Counter()
        try:
            while waiting or pool.busy:
                waiting.extendleft(pool.resize())
                for handle in pool.idle():
                    if not waiting:
                        break
                    item = waiting.popleft()
                    try:
                        shipment = self._ship(item, batch)
                    except DocumentError as error:
                        yield item, Refusal(item.path, str(error))
                        continue
                    if isinstance(shipment, Document):
                        yield item, shipment
                    else:
                        handle.start(shipment, progress(item.path) if progress else None)
                for item, result in pool.results():
                    if result is not None:
                        yield item, result
                    elif losses[item] < ATTEMPTS:
                        losses[item] += 1
                        waiting.appendleft(item)
                    else:
                        reason = f"{Path(item.path).name} crashed {ATTEMPTS} processes."
                        yield item, Refusal(item.path, reason)
        finally:
            pool.close()

    def _settings(self, batch: Batch) -> Settings:
        """Return the settings for the nodes; raise InvalidOption if they can't use them."""
        self.check_location(batch.store.location)
        if not isinstance(batch.encoder_name, str):
            raise InvalidOption("A Ray cluster needs the name of an encoder, not an object.")
        if self._ray.cluster_resources().get("CPU", 0) == 1:
            raise InvalidOption(
                "The Ray cluster has one CPU, but needs two: one to read, and one to encode."
            )
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
        """Prepare a document for the cluster, or return it if it is stored already."""
        if item.is_object:
            return Shipment(item, item.source)
        identity = identify(item.path, batch.options.limits)
        with contextlib.suppress(NotInIndex):
            if batch.store.get(identity.id).has(EncoderRef.of(batch.encoder)):
                # This only updates the source, without opening the file.
                return batch.add_locally(item.path, source=item.source)
        is_folder = identity.kind == "images"
        content = {
            file.path.name if is_folder else "": file.path.read_bytes() for file in identity.files
        }
        return Shipment(item, item.source, self._ray.put(content))


class _EncoderPool:
    """A pool of actors that adapts to the size of the cluster.

    An actor uses a GPU, or one of two CPUs, with the other one for reading.
    """

    def __init__(self, ray: Any, settings: Settings, *, on_gpu: bool) -> None:
        self._ray = ray
        self._settings = settings
        self._on_gpu = (
            on_gpu
            and settings.device in ("auto", "cuda")
            and ray.cluster_resources().get("GPU", 0) >= 1
        )
        self._handles: list[_ActorHandle] = []
        self._failed_starts = 0

    @property
    def busy(self) -> bool:
        return any(handle.job is not None for handle in self._handles)

    def idle(self) -> list[_ActorHandle]:
        return [handle for handle in self._handles if handle.ready and handle.job is None]

    def resize(self) -> list[Input]:
        """Adapt to the size of the cluster; return the inputs of removed actors."""
        resources = self._ray.cluster_resources()
        cpus = int(resources.get("CPU", 0))
        # At least one, because an autoscaling cluster only grows if there is work.
        target = max(1, int(resources.get("GPU", 0)) if self._on_gpu else cpus // 2)
        ahead = max(4, cpus // target)
        while len(self._handles) < target:
            self._handles.append(_ActorHandle(self._ray, self._settings, self._on_gpu, ahead))
        inputs = []
        # More actors would take the CPUs that read for them. Remove idle ones first.
        self._handles.sort(key=lambda handle: handle.job is None)
        for handle in self._handles[target:]:
            if handle.input is not None:
                inputs.append(handle.input)
            self._remove(handle)
        return inputs

    def results(self) -> Iterator[tuple[Input, Document | Refusal | None]]:
        """Wait briefly; yield the results since the last call, with None for lost actors."""
        ray = self._ray
        for handle in self._handles:
            handle.poll()
        references = [one for h in self._handles for one in (h.job, h.polling) if one is not None]
        if not references:
            time.sleep(_SECONDS_PER_POLL)  # there are no nodes
            return
        ready, _ = ray.wait(references, timeout=_SECONDS_PER_POLL)
        for handle in list(self._handles):
            item = handle.input
            try:
                if handle.polling in ready:
                    handle.report(ray.get(handle.polling))
                    self._failed_starts = 0
                if handle.job in ready:
                    result = unwrap(ray.get(handle.job))
                    handle.finish(result)
                    assert item is not None  # noqa: S101 - an actor with a job has an input
                    yield item, result
            except ray.exceptions.RayActorError as error:
                self._remove(handle)
                if item is not None:
                    yield item, None
                elif not handle.ready:
                    self._failed_starts += 1
                    if self._failed_starts > ATTEMPTS:
                        reason = str(error).strip().splitlines()[-1]
                        raise InvalidOption(
                            f"Can't start a process on the Ray cluster: {reason}"
                        ) from error

    def close(self) -> None:
        """End all actors; the next addition resumes their work."""
        for handle in list(self._handles):
            self._remove(handle)

    def _remove(self, handle: _ActorHandle) -> None:
        self._handles.remove(handle)
        self._ray.kill(handle.actor)


class _ActorHandle:
    """The state of an actor in this process."""

    def __init__(self, ray: Any, settings: Settings, on_gpu: bool, ahead: int) -> None:
        resources = {"num_gpus": 1} if on_gpu else {"num_cpus": 1}
        # One thread works, the other one reports progress.
        remote = ray.remote(max_concurrency=2, scheduling_strategy="SPREAD", **resources)
        self.actor = remote(EncoderActor).remote(settings, ahead)
        self.ready = False
        self.job: Any = None
        self.input: Input | None = None
        self.polling: Any = self.actor.progress.remote()
        self._last_poll = time.monotonic()
        self._progress: Progress | None = None

    def start(self, shipment: Shipment, progress: Progress | None) -> None:
        self.input, self._progress = shipment.input, progress
        self.job = self.actor.add.remote(shipment)

    def finish(self, result: Document | Refusal) -> None:
        """Mark the actor as idle."""
        if self._progress and isinstance(result, Document):
            self._progress("encoding", result.pages, result.pages)
        self.job = self.input = self._progress = None

    def poll(self) -> None:
        """Request the progress, at most once per interval."""
        if self.job is None or self.polling is not None:
            return
        if time.monotonic() - self._last_poll >= _SECONDS_PER_POLL:
            self.polling, self._last_poll = self.actor.progress.remote(), time.monotonic()

    def report(self, progress: tuple[str, Stage, int, int] | None) -> None:
        self.ready, self.polling = True, None
        if progress and self.input and self._progress and progress[0] == self.input.path:
            self._progress(*progress[1:])
