"""The generators that can be chosen by name, and whether they can run here."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Literal

from visar.errors import GeneratorUnavailable, InvalidOption, install_hint
from visar.generation import extractive
from visar.generation.protocol import Generator, Reads
from visar.models.checkpoints import is_checkpoint_name
from visar.models.devices import check_device
from visar.models.hub import is_downloaded
from visar.models.protocols import State
from visar.plugins import entry_points, is_object_name, make, package_of, unknown_name

GROUP = "visar.generators"
"""Entry points of other packages: a class or function that returns a generator."""
INTERNVL = "OpenGVLab/InternVL3_5-8B-Instruct"
"""The paper's InternVL; `PUBLISHED` has the repository that transformers loads, which differs."""
INSTALL = install_hint("local")
_PACKAGES = ("torch", "torchvision", "transformers")
_SERVED: dict[str, Reads] = {"openai": "images", "openai-text": "text"}


@dataclass(frozen=True, slots=True)
class PublishedModel:
    """A language model at the Hugging Face hub."""

    repository: str
    model_class: str
    """The class that its configuration must name."""
    reads: Reads
    parameters: str
    gigabytes: int
    """Of its weights, which are bfloat16."""
    decoding: Literal["greedy", "checkpoint"]
    """Always the likeliest token, or as its own generation_config.json says, from a fixed seed."""
    description: str
    paper_decoding: Literal["greedy", "checkpoint"] | None = None
    """The decoding of the paper's program, where ours is another."""
    half: Literal["bfloat16", "float16"] = "bfloat16"
    """The 16-bit format that the paper's program runs it in."""
    revision: str = "main"


# The paper does not say which revisions it used: replies record the commit that was loaded.
PUBLISHED = {
    "qwen2.5-vl": PublishedModel(
        "Qwen/Qwen2.5-VL-7B-Instruct",
        "Qwen2_5_VLForConditionalGeneration",
        "images",
        "8.3 B",
        17,
        "greedy",
        "Qwen2.5-VL-7B-Instruct: the paper's first choice",
    ),
    "qwen3-vl": PublishedModel(
        "Qwen/Qwen3-VL-8B-Instruct",
        "Qwen3VLForConditionalGeneration",
        "images",
        "8.8 B",
        18,
        "checkpoint",
        "Qwen3-VL-8B-Instruct",
    ),
    "internvl3.5": PublishedModel(
        "OpenGVLab/InternVL3_5-8B-HF",
        "InternVLForConditionalGeneration",
        "images",
        "8.5 B",
        17,
        "checkpoint",
        "InternVL3.5-8B (MPO): pages in tiles; not the weights of the paper",
        paper_decoding="greedy",
    ),
    "idefics3": PublishedModel(
        "HuggingFaceM4/Idefics3-8B-Llama3",
        "Idefics3ForConditionalGeneration",
        "images",
        "8.5 B",
        17,
        "checkpoint",
        "Idefics3-8B-Llama3: pages in tiles",
    ),
    "llava-onevision": PublishedModel(
        "llava-hf/llava-onevision-qwen2-7b-ov-hf",
        "LlavaOnevisionForConditionalGeneration",
        "images",
        "8.0 B",
        16,
        "checkpoint",
        "LLaVA-OneVision-Qwen2-7B: several pages are seen small",
        half="float16",
    ),
    "qwen2.5-7b": PublishedModel(
        "Qwen/Qwen2.5-7B-Instruct",
        "Qwen2ForCausalLM",
        "text",
        "7.6 B",
        15,
        "greedy",
        "Qwen2.5-7B-Instruct: the pages' words, as in the paper's ColBERTv2 row",
        paper_decoding="checkpoint",
    ),
    "qwen2.5-14b": PublishedModel(
        "Qwen/Qwen2.5-14B-Instruct",
        "Qwen2ForCausalLM",
        "text",
        "14.8 B",
        30,
        "greedy",
        "Qwen2.5-14B-Instruct: the pages' words; the paper's judge",
        paper_decoding="checkpoint",
    ),
}


@dataclass(frozen=True, slots=True)
class GeneratorInfo:
    """What a person choosing a generator wants to know."""

    name: str
    description: str
    reads: Reads | None
    """None if only loading it would tell."""
    size: str
    """Of its model, in words."""
    install: str | None
    """What to run before it can be used here; None when nothing is missing."""
    download: int | None = None
    """Gigabytes that are downloaded when it is first used; None when there is nothing to load."""

    @property
    def state(self) -> State:
        if self.install is not None:
            return "missing"
        return "ready" if self.download is None else "downloads"


