"""Visual encoders exported by `visar encoders export`: ONNX graphs on the CPU, without torch.

A folder contains two graphs, a tokenizer and a `Manifest`. The first graph computes features of a
tile of a page, the second vectors from text and features. Tiles and texts are prepared exactly as
by colpali-engine and transformers, which aren't needed.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from visar.documents.page import Page
from visar.encoders.encoder import (
    PageEmbedding,
    Reads,
    embed_page,
    embed_question,
    refuse_blank,
)
from visar.encoders.visual import WHOLE_PAGE, grid_boxes, tile_box
from visar.errors import (
    CheckpointError,
    InvalidOption,
    InvalidVectors,
    MalformedMessage,
)
from visar.models.devices import check_device, usable_cores
from visar.models.loading import Lazy
from visar.models.onnx import check_sha256, open_session, open_tokenizer
from visar.serialization import Result, from_plain
from visar.text import encodable

if TYPE_CHECKING:
    from PIL.Image import Image
    from tokenizers import Tokenizer

MANIFEST = "visar-encoder.json"
VISION = "vision.onnx"
TEXT = "text.onnx"
TOKENIZER = "tokenizer.json"
# Changes whenever the way vectors are computed changes.
_RECIPE = "1"

Precision = Literal["int8", "float32"]


@dataclass(frozen=True, slots=True)
class Tiling(Result):
    """Parameters for splitting a page into tiles."""

    side: int
    """The width and height of a tile, in pixels."""
    longest_edge: int
    """The length that the longer edge of a page is scaled to, in pixels."""
    resample: int
    """The resampling filter, as Pillow's number."""
    mean: tuple[float, ...]
    """The mean of each color channel."""
    std: tuple[float, ...]
    """The standard deviation of each color channel."""

    def cut(self, image: Image) -> tuple[list[NDArray[np.uint8]], int, int]:
        """Split a page into tiles; return them with the numbers of rows and columns.

        The tiles are in row order, followed by the whole page as another tile. A page that fits
        into one tile has zero rows and columns.
        """
        scaled = image.convert("RGB").resize(
            _scaled_size(image.width, image.height, self.longest_edge), self.resample
        )
        scaled = scaled.resize(_tiled_size(scaled.width, scaled.height, self.side), self.resample)
        rows, columns = scaled.height // self.side, scaled.width // self.side
        if rows == columns == 1:
            return [np.asarray(scaled)], 0, 0
        pixels = np.asarray(scaled).reshape(rows, self.side, columns, self.side, 3)
        tiles = list(pixels.swapaxes(1, 2).reshape(-1, self.side, self.side, 3))
        tiles.append(np.asarray(scaled.resize((self.side, self.side), self.resample)))
        return tiles, rows, columns

    def normalize(self, tile: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return a tile as input for the model, with shape (1, 3, side, side)."""
        mean, std = (255 * np.array(of, np.float32) for of in (self.mean, self.std))
        return np.ascontiguousarray(((tile - mean) / std).transpose(2, 0, 1)[None], np.float32)


def _scaled_size(width: int, height: int, longest_edge: int) -> tuple[int, int]:
    """Return the size of a page scaled by its longer edge; the shorter edge becomes even."""
    ratio = width / height
    if width >= height:
        shorter = int(longest_edge / ratio)
        return longest_edge, max(shorter + shorter % 2, 1)
    shorter = int(longest_edge * ratio)
    return max(shorter + shorter % 2, 1), longest_edge


def _tiled_size(width: int, height: int, side: int) -> tuple[int, int]:
    """Return the size of a page stretched to whole tiles."""
    ratio = width / height
    if width >= height:
        wide = math.ceil(width / side) * side
        return wide, math.ceil(int(wide / ratio) / side) * side
    high = math.ceil(height / side) * side
    return math.ceil(int(high * ratio) / side) * side, high


@dataclass(frozen=True, slots=True)
class Manifest(Result):
    """A description of an exported encoder, with everything its graphs don't contain."""

    model_class: str
    """The model class in colpali-engine."""
    source: str
    """The checkpoint's name and fingerprint."""
    fingerprint: str
    """The checkpoint's fingerprint: its commit or a hash of its files."""
    precision: Precision
    dimension: int
    tiling: Tiling
    image_token: str
    """The token that stands for a feature."""
    tokens_per_tile: int
    page_prompt: str
    """The prompt for a page, with one image token."""
    question_prefix: str
    question_suffix: str
    vision_sha256: str
    text_sha256: str
    tokenizer_sha256: str

    def page_text(self, rows: int, columns: int) -> str:
        """Return the prompt for a page, with the row and column of each tile."""
        around = "<fake_token_around_image>"
        features = self.image_token * self.tokens_per_tile
        lines = [
            "".join(
                f"{around}<row_{row + 1}_col_{column + 1}>{features}" for column in range(columns)
            )
            for row in range(rows)
        ]
        tiles = "".join(f"{line}\n" for line in lines) + "\n" if lines else ""
        whole = f"{around}<global-img>{features}{around}"
        return self.page_prompt.replace(self.image_token, tiles + whole)

    def patch_boxes(self, rows: int, columns: int) -> NDArray[np.float32]:
        """Return the boxes of a page's image tokens: a grid per tile, then one for the page."""
        side = math.isqrt(self.tokens_per_tile)
        tiles = [
            tile_box(row, column, rows, columns) for row in range(rows) for column in range(columns)
        ]
        return np.concatenate([grid_boxes(side, side, part) for part in (*tiles, WHOLE_PAGE)])


def is_exported(name: str) -> bool:
    """Return whether a name is the folder of an exported encoder."""
    try:
        return (Path(name).expanduser() / MANIFEST).is_file()
    except (OSError, RuntimeError):  # name too long, or ~user of an unknown user
        return False


@dataclass(frozen=True, slots=True)
class _Model:
    vision: Any
    text: Any
    tokenizer: Tokenizer
    image_id: int


class OnnxVisualEncoder:
    """An exported encoder. Threads may share one object.

    Tiles run one at a time, because the 8-bit graphs scale their activations over the whole batch
    and a page's vectors would depend on other pages.

    Parameters
    ----------
    name
        Name its vectors are stored under.
    folder
        Folder written by `visar encoders export`.
    instruction_tokens
        Keep the vectors of the prompt, not only those of image patches.
    device
        "auto" or "cpu".

    Raises
    ------
    CheckpointError
        If the folder doesn't contain an exported encoder.
    InvalidOption
        If the device isn't the CPU.
    """

    reads: Reads = "image"
    # Not measured, so no match counts as weak.
    weak_match = 0.0

    def __init__(
        self,
        name: str,
        folder: str | Path,
        *,
        instruction_tokens: bool = True,
        device: str = "auto",
    ) -> None:
        check_device(device)
        if device not in ("auto", "cpu"):
            raise InvalidOption(
                f"{name} was exported for the CPU and can't run on {device!r}: choose cpu, or use "
                "the original checkpoint."
            )
        self.name = name
        self._folder = Path(folder).expanduser()
        self._instruction_tokens = instruction_tokens
        self._manifest, self._digest = _read_manifest(self._folder)
        self._model = Lazy(self._open)
        # Held while encoding a page, to limit memory to the features of one page.
        self._lock = threading.Lock()

    @property
    def dimension(self) -> int:
        """The number of components of each vector."""
        return self._manifest.dimension

    @property
    def version(self) -> str:
        """The original checkpoint's fingerprint and a hash of the exported files."""
        version = (
            f"{self._manifest.fingerprint}-{self._manifest.precision}-{self._digest}-{_RECIPE}"
        )
        return version if self._instruction_tokens else f"{version}-patches"

    @property
    def identity(self) -> str:
        """The original checkpoint's name and fingerprint, and the precision."""
        return f"{self._manifest.source}-{self._manifest.precision}"

    def release(self) -> None:
        """Free the memory of the weights. They are reloaded on next use."""
        self._model.drop()

    def encode_pages(self, pages: Sequence[Page], images: Sequence[Image]) -> list[PageEmbedding]:
        """Encode the image of each page; pages with NaN or infinite vectors are invalid."""
        if len(images) != len(pages):
            raise InvalidVectors(
                f"Got {len(images)} images for {len(pages)} pages: pass one for each page."
            )
        return [self._encode(image) for image in images]

    def encode_query(self, question: str) -> NDArray[np.float32]:
        """Encode a question.

        Raises
        ------
        EmptyQuestion
            If the question is blank.
        InvalidVectors
            If the model returns NaN or infinity.
        """
        refuse_blank(question)
        manifest, model = self._manifest, self._model.get()
        text = manifest.question_prefix + question + manifest.question_suffix
        ids = _token_ids(model, text)
        vectors = _vectors(model, ids, np.zeros((0, _feature_size(model)), np.float32))
        return embed_question(self.name, question, vectors)

    def _encode(self, image: Image) -> PageEmbedding:
        model, manifest = self._model.get(), self._manifest
        tiles, rows, columns = manifest.tiling.cut(image)
        ids = _token_ids(model, manifest.page_text(rows, columns))
        with self._lock:
            features = [
                model.vision.run(None, {"pixels": manifest.tiling.normalize(tile)})[0]
                for tile in tiles
            ]
            vectors = _vectors(model, ids, np.concatenate(features))
        is_patch = ids == model.image_id
        boxes = np.zeros((len(ids), 4), np.float32)
        boxes[is_patch] = manifest.patch_boxes(rows, columns)
        kept = slice(None) if self._instruction_tokens else is_patch
        return embed_page(vectors[kept], boxes[kept])

    def _open(self) -> _Model:
        manifest, cores = self._manifest, usable_cores()
        tokenizer = open_tokenizer(self._content(TOKENIZER, manifest.tokenizer_sha256))
        image_id = tokenizer.token_to_id(manifest.image_token)
        if image_id is None:
            raise CheckpointError(
                f"The tokenizer of {self._folder} has no token {manifest.image_token}. Export the "
                "encoder again."
            )
        return _Model(
            open_session(self._content(VISION, manifest.vision_sha256), cores),
            open_session(self._content(TEXT, manifest.text_sha256), cores),
            tokenizer,
            image_id,
        )

    def _content(self, file: str, sha256: str) -> bytes:
        path = self._folder / file
        try:
            content = path.read_bytes()
        except OSError as error:
            raise CheckpointError(
                f"Can't read {path}: {error}. Export the encoder again."
            ) from error
        check_sha256(content, sha256, str(path))
        return content


def _token_ids(model: _Model, text: str) -> NDArray[np.int64]:
    return np.array(model.tokenizer.encode(encodable(text)).ids, np.int64)


def _feature_size(model: _Model) -> int:
    return int(model.text.get_inputs()[1].shape[1])


def _vectors(
    model: _Model, ids: NDArray[np.int64], features: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return a vector for each token; features replace the image tokens in order."""
    inputs = np.zeros((len(ids), _feature_size(model)), np.float32)
    inputs[ids == model.image_id] = features
    return np.asarray(model.text.run(None, {"ids": ids, "features": inputs})[0], np.float32)


def _read_manifest(folder: Path) -> tuple[Manifest, str]:
    """Return the manifest of a folder and its hash, which covers the sha256 of all other files."""
    path = folder / MANIFEST
    try:
        content = path.read_bytes()
        manifest = from_plain(Manifest, json.loads(content))
    # RecursionError: the JSON is nested too deeply.
    except (OSError, ValueError, RecursionError, MalformedMessage) as error:
        raise CheckpointError(
            f"Can't read the exported encoder {path}: {error}. Export it again."
        ) from error
    return manifest, hashlib.sha256(content).hexdigest()[:8]
