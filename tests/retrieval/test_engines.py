"""One contract for all that find candidates: summaries, LanceDB and Qdrant.

``VISAR_QDRANT_URL`` names a cluster that is tested in place of the local mode of Qdrant's client.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.retrieval.words import ENCODER, add_texts, asking, texts
from tests.storage import free_port
from visar.errors import InvalidOption
from visar.index import Index
from visar.results import Document, EncoderRef
from visar.retrieval import engines, search
from visar.retrieval.candidates import (
    ENGINE_VARIABLE,
    Candidate,
    CandidateIndex,
    PageSummaries,
    document_key,
)
from visar.retrieval.engines import LanceCandidates, QdrantCandidates, collection_name
from visar.store import DocumentVectors
from visar.store.sqlite import SqliteStore

# In the local mode of its client.
pytestmark = pytest.mark.filterwarnings("ignore:Payload indexes have no effect:UserWarning")
DIMENSION, PAGES, VECTORS = 16, 6, 12
NOW = datetime(2026, 1, 1, tzinfo=UTC)
Open = Callable[[], CandidateIndex]


@pytest.fixture
def encoder() -> EncoderRef:
    """Return an encoder with a unique name, so that tests on a cluster don't interfere."""
    return EncoderRef("test", uuid4().hex, DIMENSION)


@pytest.fixture(params=["summaries", "lance", "qdrant"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path, encoder: EncoderRef) -> Iterator[Open]:
    """Return a function that opens the same index on each call."""
    if request.param == "summaries":
        yield lambda: PageSummaries(tmp_path / "summaries", DIMENSION)
    elif request.param == "lance":
        pytest.importorskip("lancedb")
        yield lambda: LanceCandidates(str(tmp_path / "lance"), encoder)
    else:
        qdrant = pytest.importorskip("qdrant_client")
        url = os.environ.get("VISAR_QDRANT_URL")
        client = qdrant.QdrantClient(url=url) if url else qdrant.QdrantClient(":memory:")
        yield lambda: QdrantCandidates(client, encoder)
        client.delete_collection(collection_name(encoder))
        client.close()


def stored(name: str, added: datetime = NOW) -> Document:
    return Document(name, f"{name}.pdf", PAGES, 1, added, ())


def unit(rng: np.random.Generator, count: int) -> NDArray[np.float32]:
    made = rng.standard_normal((count, DIMENSION)).astype(np.float32)
    return np.asarray(made / np.linalg.norm(made, axis=1, keepdims=True))


def vectors_of(name: str, empty: tuple[int, ...] = ()) -> DocumentVectors:
    """Return vectors of pages, each close to its own direction."""
    rng = np.random.default_rng(sum(name.encode()))
    pages = []
    for number in range(1, PAGES + 1):
        topic = topic_of(name, number)
        page = topic + 0.1 * unit(rng, 0 if number in empty else VECTORS)
        pages.append(page / np.linalg.norm(page, axis=1, keepdims=True))
    lengths = [len(page) for page in pages]
    total = sum(lengths)
    return DocumentVectors(
        np.concatenate(pages).astype(np.float16),
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.zeros((total, 4), np.float32),
        np.zeros(total, np.int32),
    )


def topic_of(name: str, page: int) -> NDArray[np.float32]:
    return unit(np.random.default_rng([sum(name.encode()), page]), 1)


def find(index: CandidateIndex, about: tuple[str, int], n: int, *names: str) -> list[Candidate]:
    return index.candidates(topic_of(*about), n, [stored(name) for name in names])


def fill(index: CandidateIndex, *names: str, **options: Any) -> None:
    for name in names:
        index.add(stored(name), lambda name=name: vectors_of(name, **options))  # type: ignore[misc]


def test_pages_are_found(reopen: Open) -> None:
    index = reopen()
    fill(index, "a", "b", "c")
    for about in (("a", 1), ("b", 4), ("c", PAGES)):
        found = find(index, about, 5, "a", "b", "c")
        assert (found[0].document, found[0].page) == about
        assert len(found) == len({one[:2] for one in found}) == 5
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)


def test_only_the_given_documents_are_searched(reopen: Open) -> None:
    index = reopen()
    fill(index, "a", "b", "c")
    found = find(index, ("a", 1), 100, "b", "c")
    assert {one.document for one in found} == {"b", "c"}
    assert len(found) == 2 * PAGES
    assert find(index, ("a", 1), 5, "unknown") == find(index, ("a", 1), 5) == []


