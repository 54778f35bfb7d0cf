"""Test verifying and compacting."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.store.samples import (
    IMAGE,
    TEXT,
    add,
    compact_now,
    document,
    interrupt,
    items,
    open_kind,
    put,
    state,
    unfinished,
    with_invalid_page,
)
from visar.errors import StoreError
from visar.store import Store


def test_compact_deletes_only_unused_data(store: Store, kind: str) -> None:
    add(store, "good")
    add(store, "gone")
    interrupt(store, "half", [1, 2])
    interrupt(store, "good", [3], IMAGE)
    store.remove("gone")
    before = state(store)
    orphans = store.verify()
    assert {(problem.kind, problem.document) for problem in orphans} == {
        ("orphan", "half"),
        ("orphan", "good"),
    }
    dropped = store.compact()
    assert dropped.pages == 3
    assert dropped.files > 0
    assert dropped.bytes > 0
    assert store.verify() == []
    assert unfinished(store, "half") == unfinished(store, "good", IMAGE) == set()
    assert state(store) == state(open_kind(kind, store.location)) == before
    again = store.compact()
    assert (again.pages, again.files, again.bytes) == (0, 0, 0)


@pytest.mark.usefixtures("flush_every_page")
def test_compact_keeps_additions_in_progress(store: Store, kind: str, tmp_path: Path) -> None:
    add(store, "old")
    file = tmp_path / "file.pdf"
    file.write_bytes(b"content")
    beside = open_kind(kind, store.location)
    with store.adding(document("a"), TEXT, file) as addition:
        for item in items("a", 3, TEXT):
            addition.put(*item)
            dropped = beside.compact()
            assert (dropped.pages, dropped.files) == (0, 0)
            assert beside.verify() == []
        addition.commit()
    beside.compact()
    assert [d.id for d in store.documents()] == ["old", "a"]
    assert store.original("a") is not None
    assert store.verify() == []
    beside.close()


def test_verify_changes_nothing(store: Store, index: Path) -> None:
    add(store, "a")
    interrupt(store, "half", [1, 2])
    before = {path: path.read_bytes() for path in index.rglob("*.*") if path.is_file()}
    assert {problem.kind for problem in store.verify()} == {"orphan"}
    after = {path: path.read_bytes() for path in index.rglob("*.*") if path.is_file()}
    assert {path for path in before if before[path] != after.get(path)} <= {
        index / "index.sqlite-shm",  # the locks of readers
    }
    assert set(after) == set(before)


def vector_files(index: Path) -> list[Path]:
    """Return the files with vectors, in either store."""
    return sorted(
        path
        for path in index.rglob("*")
        if path.suffix in {".npy", ".blob"} or path.parent == index / "rows.lance" / "data"
        if path.is_file()
    )


def test_verify_reports_flipped_bytes(store: Store, index: Path, kind: str) -> None:
    add(store, "a")
    needle = store.vectors("a", TEXT).vectors.tobytes()
    for part, label in ((needle, "vectors"), (b"a-1-w", "page")):
        before = index.with_name("before")
        if kind == "sqlite":
            store.close()
            store = open_kind(kind, index)  # moves everything from the log to the database
            store.compact()
        shutil.copytree(index, before)
        hit = 0
        for path in index.rglob("*"):
            content = path.read_bytes() if path.is_file() else b""
            if part[:16] in content:
                offset = content.index(part[:16]) + 1
                path.write_bytes(
                    content[:offset] + bytes([content[offset] ^ 1]) + content[offset + 1 :]
                )
                hit += 1
        assert hit
        fresh = open_kind(kind, index)
        problems = fresh.verify()
        assert any(p.kind == "damage" and label in p.what for p in problems), problems
        fresh.close()
        shutil.rmtree(index)
        shutil.move(before, index)


def test_lost_vectors_are_reported_and_can_be_added_again(
    store: Store, index: Path, kind: str
) -> None:
    add(store, "a")
    compact_now(store)
    store.close()
    for path in vector_files(index):
        path.unlink()
    fresh = open_kind(kind, index)
    assert any(problem.kind == "damage" for problem in fresh.verify())
    with pytest.raises(StoreError):
        fresh.vectors("a", TEXT)
    fresh.close()


def test_damage_only_raises_store_errors(store: Store, index: Path, kind: str) -> None:
    """Flipped bytes either don't matter or raise StoreError."""
    rng = np.random.default_rng(1)
    for id_ in ("a", "b"):
        put(store, document(id_, metadata={"x": "y"}), TEXT, with_invalid_page("why"))
    store.collect("some", ["a"])
    compact_now(store)
    expected = state(store)
    store.close()
    whole = {path: path.read_bytes() for path in index.rglob("*") if path.is_file()}
    paths = [path for path, content in whole.items() if content]
    for _ in range(40 if kind == "sqlite" else 12):
        path = paths[rng.integers(len(paths))]
        content = bytearray(whole[path])
        for offset in rng.integers(len(content), size=3):
            content[offset] ^= 1 << int(rng.integers(8))
        path.write_bytes(content)
        try:
            fresh = open_kind(kind, index)
            try:
                fresh.verify()
                state(fresh)
            finally:
                fresh.close()
        except StoreError:
            pass
        for name, before in whole.items():
            if not name.exists() or name.read_bytes() != before:
                name.write_bytes(before)
        for name in index.rglob("*"):
            if name.is_file() and name not in whole:
                name.unlink()
    fresh = open_kind(kind, index)
    assert state(fresh) == expected
    fresh.close()
