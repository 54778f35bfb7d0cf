"""The heat of a question on a page: its patches coloured by their weight."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from visar.explain.explanation import trace_of
from visar.library import Library
from visar.results import PageHit, Patches, SearchResult

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


def patches(found: SearchResult, corpus: Corpus, document: str, number: int) -> Patches:
    """Return the patches of a page; see `visar.Index.patches`."""
    trace = trace_of(found)
    page = corpus.page(document, number)
    boxes, _ = page.patches(0)
    cosines = trace.question @ page.vectors(0).astype(trace.question.dtype).T
    weights = trace.patch_weights(document, number)
    return Patches(
        boxes=tuple(tuple(box) for box in boxes.tolist()),
        weights=(0.0,) * len(boxes) if weights is None else tuple(weights.tolist()),
        cosines=tuple(tuple(row) for row in cosines.tolist()),
    )


def pages_with_heat(
    library: Library, found: SearchResult, dpi: float = 144
) -> Iterator[tuple[PageHit, Image]]:
    """Yield each found page with its picture and the question's heat on it."""
    for hit in found.pages:
        patches = library.patches(found, hit.document, hit.page)
        boxes = np.asarray(patches.boxes, np.float32).reshape(-1, 4)
        image = library.image(hit.document, hit.page, dpi)
        yield hit, with_heat(image, boxes, np.asarray(patches.weights, np.float32))
