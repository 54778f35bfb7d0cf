"""Registry of generators: those that can be chosen by name, and what they need to run.

It also finds the models of local servers: Ollama, LM Studio, vLLM and llama.cpp.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from visar.errors import GeneratorUnavailable, InvalidOption, install_hint
from visar.generation import extractive
from visar.generation.generator import Generator, Reads
from visar.models.checkpoints import is_checkpoint_name
from visar.models.devices import check_device
from visar.models.hub import is_downloaded
from visar.models.protocols import State
from visar.plugins import entry_points, is_object_name, make, package_of, unknown_name
from visar.text import clean_line

if TYPE_CHECKING:
    import httpx2

GROUP = "visar.generators"
"""Entry point group of other packages: a class or function that returns a generator."""
INTERNVL = "OpenGVLab/InternVL3_5-8B-Instruct"
"""The paper's InternVL. `PUBLISHED` has another repository: the one that transformers can load."""
INSTALL = install_hint("local")
_PACKAGES = ("torch", "torchvision", "transformers")
_SERVED: dict[str, Reads] = {"openai": "images", "openai-text": "text"}
_ADDRESS = re.compile(r"@(https?://\S+)\Z")
SERVERS = {
    "ollama": "http://127.0.0.1:11434/v1",
    "lmstudio": "http://127.0.0.1:1234/v1",
    "vllm": "http://127.0.0.1:8000/v1",
    "llama.cpp": "http://127.0.0.1:8080/v1",
}
"""Local model servers, and their default addresses."""
# A local server answers fast; otherwise it is busy, or something else.
_TIMEOUT = 2.0
_MAX_MODELS = 20
_MAX_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class PublishedModel:
    """A language model on the Hugging Face Hub."""

    repository: str
    model_class: str
    """Class that its configuration must name."""
    parameters: str
    gigabytes: int
    """Size of its bfloat16 weights."""
    description: str
    reads: Reads = "images"
    decoding: Literal["greedy", "checkpoint"] = "checkpoint"
    """Greedy decoding, or sampling with its generation_config.json and a fixed seed."""
    paper_decoding: Literal["greedy", "checkpoint"] | None = None
    """Decoding in the paper's program, if it differs from ours."""
    half: Literal["bfloat16", "float16"] = "bfloat16"
    """16-bit format in the paper's program."""
    revision: str = "main"


# The paper doesn't name revisions; replies record the commit that was loaded.
PUBLISHED = {
    "qwen2.5-vl": PublishedModel(
        "Qwen/Qwen2.5-VL-7B-Instruct",
        "Qwen2_5_VLForConditionalGeneration",
        "8.3 B",
        17,
        "Qwen2.5-VL-7B-Instruct: the paper's first choice",
        decoding="greedy",
    ),
    "qwen3-vl": PublishedModel(
        "Qwen/Qwen3-VL-8B-Instruct",
        "Qwen3VLForConditionalGeneration",
        "8.8 B",
        18,
        "Qwen3-VL-8B-Instruct",
    ),
    "internvl3.5": PublishedModel(
        "OpenGVLab/InternVL3_5-8B-HF",
        "InternVLForConditionalGeneration",
        "8.5 B",
        17,
        "InternVL3.5-8B (MPO): reads pages in tiles; not the paper's weights",
        paper_decoding="greedy",
    ),
    "idefics3": PublishedModel(
        "HuggingFaceM4/Idefics3-8B-Llama3",
        "Idefics3ForConditionalGeneration",
        "8.5 B",
        17,
        "Idefics3-8B-Llama3: reads pages in tiles",
    ),
    "llava-onevision": PublishedModel(
        "llava-hf/llava-onevision-qwen2-7b-ov-hf",
        "LlavaOnevisionForConditionalGeneration",
        "8.0 B",
        16,
        "LLaVA-OneVision-Qwen2-7B: reads several pages at low resolution",
        half="float16",
    ),
    "qwen2.5-7b": PublishedModel(
        "Qwen/Qwen2.5-7B-Instruct",
        "Qwen2ForCausalLM",
        "7.6 B",
        15,
        "Qwen2.5-7B-Instruct: reads text, as in the paper's ColBERTv2 row",
        reads="text",
        decoding="greedy",
        paper_decoding="checkpoint",
    ),
    "qwen2.5-14b": PublishedModel(
        "Qwen/Qwen2.5-14B-Instruct",
        "Qwen2ForCausalLM",
        "14.8 B",
        30,
        "Qwen2.5-14B-Instruct: reads text; the paper's judge",
        reads="text",
        decoding="greedy",
        paper_decoding="checkpoint",
    ),
}


