"""Every accepted form of input gives the same result; every other is refused with a reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import visar
from tests.core.documents import planted, unit
from visar.core import vectors
from visar.core.vectors import decode
from visar.errors import InvalidOption, InvalidVectors, VisarError

CASE = planted(seed=11, n_pages=25, n_patches=50)
PAGES32 = [page.astype(np.float32) for page in CASE.pages]
QUERY32 = CASE.query.astype(np.float32)
STACKED = np.concatenate(PAGES32)
OFFSETS = np.arange(26) * 50
EXPECTED = visar.select(QUERY32, PAGES32)


def forms() -> dict[str, tuple[Any, dict[str, Any]]]:
    fortran = np.asfortranarray(STACKED)
    wide = np.zeros((len(STACKED), 64), np.float32)
    wide[:, ::2] = STACKED
    return {
        "list of float32": (PAGES32, {}),
        "tuple of float64": (tuple(CASE.pages), {}),
        "three dimensions": (np.stack(PAGES32), {}),
        "stacked": (STACKED, {"offsets": OFFSETS}),
        "stacked, offsets as a list": (STACKED, {"offsets": OFFSETS.tolist()}),
        "stacked in column order": (fortran, {"offsets": OFFSETS}),
        "a view with strides": (wide[:, ::2], {"offsets": OFFSETS}),
        "read-only": (
            np.frombuffer(STACKED.tobytes(), np.float32).reshape(-1, 32),
            {"offsets": OFFSETS},
        ),
        "prepared": (visar.prepare(PAGES32), {}),
        "prepared stacked": (visar.prepare(STACKED, OFFSETS), {}),
    }


def same_as_expected(pages: Any, options: dict[str, Any]) -> None:
    selection = visar.select(QUERY32, pages, **options)
    assert selection.pages.tolist() == EXPECTED.pages.tolist()
    np.testing.assert_allclose(selection.scores, EXPECTED.scores, rtol=1e-5)
    np.testing.assert_allclose(
        visar.maxsim(QUERY32, pages, **options), EXPECTED.late_interaction, rtol=1e-5
    )


@pytest.mark.parametrize("form", forms())
def test_every_form_of_pages_gives_the_same(form: str) -> None:
    same_as_expected(*forms()[form])


def test_tensors_give_the_same() -> None:
    torch = pytest.importorskip("torch")
    stacked, offsets = torch.from_numpy(STACKED), torch.from_numpy(OFFSETS)
    same_as_expected([torch.from_numpy(page) for page in PAGES32], {})
    same_as_expected(stacked, {"offsets": offsets})
    same_as_expected(stacked.clone().requires_grad_(), {"offsets": OFFSETS})


@pytest.mark.parametrize("longest", [7, 64, 4096])
def test_blocks_of_any_size_give_the_same(longest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages longer than a block are read in parts, short ones together."""
    monkeypatch.setattr(vectors, "LONGEST_BLOCK", longest)
    monkeypatch.setattr(vectors, "BLOCK_ROWS", min(longest, 1024))
    for pages in (PAGES32, [page.astype(np.float16) for page in PAGES32]):
        selection = visar.select(QUERY32, pages)
        assert selection.pages.tolist() == EXPECTED.pages.tolist()


def test_float16_stays_close_to_float32() -> None:
    half = visar.select(QUERY32.astype(np.float16), [page.astype(np.float16) for page in PAGES32])
    assert half.pages.tolist() == EXPECTED.pages.tolist()
    np.testing.assert_allclose(half.scores, EXPECTED.scores, atol=5e-3)
    np.testing.assert_allclose(half.late_interaction, EXPECTED.late_interaction, rtol=1e-3)


def test_bfloat16_tensors_are_read_bit_by_bit() -> None:
    torch = pytest.importorskip("torch")
    tensors = [torch.from_numpy(page).bfloat16() for page in PAGES32]
    rounded = [tensor.float().numpy() for tensor in tensors]
    query = torch.from_numpy(QUERY32).bfloat16()
    actual = visar.select(query, tensors)
    expected = visar.select(query.float().numpy(), rounded)
    np.testing.assert_array_equal(actual.late_interaction, expected.late_interaction)
    assert actual.pages.tolist() == expected.pages.tolist()


def test_every_finite_float16_is_decoded_exactly() -> None:
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    finite = every[np.isfinite(every)][None]
    decoded = np.empty(finite.shape, np.float32)
    decode(finite, decoded)
    np.testing.assert_array_equal(decoded, finite.astype(np.float32))


@given(st.lists(st.integers(0, 6), min_size=1, max_size=8), st.data())
def test_taking_rows_is_indexing(lengths: list[int], data: st.DataObject) -> None:
    rng = np.random.default_rng(sum(lengths))
    pages = [unit(rng.normal(size=(n, 4))).astype(np.float16) for n in lengths]
    stacked = np.concatenate(pages)
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, max(0, len(stacked) - 1))))), np.int64)
    rows = rows[rows < len(stacked)]
    factors = rng.uniform(size=len(rows)).astype(np.float32)
    expected = stacked[rows].astype(np.float32) * factors[:, None]
    np.testing.assert_array_equal(visar.prepare(pages).take(rows, factors), expected)


def broken(page: int, value: float) -> list[np.ndarray]:
    pages = [np.array(p) for p in PAGES32]
    pages[page][3, 5] = value
    return pages


