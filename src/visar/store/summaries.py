"""Summaries of pages, which find candidates in a library without a look at all vectors.

Of a page these are a few mean vectors in float16, and one bit a dimension of each of its vectors:
the sign after a random rotation. Those of a document are kept as bytes: a header, the number of
vectors of each page, the means of all pages, and their bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visar.core.vectors import Float32, Integers

MEAN_NUMBERS = 4096
"""Numbers of a page's mean vectors: 32 vectors of 128 dimensions, 9 of 448."""

_TINY = float(np.finfo(np.float32).tiny)
_INTEGER = np.dtype("<i8")
# The first numbers of the bytes: another version, or other means, are made again.
_HEADER = [0x52415356, 1, MEAN_NUMBERS]


@dataclass(frozen=True, slots=True, eq=False)
class Summaries:
    """The summaries of a document's pages that have vectors, as views of the bytes kept."""

    numbers: Integers
    """Of these pages."""
    mean_starts: Integers
    """(pages + 1): where the means of each page begin, and the last ones end."""
    code_starts: Integers
    means: NDArray[np.float16]
    codes: NDArray[np.uint64]
    """(n, D / 64): the bits, 64 in a word."""


def summarise(pages: Iterable[NDArray[np.float16]]) -> bytes:
    """Return the summaries of pages, each given by its (n, D) vectors."""
    lengths, means, codes = [], [], []
    for page in pages:
        lengths.append(len(page))
        if len(page):
            exact = page.astype(np.float32)
            means.append(mean_vectors(exact).astype("<f2"))
            codes.append(sign_bits(exact))
    return _content(lengths, means, codes)


def join_pages(pages: Sequence[bytes], dimension: int) -> bytes:
    """Return the summaries of pages that were made one by one; raises ValueError as `view` does."""
    read = [view(np.frombuffer(page, np.uint8), 1, dimension) for page in pages]
    lengths = [len(page.codes) for page in read]
    return _content(lengths, [page.means for page in read], [page.codes for page in read])


def _content(lengths: Sequence[int], means: Sequence[Any], codes: Sequence[Any]) -> bytes:
    header = np.array([*_HEADER, *lengths], _INTEGER)
    return b"".join([part.tobytes() for part in (header, *means, *codes)])


def view(content: NDArray[np.uint8], pages: int, dimension: int) -> Summaries:
    """Return what the bytes of a document's summaries hold.

    Raises
    ------
    ValueError
        If they are not those of this version, so many pages, and vectors of this dimension.
    """
    middle = _INTEGER.itemsize * (len(_HEADER) + pages)
    header, lengths = np.split(content[:middle].view(_INTEGER), [len(_HEADER)])
    if header.tolist() != _HEADER or len(lengths) != pages:
        raise ValueError("no summaries of these pages")
    numbers = np.flatnonzero(lengths) + 1
    counts = _counts(lengths[numbers - 1], dimension)
    mean_starts = np.concatenate([[0], np.cumsum(counts)])
    code_starts = np.concatenate([[0], np.cumsum(lengths[numbers - 1])])
    means, codes = np.split(content[middle:], [2 * dimension * int(mean_starts[-1])])
    return Summaries(
        numbers,
        mean_starts,
        code_starts,
        means.view("<f2").reshape(int(mean_starts[-1]), dimension),
        codes.view("<u8").reshape(int(code_starts[-1]), _words(dimension)),
    )


def sign_bits(vectors: Float32) -> NDArray[np.uint64]:
    """Return the signs of rotated vectors, 64 in a word; the last word is filled up with zeros."""
    signs = vectors @ rotation(vectors.shape[1]).T > 0
    packed = np.packbits(signs, axis=1)
    width = 8 * _words(vectors.shape[1])
    filled = np.zeros((len(packed), width), np.uint8)
    filled[:, : packed.shape[1]] = packed
    return filled.view("<u8")


def _words(dimension: int) -> int:
    return -(-dimension // 64)


@cache
def rotation(dimension: int) -> Float32:
    """A random rotation, the same everywhere: after it every dimension tells as much."""
    random = np.random.default_rng(dimension).normal(size=(dimension, dimension))
    orthogonal, triangle = np.linalg.qr(random)
    return np.asarray(orthogonal * np.sign(np.diag(triangle)), np.float32)


def _counts(lengths: Integers, dimension: int) -> Integers:
    """How many means pages of so many vectors have."""
    return np.minimum(lengths, max(1, MEAN_NUMBERS // dimension))


def mean_vectors(page: Float32) -> Float32:
    """Return the means of runs of a page's vectors: `MEAN_NUMBERS` numbers at most."""
    count = int(_counts(np.array(len(page)), page.shape[1]))
    edges = np.arange(count + 1) * len(page) // count
    means = np.add.reduceat(page, edges[:-1], axis=0)
    # Of length 1: a run about several things would else lose to one about a single thing.
    return np.asarray(means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), _TINY))
