"""How much of the pages is sent: pixels of images, tokens of text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from visar.errors import InvalidOption

if TYPE_CHECKING:
    from PIL.Image import Image

# What the authors' program sends at most.
MAX_PIXELS = 55_000_000
# Leaves room for the question and the answer in a context of 32,768.
MAX_TOKENS = 30_000


def fit_pixels(images: Sequence[Image], most: int = MAX_PIXELS) -> list[Image]:
    """Scale images down, all by the same factor, so that together they have ``most`` pixels.

    None is ever made larger.
    """
    if most < len(images):
        raise InvalidOption(f"{most} pixels do not suffice for {len(images)} pages: allow more.")
    pixels = sum(image.width * image.height for image in images)
    if pixels <= most:
        return list(images)
    factor = math.sqrt(most / pixels)
    return [_scaled(image, factor) for image in images]


def _scaled(image: Image, factor: float) -> Image:
    from PIL.Image import Resampling

    # Rounded down, so that the sum cannot exceed the budget; a side has a pixel at least.
    size = max(1, int(image.width * factor)), max(1, int(image.height * factor))
    return image.resize(size, Resampling.LANCZOS)


def fit_tokens(texts: Sequence[str], count: Callable[[str], int], most: int) -> list[str]:
    r"""Cut texts at the end of lines so that together they take at most ``most`` tokens.

    Each may take the same share; what short texts leave over goes to the longer ones.

    >>> fit_tokens(["one", "two\nthree\nfour"], lambda text: len(text.split()), 3)
    ['one', 'two\nthree']
    """
    if most < 0:
        raise InvalidOption(f"The budget must be at least 0 tokens, not {most}.")
    fitted = list(texts)
    left = most
    sizes = [count(text) for text in texts]
    by_size = sorted(range(len(texts)), key=lambda index: sizes[index])
    for place, index in enumerate(by_size):
        share = left // (len(texts) - place)
        if sizes[index] > share:
            fitted[index] = _first_lines(texts[index], count, share)
        left -= min(sizes[index], share)
    return fitted


def _first_lines(text: str, count: Callable[[str], int], most: int) -> str:
    """As many whole lines from the beginning as fit, by bisection."""
    lines = text.splitlines()
    fits, too_many = 0, len(lines) + 1
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if count("\n".join(lines[:middle])) <= most:
            fits = middle
        else:
            too_many = middle
    return "\n".join(lines[:fits])
