"""Vectors that would make every question fail are refused when they are put, and found later."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.store.samples import TEXT, Item, damage, document, items, put
from visar.errors import InvalidVectors
from visar.store import Store, checks

WRONG = {
    "too long": lambda row: 7 * row,
    "zero": lambda row: 0 * row,
    "not a number": lambda row: np.nan * row,
    "infinite": lambda row: np.inf * np.ones_like(row),
}


def with_wrong_vector(fault: str) -> list[Item]:
    given = items("a", 3, TEXT)
    page, embedding = given[2]
    vectors = embedding.vectors.copy()
    vectors[1] = WRONG[fault](vectors[1])
    return [*given[:2], (page, replace(embedding, vectors=vectors))]


@pytest.mark.parametrize("fault", WRONG)
def test_they_are_refused_with_their_encoder_and_page(store: Store, fault: str) -> None:
    given = with_wrong_vector(fault)
    with pytest.raises(InvalidVectors) as refused:
        put(store, document("a"), TEXT, given)
    message = str(refused.value)
    assert "vector 1 of page 3" in message
    assert TEXT.name in message
    assert store.documents() == []
    # The pages before it are kept, and the right page completes the document.
    put(store, document("a"), TEXT, items("a", 3, TEXT))
    assert damage(store) == []


@pytest.mark.parametrize("fault", WRONG)
def test_verifying_finds_those_that_an_older_version_has_stored(
    store: Store, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr(checks, "check_put", lambda *_: None)
    monkeypatch.setattr("visar.store.sqlite_addition.check_put", lambda *_: None)
    with np.errstate(invalid="ignore"):
        put(store, document("a"), TEXT, with_wrong_vector(fault))
    put(store, document("b"), TEXT, items("b", 3, TEXT))
    (problem,) = store.verify()
    assert (problem.kind, problem.document) == ("damage", "a")
    assert "page 3" in problem.what


def test_vectors_rounded_to_half_precision_are_right(store: Store) -> None:
    given = items("a", 1, TEXT)
    page, embedding = given[0]
    rounded = (embedding.vectors * np.float16(0.99)).astype(np.float16)
    put(store, document("a", 1), TEXT, [(page, replace(embedding, vectors=rounded))])
    assert store.verify() == []
