"""Tests of searches while documents are added and removed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.generation.test_answering import Repeats
from tests.retrieval.words import ENCODER, add_texts, asking, texts
from tests.store.samples import KINDS, open_kind
from visar.core.baselines import Choice
from visar.core.similarity import PageSimilarity
from visar.core.vectors import PageVectors
from visar.errors import InvalidOption, NotInIndex
from visar.index import Index
from visar.library import SearchOptions
from visar.query import Query
from visar.results import SearchResult
from visar.retrieval import candidates, search
from visar.store import Store

DOCUMENTS, PAGES = 8, 8


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: Any) -> Store:
    if request.param == "lance":
        pytest.importorskip("lancedb")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    store = open_kind(request.param, tmp_path / "index")
    for number in range(DOCUMENTS):
        add_texts(store, f"{number}.pdf", texts(number, PAGES))
    return store


@pytest.fixture(params=["scanned", "candidates"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Choose a scan of all pages, or candidates from summaries."""
    monkeypatch.setattr(search, "CANDIDATES", 12)
    if request.param == "candidates":
        monkeypatch.setattr(search, "MAX_SCANNED", 10)
        monkeypatch.setattr(candidates, "CODED", 48)
        monkeypatch.setattr(candidates, "CODED_ROOT", 1)
    return str(request.param)


def documents(found: SearchResult) -> set[str]:
    """Return the ids of all documents in a result."""
    assert found.trace is not None
    return {hit.document for hit in found.pages} | {document for document, _ in found.trace.pages}


# Documents that are removed while a search runs.


@pytest.mark.usefixtures("size")
@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_a_document_that_is_removed_during_a_search_is_left_out(store: Store, warm: bool) -> None:
    index = Index(store)
    question = f"{asking(2, 3)} {asking(5, 1)}"
    if warm:
        assert documents(index.search(question, encoder=ENCODER)) >= {"id-2.pdf", "id-5.pdf"}
    searcher = index.searcher(None, ENCODER)
    index.remove("2.pdf")
    found = searcher.search(Query(question=question, method="top-k", k=12))
    assert "id-2.pdf" not in documents(found)
    assert "id-2.pdf" not in {document.id for document in found.documents}
    assert found.pages_searched == (DOCUMENTS - 1) * PAGES
    assert (found.pages[0].document, found.pages[0].page) == ("id-5.pdf", 1)


@pytest.mark.usefixtures("size")
@pytest.mark.parametrize("reading", ["pages", "vectors", "embeddings", "summaries"])
def test_a_document_can_be_removed_before_any_read(
    store: Store, monkeypatch: pytest.MonkeyPatch, reading: str
) -> None:
    """Another process removes a document right before each kind of read."""
    index = Index(store, reader="none")  # these words mean nothing to a reader
    other = open_kind("lance" if "Lance" in type(store).__name__ else "sqlite", store.location)
    original: Callable[..., Any] = getattr(store, reading)
    removed: list[str] = []

    def removing(*arguments: Any) -> Any:
        if not removed:
            removed.append(other.remove("2.pdf").id)
        return original(*arguments)

    monkeypatch.setattr(store, reading, removing)
    question = f"{asking(2, 3)} {asking(5, 1)}"
    found = index.search(question, encoder=ENCODER)
    assert ("id-5.pdf", 1) in {(hit.document, hit.page) for hit in found.pages}
    # What was read before may still be used; nothing is half there.
    explained = index.explain(found)
    assert explained.k_star >= 1
    after = index.search(question, encoder=ENCODER)
    assert ("id-2.pdf" in documents(after)) == (not removed)


@pytest.mark.usefixtures("size")
def test_a_result_can_be_explained_after_its_documents_are_removed(store: Store) -> None:
    index = Index(store)
    question = f"{asking(2, 3)} {asking(5, 1)}"
    found = index.search(question, encoder=ENCODER)
    assert documents(found) >= {"id-2.pdf", "id-5.pdf"}
    index.remove("2.pdf")
    again = Index(store)  # with nothing in memory
    explained = again.explain(found)
    assert {page.document for page in explained.pages} == documents(found) - {"id-2.pdf"}
    assert max(page for choice in explained.choices for page in choice.pages) < len(explained.pages)
    best = next(page for page in explained.pages if page.rank == 1)
    assert (best.document, best.page) == ("id-5.pdf", 1)
    assert again.patches(found, "id-5.pdf", 1).weights
    # A page that is named is refused if it is gone.
    with pytest.raises(NotInIndex):
        again.patches(found, "id-2.pdf", 3)


def test_a_generator_gets_the_remaining_pages(store: Store) -> None:
    index = Index(store)
    generator = Repeats('{"answer": "yes", "pages": []}', "text")
    question = f"{asking(2, 3)} {asking(5, 1)}"
    options: SearchOptions = {"encoder": ENCODER, "method": "top-k", "k": 2}
    stream = index.stream(question, generator=generator, **options)
    assert {hit.document for hit in stream.search.pages} == {"id-2.pdf", "id-5.pdf"}
    index.remove("2.pdf")
    assert stream.answer.text == "yes"
    (prompt,) = generator.asked
    given = " ".join(str(part) for part in prompt.parts[:-1])
    assert ("only-5-1" in given, "only-2-3" in given) == (True, False)
    stream = index.stream(question, generator=generator, **options)
    for document in index.documents():
        index.remove(document.id)
    with pytest.raises(NotInIndex):
        _ = stream.answer


