"""Hot documents in memory, up to a bound."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from visar.store.records import DocumentVectors


class VectorCache:
    """Keeps the vectors last used, as many as fit into ``limit`` bytes. Safe among threads.

    Each is kept under its revision, which changes with the content: what another process
    replaced is never handed out again.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._kept: OrderedDict[tuple[str, str], tuple[str, DocumentVectors]] = OrderedDict()
        self._lock = Lock()

    @property
    def nbytes(self) -> int:
        """The memory in use."""
        return self._used

    def get(self, document: str, encoder: str, revision: str) -> DocumentVectors | None:
        """The vectors, if they are here and of this revision; others of theirs are let go."""
        with self._lock:
            kept = self._kept.get((document, encoder))
            if kept is None:
                return None
            if kept[0] != revision:
                self._drop((document, encoder))
                return None
            self._kept.move_to_end((document, encoder))
            return kept[1]

    def put(self, document: str, encoder: str, revision: str, vectors: DocumentVectors) -> None:
        """Keep the vectors, letting go of those not used for longest."""
        with self._lock:
            self._drop((document, encoder))
            if vectors.nbytes > self._limit:
                return
            self._kept[document, encoder] = revision, vectors
            self._used += vectors.nbytes
            while self._used > self._limit:
                self._drop(next(iter(self._kept)))

    def forget(self, document: str) -> None:
        """Let go of all vectors of a document."""
        with self._lock:
            for key in [key for key in self._kept if key[0] == document]:
                self._drop(key)

    def _drop(self, key: tuple[str, str]) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._used -= kept[1].nbytes