@dataclass(frozen=True, slots=True)
class GeneratorInfo:
    """Description of a generator for people who choose one."""

    name: str
    description: str
    reads: Reads | None = None
    """None if it isn't known before loading."""
    size: str = ""
    """Size of the model as text."""
    install: str | None = None
    """Command that installs what is missing; None if nothing is."""
    download: int | None = None
    """Gigabytes to download on first use; None if there is nothing to download."""

    @property
    def state(self) -> State:
        if self.install is not None:
            return "missing"
        return "ready" if self.download is None else "downloads"


def is_served(name: str) -> bool:
    """Return whether a name belongs to a model behind a server.

    >>> is_served("openai:gpt"), is_served("ollama:qwen2.5vl:7b"), is_served("qwen2.5-vl")
    (True, True, False)
    """
    kind, colon, _ = name.partition(":")
    return bool(colon) and (kind in _SERVED or kind in SERVERS)


def without_address(name: str) -> str:
    """Return the name of a generator without its server's address.

    >>> without_address("openai:Qwen/Qwen3-VL-8B@http://10.0.0.7:8000/v1")
    'openai:Qwen/Qwen3-VL-8B'
    """
    return _ADDRESS.sub("", name) if is_served(name) else name


def _served(name: str, base_url: str | None) -> Generator:
    from visar.generation.openai_server import OpenAIGenerator

    kind, _, model = without_address(name).partition(":")
    if kind in SERVERS:
        reads: Reads = "images" if sees_images(kind, model) else "text"
        return OpenAIGenerator(model, reads=reads, base_url=SERVERS[kind])
    if address := _ADDRESS.search(name):
        base_url = address[1]
    return OpenAIGenerator(model, reads=_SERVED[kind], base_url=base_url)


def internvl_hint() -> str:
    """Return instructions to run the paper's InternVL, which needs a separate environment."""
    return (
        f"`python3 -m venv internvl && internvl/bin/pip install vllm && internvl/bin/vllm serve "
        f"{INTERNVL} --trust-remote-code --chat-template-content-format string "
        "--interleave-mm-strings --limit-mm-per-prompt '{\"image\": 10}'` runs the paper's, in a "
        f"separate environment. Then use --generator openai:{INTERNVL} --base-url "
        "http://127.0.0.1:8000/v1"
    )


def model_class_of(generator: Generator) -> str | None:
    """Return the class of a generator's model; None if it isn't known."""
    known = getattr(generator, "model_class", None)
    if isinstance(known, str):
        return known
    model = generator.name.removeprefix("openai:").removeprefix("openai-text:")
    names = {one.repository: one.model_class for one in PUBLISHED.values()}
    return (names | {INTERNVL: "InternVLChatModel"}).get(model)


def sampled_in_paper(model: str) -> bool:
    """Return whether the paper's program sampled a model's replies, by its repository.

    >>> sampled_in_paper("Qwen/Qwen2.5-14B-Instruct"), sampled_in_paper(INTERNVL)
    (True, False)
    """
    decodings = {one.repository: one.paper_decoding or one.decoding for one in PUBLISHED.values()}
    return decodings.get(model) == "checkpoint"


def get_generator(
    generator: str | Generator, *, base_url: str | None = None, device: str = "auto"
) -> Generator:
    """Return a generator by name; a generator is returned unchanged.

    A name is ``openai:MODEL`` (reads page images) or ``openai-text:MODEL`` (reads text) for a model
    behind an OpenAI-compatible server, also with its address: ``openai:MODEL@URL``;
    ``ollama:MODEL`` and other local `SERVERS`; a model of the paper, also from a local folder:
    ``NAME=FOLDER``; an entry point of the group ``visar.generators``; ``module:Class``; or the
    folder or hub name of a checkpoint. ``base_url`` is the address for ``openai:MODEL``, unless the
    name has one. A local model is loaded on ``device`` when it is first used.

    Raises InvalidOption if there is no such generator or it doesn't support an option, and
    GeneratorUnavailable if packages, settings or a key are missing.
    """
    if not isinstance(generator, str):
        return generator
    check_device(device)
    if is_served(generator):
        return _served(generator, base_url)
    if base_url is not None:
        raise InvalidOption(f"A base URL only works with openai:MODEL, not with {generator!r}.")
    if generator.partition("=")[0] not in PUBLISHED:
        if generator in entry_points(GROUP):
            return _create(entry_points(GROUP)[generator], generator, device)
        if is_object_name(generator):
            return _create(generator, generator, device)
        if not is_checkpoint_name(generator):
            known = [info.name for info in available_generators()]
            hint = (
                " You can also use module:Class, or the folder or hub name of a checkpoint, such as"
                " Qwen/Qwen2.5-VL-3B-Instruct."
            )
            raise unknown_name("generator", generator, known, hint)
    from visar.generation.local import LocalGenerator

    return LocalGenerator(generator, device=device)


