"""Token pooling: fewer vectors per page, each the mean of several similar ones.

The clusters are the same as those of colpali-engine's hierarchical pooler.
``docs/encoders.md`` describes savings and costs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from visar.encoders.encoder import PageEmbedding, unit_vectors

# Tolerance for adjacent boxes of one grid, which differ by float32 rounding.
_TOLERANCE = 1e-4
# Minimum share of a bounding box that its patches must cover.
_MIN_COVERAGE = 0.5


def pool_page(page: PageEmbedding, factor: int) -> PageEmbedding:
    """Pool the vectors that have a position on the page.

    Instruction vectors have none, and are kept unchanged and in order.
    """
    is_placed = page.boxes.any(axis=1)
    placed, rest = np.flatnonzero(is_placed), np.flatnonzero(~is_placed)
    if len(placed) < 2:
        return page
    vectors = page.vectors.astype(np.float32)
    clusters = [placed[members] for members in _clusters(vectors[placed], factor)]
    nearest, means = zip(*(_center(vectors, members) for members in clusters), strict=True)
    boxes = [_pooled_box(page, *cluster) for cluster in zip(clusters, nearest, strict=True)]
    sources = np.concatenate([nearest, rest])
    order = np.argsort(sources)
    pooled = np.concatenate([unit_vectors(np.array(means)), vectors[rest]])
    return PageEmbedding(
        pooled[order].astype(np.float16),
        np.concatenate([boxes, page.boxes[rest]])[order],
        page.words[sources[order]],
    )


def _center(
    vectors: NDArray[np.float32], members: NDArray[np.int64]
) -> tuple[int, NDArray[np.float32]]:
    """Return the index of the member nearest to the mean, and the mean."""
    mean = vectors[members].mean(axis=0)
    nearest = int(members[(vectors[members] @ mean).argmax()])
    # The mean of opposite vectors is zero, so use one of them instead.
    return nearest, mean if mean.any() else vectors[nearest]


def _clusters(vectors: NDArray[np.float32], factor: int) -> list[NDArray[np.int64]]:
    """Return the indices of the vectors in each cluster.

    Like colpali-engine, clusters the rows of the cosine distance matrix by Ward's method.
    """
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import pdist

    # linkage() computes the same pdist from the square matrix, but warns about it.
    tree = linkage(pdist(1 - vectors @ vectors.T), method="ward")
    labels = fcluster(tree, t=max(len(vectors) // factor, 1), criterion="maxclust")
    return [np.flatnonzero(labels == label) for label in np.unique(labels)]


def _pooled_box(
    page: PageEmbedding, members: NDArray[np.int64], nearest: int
) -> NDArray[np.float32]:
    """Return the box of a cluster's mean.

    Similar vectors may be far apart on the page, and a box around all of them would cover
    unrelated parts. So this is the box of the vector nearest to the mean, extended to connected
    patches if they cover most of the box around them. A vector of a word keeps the word's box,
    which heat maps and quotes need.
    """
    own: NDArray[np.float32] = page.boxes[nearest]
    if page.words[nearest] >= 0:
        return own
    group = _connected(page.boxes[members], int(np.flatnonzero(members == nearest)[0]))
    around = np.concatenate([group[:, :2].min(axis=0), group[:, 2:].max(axis=0)])
    whole = float(np.prod(around[2:] - around[:2]))
    return around if covered_area(group) >= _MIN_COVERAGE * whole else own


def _connected(boxes: NDArray[np.float32], start: int) -> NDArray[np.float32]:
    """Return the boxes that are connected to a start box by sides or corners."""
    begin, end = boxes[:, None, :2] - _TOLERANCE, boxes[:, None, 2:] + _TOLERANCE
    touching = np.all((begin <= boxes[:, 2:]) & (boxes[:, :2] <= end), axis=2)
    reached: NDArray[np.bool_] = touching[start]
    while (further := touching[reached].any(axis=0)).sum() > reached.sum():
        reached = further
    return boxes[reached]


def covered_area(boxes: NDArray[np.floating[Any]]) -> float:
    """Return the area of the union of boxes, since ColModernVBERT's boxes overlap.

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