def test_the_error_names_the_documents_if_all_are_removed(store: Store) -> None:
    index = Index(store)
    searcher = index.searcher(["1.pdf", "4.pdf"], ENCODER)
    for name in ("1.pdf", "4.pdf"):
        index.remove(name)
    with pytest.raises(NotInIndex, match=r"1\.pdf, 4\.pdf"):
        searcher.search(asking(1, 1))


def test_an_unknown_document_raises_an_error(store: Store) -> None:
    index = Index(store)
    index.remove("1.pdf")
    with pytest.raises(NotInIndex, match=r"'1\.pdf'"):
        index.search(asking(1, 1), documents=["0.pdf", "1.pdf"], encoder=ENCODER)


def test_an_empty_list_of_documents_is_not_an_empty_index(store: Store) -> None:
    with pytest.raises(InvalidOption):
        Index(store).search("word1", documents=[], encoder=ENCODER)


# What a search reads and computes.


@pytest.fixture
def catalog_reads(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Record each read of the catalog."""
    reads: list[None] = []
    holder, name = (store.log, "read") if hasattr(store, "log") else (store, "catalog")
    original = getattr(holder, name)

    def counted() -> Any:
        reads.append(None)
        return original()

    monkeypatch.setattr(holder, name, counted)
    return reads


@pytest.mark.usefixtures("size")
@pytest.mark.parametrize("named", [False, True], ids=["all", "named"])
def test_a_search_reads_the_catalog_once(
    store: Store, catalog_reads: list[None], named: bool
) -> None:
    index = Index(store)
    names = [f"{n}.pdf" for n in range(DOCUMENTS)] if named else None
    index.search(asking(1, 1), encoder=ENCODER, documents=names)
    catalog_reads.clear()
    found = index.search(asking(2, 3), encoder=ENCODER, documents=names, neighbors=1)
    assert found.pages
    assert len(catalog_reads) == 1


@pytest.mark.parametrize("size", ["candidates"], indirect=True)
@pytest.mark.usefixtures("size")
def test_candidates_are_read_and_checked_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = Index(store)
    index.search(asking(1, 1), encoder=ENCODER)  # makes the summaries
    read: list[tuple[str, int]] = []
    checked: list[int] = []
    embeddings, check = store.embeddings, PageVectors._check_block

    def counted_embeddings(page_ids: Any, encoder: Any) -> Any:
        read.extend(page_ids)
        return embeddings(page_ids, encoder)

    def counted_check(self: Any, first: int, vectors: Any) -> None:
        checked.append(len(vectors))
        check(self, first, vectors)

    monkeypatch.setattr(store, "embeddings", counted_embeddings)
    monkeypatch.setattr(PageVectors, "_check_block", counted_check)
    found = index.search(asking(2, 3), encoder=ENCODER)
    assert found.candidates == 12
    # Four candidates for each page that the method chooses from.
    assert len(read) == len(set(read)) == candidates.COMPARED * 12
    vectors = sum(len(one.vectors) for one in embeddings(read, found.encoder))
    assert sum(checked) == vectors


@pytest.mark.parametrize("method", ["top-k", "largest-gap", "single-vector"])
def test_other_methods_do_not_compare_pages_with_each_other(
    store: Store, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    compared: list[str] = []
    for name in ("rows", "row_bounds"):
        original = getattr(PageSimilarity, name)

        def counted(*args: Any, _name: str = name, _original: Any = original) -> Any:
            compared.append(_name)
            return _original(*args)

        monkeypatch.setattr(PageSimilarity, name, counted)
    index = Index(store)
    found = index.search(asking(2, 3), encoder=ENCODER, method=method)
    assert not compared
    assert found.decision is None
    with pytest.raises(InvalidOption):
        _ = found.selection
    # The scores, the heat and the quotes are those of ViSAR.
    exact = index.search(asking(2, 3), encoder=ENCODER)
    assert compared
    scores = {(hit.document, hit.page): (hit.score, hit.late_interaction) for hit in exact.pages}
    shared = [hit for hit in found.pages if (hit.document, hit.page) in scores]
    assert shared
    for hit in shared:
        page = hit.document, hit.page
        assert (hit.score, hit.late_interaction) == scores[page]
        assert index.patches(found, *page).weights == index.patches(exact, *page).weights
        assert hit.snippet


def test_the_approximation_has_its_own_decision(store: Store) -> None:
    found = Index(store).search(asking(2, 3), encoder=ENCODER, method="visar-approx")
    assert found.decision is not None
    assert found.decision.k_star == found.selection.k_star
    # J is computed up to k = s + 2 at most.
    assert len(found.decision.cost) <= 10 + 2


def test_a_method_without_pages_raises_an_error(store: Store) -> None:
    def nothing(_: Any) -> Choice:
        return Choice(0, np.array([], np.int64))

    with pytest.raises(InvalidOption, match="nothing"):
        Index(store).search(asking(2, 3), encoder=ENCODER, method=nothing)
