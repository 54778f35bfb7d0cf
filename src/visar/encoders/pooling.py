"""Token pooling: fewer vectors a page, each the mean of several that are alike.

colpali-engine's hierarchical pooler decides which. ``docs/visual-encoders.md`` says what it saves
and what it costs.
"""

from __future__ import annotations

import functools
import importlib.util
import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from visar.documents.page import Page
from visar.encoders.protocol import Encoder, PageEmbedding
from visar.encoders.vectors import unit_vectors
from visar.errors import InvalidOption, MissingExtra
from visar.models.protocols import Downloadable

# Boxes of one grid that stand side by side differ by the rounding of float32.
_TOUCHING = 1e-4
# A box drawn around several patches is theirs if they fill so much of it.
_FILLED = 0.5
# A mean is farther from a question than the best of its vectors was. Measured with the embedded
# encoder: its matches fall by about the factor to this power, for 2, 3 and 4.
_FALL = 0.05


class PooledEncoder:
    """An encoder whose pages have about ``factor`` times fewer vectors; questions keep theirs."""

    name: str
    dimension: int
    reads: Literal["words", "image"]
    weak_match: float

    def __init__(self, encoder: Encoder, factor: int) -> None:
        if factor < 2:
            raise InvalidOption(f"Vectors are pooled by a whole number from 2 on, not by {factor}.")
        # Known now, rather than after the first pages were read and encoded.
        if importlib.util.find_spec("colpali_engine") is None:
            raise MissingExtra("Token pooling", "colpali")
        self._encoder = encoder
        self._factor = factor

    def __repr__(self) -> str:
        return f"PooledEncoder({self._encoder!r}, {self._factor})"

    def __getattr__(self, attribute: str) -> Any:
        """Ask the encoder below when it is needed: it may run elsewhere."""
        if attribute not in PooledEncoder.__annotations__:
            raise AttributeError(f"{type(self).__name__} has no attribute {attribute!r}")
        said = getattr(self._encoder, attribute)
        if attribute == "name":
            return f"{said}+pool{self._factor}"
        return said * self._factor**-_FALL if attribute == "weak_match" else said

    @property
    def version(self) -> str:
        return f"{self._encoder.version}-pool{self._factor}"

    def fetch(self) -> None:
        """Download what the encoder below needs, if it needs anything."""
        if isinstance(self._encoder, Downloadable):
            self._encoder.fetch()

    def encode_pages(self, pages: Sequence[Page], images: Sequence[Any]) -> list[PageEmbedding]:
        """Encode pages, then pool the vectors of each on its own."""
        return [pool_page(page, self._factor) for page in self._encoder.encode_pages(pages, images)]

    def encode_query(self, question: str) -> NDArray[np.float32]:
        return self._encoder.encode_query(question)


def pool_page(page: PageEmbedding, factor: int) -> PageEmbedding:
    """Pool the vectors that have a place on the page.

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
    """Which of some vectors is nearest to their mean, and that mean."""
    mean = vectors[members].mean(axis=0)
    nearest = int(members[(vectors[members] @ mean).argmax()])
    # Of opposite vectors nothing is left: one of them stands for all.
    return nearest, mean if mean.any() else vectors[nearest]


def _clusters(vectors: NDArray[np.float32], factor: int) -> list[NDArray[np.int64]]:
    """Which vectors become one, for each that is left."""
    import torch

    with warnings.catch_warnings():
        # Vectors are clustered by their similarities to all others, a square that scipy takes
        # for a mistake.
        warnings.filterwarnings("ignore", "The symmetric non-negative hollow")
        found = _pooler().pool_embeddings(
            [torch.from_numpy(vectors)], return_dict=True, pool_factor=factor
        )
    (clusters,) = found.cluster_id_to_indices
    members = [indices.numpy() for (indices,) in clusters.values()]
    return [indices for indices in members if len(indices)]


@functools.cache
def _pooler() -> Any:
    try:
        from visar.models.loading import import_torchvision

        import_torchvision()
        from colpali_engine.compression.token_pooling import HierarchicalTokenPooler
    except ImportError as error:
        raise MissingExtra("Token pooling", "colpali") from error
    return HierarchicalTokenPooler()


def _place(page: PageEmbedding, members: NDArray[np.int64], nearest: int) -> NDArray[np.float32]:
    """What part of the page the mean of some vectors stands for.

    Vectors that are alike may stand far apart, and a box around them would show what none of
    them saw. So it is the place of the one nearest to the mean; with the patches that adjoin it,
    if they fill most of the box around them. A vector that belongs to a word keeps to it: heat
    and quotes then show a word that was meant.
    """
    own: NDArray[np.float32] = page.boxes[nearest]
    if page.words[nearest] >= 0:
        return own
    group = _adjoining(page.boxes[members], int(np.flatnonzero(members == nearest)[0]))
    around = np.concatenate([group[:, :2].min(axis=0), group[:, 2:].max(axis=0)])
    whole = float(np.prod(around[2:] - around[:2]))
    return around if covered_area(group) >= _FILLED * whole else own


def _adjoining(boxes: NDArray[np.float32], first: int) -> NDArray[np.float32]:
    """The boxes that hang together with one of them, side by side or corner to corner."""
    begin, end = boxes[:, None, :2] - _TOUCHING, boxes[:, None, 2:] + _TOUCHING
    touching = np.all((begin <= boxes[:, 2:]) & (boxes[:, :2] <= end), axis=2)
    reached: NDArray[np.bool_] = touching[first]
    while (further := touching[reached].any(axis=0)).sum() > reached.sum():
        reached = further
    return boxes[reached]


def covered_area(boxes: NDArray[np.float32]) -> float:
    """The area that boxes cover together; ColModernVBERT's overlap, as it sees a page twice.

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
