"""Tests of searches in many documents: candidates, scores and reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.retrieval.words import ENCODER, add_texts, asking, texts
from visar.core import PageVectors, maxsim, select
from visar.core.vectors import Block
from visar.errors import InvalidVectors, NotInIndex
from visar.index import Index
from visar.results import Document, EncoderRef, SearchResult
from visar.retrieval import candidates, search
from visar.retrieval.candidates import PageSummaries, document_key
from visar.store import DocumentVectors
from visar.store.database import SUMMARIES
from visar.store.sqlite import SqliteStore
from visar.trace import PageId

REFERENCE = EncoderRef.of(ENCODER)
DOCUMENTS, PAGES = 10, 8
_NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    store = SqliteStore.open(tmp_path / "index")
    for number in range(DOCUMENTS):
        kind = "report" if number % 2 else "letter"
        add_texts(store, f"{number}.pdf", texts(number, PAGES), year=2015 + number, kind=kind)
    return store


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limits, so that 80 pages go through the same stages as thousands."""
    monkeypatch.setattr(search, "MAX_SCANNED", 10)
    monkeypatch.setattr(search, "CANDIDATES", 6)
    monkeypatch.setattr(candidates, "CODED", 40)
    monkeypatch.setattr(candidates, "CODED_ROOT", 1)


def page_ids_of(found: SearchResult) -> list[PageId]:
    return [(hit.document, hit.page) for hit in found.pages]


def searched(found: SearchResult) -> tuple[PageId, ...]:
    """Return the pages that the method chose from."""
    assert found.trace is not None
    return found.trace.pages


