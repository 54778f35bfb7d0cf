"""Vectors on disk: two ``.npy`` files per document and encoder, written once, then memory-mapped.

``NAME.vectors.npy`` holds the vectors of all pages, in the encoding that the encoder's name
specifies (`coding_of`). ``NAME.patches.npy`` holds the box and the word index of each vector.
While a document is being added, both files end in ``.part`` and have no valid header yet.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from visar.encoders.coding import coding_of
from visar.encoders.encoder import EncoderRef, PageEmbedding
from visar.errors import StoreError
from visar.files import sync_folder
from visar.store.store import DocumentVectors

PATCH = np.dtype([("box", "<f4", (4,)), ("word", "<i4")])
KINDS = ("vectors", "patches")
# A fixed length, so that the header can be written last, once the number of rows is known.
_HEADER = 192
_ROWS_PER_COPY = 1 << 14


def array_paths(folder: Path, name: str) -> tuple[Path, Path]:
    """Return the two files of a finished array."""
    vectors, patches = (folder / f"{name}.{kind}.npy" for kind in KINDS)
    return vectors, patches


def part_paths(folder: Path, name: str) -> tuple[Path, Path]:
    """Return the two files of an array that is being written."""
    vectors, patches = (folder / f"{name}.{kind}.part" for kind in KINDS)
    return vectors, patches


def all_paths(folder: Path, name: str) -> list[Path]:
    """Return all files that an array may have."""
    lock = folder / f"{name}.lock"
    return [*array_paths(folder, name), *part_paths(folder, name), lock]


def embedding_bytes(embedding: PageEmbedding, encoder: EncoderRef) -> tuple[bytes, bytes]:
    """Return the bytes of a page for both files."""
    vectors = coding_of(encoder.name).encode(embedding.vectors)
    patches = np.empty(len(embedding.vectors), PATCH)
    patches["box"], patches["word"] = embedding.boxes, embedding.words
    return vectors.tobytes(), patches.tobytes()


def row_bytes(encoder: EncoderRef) -> int:
    return coding_of(encoder.name).row_bytes(encoder.dimension) + PATCH.itemsize


def embedding_from(content: bytes, encoder: EncoderRef) -> PageEmbedding:
    """Return the embedding of a page, given the concatenated bytes of both files."""
    coding = coding_of(encoder.name)
    count, columns = len(content) // row_bytes(encoder), coding.columns(encoder.dimension)
    rows = np.frombuffer(content, coding.dtype, count * columns).reshape(count, columns)
    patches = np.frombuffer(content, PATCH, offset=rows.nbytes)
    vectors = coding.decode(rows, encoder.dimension)
    return PageEmbedding(vectors, patches["box"], patches["word"])


def _dtypes(encoder: EncoderRef) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """Return the types of a row in the two files."""
    coding = coding_of(encoder.name)
    return np.dtype((coding.dtype, (coding.columns(encoder.dimension),))), PATCH


def checksum(vectors: bytes, patches: bytes) -> int:
    return crc32(patches, crc32(vectors))


class PartWriter:
    """A writer that appends pages to the files of an array; `finish` makes them readable.

    ``rows`` is the number of valid rows from an interrupted writer; the rest is truncated.
    """

    def __init__(self, folder: Path, name: str, encoder: EncoderRef, rows: int = 0) -> None:
        self._folder = folder
        self._name = name
        self._dtypes = _dtypes(encoder)
        self._encoder = encoder
        self.rows = rows
        self._files: list[FileIO] = []
        for path, dtype in zip(part_paths(folder, name), self._dtypes, strict=True):
            # Unbuffered, so that closing doesn't retry a failed write.
            file = path.open("r+b" if rows else "w+b", buffering=0)
            self._files.append(file)
            file.truncate(_HEADER + rows * dtype.itemsize)

    @classmethod
    def reopen(cls, folder: Path, name: str, encoder: EncoderRef, rows: int) -> PartWriter:
        """Resume the files of an interrupted writer; raise StoreError if they lack rows."""
        parts, wholes = part_paths(folder, name), array_paths(folder, name)
        for part, whole, dtype in zip(parts, wholes, _dtypes(encoder), strict=True):
            # The writer had finished this file. Keep it: the commit that names it may be on disk
            # even though it reported an error.
            if whole.exists() and not part.exists():
                shutil.copyfile(whole, part)
            if not part.exists() or part.stat().st_size < _HEADER + rows * dtype.itemsize:
                raise StoreError(f"{part} has fewer than {rows} vectors")
        return cls(folder, name, encoder, rows)

    def append(self, vectors: bytes, patches: bytes) -> int:
        """Append a page and return its first row."""
        first = self.rows
        # Seek, because a failed write may have left the file position anywhere.
        for file, data, dtype in zip(self._files, (vectors, patches), self._dtypes, strict=True):
            _write(file, data, _HEADER + first * dtype.itemsize)
        self.rows += len(patches) // PATCH.itemsize
        return first

    def sync(self) -> None:
        for file in self._files:
            os.fsync(file.fileno())

    def read(self, first: int, rows: int) -> tuple[bytes, bytes]:
        contents = []
        for file, dtype in zip(self._files, self._dtypes, strict=True):
            file.seek(_HEADER + first * dtype.itemsize)
            contents.append(file.read(rows * dtype.itemsize))
        return contents[0], contents[1]

    def finish(self, ranges: Sequence[tuple[int, int]]) -> str:
        """Write the headers, rename the files, and return the array's name.

        ``ranges`` are the first row and the number of rows of each page, in page order. If pages
        were appended in another order, the array is copied in page order under another name.
        """
        ends = [0, *(first + rows for first, rows in ranges)]
        in_order = all(first == end for (first, _), end in zip(ranges, ends, strict=False))
        if in_order and ends[-1] == self.rows:
            self._seal()
            return self._name
        ordered = PartWriter(self._folder, f"{self._name}-ordered", self._encoder)
        with contextlib.closing(ordered):
            for first, rows in ranges:
                for start in range(first, first + rows, _ROWS_PER_COPY):
                    count = min(_ROWS_PER_COPY, first + rows - start)
                    ordered.append(*self.read(start, count))
            ordered._seal()
        return ordered._name

    def _seal(self) -> None:
        for file, dtype in zip(self._files, self._dtypes, strict=True):
            _write(file, _header(dtype, self.rows), 0)
        self.sync()
        self.close()
        parts, wholes = (paths(self._folder, self._name) for paths in (part_paths, array_paths))
        for part, whole in zip(parts, wholes, strict=True):
            part.replace(whole)
        sync_folder(self._folder)

    def close(self) -> None:
        """Close the files without finishing them."""
        for file in self._files:
            # A write that fails here was never acknowledged.
            with contextlib.suppress(OSError):
                file.close()


def _write(file: FileIO, data: bytes, position: int) -> None:
    file.seek(position)
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def _header(dtype: np.dtype[Any], rows: int) -> bytes:
    """Return the header of a file with ``rows`` rows of this type."""
    fields = {
        "descr": np.lib.format.dtype_to_descr(dtype.base),
        "fortran_order": False,
        "shape": (rows, *dtype.shape),
    }
    magic = np.lib.format.magic(1, 0)
    length = _HEADER - len(magic) - 2
    text = repr(fields).encode("latin1").ljust(length - 1) + b"\n"
    return magic + struct.pack("<H", length) + text


def map_arrays(
    folder: Path, name: str, rows: int, encoder: EncoderRef
) -> tuple[NDArray[Any], NDArray[np.void]]:
    """Map the files of an array into memory; data is only read when accessed.

    The vectors are encoded as stored; `Coding.decode` returns numbers. Raises StoreError if a file
    is missing or invalid.
    """
    arrays = []
    for path, dtype in zip(array_paths(folder, name), _dtypes(encoder), strict=True):
        try:
            with path.open("rb") as file:
                if file.read(_HEADER) != _header(dtype, rows):
                    raise StoreError(f"{path} doesn't have {rows} rows of {dtype}")
                shape = (rows, *dtype.shape)
                if rows:
                    array: NDArray[Any] = np.memmap(file, dtype.base, "r", _HEADER, shape)
                else:
                    array = np.empty(shape, dtype.base)
        except (OSError, ValueError) as error:
            raise StoreError(f"can't read {path}: {error}") from error
        array.setflags(write=False)
        arrays.append(array.view(np.ndarray))
    return arrays[0], arrays[1]


@dataclass(frozen=True, slots=True, eq=False)
class StoredVectors:
    """The encoded vectors of a document, mapped from their files."""

    encoder: EncoderRef
    rows: NDArray[Any]
    patches: NDArray[np.void]
    offsets: NDArray[np.int64]

    @classmethod
    def map(cls, folder: Path, name: str, lengths: bytes, encoder: EncoderRef) -> StoredVectors:
        """Map an array, given the length of each page as bytes of little-endian integers."""
        offsets = np.concatenate([[0], np.cumsum(np.frombuffer(lengths, "<i4"), dtype=np.int64)])
        offsets.setflags(write=False)
        rows, patches = map_arrays(folder, name, int(offsets[-1]), encoder)
        return cls(encoder, rows, patches, offsets)

    def decoded(self) -> DocumentVectors:
        vectors = self._decode(self.rows)
        vectors.setflags(write=False)
        return DocumentVectors(vectors, self.offsets, self.patches["box"], self.patches["word"])

    def page(self, number: int) -> PageEmbedding:
        rows = slice(self.offsets[number - 1], self.offsets[number])
        patches = self.patches[rows]
        return PageEmbedding(self._decode(self.rows[rows]), patches["box"], patches["word"])

    def _decode(self, rows: NDArray[Any]) -> NDArray[np.float16]:
        return coding_of(self.encoder.name).decode(rows, self.encoder.dimension)
