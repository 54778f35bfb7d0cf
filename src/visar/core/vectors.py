"""The vectors of a document's pages: checked once, kept as they came, read in float32 blocks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from visar.errors import InvalidVectors

Float32: TypeAlias = NDArray[np.float32]
Float64: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]

# A block ends with the page that fills it, so that a page of usual size is read where it lies.
BLOCK_ROWS = 1024
LONGEST_BLOCK = 4096

# numpy has no bfloat16: its bits travel under a name of their own, never to be taken for numbers.
BFLOAT16 = np.dtype([("bfloat16", np.int16)])

# float16 and bfloat16 encoders round a unit vector by less than 1 %.
UNIT_TOLERANCE = 0.05


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive vectors in float32, with the pages they belong to."""

    first_row: int
    vectors: Float32
    pages: Integers
    """The pages that have vectors here."""
    starts: Integers
    """Where in ``vectors`` each of these pages begins."""


class PageVectors:
    """The vectors of a document's pages, ready for many queries.

    Made by `prepare`. The arrays are neither copied nor converted as a whole: a float16
    document stays float16, and at most ``LONGEST_BLOCK`` vectors exist in float32 at a time.
    ``shortest`` and ``longest`` are the extreme lengths of the vectors checked.
    """

    def __init__(self, pages: Any, offsets: Any = None) -> None:
        if offsets is None:
            self._chunks = _separate_pages(pages)
            lengths = [len(chunk) for chunk in self._chunks]
            self.offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
            self._chunk_offsets = self.offsets
        else:
            stacked = as_matrix(pages, "the stacked pages")
            self._chunks = [stacked]
            self.offsets = _checked_offsets(offsets, len(stacked))
            self._chunk_offsets = np.array([0, len(stacked)])
        self.dimension = self._chunks[0].shape[1]
        self.shortest = np.inf
        self.longest = 0.0
        self._checked = False

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        return f"PageVectors(pages={len(self)}, vectors={self.rows}, dimension={self.dimension})"

    @property
    def rows(self) -> int:
        """How many vectors all pages have together."""
        return int(self.offsets[-1])

    @property
    def nbytes(self) -> int:
        """The size of the vectors as they are kept."""
        return sum(chunk.nbytes for chunk in self._chunks)

    def check(self) -> None:
        """Read every vector once; refuse a NaN, an infinity or a length far from one."""
        for _ in self.blocks():
            pass

    def blocks(self) -> Iterator[Block]:
        """All vectors in order, in float32. The first complete pass also checks them."""
        buffer = np.empty((0, self.dimension), np.float32)
        for first, last in self._block_bounds():
            if len(buffer) < last - first:
                buffer = np.empty((last - first, self.dimension), np.float32)
            vectors = self._read(first, last, buffer)
            pages, starts = self._pages_between(first, last)
            if not self._checked:
                self._check_block(first, vectors)
            yield Block(first, vectors, pages, starts)
        self._checked = True

    def only(self, pages: Sequence[int]) -> PageVectors:
        """Return some pages, which are not checked again if these were."""
        chosen = PageVectors([self._page(page) for page in pages])
        if self._checked:
            # The bounds of all vectors hold for some of them.
            chosen.shortest, chosen.longest = self.shortest, self.longest
            chosen._checked = True
        return chosen

    def _page(self, page: int) -> NDArray[Any]:
        """Return the vectors of a page as they are kept."""
        first, last = self.offsets[page : page + 2].tolist()
        if first == last:
            return self._chunks[0][:0]
        chunk = int(np.searchsorted(self._chunk_offsets, first, side="right")) - 1
        start = int(self._chunk_offsets[chunk])
        return self._chunks[chunk][first - start : last - start]

    def take(self, rows: Integers, factors: Float32) -> Float32:
        """The vectors of these rows times their factors, in a new float32 array.

        Rows come grouped by page, pages in order.
        """
        out = np.empty((len(rows), self.dimension), np.float32)
        chunk_of = np.searchsorted(self._chunk_offsets, rows, side="right") - 1
        edges = np.flatnonzero(np.diff(chunk_of, prepend=-1, append=-1)).tolist()
        for first, end in pairwise(edges):
            chunk = int(chunk_of[first])
            stored, start = self._chunks[chunk], self._chunk_offsets[chunk]
            # A block at a time: its conversion happens in the cache.
            for low in range(first, end, BLOCK_ROWS):
                part = slice(low, min(low + BLOCK_ROWS, end))
                decode(stored[rows[part] - start], out[part])
                out[part] *= factors[part, None]
        return out

    def _block_bounds(self) -> Iterator[tuple[int, int]]:
        first = 0
        for end in self.offsets[1:].tolist():
            while end - first > LONGEST_BLOCK:
                yield first, first + LONGEST_BLOCK
                first += LONGEST_BLOCK
            if end - first >= BLOCK_ROWS:
                yield first, end
                first = end
        if first < self.rows:
            yield first, self.rows

    def _read(self, first: int, last: int, buffer: Float32) -> Float32:
        lowest = int(np.searchsorted(self._chunk_offsets, first, side="right")) - 1
        start = int(self._chunk_offsets[lowest])
        whole = self._chunks[lowest]
        if whole.dtype == np.float32 and last - start <= len(whole):
            return whole[first - start : last - start]
        row, chunk = first, lowest
        while row < last:
            start, end = self._chunk_offsets[chunk : chunk + 2].tolist()
            stop = min(end, last)
            if stop > row:
                decode(
                    self._chunks[chunk][row - start : stop - start],
                    buffer[row - first : stop - first],
                )
                row = stop
            chunk += 1
        return buffer[: last - first]

    def _pages_between(self, first: int, last: int) -> tuple[Integers, Integers]:
        low = int(np.searchsorted(self.offsets, first, side="right")) - 1
        high = int(np.searchsorted(self.offsets, last, side="left"))
        pages = np.arange(low, high)
        pages = pages[self.offsets[pages + 1] > self.offsets[pages]]
        return pages, np.maximum(self.offsets[pages] - first, 0)

    def _check_block(self, first: int, vectors: Float32) -> None:
        lengths = _lengths(vectors)
        self.shortest = min(self.shortest, float(lengths.min()))
        self.longest = max(self.longest, float(lengths.max()))
        wrong = _first_wrong(lengths)
        if wrong is None:
            return
        row = first + wrong
        page = int(np.searchsorted(self.offsets, row, side="right")) - 1
        where = f"vector {row - int(self.offsets[page])} of page {page} (counted from 0)"
        chunk = int(np.searchsorted(self._chunk_offsets, row, side="right")) - 1
        _refuse_vector(self._chunks[chunk][row - int(self._chunk_offsets[chunk])], where)


