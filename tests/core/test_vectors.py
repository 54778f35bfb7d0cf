"""Test the accepted forms of input, and the errors for all others."""

from __future__ import annotations

import re
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
def test_every_form_of_pages_gives_the_same_result(form: str) -> None:
    same_as_expected(*forms()[form])


def test_tensors_give_the_same_result() -> None:
    torch = pytest.importorskip("torch")
    stacked, offsets = torch.from_numpy(STACKED), torch.from_numpy(OFFSETS)
    same_as_expected([torch.from_numpy(page) for page in PAGES32], {})
    same_as_expected(stacked, {"offsets": offsets})
    same_as_expected(stacked.clone().requires_grad_(), {"offsets": OFFSETS})


@pytest.mark.parametrize("longest", [7, 64, 4096])
def test_block_size_does_not_matter(longest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages longer than a block are split; short pages share a block."""
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
def test_take_equals_indexing(lengths: list[int], data: st.DataObject) -> None:
    rng = np.random.default_rng(sum(lengths))
    pages = [unit(rng.normal(size=(n, 4))).astype(np.float16) for n in lengths]
    stacked = np.concatenate(pages)
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, max(0, len(stacked) - 1))))), np.int64)
    rows = rows[rows < len(stacked)]
    factors = rng.uniform(size=len(rows)).astype(np.float32)
    expected = stacked[rows].astype(np.float32) * factors[:, None]
    np.testing.assert_array_equal(visar.prepare(pages).take(rows, factors), expected)


def pages_with(value: float, page: int) -> list[np.ndarray]:
    pages = [np.array(p) for p in PAGES32]
    pages[page][3, 5] = value
    return pages


INVALID: dict[str, tuple[Any, Any, dict[str, Any], str]] = {
    "no pages": (QUERY32, [], {}, "page"),
    "no query vectors": (QUERY32[:0], PAGES32, {}, "query"),
    "query of one dimension": (QUERY32[0], PAGES32, {}, "query"),
    "page of one dimension": (QUERY32, [*PAGES32, PAGES32[0][0]], {}, "page 25"),
    "another dimension in one page": (QUERY32, [*PAGES32, np.eye(3)], {}, "(?i)page 25.*3"),
    "another dimension in the query": (np.eye(3), PAGES32, {}, "query.*3"),
    "whole numbers": (QUERY32, [np.eye(32, dtype=np.int16)], {}, "int16"),
    "text": (QUERY32, "pages", {}, "page 0"),
    "not a sequence": (QUERY32, 5, {}, "int"),
    "stacked without offsets": (QUERY32, STACKED, {}, "offsets="),
    "offsets beyond the end": (QUERY32, STACKED, {"offsets": [0, 9999]}, "9999"),
    "offsets that fall": (QUERY32, STACKED, {"offsets": [0, 60, 50, 1250]}, "offsets"),
    "offsets with prepared pages": (QUERY32, visar.prepare(PAGES32), {"offsets": [0]}, "prepared"),
    "NaN": (QUERY32, pages_with(np.nan, page=7), {}, "NaN.*vector 3.*page 7"),
    "infinity": (QUERY32, pages_with(-np.inf, page=0), {}, "infinity.*vector 3.*page 0"),
    "far from unit length": (QUERY32, pages_with(40.0, page=9), {}, "vector 3.*page 9.*40"),
    "padding": (QUERY32, [*PAGES32, np.zeros((4, 32))], {}, "page 25.*0"),
    "NaN in the query": (QUERY32 * np.nan, PAGES32, {}, "NaN.*vector 0.*query"),
    "long query": (QUERY32 * 2, PAGES32, {}, "vector 0.*query.*2"),
}


@pytest.mark.parametrize("case", INVALID)
def test_error_names_the_invalid_vectors(case: str) -> None:
    query, pages, options, pattern = INVALID[case]
    with pytest.raises(InvalidVectors, match=pattern):
        visar.select(query, pages, **options)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_error_names_float16_infinities(bad: float) -> None:
    """Their bits decode to large finite numbers, but the error must name the stored value."""
    pages = [page.astype(np.float16) for page in pages_with(bad, page=7)]
    with pytest.raises(InvalidVectors, match=r"NaN.*vector 3.*page 7"):
        visar.prepare(pages)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("top_t", 0),
        ("top_t", None),
        ("max_k", 1.5),
        ("top_s", -3),
        ("gamma", float("nan")),
        ("gamma", -1),
        ("unweighted", "tokens"),
        ("unweighted", ["patches"]),
    ],
)
def test_error_names_the_invalid_option_and_value(name: str, value: Any) -> None:
    with pytest.raises(InvalidOption, match=f"{name}.*{re.escape(repr(value))}"):
        visar.select(QUERY32, PAGES32, **{name: value})


def test_errors_are_value_errors() -> None:
    assert issubclass(InvalidVectors, VisarError)
    assert issubclass(InvalidVectors, ValueError)
    assert issubclass(InvalidOption, ValueError)


def test_vectors_are_checked_again_after_a_failed_check() -> None:
    pages = pages_with(np.nan, page=7)
    prepared = vectors.PageVectors(pages)
    with pytest.raises(InvalidVectors):
        prepared.check()
    with pytest.raises(InvalidVectors):
        visar.select(QUERY32, prepared)
    pages[7][:] = PAGES32[7]
    assert visar.select(QUERY32, prepared).pages.tolist() == EXPECTED.pages.tolist()


def test_empty_pages_score_zero() -> None:
    empty = np.zeros((0, 32), np.float32)
    scores = visar.maxsim(QUERY32, [empty, PAGES32[0], empty])
    assert scores[0] == scores[2] == 0
    assert scores[1] == pytest.approx(EXPECTED.late_interaction[0])
    assert visar.maxsim(QUERY32, [empty]).tolist() == [0]


def test_prepared_pages_do_not_accept_offsets() -> None:
    prepared = visar.prepare(PAGES32)
    assert visar.prepare(prepared) is prepared
    with pytest.raises(InvalidVectors, match="offsets="):
        visar.prepare(prepared, [0, 1])


@given(lengths=st.lists(st.integers(0, 6), min_size=1, max_size=8), data=st.data())
def test_subset_equals_the_chosen_pages(lengths: list[int], data: st.DataObject) -> None:
    pages = [unit(np.random.default_rng(n).normal(size=(n, 4))) for n in lengths]
    chosen = data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, unique=True))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    for whole in (visar.prepare(pages), visar.prepare(np.concatenate(pages), offsets)):
        subset = whole.subset(chosen)
        assert np.diff(subset.offsets).tolist() == [lengths[page] for page in chosen]
        blocks = [block.vectors.copy() for block in subset.blocks()]
        expected = np.concatenate([pages[page] for page in chosen]).astype(np.float32)
        np.testing.assert_array_equal(np.concatenate(blocks) if blocks else expected[:0], expected)
        assert (subset.shortest, subset.longest) == (whole.shortest, whole.longest)


def test_subset_of_unchecked_pages_is_checked() -> None:
    pages = vectors.PageVectors(pages_with(np.nan, page=3))
    pages.subset([0, 1]).check()
    with pytest.raises(InvalidVectors, match="NaN"):
        pages.subset([1, 3]).check()
