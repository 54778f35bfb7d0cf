"""Visual encoders: a page's image in, a vector for each patch of it out.

ColPali, ColQwen2.5, ColModernVBERT and ColSmol through colpali-engine, from the hub or a folder.
``docs/visual-encoders.md`` says what they need and how far they were tried.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from visar.documents.page import Box
from visar.encoders.checkpoint_encoder import NO_NUMBERS, LoadedModel, PageImageEncoder
from visar.encoders.names import same_as_authors
from visar.encoders.protocol import PageEmbedding, page_without_vectors, unit_vectors
from visar.errors import CheckpointError, extra_needed
from visar.models.checkpoints import Checkpoint
from visar.models.devices import attention_for, choose_device, choose_dtype
from visar.models.loading import import_torchvision, loading, refuse_incomplete

if TYPE_CHECKING:
    from PIL.Image import Image

DIMENSION = 128
_WITH_AUTHORS_MODE = "ColModernVBert"
WHOLE_PAGE: Box = (0.0, 0.0, 1.0, 1.0)

Batch = Mapping[str, Any]
PatchBoxes = Callable[[Any, Batch, int], NDArray[np.float32]]
"""From a processor, its batch and a page of it: the boxes of that page's image tokens."""


class VisualEncoder(PageImageEncoder):
    """A checkpoint of one of the `FAMILIES`; the options are those of CheckpointEncoder.

    Without ``instruction_tokens`` only the vectors of image patches are kept. ``as_authors`` runs
    ColModernVBERT as the paper's authors did: in float32, with products of "high" precision, and
    questions as plain texts without augmentation tokens. Raises InvalidOption for other families.
    """

    dimension = DIMENSION

    def __init__(
        self,
        name: str,
        source: str | Checkpoint | None = None,
        *,
        instruction_tokens: bool = True,
        as_authors: bool = False,
        **options: Any,
    ) -> None:
        self._instruction_tokens = instruction_tokens
        self._as_authors = as_authors
        if as_authors and options.get("expected") not in (None, _WITH_AUTHORS_MODE):
            raise same_as_authors(name)
        super().__init__(name, source, **options)

    @property
    def version(self) -> str:
        patches = "" if self._instruction_tokens else "-patches"
        return f"{super().version}{patches}{'-authors' if self._as_authors else ''}"

    def _check(self, found: Checkpoint) -> Checkpoint:
        family = family_of(found)
        if self._as_authors and family.model_class != _WITH_AUTHORS_MODE:
            raise same_as_authors(self.name)
        if self._expected not in (None, family.model_class):
            raise CheckpointError(
                f"{found.name} is {family.model_class} where {self._expected} was expected: the "
                "repository has changed. Give the revision you want."
            )
        return found

    def _load(self) -> LoadedModel:
        """Load an adapter together with its base model, or a whole model."""
        checkpoint = self._checkpoint.get()
        family = family_of(checkpoint)
        import_torchvision()
        with extra_needed("A visual encoder", "colpali"):
            from colpali_engine import models
        device = choose_device(self._device)
        # Flash attention knows no float32.
        attention = None if self._as_authors else attention_for(device)
        dtype = choose_dtype("cpu" if self._as_authors else device)
        options: dict[str, Any] = {"dtype": dtype, "use_safetensors": True}
        if attention:
            options["attn_implementation"] = attention
        folder = checkpoint.folder()
        if checkpoint.base_revision:
            options["revision"] = checkpoint.base_revision
        if checkpoint.base:
            # Else a configuration beside the adapter is taken for a whole model's.
            options["adapter_kwargs"] = {"_adapter_model_path": folder}
        with loading(checkpoint):
            model, report = getattr(models, family.model_class).from_pretrained(
                checkpoint.base or folder,
                output_loading_info=True,
                local_files_only=True,
                **options,
            )
            processor = getattr(models, family.processor_class).from_pretrained(
                folder, local_files_only=True
            )
        _tie_language_head(model)
        refuse_incomplete(checkpoint, model, report)
        if model.dim != DIMENSION:
            raise CheckpointError(
                f"{self.name} makes vectors of {model.dim} dimensions, not {DIMENSION}."
            )
        if family.page_prompt is not None:
            processor.visual_prompt_prefix = family.page_prompt
        return LoadedModel(model.to(device).eval(), processor, attention)

    def _query_vectors(self, loaded: LoadedModel, question: str) -> NDArray[np.float32]:
        processor = loaded.processor
        process = processor.process_texts if self._as_authors else processor.process_queries
        batch = _without_second_beginning(processor, process([question]))
        output = self._run(loaded.model, batch, {})
        return np.asarray(output[0][batch["attention_mask"][0].bool()].numpy(), np.float32)

    def _encode(self, loaded: LoadedModel, images: Sequence[Image]) -> list[PageEmbedding]:
        family = family_of(self._checkpoint.get())
        batch = loaded.processor.process_images(list(images))
        output = self._run(loaded.model, batch, family.forward)
        is_patch = loaded.processor.get_image_mask(batch)
        return [
            self._embedding(
                output[page].numpy(),
                batch["attention_mask"][page].bool().numpy(),
                is_patch[page].numpy(),
                family.patch_boxes(loaded.processor, batch, page),
            )
            for page in range(len(images))
        ]

    def _run(self, model: Any, batch: Batch, extra: Mapping[str, Any]) -> Any:
        """Return the model's vectors for a batch of its processor: (batch, tokens, D), on the CPU.

        The whole batch goes in: the model finds positions from its grids and masks. Only what
        training needs is left out.
        """
        import torch

        placed = {key: value.to(model.device) for key, value in batch.items() if key != "labels"}
        precision = torch.get_float32_matmul_precision()
        if self._as_authors:
            torch.set_float32_matmul_precision("high")
        try:
            with torch.inference_mode():
                return model(**placed, **extra).float().cpu()
        finally:
            torch.set_float32_matmul_precision(precision)

    def _embedding(
        self,
        vectors: NDArray[np.float32],
        is_token: NDArray[np.bool_],
        is_patch: NDArray[np.bool_],
        patch_boxes: NDArray[np.float32],
    ) -> PageEmbedding:
        """Return one page without its padding."""
        boxes = np.zeros((len(vectors), 4), np.float32)
        boxes[is_patch] = patch_boxes
        kept = is_token if self._instruction_tokens else is_patch
        if not np.isfinite(vectors[kept]).all():
            return page_without_vectors(DIMENSION, NO_NUMBERS)
        return PageEmbedding(
            unit_vectors(vectors[kept]).astype(np.float16),
            boxes[kept],
            np.full(int(kept.sum()), -1, np.int32),
        )


