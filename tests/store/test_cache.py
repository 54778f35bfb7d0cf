"""The cache keeps to its bound and never hands out what is no more."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from tests.store.samples import TEXT, add, document, items
from visar.store import DocumentVectors, Store
from visar.store.cache import VectorCache


def vectors(rows: int) -> DocumentVectors:
    """Of 100 bytes a row, offsets included."""
    return DocumentVectors(
        np.zeros((rows, 36), np.float16),
        np.zeros(rows, np.int64),
        np.zeros((rows, 4), np.float32),
        np.zeros(rows, np.int32),
    )


def test_the_least_used_goes_first() -> None:
    cache = VectorCache(300)
    for name in ("a", "b", "c"):
        cache.put(name, "text", "1", vectors(1))
    assert cache.nbytes == 300
    cache.get("a", "text", "1")
    cache.put("d", "text", "1", vectors(1))
    held = [name for name in "abcd" if cache.get(name, "text", "1")]
    assert held == ["a", "c", "d"]
    cache.put("e", "text", "1", vectors(3))
    assert [name for name in "abcde" if cache.get(name, "text", "1")] == ["e"]
    assert cache.nbytes == 300


def test_what_is_larger_than_the_bound_is_not_kept() -> None:
    cache = VectorCache(299)
    cache.put("small", "text", "1", vectors(1))
    cache.put("large", "text", "1", vectors(3))
    assert cache.get("large", "text", "1") is None
    assert cache.get("small", "text", "1") is not None


def test_another_revision_is_let_go() -> None:
    cache = VectorCache(1000)
    cache.put("a", "text", "1", vectors(1))
    cache.put("a", "image", "1", vectors(1))
    assert cache.get("a", "text", "2") is None
    assert cache.nbytes == 100
    cache.put("a", "image", "2", vectors(2))
    assert cache.nbytes == 200
    cache.forget("a")
    assert cache.nbytes == 0


def test_what_another_process_replaced_is_read_anew(tmp_path: Path) -> None:
    # Another Store is to this one what another process is: they share nothing but the folder.
    here, there = Store.open(tmp_path), Store.open(tmp_path)
    add(there, "a")
    first = here.vectors("a", TEXT)
    there.remove("a")
    there.add(document("a"), TEXT, items("changed", 3, TEXT))
    second = here.vectors("a", TEXT)
    expected = np.concatenate([e.vectors for _, e in items("changed", 3, TEXT)])
    np.testing.assert_array_equal(second.vectors, expected)
    assert not np.array_equal(first.vectors, second.vectors)


def test_many_threads_use_one_store(tmp_path: Path) -> None:
    store = Store.open(tmp_path, cache_bytes=500)
    names = ["a", "b", "c"]
    for name in names:
        add(store, name)
    expected = {name: store.vectors(name, TEXT).vectors.tobytes() for name in names}

    def read(turn: int) -> bool:
        name = names[turn % 3]
        right = store.vectors(name, TEXT).vectors.tobytes() == expected[name]
        return right and store.pages(name, [1])[0].words[0].text.startswith(name)

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(read, range(60)))
