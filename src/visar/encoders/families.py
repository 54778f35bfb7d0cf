"""The kinds of visual encoders: which classes load them and how their patches lie on a page."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visar.encoders.patches import WHOLE_PAGE, grid_boxes, tile_box
from visar.errors import CheckpointError
from visar.models.checkpoints import Checkpoint

Batch = Mapping[str, Any]
PatchBoxes = Callable[[Any, Batch, int], NDArray[np.float32]]
"""From a processor, its batch and which page of it: the boxes of that page's image tokens."""

_TILE = re.compile(r"<row_(\d+)_col_(\d+)>")


@dataclass(frozen=True, slots=True)
class Family:
    """Checkpoints that are loaded and read alike."""

    name: str
    model_type: str
    """What the configuration of the model below the adapter says."""
    model_class: str
    """Of colpali-engine."""
    processor_class: str
    patch_boxes: PatchBoxes
    page_prompt: str | None = None
    """Instead of colpali-engine's."""
    forward: dict[str, Any] = field(default_factory=dict)
    """What the model is called with beside the processor's batch."""


def _colpali_boxes(processor: Any, batch: Batch, page: int) -> NDArray[np.float32]:
    """The page is stretched to a square, whatever its shape."""
    count = int((batch["input_ids"][page] == processor.image_token_id).sum())
    side = math.isqrt(count)
    return grid_boxes(side, side)


def _colqwen_boxes(processor: Any, batch: Batch, page: int) -> NDArray[np.float32]:
    """The page keeps its shape; its grid (height first) is counted before patches are merged."""
    _, height, width = batch["image_grid_thw"][page].tolist()
    merge = processor.image_processor.merge_size
    return grid_boxes(height // merge, width // merge)


def _colmodernvbert_boxes(processor: Any, batch: Batch, page: int) -> NDArray[np.float32]:
    """The page is cut into tiles, each announced by its row and column, then shown as a whole."""
    tokens = processor.tokenizer.convert_ids_to_tokens(batch["input_ids"][page].tolist())
    side = math.isqrt(processor.image_seq_len)
    tiles = _tiles(tokens, processor.image_token)
    rows = 1 + max((row for row, _ in tiles if row is not None), default=0)
    columns = 1 + max((column for _, column in tiles if column is not None), default=0)
    parts = [
        WHOLE_PAGE if row is None or column is None else tile_box(row, column, rows, columns)
        for row, column in tiles
    ]
    return np.concatenate([grid_boxes(side, side, part) for part in parts])


def _tiles(tokens: Sequence[str], image_token: str) -> list[tuple[int | None, int | None]]:
    """For each run of image tokens: the row and column said before it, none for the whole page."""
    found: list[tuple[int | None, int | None]] = []
    for before, token in pairwise(tokens):
        if token == image_token and before != image_token:
            place = _TILE.fullmatch(before)
            found.append((int(place[1]) - 1, int(place[2]) - 1) if place else (None, None))
    return found


FAMILIES = {
    family.name: family
    for family in (
        Family(
            "colpali",
            "paligemma",
            "ColPali",
            "ColPaliProcessor",
            _colpali_boxes,
            # colpali-engine's own prompt names a beginning of text that the processor adds too.
            # The published checkpoint was trained, and the paper's pages encoded, with one.
            page_prompt="<image>Describe the image.",
            # The words it would say next are not asked for: half a gigabyte a page.
            forward={"logits_to_keep": 1},
        ),
        Family("colqwen2.5", "qwen2_5_vl", "ColQwen2_5", "ColQwen2_5_Processor", _colqwen_boxes),
        Family(
            "colmodernvbert",
            "modernvbert",
            "ColModernVBert",
            "ColModernVBertProcessor",
            _colmodernvbert_boxes,
        ),
    )
}


def family_of(checkpoint: Checkpoint) -> Family:
    """The family a checkpoint belongs to, from what its configuration says."""
    for family in FAMILIES.values():
        if checkpoint.model_type == family.model_type:
            _refuse_without_projection(checkpoint, family)
            return family
    known = ", ".join(family.model_type for family in FAMILIES.values())
    hint = ""
    if checkpoint.model_type in ("colpali", "colqwen2", "colmodernvbert"):
        hint = (
            " It is in the layout of transformers' own classes; take the repository it was "
            "converted from, such as vidore/colpali-v1.2 for vidore/colpali-v1.2-hf."
        )
    raise CheckpointError(
        f"{checkpoint.name} is a model of type {checkpoint.model_type!r}; ViSAR knows visual "
        f"encoders of the types {known}.{hint}"
    )


def _refuse_without_projection(checkpoint: Checkpoint, family: Family) -> None:
    """Refuse a chat model, or a single-vector one: its projection would be random numbers."""
    multi_vector = family.model_class in checkpoint.architectures
    adapted = "custom_text_proj" in checkpoint.adapted_modules
    if not multi_vector and not adapted:
        kinds = ", ".join(checkpoint.architectures) or checkpoint.model_type
        raise CheckpointError(
            f"{checkpoint.name} is {kinds}, not {family.model_class}: it has no projection to "
            f"multi-vector embeddings. Take a checkpoint of {family.model_class}."
        )
