"""Loading a visual encoder's model and processor through colpali-engine."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from visar.encoders.families import Family
from visar.errors import MissingExtra
from visar.models.checkpoints import Checkpoint
from visar.models.devices import attention_for, choose_device, choose_dtype
from visar.models.loading import (
    explained,
    import_torchvision,
    in_float32,
    quietly,
    refuse_incomplete,
)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to run, with what prepares its inputs."""

    model: Any
    processor: Any
    device: str

    def run(self, batch: Mapping[str, Any], extra: Mapping[str, Any]) -> Any:
        """The model's vectors for a batch of its processor: (batch, tokens, D), on the CPU.

        The whole batch goes in: the model finds positions from its grids and masks. Only what
        training needs is left out.
        """
        import torch

        inputs = {key: value for key, value in batch.items() if key != "labels"}
        placed = {key: value.to(self.device) for key, value in inputs.items()}
        with torch.inference_mode():
            return self.model(**placed, **extra).float().cpu()

    def in_float32(self) -> contextlib.AbstractContextManager[None]:
        """Run in full precision for a while; what it was made of comes back unchanged."""
        return in_float32(self.model, attention_for(self.device))


def load(checkpoint: Checkpoint, family: Family, device: str) -> LoadedModel:
    """Load a checkpoint: an adapter together with its base model, or a whole model."""
    import_torchvision()
    try:
        from colpali_engine import models
    except ImportError as error:
        raise MissingExtra("A visual encoder", "colpali") from error
    place = choose_device(device)
    options: dict[str, Any] = {"dtype": choose_dtype(place), "use_safetensors": True}
    if attention := attention_for(place):
        options["attn_implementation"] = attention
    folder = checkpoint.folder()
    with quietly(), explained(checkpoint):
        model, report = getattr(models, family.model_class).from_pretrained(
            folder, output_loading_info=True, local_files_only=True, **options
        )
        processor = getattr(models, family.processor_class).from_pretrained(
            folder, local_files_only=True
        )
    _tie_language_head(model)
    refuse_incomplete(checkpoint, model, report)
    if family.page_prompt is not None:
        processor.visual_prompt_prefix = family.page_prompt
    return LoadedModel(model.to(place).eval(), processor, place)


def _tie_language_head(model: Any) -> None:
    """Give the head that predicts words the weights of the embeddings, as its family has them.

    Checkpoints do not hold them twice, and colpali-engine's ColPali does not tie them: they would
    stay without content, and the model could not be moved to a device.
    """
    head = getattr(getattr(model, "model", None), "lm_head", None)
    if head is not None and head.weight.is_meta:
        head.weight = model.get_input_embeddings().weight
