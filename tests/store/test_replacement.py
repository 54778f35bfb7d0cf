"""Test that a changed file replaces its old version and inherits its metadata and collections."""

from __future__ import annotations

from tests.store.samples import TEXT, add, document, items, put
from visar.store import Store

SOURCE = "/files/report.pdf"


def test_changed_file_keeps_its_collections_and_metadata(store: Store) -> None:
    metadata = {"title": "Report 2023", "kind": "report", "year": 2023}
    put(store, document("old", source=SOURCE, metadata=metadata), TEXT, items("old", 3, TEXT))
    store.collect("finance", ["old"])
    store.collect("mine", ["old"])
    # The new version only has another title.
    new = document("new", source=SOURCE, metadata={"title": "Report 2024"})
    put(store, new, TEXT, items("new", 3, TEXT))
    (stored,) = store.documents()
    assert stored.id == "new"
    assert stored.metadata == {"title": "Report 2024", "kind": "report", "year": 2023}
    assert stored.collections == ("finance", "mine")
    assert store.collections() == {"finance": 1, "mine": 1}
    assert store.verify() == []


def test_stored_document_that_overwrites_another_file_inherits_from_both(store: Store) -> None:
    """A file is overwritten with the content of another stored file."""
    put(store, document("a", source="/a.pdf", metadata={"kind": "x"}), TEXT, items("a", 3, TEXT))
    metadata = {"kind": "y", "year": 2020}
    put(store, document("b", source="/b.pdf", metadata=metadata), TEXT, items("b", 3, TEXT))
    store.collect("of-a", ["a"])
    store.collect("of-b", ["b"])
    add(store, "a", source="/b.pdf")
    (stored,) = store.documents()
    assert (stored.id, stored.source) == ("a", "/b.pdf")
    assert stored.metadata == {"kind": "x", "year": 2020}
    assert stored.collections == ("of-a", "of-b")
    # A later addition doesn't add it to the collection again.
    store.uncollect("of-b")
    add(store, "a", source="/b.pdf")
    assert store.get("a").collections == ("of-a",)


def test_documents_without_a_source_replace_nothing(store: Store) -> None:
    put(store, document("a", source="", metadata={"year": 1}), TEXT, items("a", 3, TEXT))
    store.collect("mine", ["a"])
    put(store, document("b", source=""), TEXT, items("b", 3, TEXT))
    assert [(one.id, one.collections) for one in store.documents()] == [
        ("a", ("mine",)),
        ("b", ()),
    ]
    assert store.get("b").metadata == {}
