"""Heat maps: pages with their patches colored by weight."""

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

# Orange to red: visible on light and dark pages, and to colorblind people.
_COOL = np.array([255, 196, 0])
_HOT = np.array([214, 40, 40])
_MAX_OPACITY = 0.75


def pixel_heat(
    boxes: NDArray[np.float32], weights: NDArray[np.float32], width: int, height: int
) -> NDArray[np.float32]:
    """Return the weight of each pixel, from 0 to 1 for the page's heaviest patch."""
    heat = np.zeros((height, width), np.float32)
    # Vectors without a position can't be shown, so they don't count as the heaviest.
    heaviest = float(weights.max(initial=0, where=boxes.any(axis=1)))
    if heaviest <= 0:
        return heat
    for (left, top, right, bottom), weight in zip(boxes, weights / heaviest, strict=True):
        if weight > 0:
            rows = slice(int(top * height), int(np.ceil(bottom * height)))
            columns = slice(int(left * width), int(np.ceil(right * width)))
            heat[rows, columns] = np.maximum(heat[rows, columns], weight)
    return heat


def overlay_heat(image: Image, boxes: NDArray[np.float32], weights: NDArray[np.float32]) -> Image:
    """Return a copy of a page's image with the heat map on top."""
    from PIL.Image import fromarray

    pixels = np.asarray(image.convert("RGB"), np.float32)
    heat = pixel_heat(boxes, weights, image.width, image.height)[..., None]
    color = _COOL + (_HOT - _COOL) * heat
    cover = _MAX_OPACITY * heat
    # Multiplying keeps dark text dark.
    tinted = pixels * (1 - cover) + pixels * color / 255 * cover
    return fromarray(tinted.round().astype(np.uint8))


def patches(found: SearchResult, corpus: Corpus, document: str, number: int) -> Patches:
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
    """Yield each page of a result with its heat map."""
    for hit in found.pages:
        patches = library.patches(found, hit.document, hit.page)
        boxes = np.asarray(patches.boxes, np.float32).reshape(-1, 4)
        image = library.image(hit.document, hit.page, dpi)
        yield hit, overlay_heat(image, boxes, np.asarray(patches.weights, np.float32))
