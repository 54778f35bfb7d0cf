"""Test that reading pages without blocks finds the blocks, and saves them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pikepdf
import pytest

from tests.store.previous_format import downgrade
from visar.documents import Page, ReadOptions, open_document
from visar.documents.blocks import lay_out
from visar.index import Index
from visar.results import Document
from visar.store import open_store
from visar.store.sqlite import SqliteStore

MakePdf = Callable[..., Path]
TEXTS = (
    "Cats\nThe cat sleeps on the sofa all day.",
    "Boats need wind.",
    "The tax is due in April.",
)
UNLOCKED = ReadOptions(password="sesame")  # noqa: S106


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "index"


@pytest.fixture
def pdf(make_pdf: MakePdf) -> Path:
    return make_pdf("a.pdf", *TEXTS)


def write_older_index(folder: Path, path: Path, options: ReadOptions | None = None) -> Document:
    """Write an index of the previous format with one document."""
    with Index.open(folder, options=options) as index:
        stored = index.add(path)
    downgrade("sqlite", folder)
    return stored


@pytest.fixture
def stored(folder: Path, pdf: Path) -> Document:
    return write_older_index(folder, pdf)


@pytest.fixture
def index(folder: Path, stored: Document) -> Iterator[Index]:
    with Index.open(folder) as index:
        assert index.documents() == [stored]
        yield index


def stored_pages(folder: Path, document: Document) -> tuple[Page, ...]:
    """Return the stored pages."""
    store = open_store(folder)
    pages = store.pages(document.id)
    store.close()
    return pages


def read_file(path: Path, options: ReadOptions | None = None) -> tuple[Page, ...]:
    with open_document(path, options or ReadOptions()) as opened:
        return tuple(opened.pages())


def from_words(pages: tuple[Page, ...]) -> tuple[Page, ...]:
    return tuple(lay_out(page) for page in pages)


def test_blocks_come_from_the_original(
    folder: Path, pdf: Path, stored: Document, index: Index
) -> None:
    assert [page.blocks for page in stored_pages(folder, stored)] == [None] * 3
    second = index.page(stored.id, 2)
    fresh = read_file(pdf)
    assert second.blocks == fresh[1].blocks
    # Only the requested page has blocks.
    assert [page.blocks for page in stored_pages(folder, stored)] == [None, second.blocks, None]
    assert [page.blocks for page in index.pages(stored.id)] == [page.blocks for page in fresh]
    assert stored_pages(folder, stored) == index.pages(stored.id)
    # The file has exact font sizes, which boxes only approximate.
    assert [page.blocks for page in from_words(fresh)] != [page.blocks for page in fresh]
    assert index.verify() == []


def test_question_finds_blocks_of_the_pages_it_reads(
    folder: Path, stored: Document, index: Index
) -> None:
    vectors = {path.name: path.read_bytes() for path in (folder / "vectors").iterdir()}
    found = index.search("What do boats need?", method="top-k", k=1)
    read = {hit.page for hit in found.pages} | {found.runner_up.page if found.runner_up else 0}
    laid_out = {page.number for page in stored_pages(folder, stored) if page.blocks is not None}
    assert {2} <= laid_out <= read
    assert len(laid_out) < stored.pages
    assert {path.name: path.read_bytes() for path in (folder / "vectors").iterdir()} == vectors
    assert index.documents() == [stored]
    assert index.verify() == []


def test_missing_original(folder: Path, pdf: Path, stored: Document, index: Index) -> None:
    bare = stored_pages(folder, stored)
    pdf.unlink()
    original = index.original(stored.id)
    assert original is not None
    original.unlink()
    assert index.pages(stored.id) == from_words(bare) == stored_pages(folder, stored)


def test_damaged_original(folder: Path, pdf: Path, stored: Document, index: Index) -> None:
    bare = stored_pages(folder, stored)
    original = index.original(stored.id)
    assert original is not None
    original.write_bytes(pdf.read_bytes()[:300])
    assert index.pages(stored.id) == from_words(bare)


def test_encrypted_original(folder: Path, pdf: Path) -> None:
    with pikepdf.open(pdf, allow_overwriting_input=True) as opened:
        opened.save(pdf, encryption=pikepdf.Encryption(user="sesame", owner="sesame"))
    stored = write_older_index(folder, pdf, UNLOCKED)
    bare = stored_pages(folder, stored)
    with Index.open(folder) as index:
        assert index.page(stored.id, 1) == lay_out(bare[0])
        index.unlock(stored.id, "sesame")
        assert index.page(stored.id, 2).blocks == read_file(pdf, UNLOCKED)[1].blocks


def change_page(folder: Path, stored: Document, page: Page) -> None:
    """Store another first page for a document, without blocks."""
    from visar.encoders.encoder import PageEmbedding

    store = open_store(folder)
    (encoder,) = stored.encoders
    pages = [page, *store.pages(stored.id)[1:]]
    vectors = [store.embeddings([(stored.id, p.number)], encoder)[0] for p in pages]
    copies = [PageEmbedding(v.vectors.copy(), v.boxes.copy(), v.words.copy()) for v in vectors]
    original = store.original(stored.id)
    assert original is not None
    kept_file = original.with_name("kept.pdf")
    kept_file.write_bytes(original.read_bytes())
    store.remove(stored.id)
    with store.adding(stored, encoder, kept_file) as addition:
        for one, embedding in zip(pages, copies, strict=True):
            addition.put(one, embedding)
        addition.commit()
    kept_file.unlink()
    store.close()


def test_stored_words_win_over_words_of_the_file(folder: Path, stored: Document) -> None:
    first = stored_pages(folder, stored)[0]
    words = (replace(first.words[0], text="Katzen"), *first.words[1:])
    other = replace(first, words=words)
    change_page(folder, stored, other)
    with Index.open(folder) as index:
        found = index.pages(stored.id)
        assert found[0] == lay_out(other)
        assert found[0].words == words
        assert found == stored_pages(folder, stored)
        assert index.verify() == []


def test_pages_with_ocr_are_not_read_again(folder: Path, pdf: Path, stored: Document) -> None:
    # The file has the same words. If it was read, the blocks would have its font sizes.
    scanned = replace(stored_pages(folder, stored)[0], text_source="ocr")
    change_page(folder, stored, scanned)
    with Index.open(folder) as index:
        assert index.page(stored.id, 1) == lay_out(scanned)
        assert index.page(stored.id, 1).blocks != read_file(pdf)[0].blocks


def test_read_only_index(folder: Path, pdf: Path, stored: Document, index: Index) -> None:
    assert isinstance(index._store, SqliteStore)
    index._store._connection.execute("PRAGMA query_only = ON")
    fresh = read_file(pdf)
    for _ in range(2):
        assert [page.blocks for page in index.pages(stored.id)] == [page.blocks for page in fresh]
    assert index.search("What do boats need?").pages[0].page == 2
    assert [page.blocks for page in stored_pages(folder, stored)] == [None] * 3
