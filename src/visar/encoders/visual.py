"""Visual encoders, which compute a vector for each patch of a page image.

They load the model families of colpali-engine, from the hub or a folder.
``docs/encoders.md`` describes their requirements and how they were tested.
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
from visar.encoders.checkpoint_encoder import LoadedModel, PageImageEncoder
from visar.encoders.encoder import PageEmbedding, embed_page
from visar.encoders.names import no_authors_mode
from visar.errors import CheckpointError, extra_needed
from visar.models.checkpoints import Checkpoint
from visar.models.devices import attention_for, choose_device, choose_dtype
from visar.models.loading import import_torchvision, loading, refuse_incomplete

if TYPE_CHECKING:
    from PIL.Image import Image

_HAS_AUTHORS_MODE = "ColModernVBert"
WHOLE_PAGE: Box = (0.0, 0.0, 1.0, 1.0)

Batch = Mapping[str, Any]
PatchBoxes = Callable[[Any, Batch, int], NDArray[np.float32]]
"""A function of processor, batch and page index; returns the boxes of the page's image tokens."""


class VisualEncoder(PageImageEncoder):
    """A checkpoint of one of the `FAMILIES`, with the options of CheckpointEncoder.

    Without ``instruction_tokens``, only the vectors of image patches are kept. ``as_authors`` runs
    ColModernVBERT as the paper's authors did: in float32 with "high" matrix product precision, and
    with questions as plain text without augmentation tokens. It raises InvalidOption for other
    families.
    """

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
        if as_authors and options.get("expected") not in (None, _HAS_AUTHORS_MODE):
            raise no_authors_mode(name)
        super().__init__(name, source, **options)

    @property
    def model_class(self) -> str:
        """The checkpoint's class in colpali-engine."""
        return family_of(self._checkpoint.get()).model_class

    def load_model(self) -> tuple[Checkpoint, LoadedModel]:
        """Load and return a new model that the caller may modify, with its checkpoint."""
        return self._checkpoint.get(), self._load()

    @property
    def version(self) -> str:
        patches = "" if self._instruction_tokens else "-patches"
        return f"{super().version}{patches}{'-authors' if self._as_authors else ''}"

    def _read_dimension(self) -> int:
        checkpoint = self._checkpoint.get()
        return int(checkpoint.config.get("dim", family_of(checkpoint).dimension))

    def _check(self, found: Checkpoint) -> Checkpoint:
        family = family_of(found)
        if self._as_authors and family.model_class != _HAS_AUTHORS_MODE:
            raise no_authors_mode(self.name)
        if self._expected not in (None, family.model_class):
            reason = (
                ". Use the name of its own model."
                if found.is_local
                else ": the repository has changed. Specify a revision."
            )
            raise CheckpointError(
                f"{found.name} is {family.model_class}, not {self._expected}{reason}"
            )
        return found

    def _load(self) -> LoadedModel:
        """Load a full model, or an adapter with its base model."""
        checkpoint = self._checkpoint.get()
        family = family_of(checkpoint)
        import_torchvision()
        with extra_needed("A visual encoder", "colpali"):
            from colpali_engine import models
        device = choose_device(self._device)
        # Flash attention doesn't support float32.
        attention = None if self._as_authors else attention_for(device)
        dtype = choose_dtype("cpu" if self._as_authors else device)
        options: dict[str, Any] = {"dtype": dtype, "use_safetensors": True}
        if attention:
            options["attn_implementation"] = attention
        folder = checkpoint.folder()
        if checkpoint.base_revision:
            options["revision"] = checkpoint.base_revision
        if checkpoint.base:
            # Otherwise a config.json next to the adapter is taken for a full model's.
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
        self._check_dimension(model.dim)
        if family.page_prompt is not None:
            processor.visual_prompt_prefix = family.page_prompt
        return LoadedModel(model.to(device).eval(), processor, attention)

    def _query_vectors(self, loaded: LoadedModel, question: str) -> NDArray[np.float32]:
        processor = loaded.processor
        process = processor.process_texts if self._as_authors else processor.process_queries
        batch = process([question])
        if family_of(self._checkpoint.get()).page_prompt is not None:
            batch = _drop_duplicate_bos(processor, batch)
        output = self._run(loaded.model, batch, {})
        return np.asarray(output[0][batch["attention_mask"][0].bool()].numpy(), np.float32)

    def _encode(self, loaded: LoadedModel, images: Sequence[Image]) -> list[PageEmbedding]:
        family = family_of(self._checkpoint.get())
        batch = loaded.processor.process_images(list(images))
        output = self._run(loaded.model, batch, family.forward)
        # Not the processor's image token, which for Gemma marks the start of the image.
        is_patch = batch["input_ids"] == loaded.model.config.image_token_id
        is_kept = batch["attention_mask"].bool() if self._instruction_tokens else is_patch
        embeddings = []
        for page in range(len(images)):
            boxes = np.zeros((output.shape[1], 4), np.float32)
            boxes[is_patch[page].numpy()] = family.patch_boxes(loaded.processor, batch, page)
            kept = is_kept[page].numpy()
            embeddings.append(embed_page(output[page].numpy()[kept], boxes[kept]))
        return embeddings

    def _run(self, model: Any, batch: Batch, extra: Mapping[str, Any]) -> Any:
        """Run the model on a processed batch; return vectors (batch, tokens, D) on the CPU.

        The model gets the whole batch except the training labels, because it computes positions
        from the grids and masks.
        """
        import torch

        inputs = {key: value.to(model.device) for key, value in batch.items() if key != "labels"}
        precision = torch.get_float32_matmul_precision()
        if self._as_authors:
            torch.set_float32_matmul_precision("high")
        try:
            with torch.inference_mode():
                return model(**inputs, **extra).float().cpu()
        finally:
            torch.set_float32_matmul_precision(precision)


