"""Adding many documents, in this process or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, TypeAlias

from visar.documents import ReadOptions
from visar.encoders.encoder import Encoder
from visar.errors import DocumentError
from visar.ingest.downloads import is_web_url
from visar.ingest.inputs import Input, find_inputs
from visar.ingest.pipeline import Progress, add_document, update_metadata
from visar.results import Additions, Document, EncoderRef, Refusal
from visar.store import Store

Result: TypeAlias = tuple[Input, Document | Refusal]
BeginProgress: TypeAlias = Callable[[str], Progress]
"""Function that is called with the path of each document, and returns its progress callback."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The store, encoder and options for adding documents."""

    store: Store
    encoder: Encoder
    encoder_name: str | Encoder
    """Name of the encoder, which other processes need to load it too."""
    device: str = "auto"
    options: ReadOptions = field(default_factory=ReadOptions)
    metadata: Mapping[str, Any] | None = None
    """Metadata for all documents, in addition to that of their files."""
    collection: str | None = None
    """Collection to add all documents to."""

    def add_all(
        self,
        paths: Iterable[str | PathLike[str]],
        progress: BeginProgress | None = None,
        each: Callable[[str, Document | Refusal], None] | None = None,
        *,
        ray: str | None = None,
    ) -> Additions:
        """Add files, folders and URLs; call ``each`` with every result as soon as it is known."""
        results = []
        inputs, errors, skipped = find_inputs(paths, self.store.storage_options)
        for item, result in self._add(inputs, errors, progress, ray):
            results.append(result)
            if each is not None:
                each(item.path, result)
        return Additions(
            tuple(result for result in results if not isinstance(result, Refusal)),
            tuple(result for result in results if isinstance(result, Refusal)),
            tuple(skipped),
        )

    def add(
        self,
        paths: Iterable[str | PathLike[str]],
        progress: BeginProgress | None = None,
        *,
        ray: str | None = None,
    ) -> Iterator[Result]:
        """Add files, folders and URLs; yield each result as soon as it is known.

        ``ray`` is the address of a Ray cluster to use instead of this process.
        """
        inputs, errors, _ = find_inputs(paths, self.store.storage_options)
        yield from self._add(inputs, errors, progress, ray)

    def _add(
        self,
        inputs: Iterable[Input],
        refused: Iterable[Refusal],
        progress: BeginProgress | None,
        ray: str | None,
    ) -> Iterator[Result]:
        for refusal in refused:
            yield Input(refusal.path), refusal
        waiting: list[Input] = []
        for item, stored in self._look_up(inputs):
            if stored is None:
                waiting.append(item)
            else:
                yield (
                    item,
                    update_metadata(self.store, stored, self.metadata or {}, self.collection),
                )
        if ray is None or not waiting:
            yield from self._add_each(waiting, progress)
            return
        from visar.ingest.ray_cluster import RayCluster

        # A download takes its time once: here, not for each task on a node.
        yield from self._add_each([item for item in waiting if is_web_url(item.path)], progress)
        with RayCluster(ray) as cluster:
            others = [item for item in waiting if not is_web_url(item.path)]
            yield from cluster.add(self, others, progress)

    def _look_up(self, inputs: Iterable[Input]) -> Iterator[tuple[Input, Document | None]]:
        """Yield each input, with its stored document if it is an unchanged object."""
        reference = EncoderRef.of(self.encoder)
        by_source: dict[str, Document] | None = None
        for item in inputs:
            if item.is_object and by_source is None:
                by_source = {document.source: document for document in self.store.documents()}
            stored = (by_source or {}).get(item.source) if item.is_object else None
            yield item, stored if item.is_stored(stored, reference) else None

    def add_locally(
        self, path: str | PathLike[str], progress: Progress | None = None, *, source: str
    ) -> Document:
        """Add one document in this process."""
        return add_document(
            self.store,
            path,
            self.encoder,
            self.options,
            progress,
            source=source,
            metadata=self.metadata,
            collection=self.collection,
        )

    def _add_each(
        self, inputs: Iterable[Input], progress: BeginProgress | None
    ) -> Iterator[Result]:
        for item in inputs:
            report = progress(item.path) if progress else None
            try:
                options = self.store.storage_options
                with item.local(self.options.limits, options, report) as path:
                    document = self.add_locally(path, report, source=item.source)
            except DocumentError as error:
                yield item, Refusal(item.path, str(error))
            else:
                yield item, document
