"""Test sources of documents, and opening them again."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pikepdf
import pytest

from tests.ingest.conftest import FirstWord
from visar.documents import Limits, ReadOptions
from visar.errors import DocumentError, EncryptedDocument
from visar.ingest.pipeline import add_document
from visar.ingest.sources import (
    SourcePool,
    file_source,
    open_source,
    source_path,
    source_text,
)
from visar.store import Store

MakePdf = Callable[..., Path]
UNLOCKED, WRONG = (ReadOptions(password=word) for word in ("sesame", "wrong"))


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that changes the host name, as on another computer."""
    return lambda name: monkeypatch.setattr(socket, "gethostname", lambda: name)


def test_documents_of_two_computers_do_not_replace_each_other(
    store: Store, make_pdf: MakePdf, host: Callable[[str], None]
) -> None:
    """Both computers have a different report.pdf at the same path, and share an index."""
    host("north")
    first = add_document(store, make_pdf("report.pdf", "Written in the north."), FirstWord())
    host("south")
    second = add_document(store, make_pdf("report.pdf", "Written in the south."), FirstWord())
    assert {document.id for document in store.documents()} == {first.id, second.id}
    # A computer only replaces its own document.
    third = add_document(store, make_pdf("report.pdf", "Rewritten."), FirstWord())
    assert {document.id for document in store.documents()} == {first.id, third.id}


def test_source_only_has_a_path_on_its_own_computer(
    tmp_path: Path, host: Callable[[str], None]
) -> None:
    host("North Star.local")
    path = tmp_path / "müller's 100% #1?.pdf"
    source = file_source(path)
    assert source.startswith("file://north-star.local")
    assert source.isascii()
    assert source_path(source) == path
    assert source_text(source) == str(path)
    host("south")
    assert source_path(source) is None
    assert source_text(source).startswith("north-star.local")
    assert source_text(source).endswith(f":{path}")


def test_names_with_invalid_unicode(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"report-\xff.pdf")
    source = file_source(path)
    assert source_path(source) == path
    assert source_text(source) == str(tmp_path / "report-?.pdf")
    source.encode("utf-8")


def test_sources_of_older_indexes(tmp_path: Path) -> None:
    assert source_path(str(tmp_path)) == tmp_path
    assert source_text(str(tmp_path)) == str(tmp_path)
    assert source_path("") is None
    assert source_text("") == ""


def test_open_source(store: Store, make_pdf: MakePdf) -> None:
    stored = add_document(store, make_pdf("a.pdf", "One.", "Two."), FirstWord())
    with open_source(stored) as document:
        assert document.id == stored.id
        assert document.image(2).size == (800, 1000)


def test_missing_file(store: Store, make_pdf: MakePdf) -> None:
    path = make_pdf("a.pdf", "One.")
    stored = add_document(store, path, FirstWord())
    path.unlink()
    with pytest.raises(DocumentError, match=rf"a\.pdf .*{path}"):
        open_source(stored)
    with pytest.raises(DocumentError, match=r"a\.pdf"):
        open_source(replace(stored, source=""))


def test_changed_file(store: Store, make_pdf: MakePdf) -> None:
    stored = add_document(store, make_pdf("a.pdf", "One."), FirstWord())
    make_pdf("a.pdf", "Two.")
    with pytest.raises(DocumentError, match=r"a\.pdf"):
        open_source(stored)


def test_file_of_another_computer(
    store: Store, make_pdf: MakePdf, host: Callable[[str], None]
) -> None:
    host("north")
    path = make_pdf("a.pdf", "One.")
    stored = add_document(store, path, FirstWord())
    host("south")
    # In a shared folder, the content shows that it is the same file.
    open_source(stored).close()
    make_pdf("a.pdf", "Two.")
    with pytest.raises(DocumentError, match=r"north.*south"):
        open_source(stored)
    path.unlink()
    with pytest.raises(DocumentError, match=r"north.*south"):
        open_source(stored)


def test_encrypted_file_needs_its_password_again(store: Store, make_pdf: MakePdf) -> None:
    path = make_pdf("a.pdf", "Secret words.")
    with pikepdf.open(path, allow_overwriting_input=True) as pdf:
        pdf.save(path, encryption=pikepdf.Encryption(user="sesame", owner="sesame"))
    stored = add_document(store, path, FirstWord(), options=UNLOCKED)
    with open_source(stored, UNLOCKED) as document:
        assert document.image(1).size == (800, 1000)
    with pytest.raises(EncryptedDocument, match=r"a\.pdf"):
        open_source(stored)
    with pytest.raises(EncryptedDocument, match=r"a\.pdf"):
        open_source(stored, WRONG)


