"""Vectors that are cut or stored with fewer bits: accuracy and size, and wrong ones refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

import visar
from tests.conftest import write_pdf
from tests.core.documents import Case, cases
from tests.core.test_against_plain_equations import is_clear, select_plain
from tests.encoders.samples import PixelEncoder
from tests.store.samples import KINDS, open_kind
from visar.documents.page import Page
from visar.encoders.coding import CODINGS
from visar.encoders.encoder import Encoder, EncoderRef, PageEmbedding, unit_vectors
from visar.encoders.reduced import ReducedEncoder
from visar.encoders.registry import get_encoder
from visar.errors import EncoderError, InvalidOption, InvalidVectors
from visar.index import Index
from visar.store.database import ARRAYS

PAGES = ("The tower of the lighthouse is green.", "Income tax is due in April.", "")


def unit(count: int, dimension: int) -> NDArray[np.float16]:
    rng = np.random.default_rng([count, dimension])
    return unit_vectors(rng.standard_normal((count, dimension))).astype(np.float16)


@pytest.mark.parametrize("dimension", [1, 8, 96, 128, 320, 4096])
@pytest.mark.parametrize(
    ("name", "row_bytes", "cosine"),
    [("float16", 2, 0.9999), ("int8", 1, 0.999), ("bits", 1 / 8, 0.78)],
)
def test_a_coding_keeps_directions(
    name: str, row_bytes: float, cosine: float, dimension: int
) -> None:
    coding, vectors = CODINGS[name], unit(50, dimension)
    rows = coding.encode(vectors)
    assert (
        rows.nbytes == 50 * coding.row_bytes(dimension) == 50 * int(np.ceil(row_bytes * dimension))
    )
    decoded = coding.decode(rows, dimension).astype(np.float32)
    np.testing.assert_allclose(np.linalg.norm(decoded, axis=1), 1, atol=2e-3)
    # A normal vector and its sign vector have a cosine of sqrt(2 / pi) = 0.80.
    assert (decoded * vectors).sum(axis=1).mean() > cosine


@given(
    arrays.arrays(
        np.float32,
        st.tuples(st.integers(0, 5), st.integers(1, 40)),
        elements=st.floats(-1, 1, width=32),
    )
)
def test_decoded_vectors_encode_to_the_same_bytes(values: NDArray[np.float32]) -> None:
    """A service may send decoded vectors, which its client encodes again."""
    values = values[np.abs(values).max(axis=1, initial=0) > 1e-2]
    vectors = unit_vectors(values).astype(np.float16)
    for coding in CODINGS.values():
        rows = coding.encode(vectors)
        again = coding.encode(coding.decode(rows, vectors.shape[1]))
        np.testing.assert_array_equal(again, rows)


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_can_have_several_codings(kind: str, tmp_path: Path) -> None:
    """Each coding has its own size, round-trips, and can be searched."""
    path = write_pdf(tmp_path / "notes.pdf", *PAGES)
    found = {}
    with Index(open_kind(kind, tmp_path / "index")) as index:
        for name in ("embedded", "embedded+int8", "embedded+bits"):
            document = index.add(path, encoder=name)
            encoder = index.encoder(name)
            stored = index.vectors(document.id, encoder=name)
            encoded = encoder.encode_pages(list(index.pages(document.id)), [])
            np.testing.assert_array_equal(
                stored.vectors, np.concatenate([page.vectors for page in encoded])
            )
            for number, page in enumerate(encoded, 1):
                np.testing.assert_array_equal(stored.page(number).vectors, page.vectors)
            found[name] = index.search("What color is the tower?", encoder=name)
        assert not index.verify()
        assert {result.pages[0].page for result in found.values()} == {1}
        assert found["embedded+int8"].pages[0].score == pytest.approx(
            found["embedded"].pages[0].score, rel=0.05
        )
    if kind == "sqlite":
        files = (tmp_path / "index" / ARRAYS).glob("*.vectors.npy")
        bits, int8, float16 = sorted(np.load(file).nbytes for file in files)
        assert float16 == 2 * int8 == 16 * bits


def test_cut_vectors_are_normalized() -> None:
    whole, cut = get_encoder("embedded"), get_encoder("embedded+dim64+int8")
    assert EncoderRef.of(cut) == EncoderRef(
        "embedded+dim64+int8", f"{whole.version}-dim64-int8", 64
    )
    question = whole.encode_query("the tower")[:, :64]
    np.testing.assert_allclose(cut.encode_query("the tower"), unit_vectors(question), atol=1e-6)
    with pytest.raises(InvalidOption, match="448"):
        _ = get_encoder("embedded+dim448").dimension


def test_an_encoder_that_fails_is_named(tmp_path: Path) -> None:
    def crash(*_: Any) -> Any:
        raise KeyError("no such token")

    path = write_pdf(tmp_path / "pages.pdf", *PAGES)
    with Index.open(tmp_path / "index") as index:
        broken = type("Broken", (PixelEncoder,), {"encode_pages": crash})()
        with pytest.raises(
            EncoderError, match=r"pixels failed, from page 1 on: KeyError: 'no such"
        ):
            index.add(path, encoder=broken)
        assert index.documents() == []
        broken = type("Broken", (PixelEncoder,), {"encode_query": crash})()
        index.add(path, encoder=broken)
        with pytest.raises(EncoderError, match="pixels failed on the question: KeyError"):
            index.search("Where is the tower?", encoder=broken)


class Faulty(PixelEncoder):
    """Gives something wrong for the second of its pages."""

    def __init__(self, wrong: Callable[[PageEmbedding], list[Any]]) -> None:
        self._wrong = wrong

    def encode_pages(self, pages: Sequence[Page], images: Sequence[Any]) -> list[PageEmbedding]:
        found = super().encode_pages(pages, images)
        return [*found[:1], *self._wrong(found[1]), *found[2:]]


def scaled(factor: float) -> Callable[[PageEmbedding], list[Any]]:
    def scale(page: PageEmbedding) -> list[Any]:
        vectors = page.vectors.copy()
        vectors[1] *= np.float16(factor)
        return [replace(page, vectors=vectors)]

    return scale


@pytest.mark.parametrize(
    "reduced", [None, {"coding": "int8"}, {"coding": "bits"}, {"dimension": 8}, {"pool": 2}]
)
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (scaled(float("nan")), "NaN or an infinity in vector 1 of page 2"),
        (scaled(3), "length of vector 1 of page 2.* is 3"),
        (lambda page: [replace(page, vectors=page.vectors[:, :20])], "page 2.* shape"),
        (lambda page: [replace(page, vectors=page.vectors.tolist())], "page 2.* not a list"),
        (lambda page: [replace(page, boxes=page.boxes[1:])], r"page 2.* boxes must be .*\(16, 4\)"),
        (lambda page: [replace(page, boxes=0 * page.boxes + np.nan)], "page 2.* boxes .*nan"),
        (lambda page: [replace(page, boxes=2 * page.boxes)], "page 2.* boxes .*vector 2 .*1.5"),
        (lambda page: [page.vectors], "for page 2, not a PageEmbedding"),
        (lambda _: [], "gave 2 embeddings for 3 pages, from page 1 on"),
    ],
    ids=["nan", "long", "dimension", "list", "few boxes", "nan box", "far box", "array", "missing"],
)
def test_wrong_vectors_are_refused_before_they_are_reduced(
    reduced: dict[str, Any] | None,
    wrong: Callable[[PageEmbedding], list[Any]],
    said: str,
    tmp_path: Path,
) -> None:
    """Scaled to length 1 again, or as signs, they would look right."""
    path = write_pdf(tmp_path / "pages.pdf", *PAGES)
    with Index.open(tmp_path / "index") as index:
        encoder: Encoder = Faulty(wrong)
        if reduced is not None:
            encoder = ReducedEncoder(encoder, **reduced)
        with pytest.raises(InvalidVectors, match=said):
            index.add(path, encoder=encoder)
        assert index.documents() == []


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"name": ""}, "name is ''"),
        ({"name": "two\nlines"}, "name is"),
        ({"version": 3}, "version is 3"),
        ({"dimension": "48"}, "dimension is '48'"),
        ({"dimension": 0}, "dimension is 0"),
        ({"reads": "pixels"}, "reads is 'pixels'"),
        ({"weak_match": None}, "weak_match is None"),
    ],
)
def test_wrong_declarations_are_refused(
    declared: dict[str, Any], said: str, tmp_path: Path
) -> None:
    """They would fail later, without a reason, or store vectors that no question finds."""
    path = write_pdf(tmp_path / "pages.pdf", *PAGES)
    mine = type("Mine", (PixelEncoder,), declared)()
    with Index.open(tmp_path / "index") as index:
        with pytest.raises(InvalidOption, match=f"Mine isn't a valid encoder: {said}"):
            index.add(path, encoder=mine)
        assert index.documents() == []


@given(cases(), st.sampled_from(["int8", "bits"]))
@settings(max_examples=100, deadline=None)
def test_pages_are_chosen_exactly_from_decoded_vectors(case: Case, coding: str) -> None:
    """The plain equations choose the same pages from decoded vectors, many of which are equal."""
    stored = [
        CODINGS[coding].decode(CODINGS[coding].encode(page), page.shape[1]) for page in case.pages
    ]
    decoded = Case(case.query, [page.astype(np.float64) for page in stored])
    plain, found = select_plain(decoded, {}), visar.select(case.query, stored)
    complete = visar.select(case.query, stored, full_matrix=True)
    np.testing.assert_allclose(found.late_interaction, plain.late_interaction, atol=1e-4)
    assert (found.k_star, found.ranking.tolist()) == (complete.k_star, complete.ranking.tolist())
    if not plain.fallback and is_clear(plain, {}):
        assert set(found.pages.tolist()) == set(plain.ranking[: plain.k])
