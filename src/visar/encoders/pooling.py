"""Token pooling: fewer vectors a page, each the mean of several that are alike.

The clusters are those of colpali-engine's hierarchical pooler. ``docs/visual-encoders.md`` has
what it saves and what it costs.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visar.documents.page import Page
from visar.encoders.protocol import Encoder, PageEmbedding, Reads, unit_vectors
from visar.errors import InvalidOption, MissingExtra
from visar.models.protocols import Downloadable, Releasable

# Boxes of one grid that stand side by side differ by the rounding of float32.
_TOUCHING = 1e-4
# A box drawn around several patches is theirs if they fill so much of it.
_FILLED = 0.5
# A mean is farther from a question than the best of its vectors was. Measured with the embedded
# encoder: its matches fall by about the factor to this power, for 2, 3 and 4.
_FALL = 0.05


class PooledEncoder:
    """An encoder whose pages have about ``factor`` times fewer vectors; questions keep theirs.

    Raises InvalidOption if the factor is less than 2, MissingExtra if scipy is not installed.
    """

    def __init__(self, encoder: Encoder, factor: int) -> None:
        if factor < 2:
            raise InvalidOption(f"Vectors are pooled by a whole number from 2 on, not by {factor}.")
        # Known now, rather than after the first pages were read and encoded.
        if importlib.util.find_spec("scipy") is None:
            raise MissingExtra("Token pooling", "pooling")
        self._encoder = encoder
        self._factor = factor

    def __repr__(self) -> str:
        return f"PooledEncoder({self._encoder!r}, {self._factor})"

    @property
    def name(self) -> str:
        return f"{self._encoder.name}+pool{self._factor}"

    @property
    def version(self) -> str:
        return f"{self._encoder.version}-pool{self._factor}"

    @property
    def dimension(self) -> int:
        return self._encoder.dimension

    @property
    def reads(self) -> Reads:
        return self._encoder.reads

    @property
    def weak_match(self) -> float:
        return self._encoder.weak_match * float(self._factor**-_FALL)

    def fetch(self) -> None:
        """Download what the encoder needs, if it needs anything."""
        if isinstance(self._encoder, Downloadable):
            self._encoder.fetch()

    def release(self) -> None:
        """Free the memory of the encoder, if it holds any."""
        if isinstance(self._encoder, Releasable):
            self._encoder.release()

    def encode_pages(self, pages: Sequence[Page], images: Sequence[Any]) -> list[PageEmbedding]:
        """Encode pages, then pool the vectors of each page on its own."""
        return [pool_page(page, self._factor) for page in self._encoder.encode_pages(pages, images)]

    def encode_query(self, question: str) -> NDArray[np.float32]:
        """Encode a question, without pooling."""
        return self._encoder.encode_query(question)


def pool_page(page: PageEmbedding, factor: int) -> PageEmbedding:
    """Pool the vectors of a page that have a place on it.

    Those of instructions have none: they stay as they are, in their order among the others.
    """
    has_place = page.boxes.any(axis=1)
    placed, rest = np.flatnonzero(has_place), np.flatnonzero(~has_place)
    if len(placed) < 2:
        return page
    vectors = page.vectors.astype(np.float32)
    clusters = [placed[members] for members in _clusters(vectors[placed], factor)]
    nearest, means = zip(*(_centre(vectors, members) for members in clusters), strict=True)
    boxes = [_place(page, *cluster) for cluster in zip(clusters, nearest, strict=True)]
    sources = np.concatenate([nearest, rest])
    order = np.argsort(sources)
    pooled = np.concatenate([unit_vectors(np.array(means)), vectors[rest]])
    return PageEmbedding(
        pooled[order].astype(np.float16),
        np.concatenate([boxes, page.boxes[rest]])[order],
        page.words[sources[order]],
    )


def _centre(
    vectors: NDArray[np.float32], members: NDArray[np.int64]
) -> tuple[int, NDArray[np.float32]]:
    """Return the index of the member nearest to the mean, and the mean."""
    mean = vectors[members].mean(axis=0)
    nearest = int(members[(vectors[members] @ mean).argmax()])
    # The mean of opposite vectors has no direction: one of them stands for all.
    return nearest, mean if mean.any() else vectors[nearest]


def _clusters(vectors: NDArray[np.float32], factor: int) -> list[NDArray[np.int64]]:
    """Return the indices of the vectors that become one, for each cluster.

    Ward's clustering of the rows of the matrix of cosine distances, as colpali-engine has it.
    """
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import pdist

    # linkage() would compute the same pdist of the square matrix, but take it for a mistake.
    tree = linkage(pdist(1 - vectors @ vectors.T), method="ward")
    labels = fcluster(tree, t=max(len(vectors) // factor, 1), criterion="maxclust")
    return [np.flatnonzero(labels == label) for label in np.unique(labels)]


def _place(page: PageEmbedding, members: NDArray[np.int64], nearest: int) -> NDArray[np.float32]:
    """Return the box of the mean of some vectors.

    Vectors that are alike may be far apart on the page, and a box around all of them would show
    parts that belong to none. So it is the box of the vector nearest to the mean, extended to the
    patches that adjoin it if they fill most of the box around them. A vector that belongs to a
    word keeps that word's box, for heat and quotes.
    """
    own: NDArray[np.float32] = page.boxes[nearest]
    if page.words[nearest] >= 0:
        return own
    group = _adjoining(page.boxes[members], int(np.flatnonzero(members == nearest)[0]))
    around = np.concatenate([group[:, :2].min(axis=0), group[:, 2:].max(axis=0)])
    whole = float(np.prod(around[2:] - around[:2]))
    return around if covered_area(group) >= _FILLED * whole else own


def _adjoining(boxes: NDArray[np.float32], start: int) -> NDArray[np.float32]:
    """Return the boxes connected with one of them, by sides or corners."""
    begin, end = boxes[:, None, :2] - _TOUCHING, boxes[:, None, 2:] + _TOUCHING
    touching = np.all((begin <= boxes[:, 2:]) & (boxes[:, :2] <= end), axis=2)
    reached: NDArray[np.bool_] = touching[start]
    while (further := touching[reached].any(axis=0)).sum() > reached.sum():
        reached = further
    return boxes[reached]


def covered_area(boxes: NDArray[np.float32]) -> float:
    """Return the area that boxes cover together; ColModernVBERT's overlap.

    >>> covered_area(np.array([[0, 0, 1, 1], [0.5, 0, 1.5, 1]], np.float32))
    1.5
    """
    across, down = np.unique(boxes[:, [0, 2]]), np.unique(boxes[:, [1, 3]])
    cells = np.zeros((len(down) - 1, len(across) - 1), bool)
    columns = np.searchsorted(across, boxes[:, [0, 2]])
    rows = np.searchsorted(down, boxes[:, [1, 3]])
    for (left, right), (top, bottom) in zip(columns, rows, strict=True):
        cells[top:bottom, left:right] = True
    return float(np.diff(down) @ cells @ np.diff(across))
