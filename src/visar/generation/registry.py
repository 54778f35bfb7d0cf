"""Which generators there are, and whether they can run here."""

from __future__ import annotations

import importlib.util
import os
from typing import Literal

from visar.errors import InvalidOption
from visar.generation import extractive
from visar.generation.protocol import Generator
from visar.generation.published import PUBLISHED, GeneratorInfo, available_local_generators
from visar.models.checkpoints import is_checkpoint_name

_SERVED: dict[str, Literal["images", "text"]] = {"openai": "images", "openai-text": "text"}


def is_served(name: str) -> bool:
    """Whether a name means a model behind a server, which a base URL can go with.

    >>> is_served("openai:gpt"), is_served("qwen2.5-vl")
    (True, False)
    """
    return name.partition(":")[0] in _SERVED and ":" in name


def get_generator(name: str, *, base_url: str | None = None, device: str = "auto") -> Generator:
    """Make the generator of that name. A local model is loaded when it is first used.

    ``openai:MODEL`` and ``openai-text:MODEL`` mean a model behind an OpenAI-compatible server,
    given page images or page texts; ``base_url`` says where the server is. Other names are those
    of the paper's models, or a checkpoint's folder or hub name.
    """
    if is_served(name):
        from visar.generation.openai_compatible import OpenAIGenerator

        kind, _, model = name.partition(":")
        if not model:
            raise InvalidOption(f"Name the model after the colon: {kind}:MODEL.")
        return OpenAIGenerator(model, reads=_SERVED[kind], base_url=base_url)
    if base_url is not None:
        raise InvalidOption(f"A base URL goes with openai:MODEL, not with {name!r}.")
    if name in PUBLISHED or is_checkpoint_name(name):
        from visar.generation.local import LocalGenerator

        return LocalGenerator(name, device=device)
    raise InvalidOption(
        f"There is no generator {name!r}. Choose one of: {extractive.NAME}, openai:MODEL, "
        f"openai-text:MODEL, {', '.join(PUBLISHED)}; or give the folder of a checkpoint, or its "
        "name at the hub, such as Qwen/Qwen2.5-VL-3B-Instruct."
    )


def available_generators() -> list[GeneratorInfo]:
    """Every generator, the default first, with what is missing for it to run here."""
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
    ]


def _lacking_for_servers() -> str | None:
    if importlib.util.find_spec("openai") is None:
        return "pip install 'visar[openai]'"
    if os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL"):
        return None
    return "set OPENAI_API_KEY, or name a server of your own with --base-url"