def prepare(pages: Any, offsets: Any = None) -> PageVectors:
    """Check a document's page vectors once, for many queries.

    ``pages`` is a sequence of (n_p, D) arrays, or one stacked (Σn, D) array with ``offsets``
    (N + 1 rows at which pages begin and the last one ends). What comes back goes wherever
    ``pages`` is expected.

    >>> import numpy as np
    >>> prepare([np.eye(3, 4), np.eye(2, 4)])
    PageVectors(pages=2, vectors=5, dimension=4)
    """
    prepared = as_pages(pages, offsets)
    prepared.check()
    return prepared


def as_pages(pages: Any, offsets: Any = None) -> PageVectors:
    """``pages`` as they are when prepared; otherwise wrapped, and checked while first read."""
    if isinstance(pages, PageVectors):
        if offsets is not None:
            raise InvalidVectors("offsets= goes with one stacked array, not with prepared pages.")
        return pages
    return PageVectors(pages, offsets)


def as_query(query: Any, dimension: int) -> Float32:
    """The query's vectors in float32, checked."""
    raw = as_matrix(query, "the query")
    if not len(raw):
        raise InvalidVectors("The query has no vectors: encode it first, without empty text.")
    if raw.shape[1] != dimension:
        raise InvalidVectors(
            f"The query has {raw.shape[1]} dimensions and the pages have {dimension}: "
            "both must come from the same encoder."
        )
    vectors = np.empty(raw.shape, np.float32)
    decode(raw, vectors)
    wrong = _first_wrong(_lengths(vectors))
    if wrong is not None:
        _refuse_vector(raw[wrong], f"vector {wrong} of the query")
    return vectors


def as_matrix(values: Any, name: str) -> NDArray[Any]:
    """A numpy view of a two-dimensional array or tensor of floats; bfloat16 comes as its bits."""
    matrix = _tensor_to_numpy(values) if _is_tensor(values) else np.asarray(values)
    if matrix.ndim != 2:
        raise InvalidVectors(
            f"{name} must have two dimensions (vectors × D), not shape {matrix.shape}."
        )
    if matrix.dtype not in _DECODERS:
        raise InvalidVectors(
            f"{name} must hold float16, float32, float64 or bfloat16 numbers, not {matrix.dtype}."
        )
    if matrix.shape[1] == 0:
        raise InvalidVectors(f"{name} has vectors of dimension 0.")
    return matrix


def find_invalid(raw: NDArray[Any]) -> int | None:
    """Return the first vector that is not finite or not of length one, or None."""
    vectors = np.empty(raw.shape, np.float32)
    decode(raw, vectors)
    return _first_wrong(_lengths(vectors))


