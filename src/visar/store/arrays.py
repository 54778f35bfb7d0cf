"""Vectors on disk: two ``.npy`` files per document and encoder, appended to, then mapped.

``NAME.vectors.npy`` holds the vectors of all pages (float16), ``NAME.patches.npy`` the box and the
word index of each. While a document is added both end in ``.part`` and have no valid header yet.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
from collections.abc import Sequence
from io import FileIO
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from visar.encoders.protocol import PageEmbedding
from visar.errors import StoreError
from visar.files import sync_folder

VECTOR = np.dtype("<f2")
PATCH = np.dtype([("box", "<f4", (4,)), ("word", "<i4")])
KINDS = ("vectors", "patches")
# A fixed length, so that the header can be written when the number of rows is known.
_HEADER = 192
_COPIED_AT_A_TIME = 1 << 14


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


def embedding_bytes(embedding: PageEmbedding) -> tuple[bytes, bytes]:
    """Return the bytes of a page in both files."""
    patches = np.empty(len(embedding.vectors), PATCH)
    patches["box"], patches["word"] = embedding.boxes, embedding.words
    return np.ascontiguousarray(embedding.vectors, VECTOR).tobytes(), patches.tobytes()


def checksum(vectors: bytes, patches: bytes) -> int:
    """Return the checksum of a page's bytes."""
    return crc32(patches, crc32(vectors))


class PartWriter:
    """Appends pages to the files of an array; `finish` makes it readable.

    Parameters
    ----------
    folder, name
        Where the array is, and what it is called.
    dimension
        Of its vectors.
    rows
        How many rows an interrupted writer has left that are good: what follows is cut off.
    """

    def __init__(self, folder: Path, name: str, dimension: int, rows: int = 0) -> None:
        self._folder = folder
        self._name = name
        self._dtypes = np.dtype((VECTOR, (dimension,))), PATCH
        self._dimension = dimension
        self.rows = rows
        self._files: list[FileIO] = []
        for path, dtype in zip(part_paths(folder, name), self._dtypes, strict=True):
            # Unbuffered: what could not be written must not be tried again when it is closed.
            file = path.open("r+b" if rows else "w+b", buffering=0)
            self._files.append(file)
            file.truncate(_HEADER + rows * dtype.itemsize)

    @classmethod
    def reopen(cls, folder: Path, name: str, dimension: int, rows: int) -> PartWriter:
        """Go on with the files of an interrupted writer.

        Raises
        ------
        StoreError
            If they hold less than ``rows``.
        """
        itemsizes = dimension * VECTOR.itemsize, PATCH.itemsize
        paths = zip(part_paths(folder, name), array_paths(folder, name), itemsizes, strict=True)
        for part, whole, itemsize in paths:
            # It was interrupted after its end. The whole file stays: the commit that names it may
            # have failed only to say that it is on disk.
            if whole.exists() and not part.exists():
                shutil.copyfile(whole, part)
            if not part.exists() or part.stat().st_size < _HEADER + rows * itemsize:
                raise StoreError(f"{part} holds less than {rows} vectors")
        return cls(folder, name, dimension, rows)

    def append(self, vectors: bytes, patches: bytes) -> int:
        """Append a page; return the row it begins at."""
        first = self.rows
        # At its place, wherever one that failed has stopped.
        for file, data, dtype in zip(self._files, (vectors, patches), self._dtypes, strict=True):
            _write(file, data, _HEADER + first * dtype.itemsize)
        self.rows += len(patches) // PATCH.itemsize
        return first

    def sync(self) -> None:
        """Make sure that what was appended is on disk."""
        for file in self._files:
            os.fsync(file.fileno())

    def read(self, first: int, rows: int) -> tuple[bytes, bytes]:
        """Return the bytes of a page that was appended."""
        found = []
        for file, dtype in zip(self._files, self._dtypes, strict=True):
            file.seek(_HEADER + first * dtype.itemsize)
            found.append(file.read(rows * dtype.itemsize))
        return found[0], found[1]

    def finish(self, ranges: Sequence[tuple[int, int]]) -> str:
        """Write the headers, give the files their names, and return the array's name.

        ``ranges`` are the first row and the number of rows of each page, in page order. Where
        they do not follow one another the array is copied in their order, under another name.
        """
        ends = [0, *(first + rows for first, rows in ranges)]
        in_order = all(first == end for (first, _), end in zip(ranges, ends, strict=False))
        if in_order and ends[-1] == self.rows:
            self._seal()
            return self._name
        ordered = PartWriter(self._folder, f"{self._name}-ordered", self._dimension)
        with contextlib.closing(ordered):
            for first, rows in ranges:
                for start in range(first, first + rows, _COPIED_AT_A_TIME):
                    count = min(_COPIED_AT_A_TIME, first + rows - start)
                    ordered.append(*self.read(start, count))
            ordered._seal()
        return ordered._name

    def _seal(self) -> None:
        shapes = (self.rows, self._dimension), (self.rows,)
        for file, dtype, shape in zip(self._files, (VECTOR, PATCH), shapes, strict=True):
            _write(file, _header(dtype, shape), 0)
        self.sync()
        self.close()
        names = zip(
            part_paths(self._folder, self._name),
            array_paths(self._folder, self._name),
            strict=True,
        )
        for part, whole in names:
            part.replace(whole)
        sync_folder(self._folder)

    def close(self) -> None:
        """Close the files; they stay where they are."""
        for file in self._files:
            # What cannot be written now was never said to be there.
            with contextlib.suppress(OSError):
                file.close()


def _write(file: FileIO, data: bytes, place: int) -> None:
    file.seek(place)
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def _header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    described = {
        "descr": np.lib.format.dtype_to_descr(dtype),
        "fortran_order": False,
        "shape": shape,
    }
    magic = np.lib.format.magic(1, 0)
    room = _HEADER - len(magic) - 2
    text = repr(described).encode("latin1").ljust(room - 1) + b"\n"
    return magic + struct.pack("<H", room) + text


def map_arrays(
    folder: Path, name: str, rows: int, dimension: int
) -> tuple[NDArray[np.float16], NDArray[np.void]]:
    """Map the files of an array; nothing is read before it is touched.

    Raises
    ------
    StoreError
        If a file is missing, or does not hold what it should.
    """
    mapped = []
    expected = (((rows, dimension), VECTOR), ((rows,), PATCH))
    for path, (shape, dtype) in zip(array_paths(folder, name), expected, strict=True):
        try:
            with path.open("rb") as file:
                if file.read(_HEADER) != _header(dtype, shape):
                    raise StoreError(f"{path} does not hold {dtype} of shape {shape}")
                if rows:
                    array: NDArray[Any] = np.memmap(file, dtype, "r", _HEADER, shape)
                else:
                    array = np.empty(shape, dtype)
        except (OSError, ValueError) as error:
            raise StoreError(f"{path} cannot be read: {error}") from error
        array.setflags(write=False)
        mapped.append(array.view(np.ndarray))
    return mapped[0], mapped[1]