REFUSED: dict[str, tuple[Any, Any, dict[str, Any], str]] = {
    "no pages": (QUERY32, [], {}, "no pages"),
    "no query vectors": (QUERY32[:0], PAGES32, {}, "query has no vectors"),
    "query of one dimension": (QUERY32[0], PAGES32, {}, "two dimensions"),
    "page of one dimension": (QUERY32, [*PAGES32, PAGES32[0][0]], {}, "page 25 "),
    "another dimension in one page": (
        QUERY32,
        [*PAGES32, np.eye(3)],
        {},
        "Page 25 .* 3 dimensions",
    ),
    "another dimension in the query": (np.eye(3), PAGES32, {}, "3 dimensions.*same encoder"),
    "whole numbers": (QUERY32, [np.eye(32, dtype=np.int16)], {}, "int16"),
    "text": (QUERY32, "pages", {}, "page 0"),
    "not a sequence": (QUERY32, 5, {}, "sequence of arrays"),
    "stacked without offsets": (QUERY32, STACKED, {}, "needs offsets="),
    "offsets beyond the end": (QUERY32, STACKED, {"offsets": [0, 9999]}, "to 9999"),
    "offsets that fall": (QUERY32, STACKED, {"offsets": [0, 60, 50, 1250]}, "must rise"),
    "offsets with prepared pages": (QUERY32, visar.prepare(PAGES32), {"offsets": [0]}, "prepared"),
    "NaN": (QUERY32, broken(7, np.nan), {}, "NaN or an infinity in vector 3 of page 7"),
    "infinity": (QUERY32, broken(0, -np.inf), {}, "NaN or an infinity in vector 3 of page 0"),
    "far from unit length": (QUERY32, broken(9, 40.0), {}, "length of vector 3 of page 9 .* is 40"),
    "padding": (
        QUERY32,
        [*PAGES32, np.zeros((4, 32))],
        {},
        "page 25 .* is 0, not 1: is it padding",
    ),
    "NaN in the query": (QUERY32 * np.nan, PAGES32, {}, "NaN .* vector 0 of the query"),
    "long query": (QUERY32 * 2, PAGES32, {}, "vector 0 of the query is 2"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_bad_vectors_are_refused_with_a_reason(what: str) -> None:
    query, pages, options, reason = REFUSED[what]
    with pytest.raises(InvalidVectors, match=reason):
        visar.select(query, pages, **options)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_float16_infinities_are_refused_as_such(bad: float) -> None:
    """Their bits decode to large numbers: the message must still tell the truth."""
    pages = [page.astype(np.float16) for page in broken(7, bad)]
    with pytest.raises(InvalidVectors, match="NaN or an infinity in vector 3 of page 7"):
        visar.prepare(pages)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"top_t": 0}, "top_t must be at least 1, not 0"),
        ({"top_t": None}, "top_t must be a whole number"),
        ({"max_k": 1.5}, "max_k must be a whole number, not 1.5"),
        ({"top_s": -3}, "top_s must be at least 1"),
        ({"gamma": float("nan")}, "gamma must be a finite number"),
        ({"gamma": -1}, "gamma must be a finite number of at least 0, not -1"),
        ({"unweighted": "tokens"}, "unweighted takes a collection"),
        ({"unweighted": ["patches"]}, "unweighted takes a collection"),
    ],
)
def test_nonsense_options_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidOption, match=reason):
        visar.select(QUERY32, PAGES32, **options)


def test_errors_are_also_the_usual_python_ones() -> None:
    assert issubclass(InvalidVectors, VisarError)
    assert issubclass(InvalidVectors, ValueError)
    assert issubclass(InvalidOption, ValueError)


def test_a_refused_document_can_be_mended_and_used() -> None:
    """A failed check must not count as a check."""
    pages = broken(7, np.nan)
    prepared = vectors.PageVectors(pages)
    with pytest.raises(InvalidVectors):
        prepared.check()
    with pytest.raises(InvalidVectors):
        visar.select(QUERY32, prepared)
    pages[7][:] = PAGES32[7]
    assert visar.select(QUERY32, prepared).pages.tolist() == EXPECTED.pages.tolist()


def test_empty_pages_score_nothing() -> None:
    empty = np.zeros((0, 32), np.float32)
    scores = visar.maxsim(QUERY32, [empty, PAGES32[0], empty])
    assert scores[0] == scores[2] == 0
    assert scores[1] == pytest.approx(EXPECTED.late_interaction[0])
    assert visar.maxsim(QUERY32, [empty]).tolist() == [0]


def test_prepared_pages_take_no_offsets() -> None:
    """They were ignored: the pages stayed as they had been prepared."""
    prepared = visar.prepare(PAGES32)
    assert visar.prepare(prepared) is prepared
    with pytest.raises(InvalidVectors, match="offsets= goes with one stacked array"):
        visar.prepare(prepared, [0, 1])


@given(lengths=st.lists(st.integers(0, 6), min_size=1, max_size=8), data=st.data())
def test_some_pages_are_those_pages(lengths: list[int], data: st.DataObject) -> None:
    pages = [unit(np.random.default_rng(n).normal(size=(n, 4))) for n in lengths]
    chosen = data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, unique=True))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    for whole in (visar.prepare(pages), visar.prepare(np.concatenate(pages), offsets)):
        some = whole.only(chosen)
        assert np.diff(some.offsets).tolist() == [lengths[page] for page in chosen]
        found = [block.vectors.copy() for block in some.blocks()]
        expected = np.concatenate([pages[page] for page in chosen]).astype(np.float32)
        np.testing.assert_array_equal(np.concatenate(found) if found else expected[:0], expected)
        assert (some.shortest, some.longest) == (whole.shortest, whole.longest)


def test_pages_that_were_not_checked_are_checked_when_some_are_read() -> None:
    pages = vectors.PageVectors(broken(3, np.nan))
    pages.only([0, 1]).check()
    with pytest.raises(InvalidVectors, match="NaN"):
        pages.only([1, 3]).check()
