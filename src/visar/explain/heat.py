"""The heat of a question on a page: its patches coloured by their weight."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from visar.results import PageHit, PageSource, SearchResult

if TYPE_CHECKING:
    from PIL.Image import Image

    from visar.retrieval.corpus import Corpus

# Orange to red, readable on white and on dark pages, for any colour vision.
_COOL = np.array([255, 196, 0])
_HOT = np.array([214, 40, 40])
_STRONGEST = 0.75


def heat_of_pixels(
    boxes: NDArray[np.float32], weights: NDArray[np.float32], width: int, height: int
) -> NDArray[np.float32]:
    """The weight over each pixel, 0 to 1 relative to the page's heaviest patch."""
    heat = np.zeros((height, width), np.float32)
    # What has no place on the page is no measure for what has one.
    heaviest = float(weights.max(initial=0, where=boxes.any(axis=1)))
    if heaviest <= 0:
        return heat
    for (left, top, right, bottom), weight in zip(boxes, weights / heaviest, strict=True):
        if weight > 0:
            rows = slice(int(top * height), int(np.ceil(bottom * height)))
            columns = slice(int(left * width), int(np.ceil(right * width)))
            heat[rows, columns] = np.maximum(heat[rows, columns], weight)
    return heat


def with_heat(image: Image, boxes: NDArray[np.float32], weights: NDArray[np.float32]) -> Image:
    """A copy of a page's image with the heat laid over it."""
    from PIL.Image import fromarray

    pixels = np.asarray(image.convert("RGB"), np.float32)
    heat = heat_of_pixels(boxes, weights, image.width, image.height)[..., None]
    colour = _COOL + (_HOT - _COOL) * heat
    cover = _STRONGEST * heat
    # Multiplied rather than covered: the words below stay dark.
    tinted = pixels * (1 - cover) + pixels * colour / 255 * cover
    return fromarray(tinted.round().astype(np.uint8))


def patches(
    found: SearchResult, corpus: Corpus, document: str, number: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the boxes of a page's patches, and their weights; see `visar.Index.patches`."""
    page = corpus.page(document, number)
    boxes, _ = page.patches(0)
    cosines = found.query @ page.vectors(0).astype(found.query.dtype).T
    weights = found.patch_weights(document, number)
    own = np.zeros(len(boxes), np.float32) if weights is None else weights
    return boxes, np.vstack([own, cosines])


def pages_with_heat(
    source: PageSource, found: SearchResult, corpus: Corpus, dpi: float
) -> Iterator[tuple[PageHit, Image]]:
    """Yield each found page with its picture, the question's heat laid over it.

    ``corpus`` are the pages of the documents searched. A neighbour that the method did not choose
    from has no heat.
    """
    for hit in found.pages:
        image = source.image(hit.document, hit.page, dpi)
        weights = found.patch_weights(hit.document, hit.page)
        if weights is not None:
            boxes, _ = corpus.page(hit.document, hit.page).patches(0)
            image = with_heat(image, boxes, weights)
        yield hit, image
