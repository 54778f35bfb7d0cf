"""Loading a language model through transformers, from the hub or a local folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from visar.errors import CheckpointError, EncoderUnavailable, GenerationError, GeneratorUnavailable
from visar.generation.chat import ChatTemplate
from visar.generation.published import INSTALL, missing_packages
from visar.models.checkpoints import Checkpoint
from visar.models.devices import choose_device, choose_dtype, is_out_of_memory
from visar.models.loading import import_torchvision, loading, refuse_incomplete

Reads: TypeAlias = Literal["images", "text"]


def refuse_missing_packages(name: str) -> None:
    """Refuse to go on where a package is not installed."""
    if missing := missing_packages():
        raise GeneratorUnavailable(f"The generator {name!r} needs {', '.join(missing)}: {INSTALL}")


def reads_of(checkpoint: Checkpoint) -> Reads:
    """What a checkpoint reads, from the class its configuration names."""
    import_torchvision()  # transformers imports it too
    from transformers.models.auto import modeling_auto

    if checkpoint.adapter is not None:
        raise CheckpointError(
            f"{checkpoint.name} is an adapter. Merge it into its base model, save that to a "
            "folder, and give the folder's path."
        )
    kinds: tuple[tuple[Reads, Mapping[str, Any]], ...] = (
        ("images", modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES),
        ("text", modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES),
    )
    for reads, classes in kinds:
        if classes.get(checkpoint.model_type) in checkpoint.architectures:
            return reads
    kind = ", ".join(checkpoint.architectures) or f"of type {checkpoint.model_type!r}"
    raise CheckpointError(
        f"{checkpoint.name} is {kind}, which writes no text, or which transformers does not know "
        "without code of its own. Take a chat model that transformers loads, such as "
        "Qwen/Qwen2.5-VL-7B-Instruct."
    )


@dataclass(frozen=True, slots=True)
class Reader:
    """What makes a model's inputs of a prompt."""

    processor: Any
    """For a model that reads text alone: its tokenizer."""
    tokenizer: Any
    template: ChatTemplate


def load_reader(checkpoint: Checkpoint, reads: Reads) -> Reader:
    """Load a checkpoint's processor or tokenizer, without its weights."""
    import_torchvision()
    from transformers import AutoProcessor, AutoTokenizer

    loader: Any = AutoProcessor if reads == "images" else AutoTokenizer
    with loading(checkpoint):
        processor = loader.from_pretrained(**_source(checkpoint))
        template = ChatTemplate(checkpoint.name, processor, with_images=reads == "images")
    return Reader(processor, getattr(processor, "tokenizer", processor), template)


def load_model(checkpoint: Checkpoint, reads: Reads, device: str) -> Any:
    """Load a checkpoint's weights to the device."""
    import_torchvision()
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    try:
        place = choose_device(device)
    except EncoderUnavailable as error:
        raise GeneratorUnavailable(str(error)) from error
    loader: Any = AutoModelForImageTextToText if reads == "images" else AutoModelForCausalLM
    try:
        with loading(checkpoint):
            model, report = loader.from_pretrained(
                output_loading_info=True,
                dtype=choose_dtype(place),
                use_safetensors=True,
                **_source(checkpoint),
            )
        refuse_incomplete(checkpoint, model, report)
        return model.to(place).eval()
    except (MemoryError, RuntimeError, CheckpointError) as error:
        if not is_out_of_memory(error):
            raise
        raise GenerationError(
            f"{checkpoint.name} does not fit into the memory of the device ({place}): choose a "
            "smaller model, another device, or a server that runs it."
        ) from error


def _source(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "pretrained_model_name_or_path": checkpoint.folder(),
        "local_files_only": True,
        "trust_remote_code": False,
    }
