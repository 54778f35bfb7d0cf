"""Tests of explanations against the method."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
import pytest
from numpy.typing import NDArray

import visar
from visar.core import prepare
from visar.explain.explanation import FIXED_K, MAX_MATRIX_PAGES, _influence, explain
from visar.index import Index
from visar.query import Query
from visar.results import Document, EncoderRef, Explanation, PageHit, SearchResult
from visar.retrieval.methods import METHODS, DocumentPages
from visar.trace import Trace

QUESTION = "How did capital expenditure change between 2020 and 2024?"


def unit(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True), np.float32)


def result(
    query: NDArray[np.float32],
    pages: DocumentPages,
    question: str,
    spans: Sequence[tuple[int, int]] | None = None,
    max_k: int | None = None,
) -> SearchResult:
    """Return a search result with everything that an explanation needs."""
    encoder = EncoderRef("planted", "1", query.shape[1])
    count = len(pages.vectors)
    document = Document("d", "d.pdf", count, 0, datetime.now(UTC), (encoder,))
    selection = visar.select(query, pages.vectors, max_k=max_k)
    return SearchResult(
        query=Query(question=question),
        pages=tuple(
            PageHit("d", "d.pdf", page + 1, "", 0.0, 0.0, "", ())
            for page in selection.pages.tolist()
        ),
        documents=(document,),
        left_out=(),
        pages_searched=count,
        candidates=None,
        pages_invalid=0,
        k=selection.k,
        match=1.0,
        about=None,
        strength="good",
        runner_up=None,
        encoder=encoder,
        calibration=None,
        seconds=0.0,
        summary="",
        decision=None,
        passages=(),
        trace=Trace(
            query,
            tuple(("d", number) for number in range(1, count + 1)),
            selection,
            None if spans is None else tuple(spans),
        ),
    )


def planted(count: int, seed: int = 0) -> tuple[NDArray[np.float32], DocumentPages]:
    """Pages that all hold something near a question of six vectors, the first most of all.

    Of 1,000 more than 200 are active: a patch that only comes near has no weight.
    """
    random = np.random.default_rng(seed)
    query = unit(random.normal(size=(6, 24)))
    pages = []
    for number in range(count):
        near = query[random.integers(6, size=4)] + (0.05 + number / count) * random.normal(
            size=(4, 24)
        )
        pages.append(unit(np.vstack([near, random.normal(size=(6, 24))])))
    return query, DocumentPages(prepare(pages))


@pytest.mark.parametrize("count", [30, 1000])
def test_similarity_and_cost_match_select(count: int) -> None:
    query, pages = planted(count)
    whole = visar.select(query, pages.vectors, full_matrix=True)
    assert (len(whole.active) > MAX_MATRIX_PAGES) == (count > MAX_MATRIX_PAGES)
    found = result(query, pages, "a question", max_k=2)
    explanation = explain(found, pages)
    active = set(whole.active.tolist())
    best = [page for page in whole.ranking.tolist() if page in active][:MAX_MATRIX_PAGES]
    assert whole.similarity is not None
    np.testing.assert_allclose(
        explanation.similarity, whole.similarity[np.ix_(best, best)], rtol=1e-4, atol=1e-6
    )
    # Sim(p, p) is s_p; between two pages it has a direction.
    np.testing.assert_allclose(
        np.diagonal(explanation.similarity), whole.scores[best], rtol=1e-4, atol=1e-6
    )
    # The cap of the search is not one of its explanation.
    assert explanation.k_star == whole.k_star
    costs = {position: cost for position, cost in enumerate(explanation.cost) if cost is not None}
    known = list(costs)
    np.testing.assert_allclose(np.array(list(costs.values())), whole.cost[known])
    assert int(np.argmin(whole.cost)) in known
    if count <= MAX_MATRIX_PAGES:
        assert len(known) == len(whole.cost)


def test_pages_have_their_rank_and_activity() -> None:
    query, pages = planted(30)
    explanation = explain(result(query, pages, "a question"), pages)
    selection = visar.select(query, pages.vectors)
    ranks = [page.rank for page in explanation.pages]
    assert [ranks.index(rank) for rank in range(1, 31)] == selection.ranking.tolist()
    activity = [page.activity for page in explanation.pages]
    np.testing.assert_allclose(activity, selection.scores / selection.scores.max())
    assert [page.page for page in explanation.pages] == list(range(1, 31))
    assert explanation.words == ()


def test_words_share_the_weight_of_the_chosen_pages() -> None:
    query, pages = planted(30)
    # Six words of one vector each: "ab cd ef gh ij kl".
    spans = [(start, start + 2) for start in range(0, 18, 3)]
    found = result(query, pages, "ab cd ef gh ij kl", spans)
    explanation = explain(found, pages)
    assert [word.vectors for word in explanation.words] == [(n,) for n in range(6)]
    influences = np.array([word.influence for word in explanation.words])
    assert influences.max() == 1
    chosen = found.selection.pages.tolist()
    given = _influence(query, found.selection, pages, chosen)
    np.testing.assert_allclose(influences, given / given.max())
    weight = sum(float(found.selection.patch_weights[page].sum()) for page in chosen)
    assert given.sum() == pytest.approx(weight, rel=1e-5)


def test_a_word_that_matches_no_page_has_no_influence() -> None:
    eye = np.eye(6, dtype=np.float32)
    # "two cats fly": the pages speak of the second vector, and two of them of the third.
    pages = DocumentPages(prepare([eye[[1, 2, 5]], eye[[1, 4]], eye[[2, 4]], eye[[4, 5]]]))
    found = result(eye[:3], pages, "two cats fly", [(0, 3), (4, 8), (9, 12)])
    words = explain(found, pages).words
    assert words[0].influence == 0
    assert max(words[1].influence, words[2].influence) == 1


def test_a_word_has_the_vectors_of_all_its_parts() -> None:
    query, pages = planted(10)
    spans = [(0, 3), (4, 6), (6, 8), (8, 9), (10, 12), (10, 12)]
    words = explain(result(query, pages, "how tall-? is", spans), pages).words
    assert [(word.text, word.vectors) for word in words] == [
        ("how", (0,)), ("tall-?", (1, 2, 3)), ("is", (4, 5)),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def of_report(library: Index) -> Explanation:
    return library.explain(library.search(QUESTION))


def test_choices_match_searches_with_the_methods(library: Index, of_report: Explanation) -> None:
    assert [one.method for one in of_report.choices][0::5] == ["visar", "top-k"]
    assert set(of_report.cuts) >= {"visar", "visar-approx", "largest-gap", "calibrated"}
    pages = [(page.document, page.page) for page in of_report.pages]
    for choice in of_report.choices:
        k = None if METHODS[choice.method].adaptive else FIXED_K
        found = library.search(QUESTION, method=choice.method, k=k)
        taken = [(hit.document, hit.page) for hit in found.pages]
        assert [pages[position] for position in choice.pages] == taken, choice.method
        texts = [" ".join(word.text for word in hit.words) + " " for hit in found.pages]
        assert choice.tokens == sum(-(-len(text) // 4) for text in texts)


def test_every_word_of_the_question_is_listed(of_report: Explanation) -> None:
    assert " ".join(word.text for word in of_report.words) == QUESTION
    assert all(word.vectors for word in of_report.words)
    assert max(word.influence for word in of_report.words) == 1


def test_words_are_listed_for_an_encoder_object(library: Index, of_report: Explanation) -> None:
    with Index.open(library.location) as index:
        found = index.search(QUESTION, encoder=library.encoder("embedded"))
        assert index.explain(found).words == of_report.words


def test_pairs_are_the_most_similar_patches(library: Index, of_report: Explanation) -> None:
    """They have the largest S_j of Eq. 10, and words at the positions of their patches."""
    found = library.search(QUESTION)
    first, second = found.pages[:2]
    pairs = library.pairs(found, (first.document, first.page), (second.document, second.page))
    assert 1 <= len(pairs) <= 6
    shared = [pair.shared for pair in pairs]
    assert shared == sorted(shared, reverse=True)
    sides = []
    for hit in (first, second):
        vectors = library.vectors(hit.document)
        rows = slice(vectors.offsets[hit.page - 1], vectors.offsets[hit.page])
        weights = found.selection.patch_weights[hit.page - 1]
        sides.append(vectors.vectors[rows].astype(np.float32) * weights[:, None])
    best = (sides[0] @ sides[1].T).max(axis=1)
    assert shared[0] == pytest.approx(float(best.max()), rel=1e-5)
    for pair in pairs:
        for hit, box, text in zip(
            (first, second), (pair.first, pair.second), pair.words, strict=True
        ):
            assert any(
                word.text == text and np.allclose(word.box, box, atol=1e-3) for word in hit.words
            )
    assert "expenditure" in {word.lower() for pair in pairs for word in pair.words}
    # A page that no word speaks of shares nothing.
    silent = next(page for page in of_report.pages if page.activity == 0)
    assert not library.pairs(found, (first.document, first.page), (silent.document, silent.page))
