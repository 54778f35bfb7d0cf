"""A file that has changed replaces its earlier version and keeps what people said about it."""

from __future__ import annotations

from tests.store.samples import TEXT, add, document, items, put
from visar.store import Store

SOURCE = "/files/report.pdf"


def test_a_changed_file_keeps_its_collections_and_metadata(store: Store) -> None:
    stated = {"title": "Report 2023", "kind": "report", "year": 2023}
    put(store, document("old", source=SOURCE, metadata=stated), TEXT, items("old", 3, TEXT))
    store.collect("finance", ["old"])
    store.collect("mine", ["old"])
    # The new version states another title, and nothing else.
    new = document("new", source=SOURCE, metadata={"title": "Report 2024"})
    put(store, new, TEXT, items("new", 3, TEXT))
    (found,) = store.documents()
    assert found.id == "new"
    assert found.metadata == {"title": "Report 2024", "kind": "report", "year": 2023}
    assert found.collections == ("finance", "mine")
    assert store.collections() == {"finance": 1, "mine": 1}
    assert store.verify() == []


def test_a_known_document_that_overwrites_another_file_keeps_both(store: Store) -> None:
    """The file at one place now has the content of a file that was at another place."""
    put(store, document("a", source="/a.pdf", metadata={"kind": "x"}), TEXT, items("a", 3, TEXT))
    stated = {"kind": "y", "year": 2020}
    put(store, document("b", source="/b.pdf", metadata=stated), TEXT, items("b", 3, TEXT))
    store.collect("of-a", ["a"])
    store.collect("of-b", ["b"])
    add(store, "a", source="/b.pdf")
    (found,) = store.documents()
    assert (found.id, found.source) == ("a", "/b.pdf")
    assert found.metadata == {"kind": "x", "year": 2020}
    assert found.collections == ("of-a", "of-b")
    # Once out of a collection, it is not put back by the next addition.
    store.uncollect("of-b")
    add(store, "a", source="/b.pdf")
    assert store.get("a").collections == ("of-a",)


def test_documents_without_a_place_replace_nothing(store: Store) -> None:
    put(store, document("a", source="", metadata={"year": 1}), TEXT, items("a", 3, TEXT))
    store.collect("mine", ["a"])
    put(store, document("b", source=""), TEXT, items("b", 3, TEXT))
    assert [(one.id, one.collections) for one in store.documents()] == [
        ("a", ("mine",)),
        ("b", ()),
    ]
    assert store.get("b").metadata == {}
