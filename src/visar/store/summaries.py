"""Summaries of pages, used to find candidates in a library without reading all vectors.

A summary has a few mean vectors of the page in float16, and one bit per dimension of each vector:
the sign after a random rotation. The summaries of a document are stored as bytes: a header, the
number of vectors of each page, the means of all pages, and their bits.
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
"""Maximum count of numbers in a page's mean vectors: 32 vectors of 128 dimensions, or 9 of 448."""

_TINY = float(np.finfo(np.float32).tiny)
_INTEGER = np.dtype("<i8")
# The first numbers of the bytes. Summaries with another header are computed again.
_HEADER = [0x52415356, 1, MEAN_NUMBERS]


@dataclass(frozen=True, slots=True, eq=False)
class Summaries:
    """The summaries of a document's pages that have vectors, as views of the stored bytes."""

    numbers: Integers
    """Numbers of these pages."""
    mean_starts: Integers
    """Index of each page's first mean, then the total, of shape (pages + 1,)."""
    code_starts: Integers
    """Index of each page's first code, then the total, of shape (pages + 1,)."""
    means: NDArray[np.float16]
    """Mean vectors of all pages."""
    codes: NDArray[np.uint64]
    """Sign bits of all vectors, 64 in a word, of shape (n, D / 64)."""


def summarize_pages(pages: Iterable[NDArray[np.float16]]) -> bytes:
    """Return the summaries of pages, given the (n, D) vectors of each."""
    lengths, means, codes = [], [], []
    for page in pages:
        lengths.append(len(page))
        if len(page):
            exact = page.astype(np.float32)
            means.append(mean_vectors(exact).astype("<f2"))
            codes.append(sign_bits(exact))
    return _content(lengths, means, codes)


def join_summaries(pages: Sequence[bytes], dimension: int) -> bytes:
    """Join the summaries of single pages to those of a document; raise ValueError like `view`."""
    views = [view(np.frombuffer(page, np.uint8), 1, dimension) for page in pages]
    lengths = [len(page.codes) for page in views]
    return _content(lengths, [page.means for page in views], [page.codes for page in views])


def _content(lengths: Sequence[int], means: Sequence[Any], codes: Sequence[Any]) -> bytes:
    header = np.array([*_HEADER, *lengths], _INTEGER)
    return b"".join([part.tobytes() for part in (header, *means, *codes)])


def view(content: NDArray[np.uint8], pages: int, dimension: int) -> Summaries:
    """Return the summaries of a document as views of their bytes.

    Raises ValueError if they have another version, number of pages or dimension.
    """
    middle = _INTEGER.itemsize * (len(_HEADER) + pages)
    header, lengths = np.split(content[:middle].view(_INTEGER), [len(_HEADER)])
    if header.tolist() != _HEADER or len(lengths) != pages:
        raise ValueError("the summaries have another version or number of pages")
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
    """Return the signs of rotated vectors, 64 in a word, padded with zeros."""
    signs = vectors @ rotation(vectors.shape[1]).T > 0
    packed = np.packbits(signs, axis=1)
    width = 8 * _words(vectors.shape[1])
    padded = np.zeros((len(packed), width), np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded.view("<u8")


def _words(dimension: int) -> int:
    return -(-dimension // 64)


@cache
def rotation(dimension: int) -> Float32:
    """Return a fixed random rotation, after which all dimensions are equally informative."""
    random = np.random.default_rng(dimension).normal(size=(dimension, dimension))
    orthogonal, triangle = np.linalg.qr(random)
    return np.asarray(orthogonal * np.sign(np.diag(triangle)), np.float32)


def _counts(lengths: Integers, dimension: int) -> Integers:
    """Return the number of means of pages with these numbers of vectors."""
    return np.minimum(lengths, max(1, MEAN_NUMBERS // dimension))


def mean_vectors(page: Float32) -> Float32:
    """Return the means of consecutive vectors of a page, at most `MEAN_NUMBERS` numbers."""
    count = int(_counts(np.array(len(page)), page.shape[1]))
    edges = np.arange(count + 1) * len(page) // count
    means = np.add.reduceat(page, edges[:-1], axis=0)
    # Normalized, because the mean of diverse vectors is shorter than that of similar ones.
    return np.asarray(means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), _TINY))