def _tie_language_head(model: Any) -> None:
    """Give the head that predicts words the weights of the embeddings, as its family has them.

    Checkpoints do not hold them twice, and colpali-engine's ColPali does not tie them: they would
    stay without content, and the model could not be moved to a device.
    """
    head = getattr(getattr(model, "model", None), "lm_head", None)
    if head is not None and head.weight.is_meta:
        head.weight = model.get_input_embeddings().weight


def _without_second_beginning(processor: Any, batch: Batch) -> dict[str, Any]:
    """Drop a beginning-of-text mark that both colpali-engine and the tokenizer have written."""
    first = getattr(processor.tokenizer, "bos_token_id", None)
    ids = batch["input_ids"][0]
    doubled = first is not None and len(ids) > 1 and bool(ids[0] == ids[1] == first)
    return {key: value[:, 1:] if doubled else value for key, value in batch.items()}


_TILE = re.compile(r"<row_(\d+)_col_(\d+)>")


@dataclass(frozen=True, slots=True)
class Family:
    """Checkpoints that are loaded by the same classes and place patches the same way."""

    model_type: str
    """In the configuration of the model, for an adapter of its base model."""
    model_class: str
    """In colpali-engine."""
    processor_class: str
    patch_boxes: PatchBoxes
    page_prompt: str | None = None
    """Replaces colpali-engine's prompt for pages."""
    forward: dict[str, Any] = field(default_factory=dict)
    """Arguments of the model beside the processor's batch."""


