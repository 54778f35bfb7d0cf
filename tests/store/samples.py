"""Small documents to store, and what a store says of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from visar.documents.page import Page, Word
from visar.encoders.protocol import PageEmbedding
from visar.store import EncoderRef, NewDocument, Store

TEXT = EncoderRef("text", "1", 8)
TEXT_2 = EncoderRef("text", "2", 8)
IMAGE = EncoderRef("image", "1", 4)

Item = tuple[Page, PageEmbedding]


def document(id_: str, pages: int = 3, source: str | None = None) -> NewDocument:
    place = f"/files/{id_}.pdf" if source is None else source
    return NewDocument(id_, Path(place).name or id_, place, pages, 1000 * pages)


def page(seed: str, number: int, words: int = 6) -> Page:
    rng = np.random.default_rng([number, *seed.encode()])
    # Exact in float32, as boxes are stored, so that pages can be compared with ==.
    corners = rng.random((words, 4)).astype(np.float32).tolist()
    placed = tuple(
        Word(f"{seed}-{number}-wörd'{i}", (box[0], box[1], box[2], box[3]), i // 2)
        for i, box in enumerate(corners)
    )
    return Page(number, 595.5, 842.25, 90, placed, "ocr" if words else "none")


def embedding(seed: str, number: int, encoder: EncoderRef, words: int = 6) -> PageEmbedding:
    n = number + 2 if words else 0
    rng = np.random.default_rng([number, *f"{seed}{encoder}".encode()])
    return PageEmbedding(
        rng.standard_normal((n, encoder.dimension)).astype(np.float16),
        rng.random((n, 4)).astype(np.float32),
        rng.integers(-1, max(words, 1), n).astype(np.int32),
    )


def items(seed: str, pages: int, encoder: EncoderRef, numbers: Sequence[int] = ()) -> list[Item]:
    """The pages of a document; the second one is blank: no words, no vectors."""
    made = []
    for number in numbers or range(1, pages + 1):
        words = 0 if number == 2 else 6
        made.append((page(seed, number, words), embedding(seed, number, encoder, words)))
    return made


def add(store: Store, id_: str, encoder: EncoderRef = TEXT, source: str | None = None) -> None:
    store.add(document(id_, source=source), encoder, items(id_, 3, encoder))


def untouchable() -> Iterator[Item]:
    raise AssertionError("nothing should be asked for")
    yield


State = dict[str, object]


def state(store: Store) -> State:
    """Everything the store gives of every document, to be compared with ==."""
    seen: State = {}
    for stored in store.documents():
        vectors = [store.vectors(stored.id, encoder) for encoder in stored.encoders]
        arrays = [(v.vectors, v.offsets, v.boxes, v.words) for v in vectors]
        content = [[(a.shape, a.tobytes()) for a in each] for each in arrays]
        facts = stored.name, stored.source, stored.pages, stored.size, stored.encoders
        seen[stored.id] = facts, store.pages(stored.id), content
    return seen
