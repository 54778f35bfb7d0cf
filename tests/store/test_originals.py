"""Test that both stores save the original files of documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store.samples import IMAGE, TEXT_2, add, open_kind, state
from visar.errors import StoreError
from visar.store import Store


def test_original_is_stored(store: Store, tmp_path: Path, kind: str) -> None:
    file = tmp_path / "file.pdf"
    file.write_bytes(bytes(range(256)) * 100)
    folder = tmp_path / "scans"
    (folder / "more").mkdir(parents=True)
    (folder / "1.png").write_bytes(b"one")
    (folder / "more" / "empty.png").write_bytes(b"")
    add(store, "a", original=file)
    add(store, "b", original=folder)
    add(store, "c")
    before = state(store)
    file.unlink()
    for each in (store, open_kind(kind, store.location)):
        kept, scans = each.original("a"), each.original("b")
        assert kept is not None
        assert scans is not None
        assert kept.read_bytes() == bytes(range(256)) * 100
        assert (scans / "1.png").read_bytes() == b"one"
        assert (scans / "more" / "empty.png").read_bytes() == b""
        assert each.original("c") is None
    store.compact()
    assert state(store) == before
    assert store.verify() == []
    each.close()


def test_original_can_be_added_with_another_encoder(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "file.pdf"
    file.write_bytes(b"content")
    add(store, "a")
    add(store, "a", IMAGE, original=file)
    kept = store.original("a")
    assert kept is not None
    assert kept.read_bytes() == b"content"
    add(store, "a", TEXT_2, original=file)
    assert store.verify() == []


def test_original_is_deleted_with_its_document(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "file.pdf"
    file.write_bytes(b"content")
    add(store, "a", original=file)
    add(store, "old", source="/files/x.pdf", original=file)
    store.remove("a")
    add(store, "new", source="/files/x.pdf")
    assert store.original("new") is None
    assert store.verify() == []
    add(store, "a")
    assert store.original("a") is None


def test_missing_original(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"missing\.pdf"):
        add(store, "a", original=tmp_path / "missing.pdf")
    assert store.documents() == []
    add(store, "a")