@pytest.mark.usefixtures("small_limits")
def test_candidates_are_compared_with_the_question_once(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[int] = []
    blocks = PageVectors.blocks

    def counting(pages: PageVectors) -> Iterator[Block]:
        for block in blocks(pages):
            compared.extend(block.pages.tolist())
            yield block

    monkeypatch.setattr(PageVectors, "blocks", counting)
    found = Index(store).search(asking(3, 5), encoder=ENCODER)
    # The method then chooses among six of them, from the same products.
    assert found.candidates == 6 < len(compared)
    assert sorted(compared) == list(range(len(compared)))


@pytest.mark.usefixtures("small_limits")
def test_the_page_is_found_in_all_documents(store: SqliteStore) -> None:
    index = Index(store)
    for document, page in ((3, 5), (0, 1), (9, 8)):
        question = asking(document, page)
        found = index.search(question, encoder=ENCODER)
        assert page_ids_of(found)[0] == (f"id-{document}.pdf", page)
        assert (found.pages_searched, found.candidates) == (DOCUMENTS * PAGES, 6)
        assert len(searched(found)) == len(found.selection.ranking) == 6
        exact = index.search(question, encoder=ENCODER, exact=True)
        assert page_ids_of(exact) == page_ids_of(found)
        assert exact.candidates == 6


@pytest.mark.usefixtures("small_limits")
def test_the_method_sees_the_best_pages_by_late_interaction(store: SqliteStore) -> None:
    """Both a scan and summaries lead to the same pages."""
    question = asking(3, 5)
    query = ENCODER.encode_query(question)
    every: dict[tuple[str, int], float] = {}
    for document in store.documents():
        vectors = store.vectors(document.id, REFERENCE)
        scores = maxsim(query, vectors.vectors, offsets=vectors.offsets)
        every |= {(document.id, n): score for n, score in enumerate(scores, start=1)}
    best = sorted(every, key=lambda place: -every[place])[:6]
    found = Index(store).search(question, encoder=ENCODER, exact=True)
    assert set(searched(found)) == set(best)
    assert found.selection.late_interaction == pytest.approx(
        [every[page] for page in searched(found)]
    )


@pytest.mark.usefixtures("small_limits")
def test_all_pages_of_a_single_document_are_compared(store: SqliteStore) -> None:
    add_texts(store, "long.pdf", texts(77, 60))
    found = Index(store).search(asking(77, 30), documents=["long.pdf"], encoder=ENCODER)
    assert found.candidates is None
    assert searched(found) == tuple(("id-long.pdf", n) for n in range(1, 61))
    assert found.trace is not None
    vectors = store.vectors("id-long.pdf", REFERENCE)
    expected = select(found.trace.question, vectors.vectors, offsets=vectors.offsets)
    assert found.selection.ranking.tolist() == expected.ranking.tolist()
    np.testing.assert_array_equal(found.selection.cost, expected.cost)
    assert [hit.page for hit in found.pages] == [int(page) + 1 for page in expected.pages]


@pytest.mark.usefixtures("small_limits")
def test_explanations_and_patches_work_on_candidates(store: SqliteStore) -> None:
    index = Index(store)
    found = index.search(asking(3, 5), encoder=ENCODER, neighbors=1)
    assert page_ids_of(found)[0] == ("id-3.pdf", 5)
    assert {("id-3.pdf", 4), ("id-3.pdf", 6)} <= set(page_ids_of(found))
    explained = index.explain(found)
    assert [(page.document, page.page) for page in explained.pages] == list(searched(found))
    best = max(explained.pages, key=lambda page: page.activity)
    assert (best.document, best.page) == ("id-3.pdf", 5)
    patches = index.patches(found, "id-3.pdf", 5)
    assert np.shape(patches.cosines) == (3, len(patches.boxes))
    assert max(patches.weights) > 0
    # A page that was only searched for has its cosines, and no weights.
    other = next(n for n in range(1, PAGES + 1) if ("id-0.pdf", n) not in searched(found))
    patches = index.patches(found, "id-0.pdf", other)
    assert not any(patches.weights)
    assert np.any(patches.cosines)
    with pytest.raises(NotInIndex, match=r"\bPage \d"):
        index.patches(found, "id-9.pdf", 99)
    answer = index.ask(asking(3, 5), encoder=ENCODER)
    assert answer.passages[0].document == "id-3.pdf"


@pytest.mark.usefixtures("small_limits")
def test_top_k_can_exceed_the_number_of_candidates(store: SqliteStore) -> None:
    found = Index(store).search("word1 word2", encoder=ENCODER, method="top-k", k=20)
    assert len(found.pages) == 20


def test_all_pages_of_a_small_library_are_compared(store: SqliteStore) -> None:
    found = Index(store).search(asking(3, 5), encoder=ENCODER)
    assert found.candidates == search.CANDIDATES
    assert page_ids_of(found)[0] == ("id-3.pdf", 5)
    assert not (store.folder / SUMMARIES).exists()


@pytest.mark.usefixtures("small_limits")
def test_filters_and_collections_limit_the_search(store: SqliteStore) -> None:
    index = Index(store)
    index.collect("mine", ["2.pdf", "3.pdf"])
    of_3 = asking(3, 5)
    where = 'year >= 2017 and kind = "report"'
    found = index.search(of_3, encoder=ENCODER, where=where)
    assert {document.name for document in found.documents} == {f"{n}.pdf" for n in (3, 5, 7, 9)}
    assert page_ids_of(found)[0] == ("id-3.pdf", 5)
    others = searched(index.search(of_3, encoder=ENCODER, where="year != 2018"))
    assert {document for document, _ in others} <= {f"id-{n}.pdf" for n in range(10) if n != 3}
    both = index.search(of_3, encoder=ENCODER, where=where, collection="mine")
    assert [document.name for document in both.documents] == ["3.pdf"]
    assert both.candidates is None
    names = [document.name for document in index.documents(where=where, collection="mine")]
    assert names == ["3.pdf"]
    with pytest.raises(NotInIndex, match=r"'other'.*mine"):
        index.search(of_3, encoder=ENCODER, collection="other")
    with pytest.raises(NotInIndex, match=r"\b10\b"):
        index.search(of_3, encoder=ENCODER, where="year > 3000")


@pytest.mark.usefixtures("small_limits")
def test_new_documents_are_found_and_removed_ones_are_not(store: SqliteStore) -> None:
    index = Index(store)
    question = asking(55, 2)
    assert "id-new.pdf" not in {
        hit.document for hit in index.search(question, encoder=ENCODER).pages
    }
    add_texts(store, "new.pdf", texts(55, 3))
    assert page_ids_of(index.search(question, encoder=ENCODER))[0] == ("id-new.pdf", 2)
    # The same document with other pages.
    index.remove("new.pdf")
    add_texts(store, "new.pdf", ["word1", "", *texts(55, 2)])
    assert page_ids_of(index.search(question, encoder=ENCODER))[0] == ("id-new.pdf", 4)
    index.remove("new.pdf")
    # Nothing of it is left, and nothing that belongs to nothing.
    (folder,) = (store.folder / SUMMARIES).iterdir()
    keys = {document_key(document) for document in store.documents()}
    assert {file.name for file in folder.iterdir()} == keys
    assert "id-new.pdf" not in {
        document for document, _ in searched(index.search(question, encoder=ENCODER))
    }
    assert store.verify() == []


def test_outdated_summaries_of_other_processes_are_deleted(store: SqliteStore) -> None:
    left = store.folder / SUMMARIES / "of-an-encoder" / "gone-1"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"of a document that was removed")
    assert [problem.kind for problem in store.verify()] == ["orphan"]
    assert store.compact().files == 1
    assert not left.exists()


