"""Small documents, and helpers to store and compare them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import numpy as np

from visar.documents.page import Block, Cell, Page, Word
from visar.encoders.encoder import PageEmbedding
from visar.results import Document, EncoderRef
from visar.store import Compaction, Store

TEXT = EncoderRef("text", "1", 8)
TEXT_2 = EncoderRef("text", "2", 8)
IMAGE = EncoderRef("image", "1", 4)

Kind = Literal["sqlite", "lance"]
KINDS: tuple[Kind, ...] = ("sqlite", "lance")
Item = tuple[Page, PageEmbedding]


def open_kind(kind: str, path: str | Path, *, create: bool = True) -> Store:
    """Open a store of a kind; both kinds work with a folder."""
    if kind == "sqlite":
        from visar.store.sqlite import SqliteStore

        return SqliteStore.open(path, create=create)
    from visar.store.lance.store import LanceStore

    return LanceStore.open(path, create=create)


def compact_now(store: Store) -> Compaction:
    """Compact an index that no other process is using.

    In object storage an addition counts as dead after an hour without a write. Here it counts as
    dead immediately.
    """
    if hasattr(store, "grace"):
        store.grace = timedelta(0)
    return store.compact()


def document(
    id_: str,
    pages: int = 3,
    source: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Document:
    source = f"/files/{id_}.pdf" if source is None else source
    return Document(
        id_, Path(source).name or id_, pages, 1000 * pages, source=source, metadata=metadata or {}
    )


def page(seed: str, number: int, words: int = 6) -> Page:
    rng = np.random.default_rng([number, *seed.encode()])
    # Boxes are stored in float32. Exact values allow comparing pages with ==.
    corners = rng.random((words, 4)).astype(np.float32).tolist()
    placed = tuple(
        Word(f"{seed}-{number}-wörd'{i}", (box[0], box[1], box[2], box[3]), i // 2)
        for i, box in enumerate(corners)
    )
    return Page(number, 595.5, 842.25, 90, placed, "ocr" if words else "none", "iv")


def with_layout(page: Page) -> Page:
    """Add blocks to a page: the first word is a heading, the others are cells of a table."""
    if not page.words:
        return replace(page, blocks=())
    rest = tuple(range(1, len(page.words)))
    cells = tuple(Cell((index,), index // 2, index % 2, 1 + index % 2) for index in rest)
    table = Block("table", rest, 9.5, heading=0, cells=cells, header_rows=1)
    return replace(page, blocks=(Block("heading", (0,), 12.0), table))


def embedding(seed: str, number: int, encoder: EncoderRef, words: int = 6) -> PageEmbedding:
    n = number + 2 if words else 0
    rng = np.random.default_rng([number, *f"{seed}{encoder}".encode()])
    vectors = rng.standard_normal((n, encoder.dimension))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return PageEmbedding(
        vectors.astype(np.float16),
        rng.random((n, 4)).astype(np.float32),
        rng.integers(-1, max(words, 1), n).astype(np.int32),
    )


def items(seed: str, pages: int, encoder: EncoderRef, numbers: Sequence[int] = ()) -> list[Item]:
    """Return the pages of a document; the second one is blank, without words and vectors."""
    result = []
    for number in numbers or range(1, pages + 1):
        words = 0 if number == 2 else 6
        result.append((page(seed, number, words), embedding(seed, number, encoder, words)))
    return result


def with_invalid_page(reason: str) -> list[Item]:
    """Return three pages; the third has no vectors because its encoder failed."""
    first, second, (third, _) = items("a", 3, TEXT)
    empty = replace(embedding("a", 3, TEXT, 0), invalid=reason)
    return [first, second, (third, empty)]


def put(
    store: Store,
    new: Document,
    encoder: EncoderRef,
    pages: Iterable[Item],
    original: Path | None = None,
) -> Document:
    """Add a document; put those of these pages that aren't written yet."""
    with store.adding(new, encoder, original) as addition:
        if addition.stored is None:
            for item in pages:
                if item[0].number not in addition.written:
                    addition.put(*item)
        return addition.commit()


def add(
    store: Store,
    id_: str,
    encoder: EncoderRef = TEXT,
    source: str | None = None,
    original: Path | None = None,
) -> Document:
    """Add a document of three pages."""
    return put(store, document(id_, source=source), encoder, items(id_, 3, encoder), original)


def interrupt(
    store: Store, id_: str, numbers: Sequence[int], encoder: EncoderRef = TEXT, pages: int = 3
) -> None:
    """Start adding a document, and stop after these pages."""
    with store.adding(document(id_, pages), encoder) as addition:
        for item in items(id_, pages, encoder, numbers):
            addition.put(*item)


def unfinished(store: Store, id_: str, encoder: EncoderRef = TEXT, pages: int = 3) -> set[int]:
    """Return the pages that an interrupted addition wrote."""
    with store.adding(document(id_, pages), encoder) as addition:
        return set(addition.written)


State = dict[str, object]


def state(store: Store) -> State:
    """Return all data of every document, for comparison with ==."""
    return {stored.id: state_of(store, stored) for stored in store.documents()}


def without_blocks(store: Store) -> State:
    """Return all data of every document except blocks."""
    return {stored.id: state_of(store, stored, blocks=False) for stored in store.documents()}


def state_of(store: Store, stored: Document, *, blocks: bool = True) -> object:
    """Return all data of a document, with or without the blocks of its pages."""
    pages = store.pages(stored.id)
    if not blocks:
        pages = tuple(replace(page, blocks=None) for page in pages)
    vectors = [store.vectors(stored.id, encoder) for encoder in stored.encoders]
    arrays = [(v.vectors, v.offsets, v.boxes, v.words) for v in vectors]
    content = [[(a.shape, a.tobytes()) for a in each] for each in arrays]
    facts = stored.name, stored.source, stored.pages, stored.size, stored.encoders
    more = stored.invalid, dict(stored.metadata), stored.collections
    path = store.original(stored.id)
    original = path and sorted(
        (file.relative_to(path).as_posix(), file.read_bytes())
        for file in ([path] if path.is_file() else path.rglob("*"))
        if file.is_file()
    )
    return facts, more, original, pages, content


def damage(store: Store) -> list[str]:
    """Return the problems that aren't orphans."""
    return [str(problem) for problem in store.verify() if problem.kind != "orphan"]
