"""Token pooling: fewer vectors, with meaningful boxes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tests.encoders import tiny
from tests.encoders.samples import PixelEncoder, page_with, picture
from tests.encoders.servers import serving
from tests.encoders.test_visual import CORNERS, MARK, noise, pages, with_mark
from visar.encoders.embedded import EmbeddedEncoder
from visar.encoders.encoder import PageEmbedding, page_without_vectors, unit_vectors
from visar.encoders.pooling import pool_page
from visar.encoders.reduced import ReducedEncoder
from visar.encoders.registry import get_encoder
from visar.encoders.visual import VisualEncoder, grid_boxes
from visar.errors import InvalidOption, MissingExtra
from visar.explain.pictures import pages_with_heat
from visar.index import Index
from visar.models.loading import import_torchvision

Load = Callable[[str], VisualEncoder]
SENTENCES = ("Income tax is due in April.", "Boats need wind to leave.", "Cats sleep all day.")


def on_grid(vectors: Any, rows: int, columns: int) -> PageEmbedding:
    """Return an embedding of a grid of patches without words, row by row."""
    return PageEmbedding(
        unit_vectors(np.asarray(vectors, np.float32)).astype(np.float16),
        grid_boxes(rows, columns),
        np.full(rows * columns, -1, np.int32),
    )


def random_vectors(count: int, seed: int, dimension: int = 16) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, dimension))


@settings(deadline=None, max_examples=30)
@given(
    rows=st.integers(1, 8),
    columns=st.integers(1, 8),
    factor=st.integers(2, 5),
    seed=st.integers(0, 99),
)
def test_pooling_divides_the_number_of_vectors_by_the_factor(
    rows: int, columns: int, factor: int, seed: int
) -> None:
    page = on_grid(random_vectors(rows * columns, seed), rows, columns)
    pooled = pool_page(page, factor)
    assert len(pooled.vectors) == len(pooled.boxes) == len(pooled.words)
    assert len(pooled.vectors) == max(rows * columns // factor, 1)
    assert pooled.vectors.dtype == np.float16
    assert pooled.boxes.dtype == np.float32
    lengths = np.linalg.norm(pooled.vectors.astype(np.float32), axis=1)
    np.testing.assert_allclose(lengths, 1, atol=2e-3)
    assert pooled.boxes.min() >= 0
    assert pooled.boxes.max() <= 1
    assert (pooled.boxes[:, :2] < pooled.boxes[:, 2:]).all()
    assert pooled.invalid is None


def test_pooled_vectors_are_the_same_as_in_colpali_engine() -> None:
    import_torchvision()
    from colpali_engine.compression.token_pooling import HierarchicalTokenPooler

    page = on_grid(random_vectors(60, 1), 6, 10)
    (theirs,) = HierarchicalTokenPooler().pool_embeddings(
        [torch.from_numpy(page.vectors.astype(np.float32))], pool_factor=3
    )
    ours = pool_page(page, 3).vectors.astype(np.float32)
    # Ours are ordered by position on the page.
    np.testing.assert_allclose(
        ours[np.lexsort(ours.T)], theirs.numpy()[np.lexsort(theirs.numpy().T)], atol=1e-3
    )


@pytest.mark.parametrize("family", tiny.MAKERS)
def test_instruction_vectors_are_not_pooled(encoder: Load, family: str) -> None:
    images = [noise(210, 297), noise(300, 100, 1)]
    plain = encoder(family).encode_pages(pages(2), images)
    pooled = ReducedEncoder(encoder(family), pool=3).encode_pages(pages(2), images)
    for before, after in zip(plain, pooled, strict=True):
        placed = np.any(before.boxes, axis=1)
        still_placed = np.any(after.boxes, axis=1)
        np.testing.assert_array_equal(after.vectors[~still_placed], before.vectors[~placed])
        assert still_placed.sum() == placed.sum() // 3
        # The instruction vectors are still before and after the patches.
        np.testing.assert_array_equal(placed[[0, -1]], still_placed[[0, -1]])


def test_pooled_vectors_do_not_depend_on_the_batch(encoder: Load) -> None:
    pooled = ReducedEncoder(encoder("colpali"), pool=2)
    images = [noise(90, 120, seed) for seed in range(3)]
    together = pooled.encode_pages(pages(3), images)
    (alone,) = pooled.encode_pages(pages(1), images[1:2])
    np.testing.assert_allclose(alone.vectors, together[1].vectors, atol=5e-4)
    np.testing.assert_array_equal(alone.boxes, together[1].boxes)


def test_questions_are_not_pooled() -> None:
    plain, pooled = EmbeddedEncoder(), get_encoder("embedded+pool3")
    question = "When is the income tax of the company due?"
    np.testing.assert_array_equal(pooled.encode_query(question), plain.encode_query(question))
    assert (pooled.name, pooled.version) == ("embedded+pool3", f"{plain.version}-pool3")
    assert (pooled.dimension, pooled.reads) == (plain.dimension, plain.reads)
    assert 0.9 * plain.weak_match < pooled.weak_match < plain.weak_match


def test_pages_with_nothing_to_pool_are_unchanged() -> None:
    failed = page_without_vectors(16, "no numbers")
    assert pool_page(failed, 2).invalid == "no numbers"
    assert pool_page(failed, 2).vectors.shape == (0, 16)
    single = on_grid(random_vectors(1, 0), 1, 1)
    np.testing.assert_array_equal(pool_page(single, 2).vectors, single.vectors)
    (empty,) = get_encoder("embedded+pool2").encode_pages([page_with("")], [])
    assert len(empty.vectors) == 0


def test_opposite_vectors_are_pooled_to_one_of_them() -> None:
    """Their mean is zero and has no direction."""
    vectors = np.zeros((2, 16))
    vectors[:, 3] = 1, -1
    pooled = pool_page(on_grid(vectors, 1, 2), 2)
    np.testing.assert_array_equal(np.abs(pooled.vectors[:, 3]), [1])


def alike(*kinds: int) -> np.ndarray:
    """Return a vector for each patch, equal for patches of the same kind."""
    return np.eye(16)[list(kinds)]


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        # Adjacent: the box around both.
        ((1, 1, 0, 0), [0, 0, 0.5, 1]),
        # Far apart: one of them, without the area in between.
        ((1, 0, 0, 1), [0, 0, 0.25, 1]),
        # The box depends on the patches connected to the nearest one, not on the largest group.
        ((1, 1, 0, 1), [0, 0, 0.5, 1]),
    ],
)
def test_boxes_of_pooled_patches(kinds: tuple[int, ...], expected: list[float]) -> None:
    pooled = pool_page(on_grid(alike(*kinds), 1, 4), 2)
    boxes = [box.tolist() for box in pooled.boxes[pooled.vectors[:, 1] > 0.9]]
    assert boxes == [expected]


def test_pooled_margins_do_not_cover_the_whole_page() -> None:
    """Blank margins are connected around the page; a box around them would cover the middle."""
    kinds = np.ones((8, 8), int)
    kinds[1:-1, 1:-1] = 2 + np.arange(36).reshape(6, 6) // 6
    pooled = pool_page(on_grid(alike(*kinds.ravel()), 8, 8), 8)
    (margin,) = pooled.boxes[pooled.vectors[:, 1] > 0.9]
    assert np.prod(margin[2:] - margin[:2]) == pytest.approx(1 / 64)


def test_a_pooled_vector_of_words_belongs_to_one_of_them() -> None:
    page = page_with("Tax taxes boats tax wind harbour taxes sailing")
    (plain,) = EmbeddedEncoder().encode_pages([page])
    (pooled,) = get_encoder("embedded+pool2").encode_pages([page], [])
    assert len(pooled.words) == len(plain.words) // 2
    for vector, word, box in zip(pooled.vectors, pooled.words, pooled.boxes, strict=True):
        np.testing.assert_array_equal(box, np.float32(page.words[word].box))
        own = plain.vectors[plain.words == word].astype(np.float32)
        assert (own @ vector.astype(np.float32)).max() > 0.7
    assert (np.diff(pooled.words) > 0).all(), "in reading order"


@pytest.mark.parametrize("size", [(300, 300), (420, 180), (180, 420)])
@pytest.mark.parametrize("family", tiny.MAKERS)
def test_the_hottest_pooled_box_covers_the_mark(
    pixel_encoder: Load, family: str, size: tuple[int, int]
) -> None:
    marks = [np.array([x, y, x + MARK, y + MARK]) for x, y in CORNERS.values()]
    images = [*(with_mark(size, mark) for mark in marks), Image.new("RGB", size, "white")]
    *found, white = ReducedEncoder(pixel_encoder(family), pool=2).encode_pages(pages(5), images)
    bright = white.vectors[white.boxes.any(axis=1)][0].astype(np.float32)
    for corner, mark, page in zip(CORNERS, marks, found, strict=True):
        heat = page.vectors.astype(np.float32) @ bright
        heat[~page.boxes.any(axis=1)] = -1
        hottest = page.boxes[int(heat.argmax())]
        center = (hottest[:2] + hottest[2:]) / 2
        assert ((mark[:2] < center) & (center < mark[2:])).all(), corner


def test_a_remote_encoder_is_pooled_locally_under_its_own_name() -> None:
    page, image = page_with("a page"), picture(1)
    with serving(PixelEncoder()) as url:
        there = get_encoder(f"{url}+pool2")
        (received,) = there.encode_pages([page], [image])
        assert (there.name, there.version) == ("pixels+pool2", "1-pool2")
    with serving(ReducedEncoder(PixelEncoder(), pool=2)) as url:
        served = get_encoder(url)
        assert (served.name, served.version) == ("pixels+pool2", "1-pool2")
        (made_there,) = served.encode_pages([page], [image])
    np.testing.assert_array_equal(received.vectors, made_there.vectors)
    np.testing.assert_array_equal(received.boxes, made_there.boxes)


def test_the_name_of_a_local_checkpoint_includes_its_factor(
    checkpoint: Callable[[str], Path], tmp_path: Path, make_pdf: Callable[..., Path]
) -> None:
    name = f"{checkpoint('colpali')}+pool2"
    index = Index.open(tmp_path / "index", device="cpu")
    added = index.add(make_pdf("notes.pdf", *SENTENCES), encoder=name)
    assert [known.name for known in added.encoders] == [name]
    found = Index.open(tmp_path / "index", device="cpu").search("income tax", encoder=name)
    assert found.pages_searched == 3
    assert len(list(pages_with_heat(index, found, dpi=36))) == len(found.pages)


def test_an_index_can_have_pooled_and_unpooled_vectors(
    tmp_path: Path, make_pdf: Callable[..., Path]
) -> None:
    index = Index.open(tmp_path / "index")
    path = make_pdf("notes.pdf", *SENTENCES)
    for name in ("embedded", "embedded+pool2"):
        index.add(path, encoder=name)
    (document,) = index.documents()
    assert {known.name for known in document.encoders} == {"embedded", "embedded+pool2"}
    counts = {
        known.name: len(index._store.vectors(document.id, known).vectors)
        for known in document.encoders
    }
    assert counts["embedded+pool2"] <= counts["embedded"] / 2
    for name in counts:
        answer = index.ask("When is income tax due?", encoder=name)
        assert answer.search.encoder.name == name
        assert answer.search.pages[0].page == 1
    assert not index.verify()


def test_pooling_needs_its_extra_and_a_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidOption, match="factor 1"):
        ReducedEncoder(PixelEncoder(), pool=1)
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(MissingExtra, match=r"Token pooling needs .*visar-rag\[pooling\]"):
        get_encoder("embedded+pool2")
