"""Tests of budgets for images and text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from visar.errors import InvalidOption
from visar.generation.prompts import fit_pixels, fit_tokens

SIDES = st.integers(50, 300)
SHAPES = st.lists(st.tuples(SIDES, SIDES), min_size=1, max_size=6)


def pixels(images: list[Image.Image]) -> int:
    return sum(image.width * image.height for image in images)


@given(SHAPES, st.integers(2_000, 200_000))
def test_images_fit_and_none_grows(shapes: list[tuple[int, int]], most: int) -> None:
    images = [Image.new("RGB", shape) for shape in shapes]
    fitted = fit_pixels(images, most)
    assert pixels(fitted) <= most
    assert all(
        after.width <= before.width and after.height <= before.height
        for before, after in zip(images, fitted, strict=True)
    )


def test_all_images_shrink_by_the_same_factor() -> None:
    fitted = fit_pixels([Image.new("RGB", (1000, 2000)), Image.new("RGB", (2000, 1000))], 1_000_000)
    assert [image.size for image in fitted] == [(500, 1000), (1000, 500)]


def test_images_within_the_budget_are_sent_as_they_are() -> None:
    image = Image.new("RGB", (100, 100))
    assert fit_pixels([image], 10_000)[0] is image


def test_a_budget_without_a_pixel_per_page_raises_an_error() -> None:
    with pytest.raises(InvalidOption, match=r"\b2\b.*\b3\b"):
        fit_pixels([Image.new("RGB", (9, 9))] * 3, 2)


def words(text: str) -> int:
    return len(text.split())


LINES = st.lists(st.sampled_from(["one", "one two", "one two three"]), max_size=8).map("\n".join)


@given(st.lists(LINES, min_size=1, max_size=6), st.integers(0, 60))
def test_texts_fit_and_are_cut_at_line_ends(texts: list[str], most: int) -> None:
    fitted = fit_tokens(texts, words, most)
    assert sum(map(words, fitted)) <= most
    for whole, cut in zip(texts, fitted, strict=True):
        assert whole.splitlines()[: len(cut.splitlines())] == cut.splitlines()
    if sum(map(words, texts)) <= most:
        assert fitted == texts


def test_unused_tokens_of_short_pages_go_to_longer_ones() -> None:
    long = "\n".join(["word"] * 20)
    assert [words(text) for text in fit_tokens([long, "word", long], words, 21)] == [10, 1, 10]