def is_served(name: str) -> bool:
    """Whether a name means a model behind a server, which a base URL can go with.

    >>> is_served("openai:gpt"), is_served("qwen2.5-vl")
    (True, False)
    """
    return name.partition(":")[0] in _SERVED and ":" in name


def internvl_hint() -> str:
    """Say how to run the paper's InternVL, whose code needs an environment of its own."""
    return (
        f"`python3 -m venv internvl && internvl/bin/pip install vllm && internvl/bin/vllm serve "
        f"{INTERNVL} --trust-remote-code --chat-template-content-format string "
        "--interleave-mm-strings --limit-mm-per-prompt '{\"image\": 10}'` runs the paper's own, in "
        f"an environment of its own; then use --generator openai:{INTERNVL} --base-url "
        "http://127.0.0.1:8000/v1"
    )


def model_class_of(generator: Generator) -> str | None:
    """Return the class of a generator's model; None if only its server knows."""
    known = getattr(generator, "model_class", None)
    if isinstance(known, str):
        return known
    model = generator.name.removeprefix("openai:").removeprefix("openai-text:")
    names = {one.repository: one.model_class for one in PUBLISHED.values()}
    return (names | {INTERNVL: "InternVLChatModel"}).get(model)


def get_generator(
    generator: str | Generator, *, base_url: str | None = None, device: str = "auto"
) -> Generator:
    """Return the generator of a name; a generator is returned as it is.

    Parameters
    ----------
    generator
        ``openai:MODEL`` or ``openai-text:MODEL`` for a model behind an OpenAI-compatible server,
        given page images or page texts; a model of the paper, also in a folder of yours as
        ``NAME=FOLDER``; an entry point of the group ``visar.generators``; ``module:Class``; or the
        folder or hub name of a checkpoint.
    base_url
        Where the server of ``openai:MODEL`` is.
    device
        Where a local model runs: "auto", "cpu", "cuda" or "mps". It is loaded when first used.

    Raises
    ------
    InvalidOption
        If there is no such generator, or an option does not go with it.
    GeneratorUnavailable
        If packages, settings or a key are missing.
    """
    if not isinstance(generator, str):
        return generator
    check_device(device)
    if is_served(generator):
        from visar.generation.openai_server import OpenAIGenerator

        kind, _, model = generator.partition(":")
        return OpenAIGenerator(model, reads=_SERVED[kind], base_url=base_url)
    if base_url is not None:
        raise InvalidOption(f"A base URL goes with openai:MODEL, not with {generator!r}.")
    if generator.partition("=")[0] not in PUBLISHED:
        if generator in entry_points(GROUP):
            return _made_by(entry_points(GROUP)[generator], generator, device)
        if is_object_name(generator):
            return _made_by(generator, generator, device)
        if not is_checkpoint_name(generator):
            known = [info.name for info in available_generators()]
            hint = (
                " Or give module:Class, the folder of a checkpoint, or its name at the hub, such as"
                " Qwen/Qwen2.5-VL-3B-Instruct."
            )
            raise unknown_name("generator", generator, known, hint)
    from visar.generation.local import LocalGenerator

    return LocalGenerator(generator, device=device)


def _made_by(factory: str | EntryPoint, name: str, device: str) -> Generator:
    made = make(factory, "generator", name, device, GeneratorUnavailable)
    if isinstance(made, type) or not isinstance(made, Generator):
        raise InvalidOption(
            f"{name} returned {made!r}, which is no generator: it must be a class or function that "
            "returns an object with the members of visar.generation.protocol.Generator."
        )
    return made


def available_generators() -> list[GeneratorInfo]:
    """Return every generator, the default first, then those of other packages; import none."""
    lacks = _lacking_for_servers()
    return [
        GeneratorInfo(
            extractive.NAME, "Quotes the passages that match best: no model", "text", "", None
        ),
        GeneratorInfo(
            "openai:MODEL", "A vision model behind an OpenAI-compatible server", "images", "", lacks
        ),
        GeneratorInfo("openai-text:MODEL", "A text model behind such a server", "text", "", lacks),
        *available_local_generators(),
        *(
            GeneratorInfo(name, f"{point.value}, of {package_of(point)}", None, "", None)
            for name, point in entry_points(GROUP).items()
        ),
    ]


def available_local_generators() -> list[GeneratorInfo]:
    """Return the models of the paper with what each needs here; nothing is downloaded."""
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
    """Return the packages that a local generator lacks here."""
    return [package for package in _PACKAGES if importlib.util.find_spec(package) is None]


def _lacking_for_servers() -> str | None:
    if importlib.util.find_spec("openai") is None:
        return install_hint("openai")
    if os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL"):
        return None
    return "set OPENAI_API_KEY, or name a server of your own with --base-url"