def test_limits_are_raised_to_what_the_document_needs(store: Store, make_pdf: MakePdf) -> None:
    """A document added with higher limits can be opened with the default limits."""
    path = make_pdf("a.pdf", "One.", "Two.", "Three.")
    stored = add_document(store, path, FirstWord())
    with open_source(stored, ReadOptions(limits=Limits(max_pages=1, max_bytes=10))) as document:
        assert len(document) == 3


def test_pool_opens_each_source_once(store: Store, make_pdf: MakePdf) -> None:
    stored = add_document(store, make_pdf("a.pdf", "One.", "Two."), FirstWord())
    pool = SourcePool()
    with pool.lease(stored) as first, pool.lease(stored) as second:
        assert first is second
    with pool.lease(stored) as third:
        assert third is first
        assert third.image(2).size == (800, 1000)
    # Another password opens the document again.
    with pool.lease(stored, WRONG) as other:
        assert other is not first
    pool.close()
    with pytest.raises(DocumentError, match=r"\.pdf"):
        first.image(1)


def test_pool_closes_the_least_recently_used_source(store: Store, make_pdf: MakePdf) -> None:
    stored = [
        add_document(store, make_pdf(f"{name}.pdf", f"Page {name}."), FirstWord()) for name in "abc"
    ]
    pool = SourcePool(size=2)
    opened = []
    with pool.lease(stored[0]) as used:
        for document in stored[1:]:
            with pool.lease(document) as source:
                opened.append(source)
        # A source in use is never closed.
        used.image(1)
        with pytest.raises(DocumentError, match=r"\.pdf"):
            opened[0].image(1)
    opened[1].image(1)
    pool.close()


def test_pool_forgets_a_document_after_its_last_use(store: Store, make_pdf: MakePdf) -> None:
    stored = [
        add_document(store, make_pdf(f"{name}.pdf", f"Page {name}."), FirstWord()) for name in "ab"
    ]
    pool = SourcePool()
    with pool.lease(stored[0]) as first, pool.lease(stored[1]) as second:
        pool.forget(stored[0].id)
        assert pool.documents() == {stored[1].id}
        assert first.image(1).size == (800, 1000)
    with pytest.raises(DocumentError, match=r"\.pdf"):
        first.image(1)
    second.image(1)
    pool.forget(stored[1].id)
    with pytest.raises(DocumentError, match=r"\.pdf"):
        second.image(1)
    assert pool.documents() == set()


def test_pool_detects_a_change(store: Store, make_pdf: MakePdf) -> None:
    stored = add_document(store, make_pdf("a.pdf", "One."), FirstWord())
    pool = SourcePool()
    with pool.lease(stored) as source:
        source.image(1)
    make_pdf("a.pdf", "Two and more.")
    with (
        pytest.raises(DocumentError, match=r"a\.pdf"),
        pool.lease(stored),
    ):
        pass
    make_pdf("a.pdf", "One.")
    with pool.lease(stored) as source:
        source.image(1)
    pool.close()


def test_pool_opens_a_source_once_for_many_threads(store: Store, make_pdf: MakePdf) -> None:
    stored = add_document(store, make_pdf("a.pdf", "One.", "Two."), FirstWord())
    pool = SourcePool()

    def show(number: int) -> tuple[int, int]:
        with pool.lease(stored) as source:
            opened.add(id(source))
            return source.image(number).size

    opened: set[int] = set()
    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(show, [1, 2] * 8)) == {(800, 1000)}
    pool.close()
    assert len(opened) == 1


def test_source_changes_only_if_the_first_file_is_gone(
    store: Store, make_pdf: MakePdf, host: Callable[[str], None]
) -> None:
    host("north")
    first = make_pdf("first.pdf", "The same.")
    copy = first.with_name("copy.pdf")
    copy.write_bytes(first.read_bytes())
    add_document(store, first, FirstWord())
    same = add_document(store, copy, FirstWord())
    assert (same.name, source_path(same.source)) == ("first.pdf", first)
    # The first file has other content of the same size.
    first.write_bytes(copy.read_bytes().swapcase())
    moved = add_document(store, copy, FirstWord())
    assert (moved.name, source_path(moved.source)) == ("copy.pdf", copy)
    first.unlink()
    copy.rename(first)
    back = add_document(store, first, FirstWord())
    assert (back.name, source_path(back.source)) == ("first.pdf", first)
    # It can't be known whether a file on another computer exists, so the local one wins.
    host("south")
    here = add_document(store, first.rename(copy), FirstWord())
    assert (here.name, source_path(here.source)) == ("copy.pdf", copy)
    assert len(store.documents()) == 1