def _create(factory: str | EntryPoint, name: str, device: str) -> Generator:
    generator = make(factory, "generator", name, device, GeneratorUnavailable)
    if isinstance(generator, type) or not isinstance(generator, Generator):
        raise InvalidOption(
            f"{name} returned {generator!r}, which isn't a generator. Use a class or function that "
            "returns an object with the members of visar.generation.generator.Generator."
        )
    return generator


def available_generators() -> list[GeneratorInfo]:
    """Return every generator, default first, other packages' last, without importing any."""
    missing = no_client = None
    if importlib.util.find_spec("openai") is None:
        missing = no_client = install_hint("openai")
    elif not (os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL")):
        missing = "set OPENAI_API_KEY, or use your own server with --base-url"
    server = "model behind an OpenAI-compatible server"
    local = "A local Ollama model; also lmstudio:, vllm: and llama.cpp:"
    return [
        GeneratorInfo(extractive.NAME, "Quotes the best passages; needs no model", "text"),
        GeneratorInfo("openai:MODEL", f"A vision {server}", "images", install=missing),
        GeneratorInfo("openai-text:MODEL", f"A text {server}", "text", install=missing),
        GeneratorInfo("ollama:MODEL", local, install=no_client),
        *available_local_generators(),
        *(
            GeneratorInfo(name, f"{point.value} from {package_of(point)}")
            for name, point in entry_points(GROUP).items()
        ),
    ]


def available_local_generators() -> list[GeneratorInfo]:
    """Return the models of the paper, without downloading any."""
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
    return [package for package in _PACKAGES if importlib.util.find_spec(package) is None]


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model behind an OpenAI-compatible server."""

    name: str
    base_url: str
    sees_images: bool
    """Whether the model reads images; False if the server doesn't say so."""

    @property
    def generator(self) -> str:
        """Name for ``--generator``."""
        for server, address in SERVERS.items():
            if self.base_url == address:
                return f"{server}:{self.name}"
        return f"{'openai' if self.sees_images else 'openai-text'}:{self.name}@{self.base_url}"


def find_served_models(addresses: Iterable[str] | None = None) -> list[ServedModel]:
    """Return the chat models of the servers at these addresses, by default those of `SERVERS`.

    Models that see images come first. Servers that fail, or don't answer within two seconds, are
    ignored.
    """
    with ThreadPoolExecutor() as pool:
        found = [
            model
            for models in pool.map(_models_at, addresses or SERVERS.values())
            for model in models
        ]
    return sorted(found, key=lambda model: not model.sees_images)


def sees_images(server: str, model: str) -> bool:
    """Return whether one of `SERVERS` reports that a model sees images; only Ollama does."""
    import httpx2

    with httpx2.Client(timeout=_TIMEOUT, trust_env=False) as client:
        return "vision" in _capabilities(client, SERVERS[server], model)


def _models_at(base_url: str) -> list[ServedModel]:
    import httpx2

    base_url = base_url.rstrip("/")
    # A proxy may not reach local servers.
    with httpx2.Client(timeout=_TIMEOUT, trust_env=False) as client:
        listed = _fetch_object(client, "GET", f"{base_url}/models").get("data")
        entries = listed[:_MAX_MODELS] if isinstance(listed, list) else []
        names = [entry.get("id") for entry in entries if isinstance(entry, dict)]
        found = []
        for name in names:
            if not isinstance(name, str) or name != clean_line(name) or not name:
                continue
            capabilities = _capabilities(client, base_url, name)
            if not capabilities or "completion" in capabilities:
                found.append(ServedModel(name, base_url, "vision" in capabilities))
        return found


def _capabilities(client: httpx2.Client, base_url: str, model: str) -> list[Any]:
    """Return the capabilities of a model from Ollama's API; empty for other servers."""
    parts = urlsplit(base_url)
    address = f"{parts.scheme}://{parts.netloc}/api/show"
    found = _fetch_object(client, "POST", address, json={"model": model}).get("capabilities")
    return found if isinstance(found, list) else []


def _fetch_object(client: httpx2.Client, method: str, url: str, **options: Any) -> dict[str, Any]:
    """Return the JSON object at an address; an empty one if there is none."""
    import json

    import httpx2

    received = bytearray()
    try:
        with client.stream(method, url, **options) as response:
            if response.status_code != 200:
                return {}
            for part in response.iter_raw():
                received += part
                if len(received) > _MAX_BYTES:
                    return {}
        content = json.loads(received)
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