def test_an_empty_index_finds_nothing(reopen: Open) -> None:
    index = reopen()
    assert index.known() == set()
    assert find(index, ("a", 1), 5, "a") == []


def test_pages_without_vectors_are_not_found(reopen: Open) -> None:
    index = reopen()
    fill(index, "a", empty=(2, 5))
    assert {one.page for one in find(index, ("a", 2), 100, "a")} == {1, 3, 4, 6}
    index.add(stored("b"), lambda: vectors_of("b", tuple(range(1, PAGES + 1))))
    assert index.known() == {document_key(stored("a")), document_key(stored("b"))}
    assert {one.document for one in find(index, ("b", 1), 100, "a", "b")} == {"a"}


def test_removed_documents_are_not_found(reopen: Open) -> None:
    index = reopen()
    fill(index, "a", "b")
    index.remove([document_key(stored("a")), "nobody"])
    assert index.known() == {document_key(stored("b"))}
    assert {one.document for one in find(index, ("a", 1), 100, "a", "b")} == {"b"}


def test_a_document_that_was_added_again_has_a_new_key(reopen: Open) -> None:
    index = reopen()
    fill(index, "a")
    later = stored("a", NOW + timedelta(seconds=1))
    assert index.candidates(topic_of("a", 1), 5, [later]) == []
    index.remove(index.known())
    index.add(later, lambda: vectors_of("a"))
    assert index.candidates(topic_of("a", 1), 5, [later])[0].page == 1


def test_adding_a_document_twice_does_not_duplicate_pages(reopen: Open) -> None:
    index = reopen()
    fill(index, "a", "a")
    assert len(find(index, ("a", 1), 100, "a")) == PAGES


def test_stored_documents_are_not_read_again(reopen: Open) -> None:
    fill(reopen(), "a", "b")
    index = reopen()

    def refuse() -> DocumentVectors:
        raise AssertionError("the vectors were read again")

    for name in ("a", "b"):
        if document_key(stored(name)) not in index.known():
            index.add(stored(name), refuse)
    assert find(index, ("b", 3), 1, "a", "b")[0][:2] == ("b", 3)


def test_a_document_added_by_two_processes_is_found_once(reopen: Open) -> None:
    first, second = reopen(), reopen()
    for index in (first, second):
        fill(index, "a", "b")
    for index in (first, second):
        pages = [one[:2] for one in find(index, ("a", 1), 100, "a", "b")]
        assert len(pages) == len(set(pages)) == 2 * PAGES


def test_results_of_a_lance_index_are_rescored(
    tmp_path: Path, encoder: EncoderRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lancedb")
    monkeypatch.setattr(engines, "MIN_INDEXED", 50 * PAGES)
    index = LanceCandidates(str(tmp_path / "lance"), encoder)
    names = [f"document-{chr(ord('a') + number % 26) * (1 + number // 26)}" for number in range(50)]
    fill(index, *names)
    assert index._table.list_indices()
    for about in ((names[7], 2), (names[31], 5)):
        assert about in {one[:2] for one in find(index, about, 10, *names)}


def test_a_library_can_be_searched_with_another_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lancedb")
    store = SqliteStore.open(tmp_path / "index")
    for number in range(4):
        add_texts(store, f"{number}.pdf", texts(number, 8))
    monkeypatch.setattr(search, "MAX_SCANNED", 10)
    monkeypatch.setattr(search, "CANDIDATES", 6)
    expected = Index(store).search(asking(3, 5), encoder=ENCODER)
    monkeypatch.setenv(ENGINE_VARIABLE, str(tmp_path / "engine"))
    found = Index(store).search(asking(3, 5), encoder=ENCODER)
    assert [(hit.document, hit.page) for hit in found.pages] == [
        (hit.document, hit.page) for hit in expected.pages
    ]
    assert (tmp_path / "engine").is_dir()
    pytest.importorskip("qdrant_client")
    monkeypatch.setenv(ENGINE_VARIABLE, f"http://127.0.0.1:{free_port()}")
    with pytest.raises(InvalidOption, match="VISAR_CANDIDATES=http://"):
        Index(store).search(asking(3, 5), encoder=ENCODER)