def check_vectors(raw: NDArray[Any], where: str) -> None:
    """Refuse vectors that are not finite or not of length one; the error says where they are."""
    wrong = find_invalid(raw)
    if wrong is not None:
        _refuse_vector(raw[wrong], f"vector {wrong} of {where}")


def _lengths(vectors: Float32) -> Float32:
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", vectors, vectors)))


def _first_wrong(lengths: Float32) -> int | None:
    """Return the first length that is far from one, or not a number."""
    wrong = np.flatnonzero(~(np.abs(lengths - 1) <= UNIT_TOLERANCE))
    return int(wrong[0]) if len(wrong) else None


def decode(raw: NDArray[Any], out: Float32) -> None:
    """Write stored numbers to ``out`` as float32."""
    _DECODERS[raw.dtype](raw, out)


def _separate_pages(pages: Any) -> list[NDArray[Any]]:
    if isinstance(pages, np.ndarray) or _is_tensor(pages):
        if pages.ndim != 3:
            raise InvalidVectors(
                f"One array of shape {tuple(pages.shape)} needs offsets= to tell where pages "
                "begin; or give a sequence of (n_p, D) arrays."
            )
    elif not isinstance(pages, Sequence):
        raise InvalidVectors(f"pages must be a sequence of arrays, not {type(pages).__name__}.")
    chunks = [
        as_matrix(page, f"page {number} (counted from 0)") for number, page in enumerate(pages)
    ]
    if not chunks:
        raise InvalidVectors("There are no pages: give at least one (n_p, D) array.")
    for number, chunk in enumerate(chunks):
        if chunk.shape[1] != chunks[0].shape[1]:
            raise InvalidVectors(
                f"Page {number} (counted from 0) has {chunk.shape[1]} dimensions, "
                f"page 0 has {chunks[0].shape[1]}."
            )
    return chunks


def _checked_offsets(offsets: Any, rows: int) -> Integers:
    checked = np.asarray(offsets)
    if checked.ndim != 1 or len(checked) < 2 or checked.dtype.kind not in "iu":
        raise InvalidVectors(
            "offsets must be a list of N + 1 whole numbers: where each page begins, then the end."
        )
    if checked[0] != 0 or checked[-1] != rows or (np.diff(checked) < 0).any():
        raise InvalidVectors(
            f"offsets must rise from 0 to the {rows} stacked vectors, "
            f"not from {checked[0]} to {checked[-1]}."
        )
    return checked.astype(np.int64)


def _refuse_vector(stored: NDArray[Any], where: str) -> None:
    values = np.empty((1, len(stored)), np.float32)
    if stored.dtype.kind == "f":
        values[0] = stored
    else:
        decode(stored[None], values)
    if not np.isfinite(values).all():
        raise InvalidVectors(
            f"There is a NaN or an infinity in {where}: encode it again, or leave the page out."
        )
    length = float(np.linalg.norm(values))
    hint = "is it padding? trim it" if length == 0 else "divide it by its length"
    raise InvalidVectors(f"The length of {where} is {length:.4g}, not 1: {hint}.")


def _is_tensor(values: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(values, torch.Tensor)


def _tensor_to_numpy(tensor: Any) -> NDArray[Any]:
    torch = sys.modules["torch"]
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        return cast("NDArray[Any]", tensor.view(torch.int16).numpy().view(BFLOAT16))
    return cast("NDArray[Any]", tensor.numpy())


def _decode_by_cast(raw: NDArray[Any], out: Float32) -> None:
    np.copyto(out, raw, casting="same_kind")


def _decode_float16(raw: NDArray[Any], out: Float32) -> None:
    """float16 to float32 on the bits, with vector instructions: seven times numpy's cast.

    The sign goes to its place, exponent and mantissa beside each other, and one
    multiplication corrects the exponent's bias. Infinities and NaN come out as numbers of
    65536 and more, which the check of lengths refuses.
    """
    bits = out.view(np.int32)
    np.copyto(bits, raw.view(np.int16))
    np.left_shift(bits, 13, out=bits)
    np.bitwise_and(bits, np.int32(-0x70000001), out=bits)
    np.multiply(out, np.float32(2.0**112), out=out)


def _decode_bfloat16(raw: NDArray[Any], out: Float32) -> None:
    bits = out.view(np.int32)
    np.copyto(bits, raw["bfloat16"])
    np.left_shift(bits, 16, out=bits)


_DECODERS: dict[np.dtype[Any], Callable[[NDArray[Any], Float32], None]] = {
    np.dtype(np.float16): _decode_float16,
    np.dtype(np.float32): _decode_by_cast,
    np.dtype(np.float64): _decode_by_cast,
    BFLOAT16: _decode_bfloat16,
}