def _colpali_boxes(processor: Any, batch: Batch, page: int) -> NDArray[np.float32]:
    """Return a square grid: the page is stretched to a square, whatever its shape."""
    count = int((batch["input_ids"][page] == processor.image_token_id).sum())
    side = math.isqrt(count)
    return grid_boxes(side, side)


def _colqwen_boxes(processor: Any, batch: Batch, page: int) -> NDArray[np.float32]:
    """Return a grid of the page's shape; the processor counts patches before they are merged."""
    _, height, width = batch["image_grid_thw"][page].tolist()
    merge = processor.image_processor.merge_size
    return grid_boxes(height // merge, width // merge)


def _tiled_boxes(processor: Any, batch: Batch, page: int) -> NDArray[np.float32]:
    """Return a grid for each tile, then one for the whole page.

    Text before each tile names its row and column.
    """
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
    """Return the row and column of each run of image tokens; None for the whole page."""
    found: list[tuple[int | None, int | None]] = []
    for before, token in pairwise(tokens):
        if token == image_token and before != image_token:
            place = _TILE.fullmatch(before)
            found.append((int(place[1]) - 1, int(place[2]) - 1) if place else (None, None))
    return found


FAMILIES = {
    "colpali": Family(
        "paligemma",
        "ColPali",
        "ColPaliProcessor",
        _colpali_boxes,
        # colpali-engine's own prompt names a beginning of text that the processor adds too.
        # The published checkpoint was trained, and the paper's pages encoded, with one.
        page_prompt="<image>Describe the image.",
        # The probabilities of next words are not needed: half a gigabyte a page.
        forward={"logits_to_keep": 1},
    ),
    "colqwen2.5": Family("qwen2_5_vl", "ColQwen2_5", "ColQwen2_5_Processor", _colqwen_boxes),
    "colmodernvbert": Family(
        "modernvbert", "ColModernVBert", "ColModernVBertProcessor", _tiled_boxes
    ),
    "colsmol": Family("idefics3", "ColIdefics3", "ColIdefics3Processor", _tiled_boxes),
}


def family_of(checkpoint: Checkpoint) -> Family:
    """Return the family of a checkpoint, from its configuration.

    Raises CheckpointError if it belongs to none, or makes no multi-vector embeddings.
    """
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
    """Refuse chat models and single-vector ones: their projection would be random numbers."""
    multi_vector = family.model_class in checkpoint.architectures
    adapted = "custom_text_proj" in checkpoint.adapted_modules
    if not multi_vector and not adapted:
        kinds = ", ".join(checkpoint.architectures) or checkpoint.model_type
        raise CheckpointError(
            f"{checkpoint.name} is {kinds}, not {family.model_class}: it has no projection to "
            f"multi-vector embeddings. Take a checkpoint of {family.model_class}."
        )


def grid_boxes(rows: int, columns: int, within: Box = WHOLE_PAGE) -> NDArray[np.float32]:
    """Return the boxes of a grid over a part of the page, row by row.

    >>> grid_boxes(1, 2).tolist()
    [[0.0, 0.0, 0.5, 1.0], [0.5, 0.0, 1.0, 1.0]]
    """
    left, top, right, bottom = within
    across = np.linspace(left, right, columns + 1)
    down = np.linspace(top, bottom, rows + 1)
    boxes = np.empty((rows, columns, 4), np.float32)
    boxes[..., 0], boxes[..., 2] = across[:-1], across[1:]
    boxes[..., 1], boxes[..., 3] = down[:-1, None], down[1:, None]
    return boxes.reshape(-1, 4)


def tile_box(row: int, column: int, rows: int, columns: int) -> Box:
    """Return the part of the page that a tile shows; rows and columns count from 0.

    >>> tile_box(1, 0, 2, 4)
    (0.0, 0.5, 0.25, 1.0)
    """
    return column / columns, row / rows, (column + 1) / columns, (row + 1) / rows
