"""Cache of recent searches, so that several views of one question share a search."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from visar.results import Explanation, SearchResult

MAX_SEARCHES = 8


@dataclass(slots=True)
class _Entry:
    """A result with its explanation; the lock is held while they are computed."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    found: SearchResult | None = None
    explanation: Explanation | None = None


class RecentSearches:
    """Cache of search results and their explanations. Keys must cover all inputs. Thread-safe."""

    def __init__(self, size: int = MAX_SEARCHES) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()

    def find(self, key: Hashable, search: Callable[[], SearchResult]) -> SearchResult:
        """Return the result for a key; concurrent requests for the same key share one search."""
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
            self._entries.move_to_end(key)
            while len(self._entries) > self._size:
                self._entries.popitem(last=False)
        with entry.lock:
            if entry.found is None:
                entry.found = search()
            return entry.found

    def explain(self, found: SearchResult, explain: Callable[[], Explanation]) -> Explanation:
        """Return the explanation of a result, computed only once while the result is cached."""
        with self._lock:
            known = [entry for entry in self._entries.values() if entry.found is found]
        if not known:
            return explain()
        with known[0].lock:
            if known[0].explanation is None:
                known[0].explanation = explain()
            return known[0].explanation

    def clear(self) -> None:
        """Remove all results from the cache."""
        with self._lock:
            self._entries.clear()