@pytest.mark.usefixtures("small_limits")
def test_threads_get_the_same_results(store: SqliteStore) -> None:
    index = Index(store)
    questions = [asking(n, n % PAGES + 1) for n in range(DOCUMENTS)] * 2
    with ThreadPoolExecutor(8) as pool:
        together = list(
            pool.map(lambda q: page_ids_of(index.search(q, encoder=ENCODER)), questions)
        )
    alone = Index(store)
    assert together == [page_ids_of(alone.search(q, encoder=ENCODER)) for q in questions]


# Summaries.


def unread() -> DocumentVectors:
    raise AssertionError("the vectors were read again")


def summaries_of(store: SqliteStore, folder: Path) -> tuple[PageSummaries, list[Document]]:
    made = PageSummaries(folder, ENCODER.dimension)
    documents = store.documents()
    for document in documents:
        made.add(document, partial(store.vectors, document.id, REFERENCE))
    return made, documents


def test_summarized_documents_are_not_read_again(store: SqliteStore, tmp_path: Path) -> None:
    made, documents = summaries_of(store, tmp_path / "kept")
    again = PageSummaries(tmp_path / "kept", ENCODER.dimension)
    for document in documents:
        again.add(document, unread)
    query = ENCODER.encode_query(asking(4, 4))
    assert again.candidates(query, 5, documents) == made.candidates(query, 5, documents)


@pytest.mark.parametrize("damage", [b"", b"nothing", lambda content: content[:-8]])
def test_a_damaged_summary_is_replaced(
    store: SqliteStore, tmp_path: Path, damage: bytes | Callable[[bytes], bytes]
) -> None:
    made, documents = summaries_of(store, tmp_path / "kept")
    path = tmp_path / "kept" / document_key(documents[0])
    whole = path.read_bytes()
    path.unlink()  # it is mapped
    path.write_bytes(damage if isinstance(damage, bytes) else damage(whole))
    again, _ = summaries_of(store, tmp_path / "kept")
    assert path.read_bytes() == whole
    query = ENCODER.encode_query(asking(0, 1))
    assert again.candidates(query, 1, documents) == made.candidates(query, 1, documents)


def test_without_a_writable_folder_summaries_are_kept_in_memory(
    store: SqliteStore, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    made, documents = summaries_of(store, tmp_path / "file")
    (best,) = made.candidates(ENCODER.encode_query(asking(4, 4)), 1, documents)
    assert best[:2] == ("id-4.pdf", 4)


@given(
    st.integers(0, 10**6),
    st.lists(st.integers(0, 12), min_size=1, max_size=12),
    st.integers(1, 15),
    st.sampled_from([8, 40, 64, 100]),
)
def test_candidates_contain_the_best_page(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    lengths: list[int],
    n: int,
    dimension: int,
) -> None:
    """A page comes first in a search with its own vectors, for any shapes."""
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(sum(lengths), dimension))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    stored = DocumentVectors(
        vectors.astype(np.float16),
        offsets,
        np.zeros((len(vectors), 4), np.float32),
        np.zeros(len(vectors), np.int32),
    )
    (document,) = [Document("a", "a", len(lengths), 1, _NOW, (EncoderRef("x", "1", dimension),))]
    index = PageSummaries(tmp_path_factory.mktemp("kept"), dimension)
    index.add(document, lambda: stored)
    filled = [number for number, length in enumerate(lengths, start=1) if length]
    if not filled:
        assert index.candidates(np.ones((1, dimension), np.float32), n, [document]) == []
        return
    asked = filled[seed % len(filled)]
    query = stored.vectors[offsets[asked - 1] : offsets[asked]].astype(np.float32)
    found = index.candidates(query, n, [document])
    assert found[0].page == asked or dimension == 8
    assert [candidate.score for candidate in found] == sorted(
        (candidate.score for candidate in found), reverse=True
    )
    pages = [candidate.page for candidate in found]
    assert len(set(pages)) == len(pages) == min(n, len(filled))
    assert set(pages) <= set(filled)


@pytest.mark.parametrize("documents", [["0.pdf"], None])
def test_invalid_question_vectors_raise_an_error(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, documents: list[str] | None
) -> None:
    """A plug-in encoder can return anything."""
    bad = np.full((2, ENCODER.dimension), np.nan, np.float32)
    monkeypatch.setattr(type(ENCODER), "encode_query", lambda *_: bad)
    with pytest.raises(InvalidVectors):
        Index(store).search("word1", documents=documents, encoder=ENCODER)
