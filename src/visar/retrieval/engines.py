"""Candidates from search engines, for libraries that a scan of summaries is too slow for.

Both search the mean vectors of pages: Qdrant by a graph, LanceDB by an index if there are many.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_URL, uuid5

import numpy as np

from visar.core.vectors import Float32
from visar.errors import extra_needed
from visar.results import Document, EncoderRef
from visar.retrieval.candidates import Candidate, Key, document_key
from visar.store import DocumentVectors
from visar.store.summaries import mean_vectors

if TYPE_CHECKING:
    from qdrant_client import QdrantClient

INDEXED = 100_000
"""Pages from which on the means are searched by an index, not by a scan."""
OVERSAMPLED = 4
"""Pages that the means find for each one that is wanted."""
_POINTS_AT_A_TIME = 16


def collection_name(encoder: EncoderRef) -> str:
    """Name the collection or table of an encoder's pages."""
    return f"visar-{hashlib.sha256(str(encoder).encode()).hexdigest()[:16]}"


def _pages(vectors: DocumentVectors) -> Iterator[tuple[int, Float32, Float32]]:
    """Give the pages that have vectors: their number, vectors, and means."""
    for number in np.flatnonzero(np.diff(vectors.offsets)).tolist():
        page = vectors.vectors[vectors.offsets[number] : vectors.offsets[number + 1]]
        exact = page.astype(np.float32)
        yield number + 1, exact, mean_vectors(exact)


class _Engine(ABC):
    """Candidates of an engine, which knows the documents that were added."""

    _known: set[Key]

    def known(self) -> AbstractSet[Key]:
        """Return the documents that were added."""
        return frozenset(self._known)

    def remove(self, documents: Iterable[Key]) -> None:
        """Forget documents."""
        gone = sorted(self._known.intersection(documents))
        if gone:
            self._delete(gone)
            self._known.difference_update(gone)

    def candidates(
        self,
        query: Float32,
        question: str,  # noqa: ARG002 - for indexes that have words
        n: int,
        documents: Sequence[Document],
    ) -> list[Candidate]:
        """Return the best pages that the engine finds in these documents."""
        wanted = {document_key(document) for document in documents} & self._known
        if not wanted:
            return []
        return self._search(query, n, None if wanted == self._known else sorted(wanted))

    @abstractmethod
    def _delete(self, keys: Sequence[Key]) -> None:
        """Delete the pages of documents."""

    @abstractmethod
    def _search(self, query: Float32, n: int, keys: Sequence[Key] | None) -> list[Candidate]:
        """Return the best pages of these documents, or of all."""


class QdrantCandidates(_Engine):
    """Pages in a collection of Qdrant: means that are indexed, and full vectors that are not.

    The means find pages, and Qdrant compares the full vectors of these.

    Parameters
    ----------
    client
        Of a cluster, or in its local mode.
    encoder
        Whose vectors are kept.
    """

    def __init__(self, client: QdrantClient, encoder: EncoderRef) -> None:
        from qdrant_client import models

        self._client = client
        self._models = models
        self._name = collection_name(encoder)
        if not client.collection_exists(self._name):
            late = models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM)
            kind: dict[str, Any] = {"size": encoder.dimension, "distance": models.Distance.DOT}
            client.create_collection(
                self._name,
                vectors_config={
                    "means": models.VectorParams(**kind, multivector_config=late),
                    "vectors": models.VectorParams(
                        **kind,
                        multivector_config=late,
                        on_disk=True,
                        datatype=models.Datatype.FLOAT16,
                        # Compared for candidates alone: no graph.
                        hnsw_config=models.HnswConfigDiff(m=0),
                    ),
                },
            )
            client.create_payload_index(self._name, "key", models.PayloadSchemaType.KEYWORD)
        self._known = self._read_known()

    @classmethod
    def open(cls, url: str, encoder: EncoderRef) -> QdrantCandidates:
        """Connect to a cluster. ``QDRANT_API_KEY`` in the environment is its key."""
        with extra_needed("Qdrant", "qdrant"):
            from qdrant_client import QdrantClient
        client = QdrantClient(
            url=url,
            api_key=os.environ.get("QDRANT_API_KEY"),
            timeout=60,
            check_compatibility=False,  # in a thread that prints what it finds
        )
        return cls(client, encoder)

    def add(self, document: Document, vectors: Callable[[], DocumentVectors]) -> None:
        """Take a document in."""
        key = document_key(document)
        models, waiting = self._models, []
        for number, exact, means in _pages(vectors()):
            waiting.append(
                models.PointStruct(
                    id=str(uuid5(NAMESPACE_URL, f"{key}/{number}")),
                    vector={"means": means.tolist(), "vectors": exact.tolist()},
                    payload={"key": key, "document": document.id, "page": number},
                )
            )
            if len(waiting) == _POINTS_AT_A_TIME:
                self._client.upsert(self._name, waiting, wait=True)
                waiting = []
        if waiting:
            self._client.upsert(self._name, waiting, wait=True)
        # Last: with it the document is known, whole.
        mark = models.PointStruct(
            id=str(uuid5(NAMESPACE_URL, key)), vector={}, payload={"key": key, "is_known": True}
        )
        self._client.upsert(self._name, [mark], wait=True)
        self._known.add(key)

    def _delete(self, keys: Sequence[Key]) -> None:
        self._client.delete(self._name, self._of(keys), wait=True)

    def _search(self, query: Float32, n: int, keys: Sequence[Key] | None) -> list[Candidate]:
        """Return the best pages by their vectors, of the best by their means."""
        wanted = None if keys is None else self._of(keys)
        found = self._client.query_points(
            self._name,
            prefetch=self._models.Prefetch(
                query=query.tolist(), using="means", limit=OVERSAMPLED * n, filter=wanted
            ),
            query=query.tolist(),
            using="vectors",
            limit=n,
            with_payload=["document", "page"],
        )
        return [
            Candidate(point.payload["document"], point.payload["page"], point.score)
            for point in found.points
            if point.payload
        ]

    def _of(self, keys: Sequence[Key]) -> Any:
        models = self._models
        match = models.MatchAny(any=list(keys))
        return models.Filter(must=[models.FieldCondition(key="key", match=match)])

    def _read_known(self) -> set[Key]:
        models = self._models
        marked = models.FieldCondition(key="is_known", match=models.MatchValue(value=True))
        known: set[Key] = set()
        offset = None
        while True:
            points, offset = self._client.scroll(
                self._name, models.Filter(must=[marked]), limit=1000, offset=offset
            )
            known.update(str(point.payload["key"]) for point in points if point.payload)
            if offset is None:
                return known