def _tie_language_head(model: Any) -> None:
    """Tie the language head's weights to the embeddings.

    Checkpoints store these weights once, and colpali-engine's ColPali doesn't tie them. Without
    this the head would stay a meta tensor and the model couldn't be moved to a device.
    """
    head = getattr(getattr(model, "model", None), "lm_head", None)
    if head is not None and head.weight.is_meta:
        head.weight = model.get_input_embeddings().weight


def _drop_duplicate_bos(processor: Any, batch: Batch) -> dict[str, Any]:
    """Drop the second beginning-of-text token if both colpali-engine and the tokenizer added it."""
    first = getattr(processor.tokenizer, "bos_token_id", None)
    ids = batch["input_ids"][0]
    is_duplicate = first is not None and len(ids) > 1 and bool(ids[0] == ids[1] == first)
    return {key: value[:, 1:] if is_duplicate else value for key, value in batch.items()}


_TILE = re.compile(r"<row_(\d+)_col_(\d+)>")


@dataclass(frozen=True, slots=True)
class Family:
    """A family of checkpoints with the same classes and patch layout."""

    model_type: str
    """``model_type`` in the configuration of the model or of an adapter's base model."""
    model_class: str
    """The model class in colpali-engine."""
    processor_class: str
    patch_boxes: PatchBoxes
    dimension: int = 128
    """The number of vector components, unless the configuration sets ``dim``."""
    page_prompt: str | None = None
    """A replacement for colpali-engine's page prompt, with one beginning-of-text token, not two."""
    forward: dict[str, Any] = field(default_factory=dict)
    """Extra arguments of the model."""


def _square_boxes(processor: Any, _batch: Batch, _page: int) -> NDArray[np.float32]:
    """Return a square grid, since pages of any shape are stretched to a square."""
    side = math.isqrt(processor.image_seq_length)
    return grid_boxes(side, side)


