"""Candidates from search engines, for libraries too large to scan summaries.

Both search the mean vectors of pages: Qdrant with a graph, LanceDB with an index if there are many.
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
from visar.retrieval.candidates import Candidate, CandidateIndex, Key, document_key
from visar.store import DocumentVectors
from visar.store.summaries import mean_vectors

if TYPE_CHECKING:
    from qdrant_client import QdrantClient

MIN_INDEXED = 100_000
"""Minimum number of pages for an index; fewer are scanned."""
OVERSAMPLING = 4
"""Number of pages found by their means per page of the result."""
_POINTS_PER_REQUEST = 16


def collection_name(encoder: EncoderRef) -> str:
    """Return the name of the collection or table of an encoder's pages."""
    return f"visar-{hashlib.sha256(str(encoder).encode()).hexdigest()[:16]}"


def _pages(vectors: DocumentVectors) -> Iterator[tuple[int, Float32, Float32]]:
    """Yield number, vectors and means of each page with vectors."""
    for number in np.flatnonzero(np.diff(vectors.offsets)).tolist():
        page = vectors.vectors[vectors.offsets[number] : vectors.offsets[number + 1]]
        exact = page.astype(np.float32)
        yield number + 1, exact, mean_vectors(exact)


class _Engine(CandidateIndex, ABC):
    """Base class of engines, with the keys of the documents added."""

    _known: set[Key]

    def known(self) -> AbstractSet[Key]:
        return frozenset(self._known)

    def remove(self, documents: Iterable[Key]) -> None:
        removed = sorted(self._known.intersection(documents))
        if removed:
            self._delete(removed)
            self._known.difference_update(removed)

    def candidates(self, query: Float32, n: int, documents: Sequence[Document]) -> list[Candidate]:
        keys = {document_key(document) for document in documents} & self._known
        if not keys:
            return []
        return self._search(query, n, None if keys == self._known else sorted(keys))

    @abstractmethod
    def _delete(self, keys: Sequence[Key]) -> None:
        """Delete the pages of documents."""

    @abstractmethod
    def _search(self, query: Float32, n: int, keys: Sequence[Key] | None) -> list[Candidate]:
        """Return the best pages of these documents, or of all documents."""


class QdrantCandidates(_Engine):
    """Pages in a Qdrant collection, with an index of their means.

    The index finds pages by their means; Qdrant then reranks them by their full vectors.
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
                        # Only used for reranking, so they need no graph.
                        hnsw_config=models.HnswConfigDiff(m=0),
                    ),
                },
            )
            client.create_payload_index(self._name, "key", models.PayloadSchemaType.KEYWORD)
        self._known = self._read_known()

    @classmethod
    def open(cls, url: str, encoder: EncoderRef) -> QdrantCandidates:
        """Connect to a cluster, with the key in the environment variable ``QDRANT_API_KEY``."""
        with extra_needed("Qdrant", "qdrant"):
            from qdrant_client import QdrantClient
        client = QdrantClient(
            url=url,
            api_key=os.environ.get("QDRANT_API_KEY"),
            timeout=60,
            check_compatibility=False,  # the check runs in a thread that prints
        )
        return cls(client, encoder)

    def add(self, document: Document, vectors: Callable[[], DocumentVectors]) -> None:
        key = document_key(document)
        models, batch = self._models, []
        for number, exact, means in _pages(vectors()):
            batch.append(
                models.PointStruct(
                    id=str(uuid5(NAMESPACE_URL, f"{key}/{number}")),
                    vector={"means": means.tolist(), "vectors": exact.tolist()},
                    payload={"key": key, "document": document.id, "page": number},
                )
            )
            if len(batch) == _POINTS_PER_REQUEST:
                self._client.upsert(self._name, batch, wait=True)
                batch = []
        if batch:
            self._client.upsert(self._name, batch, wait=True)
        # Written last, it marks the document as complete.
        marker = models.PointStruct(
            id=str(uuid5(NAMESPACE_URL, key)), vector={}, payload={"key": key, "is_known": True}
        )
        self._client.upsert(self._name, [marker], wait=True)
        self._known.add(key)

    def _delete(self, keys: Sequence[Key]) -> None:
        self._client.delete(self._name, self._filter(keys), wait=True)

    def _search(self, query: Float32, n: int, keys: Sequence[Key] | None) -> list[Candidate]:
        condition = None if keys is None else self._filter(keys)
        found = self._client.query_points(
            self._name,
            prefetch=self._models.Prefetch(
                query=query.tolist(), using="means", limit=OVERSAMPLING * n, filter=condition
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

    def _filter(self, keys: Sequence[Key]) -> Any:
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
    """Means of pages in a LanceDB table, with an index if there are many.

    ``location`` is a folder, or an address such as ``s3://bucket/prefix``.
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
        # Every read sees the changes of other processes.
        connection = lancedb.connect(
            location, read_consistency_interval=timedelta(0), storage_options=options or {}
        )
        self._table = connection.create_table(
            collection_name(encoder), schema=schema, exist_ok=True
        )
        rows = self._table.search().select(["key"]).to_arrow()
        self._known = set(rows["key"].to_pylist())

    def add(self, document: Document, vectors: Callable[[], DocumentVectors]) -> None:
        """Add a document in one transaction, unless it is already there."""
        key = document_key(document)
        if key in self._known or self._table.count_rows(_key_filter([key])):
            self._known.add(key)
            return
        rows = [
            {"key": key, "document": document.id, "page": number, "means": means.tolist()}
            for number, _, means in _pages(vectors())
        ]
        # A row without means marks a document without vectors as added.
        self._table.add(rows or [{"key": key, "document": document.id, "page": 0, "means": None}])
        self._known.add(key)
        if self._table.count_rows() >= MIN_INDEXED and not self._table.list_indices():
            from lancedb.index import IvfPq

            self._table.create_index("means", config=IvfPq(distance_type="cosine"))

    def _delete(self, keys: Sequence[Key]) -> None:
        self._table.delete(_key_filter(keys))

    def _search(self, query: Float32, n: int, keys: Sequence[Key] | None) -> list[Candidate]:
        search: Any = self._table.search(query, vector_column_name="means")
        search = search.distance_type("cosine")
        where = "page > 0" if keys is None else f"page > 0 AND {_key_filter(keys)}"
        search = search.where(where, prefilter=True).limit(n).select(["document", "page"])
        if self._table.list_indices():
            search = search.refine_factor(OVERSAMPLING)
        found = search.to_arrow().to_pylist()
        # LanceDB's distance is the number of question vectors minus MaxSim.
        return [
            Candidate(row["document"], row["page"], len(query) - row["_distance"]) for row in found
        ]


def _key_filter(keys: Sequence[Key]) -> str:
    listed = ", ".join("'" + key.replace("'", "''") + "'" for key in keys)
    return f"key IN ({listed})"
