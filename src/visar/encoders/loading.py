"""Loading a visual encoder's model and processor through colpali-engine."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from visar.encoders.checkpoints import Checkpoint
from visar.encoders.devices import attention_for, choose_device, choose_dtype
from visar.encoders.families import Family
from visar.encoders.torchvision_operators import import_torchvision
from visar.errors import CheckpointError, DamagedModel, MissingExtra


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


@contextlib.contextmanager
def in_float32(model: Any, attention: str | None = None) -> Iterator[None]:
    """Run a model in full precision for a while; ``attention`` is what was chosen for it."""
    import torch

    dtype = model.dtype
    if dtype == torch.float32:
        yield
        return
    model.float()
    if attention:
        model.set_attn_implementation("sdpa")  # flash attention knows no float32
    try:
        yield
    finally:
        model.to(dtype)
        if attention:
            model.set_attn_implementation(attention)


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


def refuse_incomplete(checkpoint: Checkpoint, model: Any, report: Mapping[str, Any]) -> None:
    """Refuse weights that are not all there: the others would be random numbers."""
    empty = [name for name, weights in model.named_parameters() if weights.is_meta]
    reported = [*report.get("missing_keys", ()), *report.get("mismatched_keys", ())]
    absent = sorted({str(name) for name in (*empty, *reported)})
    if absent:
        raise DamagedModel(
            f"{checkpoint.name} lacks {len(absent)} weights of its model, such as {absent[0]}: "
            "it is damaged, or made for another model. Get it again."
        )


@contextlib.contextmanager
def explained(checkpoint: Checkpoint) -> Iterator[None]:
    """Turn what the libraries raise at a bad checkpoint to an error that names it."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, SafetensorError) as error:
        on = f" on {checkpoint.base}" if checkpoint.base else ""
        raise CheckpointError(f"{checkpoint.name}{on} cannot be loaded: {error}") from error


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Without progress bars and without warnings that only the libraries' authors can act on."""
    from transformers.utils import logging

    showed_bars = logging.is_progress_bar_enabled()
    verbosity = logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(verbosity)
        if showed_bars:
            logging.enable_progress_bar()
