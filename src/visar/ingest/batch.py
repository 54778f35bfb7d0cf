"""Adding many documents: one after another in this process, or on many machines at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, TypeAlias

from visar.documents import ReadOptions
from visar.encoders.protocol import Encoder
from visar.errors import DocumentError
from visar.ingest.inputs import Input, find_inputs
from visar.ingest.pipeline import Progress, add_document, describe
from visar.results import Additions, Document, EncoderRef, Refusal
from visar.store import Store

Result: TypeAlias = tuple[Input, Document | Refusal]
BeginProgress: TypeAlias = Callable[[str], Progress]
"""Called with the place of a document when its turn comes; returns the callback for its pages."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What documents are added to, and how."""

    store: Store
    encoder: Encoder
    encoder_name: str | Encoder
    """What other processes make the same encoder from; they need its name."""
    device: str = "auto"
    options: ReadOptions = field(default_factory=ReadOptions)
    metadata: Mapping[str, Any] | None = None
    """Of all documents, beside those of their files."""
    collection: str | None = None
    """What all documents are put into."""

    def add_all(
        self,
        places: Iterable[str | PathLike[str]],
        progress: BeginProgress | None = None,
        each: Callable[[str, Document | Refusal], None] | None = None,
        *,
        ray: str | None = None,
    ) -> Additions:
        """Add files, folders and addresses; ``each`` is called with every result as it comes."""
        results = []
        for item, result in self.add(places, progress, ray=ray):
            results.append(result)
            if each is not None:
                each(item.place, result)
        return Additions(
            tuple(result for result in results if not isinstance(result, Refusal)),
            tuple(result for result in results if isinstance(result, Refusal)),
        )

    def add(
        self,
        places: Iterable[str | PathLike[str]],
        progress: BeginProgress | None = None,
        *,
        ray: str | None = None,
    ) -> Iterator[Result]:
        """Add files, folders and addresses; give each document as soon as it is added or refused.

        ``ray`` is the address of a cluster that does it; without one this process does.
        """
        inputs, refused = find_inputs(places, self.store.storage_options)
        for refusal in refused:
            yield Input(refusal.path), refusal
        waiting: list[Input] = []
        for item, stored in self._look_up(inputs):
            if stored is None:
                waiting.append(item)
            else:
                yield item, describe(self.store, stored, self.metadata or {}, self.collection)
        if ray is None or not waiting:
            yield from self._add_each(waiting, progress)
            return
        from visar.ingest.ray_cluster import RayCluster

        with RayCluster(ray) as cluster:
            yield from cluster.add(self, waiting, progress)

    def _look_up(self, inputs: Iterable[Input]) -> Iterator[tuple[Input, Document | None]]:
        """Give each document, if it is an object that is in the store as it is."""
        reference = EncoderRef.of(self.encoder)
        known: dict[str, Document] | None = None
        for item in inputs:
            if item.is_object and known is None:
                known = {document.source: document for document in self.store.documents()}
            stored = (known or {}).get(item.source) if item.is_object else None
            yield item, stored if item.is_stored(stored, reference) else None

    def add_here(
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
            report = progress(item.place) if progress else None
            try:
                with item.local(self.options.limits, self.store.storage_options) as path:
                    document = self.add_here(path, report, source=item.source)
            except DocumentError as error:
                yield item, Refusal(item.place, str(error))
            else:
                yield item, document
