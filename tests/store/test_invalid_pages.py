"""Pages an encoder failed on: the reason is kept, through interruptions and in older indexes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.store.samples import TEXT, TEXT_2, Item, document, items, state
from visar.encoders.protocol import PageEmbedding
from visar.errors import InvalidVectors
from visar.store import InvalidPage, Store, tables

REASON = 'no "numbers", äh'
EXPECTED = (InvalidPage("text", 3, REASON),)


def with_invalid_page() -> list[Item]:
    """Three pages, the third without vectors because its encoder failed."""
    first, second, (page, _) = items("a", 3, TEXT)
    nothing = PageEmbedding(
        np.zeros((0, 8), np.float16),
        np.zeros((0, 4), np.float32),
        np.zeros(0, np.int32),
        invalid=REASON,
    )
    return [first, second, (page, nothing)]


def test_the_reason_is_kept_and_goes_with_the_vectors(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "index")
    added = store.add(document("a"), TEXT, with_invalid_page())
    assert added.invalid == Store.open(tmp_path / "index").get("a").invalid == EXPECTED
    assert store.vectors("a", TEXT).offsets.tolist() == [0, 3, 3, 3]
    assert not store.verify()
    store.add(document("a"), TEXT_2, items("a", 3, TEXT_2))
    assert store.get("a").invalid == ()


def test_the_reason_survives_an_interruption(tmp_path: Path) -> None:
    first, second, third = with_invalid_page()

    def interrupted() -> Any:
        yield third
        yield first
        raise KeyboardInterrupt

    store = Store.open(tmp_path / "index")
    with pytest.raises(KeyboardInterrupt):
        store.add(document("a"), TEXT, interrupted())
    assert store.unfinished("a", TEXT) == {1, 3}
    assert store.add(document("a"), TEXT, [second]).invalid == EXPECTED


def test_an_index_from_before_is_read_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow as pa

    schemas = tables._schemas()
    older = {
        name: pa.schema([f for f in schema if f.name != "invalid"], metadata=schema.metadata)
        for name, schema in schemas.items()
    }
    with monkeypatch.context() as before:
        before.setattr(tables, "_schemas", lambda: older)
        store = Store.open(tmp_path / "index")
        store.add(document("b"), TEXT, items("b", 3, TEXT))
        old = state(store)
    store = Store.open(tmp_path / "index")
    assert state(store) == old
    store.add(document("c"), TEXT, items("c", 3, TEXT))
    assert store.get("c").invalid == ()
    beside = Store.open(tmp_path / "index")
    assert store.add(document("a"), TEXT, with_invalid_page()).invalid == EXPECTED
    assert beside.get("a").invalid == EXPECTED
    assert state(beside)["b"] == old["b"]
    assert not store.verify()


def test_an_invalid_page_has_no_vectors(tmp_path: Path) -> None:
    (page, embedding), *_ = items("a", 3, TEXT)
    both = PageEmbedding(embedding.vectors, embedding.boxes, embedding.words, invalid=REASON)
    with pytest.raises(InvalidVectors, match="page 1 is invalid and has 3 vectors"):
        Store.open(tmp_path / "index").add(document("a"), TEXT, [(page, both)])