class LanceCandidates(_Engine):
    """Pages in a table of LanceDB: their means, searched by its index where there are many.

    Parameters
    ----------
    location
        A folder, or an address such as ``s3://bucket/prefix``.
    encoder
        Whose vectors are kept.
    options
        Those of the storage.
    """

    def __init__(
        self, location: str, encoder: EncoderRef, options: dict[str, str] | None = None
    ) -> None:
        with extra_needed("Candidates in LanceDB", "cloud"):
            import lancedb
            import pyarrow as pa
        means = pa.list_(pa.list_(pa.float32(), encoder.dimension))
        fields = [("key", pa.string()), ("document", pa.string()), ("page", pa.int32())]
        schema = pa.schema([*fields, ("means", means)])
        # Every read sees what other processes have added before it.
        connection = lancedb.connect(
            location, read_consistency_interval=timedelta(0), storage_options=options or {}
        )
        self._table = connection.create_table(
            collection_name(encoder), schema=schema, exist_ok=True
        )
        rows = self._table.search().select(["key"]).to_arrow()
        self._known = set(rows["key"].to_pylist())

    def add(self, document: Document, vectors: Callable[[], DocumentVectors]) -> None:
        """Take a document in, in one step; one that is known stays as it is."""
        key = document_key(document)
        if key in self._known or self._table.count_rows(_any_of([key])):
            self._known.add(key)
            return
        rows = [
            {"key": key, "document": document.id, "page": number, "means": means.tolist()}
            for number, _, means in _pages(vectors())
        ]
        # A document without vectors is known too.
        self._table.add(rows or [{"key": key, "document": document.id, "page": 0, "means": None}])
        self._known.add(key)
        if self._table.count_rows() >= INDEXED and not self._table.list_indices():
            from lancedb.index import IvfPq

            self._table.create_index("means", config=IvfPq(distance_type="cosine"))

    def _delete(self, keys: Sequence[Key]) -> None:
        self._table.delete(_any_of(keys))

    def _search(self, query: Float32, n: int, keys: Sequence[Key] | None) -> list[Candidate]:
        """Return the best pages by their means."""
        search: Any = self._table.search(query, vector_column_name="means")
        search = search.distance_type("cosine")
        where = "page > 0" if keys is None else f"page > 0 AND {_any_of(keys)}"
        search = search.where(where, prefilter=True).limit(n).select(["document", "page"])
        if self._table.list_indices():
            search = search.refine_factor(OVERSAMPLED)
        found = search.to_arrow().to_pylist()
        # LanceDB's distance is the number of question vectors less MaxSim.
        return [
            Candidate(row["document"], row["page"], len(query) - row["_distance"]) for row in found
        ]


def _any_of(keys: Sequence[Key]) -> str:
    """A filter of LanceDB. Keys are made of hexadecimal digits and a time; quotes are doubled."""
    listed = ", ".join("'" + key.replace("'", "''") + "'" for key in keys)
    return f"key IN ({listed})"
