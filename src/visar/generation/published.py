"""The local models of the paper: where they are published, what loads them, how they write."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Literal

from visar.models.hub import is_downloaded
from visar.models.protocols import State

PACKAGES = ("torch", "torchvision", "transformers")
INSTALL = "pip install 'visar[local]'"


@dataclass(frozen=True, slots=True)
class PublishedModel:
    """A language model at the Hugging Face hub."""

    repository: str
    revision: str
    model_class: str
    """What it must turn out to be when it is loaded."""
    reads: Literal["images", "text"]
    parameters: str
    gigabytes: int
    """Of its weights, which are bfloat16."""
    decoding: Literal["greedy", "checkpoint"]
    """Always the likeliest token, or as its own generation_config.json says, from a fixed seed."""
    description: str


# The paper: Qwen2.5-VL-7B-Instruct with greedy decoding, "additional generation models with
# default configurations". Qwen2.5-7B-Instruct stands in the same table as the former.
PUBLISHED = {
    "qwen2.5-vl": PublishedModel(
        "Qwen/Qwen2.5-VL-7B-Instruct",
        "main",
        "Qwen2_5_VLForConditionalGeneration",
        "images",
        "8.3 B",
        17,
        "greedy",
        "Qwen2.5-VL-7B-Instruct: the paper's first choice",
    ),
    "qwen3-vl": PublishedModel(
        "Qwen/Qwen3-VL-8B-Instruct",
        "main",
        "Qwen3VLForConditionalGeneration",
        "images",
        "8.8 B",
        18,
        "checkpoint",
        "Qwen3-VL-8B-Instruct",
    ),
    "internvl3.5": PublishedModel(
        "OpenGVLab/InternVL3_5-8B-HF",
        "main",
        "InternVLForConditionalGeneration",
        "images",
        "8.5 B",
        17,
        "checkpoint",
        "InternVL3.5-8B: pages in tiles",
    ),
    "idefics3": PublishedModel(
        "HuggingFaceM4/Idefics3-8B-Llama3",
        "main",
        "Idefics3ForConditionalGeneration",
        "images",
        "8.5 B",
        17,
        "checkpoint",
        "Idefics3-8B-Llama3: pages in tiles",
    ),
    "llava-onevision": PublishedModel(
        "llava-hf/llava-onevision-qwen2-7b-ov-hf",
        "main",
        "LlavaOnevisionForConditionalGeneration",
        "images",
        "8.0 B",
        16,
        "checkpoint",
        "LLaVA-OneVision-Qwen2-7B: several pages are seen small",
    ),
    "qwen2.5-7b": PublishedModel(
        "Qwen/Qwen2.5-7B-Instruct",
        "main",
        "Qwen2ForCausalLM",
        "text",
        "7.6 B",
        15,
        "greedy",
        "Qwen2.5-7B-Instruct: the pages' words, as in the paper's ColBERTv2 row",
    ),
    "qwen2.5-14b": PublishedModel(
        "Qwen/Qwen2.5-14B-Instruct",
        "main",
        "Qwen2ForCausalLM",
        "text",
        "14.8 B",
        30,
        "greedy",
        "Qwen2.5-14B-Instruct: the pages' words; the paper's judge",
    ),
}


@dataclass(frozen=True, slots=True)
class GeneratorInfo:
    """What a person choosing a generator wants to know."""

    name: str
    description: str
    reads: Literal["images", "text"]
    size: str
    """Of its model, as a person would say it."""
    install: str | None
    """What to run before it can be used here; None when nothing is missing."""
    download: int | None = None
    """Gigabytes that are downloaded when it is first used; None when there is nothing to load."""

    @property
    def state(self) -> State:
        if self.install is not None:
            return "missing"
        return "ready" if self.download is None else "downloads"

    @property
    def next_step(self) -> str | None:
        """What comes before its first answer; None when it is ready."""
        if self.state == "downloads":
            return f"downloads {self.download} GB when first used"
        return self.install


def available_local_generators() -> list[GeneratorInfo]:
    """The paper's models with what each needs before it can run here. Nothing is downloaded."""
    install = INSTALL if missing_packages() else None
    return [
        GeneratorInfo(
            name,
            model.description,
            model.reads,
            f"{model.parameters} parameters, {model.gigabytes} GB",
            install,
            None if install or is_downloaded(model.repository, model.revision) else model.gigabytes,
        )
        for name, model in PUBLISHED.items()
    ]


def missing_packages() -> list[str]:
    """Which packages a local generator lacks here."""
    return [package for package in PACKAGES if importlib.util.find_spec(package) is None]
