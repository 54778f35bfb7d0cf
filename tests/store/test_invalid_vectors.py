"""Test that invalid vectors, which would make every question fail, are rejected and reported."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.store.samples import TEXT, Item, damage, document, items, put
from visar.errors import InvalidVectors
from visar.store import Store, checks

INVALID = {
    "too long": lambda row: 7 * row,
    "zero": lambda row: 0 * row,
    "not a number": lambda row: np.nan * row,
    "infinite": lambda row: np.inf * np.ones_like(row),
}


def with_invalid_vector(fault: str) -> list[Item]:
    given = items("a", 3, TEXT)
    page, embedding = given[2]
    vectors = embedding.vectors.copy()
    vectors[1] = INVALID[fault](vectors[1])
    return [*given[:2], (page, replace(embedding, vectors=vectors))]


@pytest.mark.parametrize("fault", INVALID)
def test_error_names_the_encoder_and_page(store: Store, fault: str) -> None:
    given = with_invalid_vector(fault)
    with pytest.raises(InvalidVectors) as raised:
        put(store, document("a"), TEXT, given)
    message = str(raised.value)
    assert "vector 1 of page 3" in message
    assert TEXT.name in message
    assert store.documents() == []
    # The earlier pages are saved, and a valid page completes the document.
    put(store, document("a"), TEXT, items("a", 3, TEXT))
    assert damage(store) == []


@pytest.mark.parametrize("fault", INVALID)
def test_verify_reports_stored_invalid_vectors(
    store: Store, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr(checks, "check_put", lambda *_: None)
    monkeypatch.setattr("visar.store.sqlite_addition.check_put", lambda *_: None)
    with np.errstate(invalid="ignore"):
        put(store, document("a"), TEXT, with_invalid_vector(fault))
    put(store, document("b"), TEXT, items("b", 3, TEXT))
    (problem,) = store.verify()
    assert (problem.kind, problem.document) == ("damage", "a")
    assert "page 3" in problem.what


def test_vectors_rounded_to_half_precision_are_valid(store: Store) -> None:
    given = items("a", 1, TEXT)
    page, embedding = given[0]
    rounded = (embedding.vectors * np.float16(0.99)).astype(np.float16)
    put(store, document("a", 1), TEXT, [(page, replace(embedding, vectors=rounded))])
    assert store.verify() == []