def _rectangular_boxes(processor: Any, batch: Batch, page: int) -> NDArray[np.float32]:
    """Return a grid in the page's shape; the processor's counts are before merging patches."""
    _, height, width = batch["image_grid_thw"][page].tolist()
    merge = processor.image_processor.merge_size
    return grid_boxes(height // merge, width // merge)


def _tiled_boxes(processor: Any, batch: Batch, page: int) -> NDArray[np.float32]:
    """Return a grid for each tile and one for the whole page.

    The token before each tile contains its row and column.
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
            position = _TILE.fullmatch(before)
            found.append((int(position[1]) - 1, int(position[2]) - 1) if position else (None, None))
    return found


FAMILIES = {
    "colpali": Family(
        "paligemma",
        "ColPali",
        "ColPaliProcessor",
        _square_boxes,
        # colpali-engine's prompt has a beginning-of-text token, and the processor adds another.
        # The published checkpoint was trained, and the paper's pages encoded, with only one.
        page_prompt="<image>Describe the image.",
        # Skip the next-word probabilities, which take half a gigabyte per page.
        forward={"logits_to_keep": 1},
    ),
    "colqwen2": Family("qwen2_vl", "ColQwen2", "ColQwen2Processor", _rectangular_boxes),
    "colqwen2.5": Family("qwen2_5_vl", "ColQwen2_5", "ColQwen2_5_Processor", _rectangular_boxes),
    "colqwen3": Family(
        "qwen3_vl", "ColQwen3", "ColQwen3Processor", _rectangular_boxes, dimension=320
    ),
    "colqwen3.5": Family("qwen3_5", "ColQwen3_5", "ColQwen3_5Processor", _rectangular_boxes),
    "colgemma3": Family("gemma3", "ColGemma3", "ColGemmaProcessor3", _square_boxes),
    "colmodernvbert": Family(
        "modernvbert", "ColModernVBert", "ColModernVBertProcessor", _tiled_boxes
    ),
    "colsmol": Family("idefics3", "ColIdefics3", "ColIdefics3Processor", _tiled_boxes),
}


def family_of(checkpoint: Checkpoint) -> Family:
    """Return the family of a checkpoint, from its configuration.

    Raises CheckpointError if the family is unknown or the model isn't multi-vector.
    """
    for family in FAMILIES.values():
        if checkpoint.model_type == family.model_type:
            _refuse_without_projection(checkpoint, family)
            return family
    known = ", ".join(family.model_type for family in FAMILIES.values())
    hint = ""
    if checkpoint.model_type in ("colqwen2", "colmodernvbert"):
        hint = (
            " Its layout is that of transformers' own class, which loses patch positions. Use the "
            "repository it was converted from, such as vidore/colqwen2-v1.0 instead of "
            "vidore/colqwen2-v1.0-hf."
        )
    raise CheckpointError(
        f"{checkpoint.name} has the unsupported model type {checkpoint.model_type!r}. Supported "
        f"types of visual encoders: {known}.{hint}"
    )


def _refuse_without_projection(checkpoint: Checkpoint, family: Family) -> None:
    """Raise CheckpointError for models without a projection, which would be random numbers."""
    is_multi_vector = family.model_class in checkpoint.architectures
    is_adapted = "custom_text_proj" in checkpoint.adapted_modules
    if not is_multi_vector and not is_adapted:
        kinds = ", ".join(checkpoint.architectures) or checkpoint.model_type
        raise CheckpointError(
            f"{checkpoint.name} is {kinds}, which has no projection to multi-vector embeddings: "
            f"use a checkpoint of {family.model_class}."
        )


def grid_boxes(rows: int, columns: int, within: Box = WHOLE_PAGE) -> NDArray[np.float32]:
    """Return the boxes of a grid on part of a page, row by row.

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
    """Return the box of a tile on the page; rows and columns start at 0.

    >>> tile_box(1, 0, 2, 4)
    (0.0, 0.5, 0.25, 1.0)
    """
    return column / columns, row / rows, (column + 1) / columns, (row + 1) / rows
