"""The time of each method includes everything it uses, even if computed before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from visar.core import maxsim, prepare
from visar.core.baselines import Choice, largest_gap
from visar.evaluation.methods import TimedPages, normalized_scores
from visar.retrieval.methods import METHODS, Method, ScoredPages, get_method


@pytest.fixture
def pages() -> TimedPages:
    random = np.random.default_rng(3)
    vectors = random.normal(size=(12, 20, 16)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
    query = vectors[4, :5]
    return TimedPages(query, prepare(list(vectors)))


def test_a_chosen_number_applies_to_the_late_interaction_ranking(
    pages: TimedPages,
) -> None:
    found = pages.run(get_method(lambda scored: int((scored.scores("s_p") > 0).sum() > 0) + 1))
    best = np.argsort(-maxsim(pages.query, pages.pages.vectors), kind="stable")
    assert found.ranking.tolist() == best.tolist()
    assert found.pages.tolist() == best[:2].tolist()
    assert found.seconds.keys() >= {"query to page", "self-similarity", "choice"}


def test_a_choice_from_a_selection_has_its_ranking(pages: TimedPages) -> None:
    def first(scored: ScoredPages) -> Choice:
        return Choice(1, scored.select().ranking[:1])

    def best_relevance(scored: ScoredPages) -> Choice:
        return Choice(1, scored.relevance.ranking[:1])

    for function in (first, best_relevance):
        found = pages.run(get_method(function))
        assert found.ranking.tolist() == pages.select().ranking.tolist()


def test_shared_values_are_charged_to_each_method(pages: TimedPages) -> None:
    first, second = (pages.run(METHODS["top-k"]) for _ in range(2))
    assert first.seconds["query to page"] == second.seconds["query to page"] > 0

    def counted(scored: ScoredPages) -> int:
        return scored.select().k

    exact = pages.run(METHODS["visar"])
    found = pages.run(get_method(counted))
    assert found.seconds["page to page"] == exact.seconds["page to page"] > 0


def test_heuristics_use_s_p_after_rescaling_sim(pages: TimedPages) -> None:
    # Sim ranges from 0 to 0.002, which is off the diagonal. s_p = 0.0016, 0.0014, 0.0006 become
    # 0.8, 0.7, 0.3, with the largest drop of 0.4 after two pages. Without rescaling, they would be
    # rounded to 0.002, 0.001, 0.001, with the drop after one page.
    similarity = np.array([[0.0016, 0.002, 0], [0, 0.0014, 0], [0, 0, 0.0006]])
    full = replace(pages.select(), scores=np.diag(similarity), similarity=similarity)
    assert normalized_scores(full) == pytest.approx([0.8, 0.7, 0.3])
    assert (largest_gap(normalized_scores(full)).k, largest_gap(full.scores).k) == (2, 1)


def test_a_heuristic_on_s_p_is_charged_for_the_whole_matrix(pages: TimedPages) -> None:
    function = METHODS["largest-gap"].function
    method = Method(name="x", function=function, options={"scores": "normalized s_p"})
    assert pages.run(method).seconds["page to page"] > 0


def test_a_rule_on_s_p_is_not_charged_for_the_page_to_page_similarity(pages: TimedPages) -> None:
    method = Method(name="x", function=METHODS["top-k"].function, options={"scores": "s_p"})
    found = pages.run(method)
    timings = pages.select().timings
    needed = ("query to page", "page to query", "self-similarity")
    assert found.seconds.keys() == {*needed, "choice"}
    assert all(found.seconds[stage] == timings[stage] for stage in needed)
