"""Tests of the results of methods, and of the work they cause."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from visar.core import Products, Selection, maxsim, prepare, select
from visar.core.baselines import Choice
from visar.core.similarity import PageSimilarity
from visar.errors import InvalidOption
from visar.retrieval.methods import METHODS, Method, ScoredPages, get_method


@pytest.fixture
def pages() -> ScoredPages:
    random = np.random.default_rng(3)
    vectors = random.normal(size=(12, 20, 16)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
    query = vectors[4, :5]
    return ScoredPages(query, prepare(list(vectors)))


def test_a_number_of_any_type_chooses_the_best_pages_by_late_interaction(
    pages: ScoredPages,
) -> None:
    found = get_method(lambda scored: int((scored.scores("s_p") > 0).sum() > 0) + 1).choose(pages)
    best = np.argsort(-maxsim(pages.query, pages.pages.vectors), kind="stable")
    assert found.pages.tolist() == best[:2].tolist()


def test_a_loaded_method_has_its_full_name() -> None:
    found = get_method("tests.evaluation.plugin:named")
    assert found.name == "tests.evaluation.plugin:named"


def test_the_error_of_a_method_has_its_name(pages: ScoredPages) -> None:
    with pytest.raises(InvalidOption, match=r"plugin:broken.*KeyError: '12 pages'"):
        get_method("tests.evaluation.plugin:broken").choose(pages)
    with pytest.raises(InvalidOption, match="'three'"):
        Method(name="words", function=lambda _: "three").choose(pages)  # type: ignore[arg-type, return-value]


def nothing(*_: Any) -> Choice:
    return Choice(0, np.array([], np.int64))


def nothing_selected(scored: ScoredPages) -> Selection:
    return replace(scored.select(), k=0, pages=np.array([], np.int64))


def beyond(scored: ScoredPages) -> Choice:
    return Choice(1, np.array([len(scored)]))


def twice(*_: Any) -> Choice:
    return Choice(2, np.array([3, 3]))


def halves(*_: Any) -> Any:
    return Choice(1, np.array([0.5]))


def none_at_all(*_: Any) -> int:
    return 0


@pytest.mark.parametrize(
    "function", [nothing, nothing_selected, beyond, twice, halves, none_at_all]
)
def test_a_choice_without_pages_or_with_missing_pages_raises_an_error(
    pages: ScoredPages, function: Any
) -> None:
    with pytest.raises(InvalidOption, match=function.__name__):
        get_method(function).choose(pages)


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record each comparison of pages with each other, the most expensive part of ViSAR."""
    calls: list[str] = []
    for name in ("rows", "row_bounds"):
        original = getattr(PageSimilarity, name)

        def recorded(*args: Any, _name: str = name, _original: Any = original) -> Any:
            calls.append(_name)
            return _original(*args)

        monkeypatch.setattr(PageSimilarity, name, recorded)
    return calls


def test_weights_and_scores_need_no_comparison_of_pages(
    pages: ScoredPages, compared: list[str]
) -> None:
    relevance = pages.relevance
    METHODS["top-k"].choose(pages)
    METHODS["largest-gap"].choose(pages)
    pages.scores("s_p")
    assert not compared
    # They are those of ViSAR, which compares pages to decide.
    selection = select(pages.query, pages.pages.vectors)
    assert compared
    assert relevance.ranking.tolist() == selection.ranking.tolist()
    np.testing.assert_array_equal(relevance.scores, selection.scores)
    np.testing.assert_array_equal(relevance.late_interaction, selection.late_interaction)
    np.testing.assert_array_equal(relevance.token_weights, selection.token_weights)
    np.testing.assert_array_equal(relevance.page_weights, selection.page_weights)
    np.testing.assert_array_equal(relevance.active, selection.active)
    for ours, theirs in zip(relevance.patch_weights, selection.patch_weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_products_are_reused_for_every_score(pages: ScoredPages) -> None:
    vectors = pages.pages.vectors
    products = Products(pages.query, vectors)
    np.testing.assert_array_equal(maxsim(pages.query, products), pages.late_interaction)
    vectors.blocks = None  # type: ignore[method-assign,assignment]  # the pages are not read again
    shared = ScoredPages(pages.query, pages.pages, products=products)
    np.testing.assert_array_equal(shared.late_interaction, pages.late_interaction)
    np.testing.assert_array_equal(shared.relevance.late_interaction, pages.late_interaction)
