"""Tests of the checkpoints that generators can be loaded from."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import huggingface_hub.constants
import pytest

from tests.generation.local_samples import ALL, VISION
from visar.errors import (
    CheckpointError,
    DamagedModel,
    GenerationError,
    GeneratorUnavailable,
    InvalidOption,
)
from visar.generation.generator import Prompt
from visar.generation.local import LocalGenerator
from visar.generation.registry import PUBLISHED, available_local_generators

Make = Callable[[str], Path]
QUESTION = Prompt("", ("How much?",))


def test_the_published_models() -> None:
    """The registry is the single source of the published names."""
    table = {
        name: (model.repository, model.revision, model.model_class, model.reads, model.decoding)
        for name, model in PUBLISHED.items()
    }
    assert table == {
        "qwen2.5-vl": (
            "Qwen/Qwen2.5-VL-7B-Instruct",
            "main",
            "Qwen2_5_VLForConditionalGeneration",
            "images",
            "greedy",
        ),
        "qwen3-vl": (
            "Qwen/Qwen3-VL-8B-Instruct",
            "main",
            "Qwen3VLForConditionalGeneration",
            "images",
            "checkpoint",
        ),
        "internvl3.5": (
            "OpenGVLab/InternVL3_5-8B-HF",
            "main",
            "InternVLForConditionalGeneration",
            "images",
            "checkpoint",
        ),
        "idefics3": (
            "HuggingFaceM4/Idefics3-8B-Llama3",
            "main",
            "Idefics3ForConditionalGeneration",
            "images",
            "checkpoint",
        ),
        "llava-onevision": (
            "llava-hf/llava-onevision-qwen2-7b-ov-hf",
            "main",
            "LlavaOnevisionForConditionalGeneration",
            "images",
            "checkpoint",
        ),
        "qwen2.5-7b": (
            "Qwen/Qwen2.5-7B-Instruct",
            "main",
            "Qwen2ForCausalLM",
            "text",
            "greedy",
        ),
        "qwen2.5-14b": (
            "Qwen/Qwen2.5-14B-Instruct",
            "main",
            "Qwen2ForCausalLM",
            "text",
            "greedy",
        ),
    }


@pytest.mark.parametrize("name", ALL)
def test_the_model_class_is_read_from_the_configuration(checkpoint: Make, name: str) -> None:
    """The name of the folder doesn't matter; the class is that of the published model."""
    local = LocalGenerator(str(checkpoint(name)), device="cpu")
    assert local.reads == ("images" if name in VISION else "text") == PUBLISHED[name].reads
    assert type(local._model).__name__ == PUBLISHED[name].model_class
    assert not local._model.training


def test_a_folder_in_the_home_folder(
    checkpoint: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    shutil.copytree(checkpoint("qwen2.5-7b"), tmp_path / "mine")
    reply = LocalGenerator("~/mine", device="cpu").generate(QUESTION, max_tokens=1)
    assert reply.model.startswith("mine@")


def test_a_reply_names_the_checkpoint(checkpoint: Make, tmp_path: Path) -> None:
    """The name has the folder without its path, and a hash that depends on the weights."""
    copy = Path(shutil.copytree(checkpoint("qwen2.5-7b"), tmp_path / "mine"))
    one = LocalGenerator(str(copy), device="cpu").generate(QUESTION, max_tokens=1)
    assert one.model.startswith("mine@")
    assert str(tmp_path) not in one.model
    config = json.loads((copy / "generation_config.json").read_text())
    (copy / "generation_config.json").write_text(json.dumps(config | {"temperature": 0.9}))
    other = LocalGenerator(str(copy), device="cpu").generate(QUESTION, max_tokens=1)
    assert other.model != one.model


def test_an_encoder_raises_an_error(checkpoint: Make) -> None:
    with pytest.raises(CheckpointError, match="BertModel"):
        LocalGenerator(str(checkpoint("bert")), device="cpu")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "qwen2_5_vl", "architectures": ["ColQwen2_5"]}, "ColQwen2_5"),
        (
            {"model_type": "internvl_chat", "architectures": ["InternVLChatModel"]},
            "InternVLChatModel",
        ),
        ({"model_type": "llama"}, "llama"),
    ],
)
def test_unsupported_checkpoints_raise_errors(
    tmp_path: Path, config: dict[str, object], said: str
) -> None:
    """A retriever based on a chat model, a model with custom code, and a missing class."""
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=said):
        LocalGenerator(str(tmp_path))


def test_a_repository_with_an_unexpected_model_raises_an_error(checkpoint: Make) -> None:
    local = LocalGenerator("qwen2.5-vl", str(checkpoint("qwen3-vl")), device="cpu")
    with pytest.raises(CheckpointError, match=r"Qwen3VL.*Qwen2_5_VL"):
        local.count_tokens("a")


def test_an_adapter_raises_an_error(checkpoint: Make, tmp_path: Path) -> None:
    adapter = {"base_model_name_or_path": str(checkpoint("qwen2.5-7b"))}
    (tmp_path / "adapter_config.json").write_text(json.dumps(adapter))
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=tmp_path.name):
        LocalGenerator(str(tmp_path))


def test_the_error_of_damaged_weights_names_them(checkpoint: Make, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    copy = Path(shutil.copytree(checkpoint("qwen2.5-7b"), tmp_path / "damaged"))
    weights = load_file(copy / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(DamagedModel, match=r"layers\.1\.mlp\.up_proj"):
        LocalGenerator(str(copy), device="cpu").generate(QUESTION, max_tokens=1)
    (copy / "model.safetensors").write_bytes(b"no tensors in here")
    with pytest.raises(CheckpointError, match="damaged"):
        LocalGenerator(str(copy), device="cpu").generate(QUESTION, max_tokens=1)


def test_a_model_too_large_for_the_device_has_its_own_error(
    checkpoint: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch raises this error when a model doesn't fit on a GPU."""
    import torch

    def refuse(*_args: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(torch.nn.Module, "to", refuse)
    local = LocalGenerator(str(checkpoint("qwen2.5-7b")), device="cpu")
    with pytest.raises(GenerationError, match="cpu"):
        local.generate(QUESTION, max_tokens=1)


def test_the_error_of_a_missing_folder_names_it() -> None:
    with pytest.raises(CheckpointError, match=r"\./nowhere"):
        LocalGenerator("./nowhere")


def test_unknown_devices_raise_an_error() -> None:
    with pytest.raises(InvalidOption, match="'tpu'"):
        LocalGenerator("qwen2.5-vl", device="tpu")


def test_the_error_of_a_missing_device_names_it(checkpoint: Make) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a cuda device")
    local = LocalGenerator(str(checkpoint("qwen2.5-7b")), device="cuda")
    with pytest.raises(GeneratorUnavailable, match="cuda"):
        local.generate(QUESTION, max_tokens=1)


@pytest.fixture
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Disable the network, and use an empty cache."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.usefixtures("empty_cache")
@pytest.mark.parametrize("name", ["qwen2.5-vl", "Qwen/Qwen2.5-VL-3B-Instruct"])
def test_without_a_network_the_error_suggests_a_local_folder(name: str) -> None:
    with pytest.raises(CheckpointError, match=r"hf download Qwen/"):
        LocalGenerator(name).generate(QUESTION, max_tokens=1)


def test_a_model_is_loaded_by_its_name_from_the_hub_s_cache(
    checkpoint: Make, empty_cache: Path
) -> None:
    """The cache is laid out like after a download."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = PUBLISHED["qwen2.5-vl"].repository
    snapshot = empty_cache / f"models--{repository.replace('/', '--')}" / "snapshots" / commit
    shutil.copytree(checkpoint("qwen2.5-vl"), snapshot)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text(commit)
    named = LocalGenerator("qwen2.5-vl", device="cpu").generate(QUESTION, max_tokens=4)
    local = LocalGenerator("qwen2.5-vl", str(checkpoint("qwen2.5-vl")), device="cpu")
    assert named.model == f"Qwen/Qwen2.5-VL-7B-Instruct@{commit}"
    assert named.text == local.generate(QUESTION, max_tokens=4).text


def test_the_error_of_missing_packages_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    said = r"pip install 'visar-rag\[local\]'"
    with pytest.raises(GeneratorUnavailable, match=said):
        LocalGenerator("qwen3-vl").count_tokens("a")
    with pytest.raises(GeneratorUnavailable, match=said):
        LocalGenerator("qwen3-vl").generate(QUESTION, max_tokens=1)
    with pytest.raises(GeneratorUnavailable, match=said):
        LocalGenerator("someone/model")
    assert {info.state for info in available_local_generators()} == {"missing"}
    assert {info.install for info in available_local_generators()} == {
        "pip install 'visar-rag[local]'"
    }


def test_the_list_has_download_sizes(empty_cache: Path) -> None:
    """A model is downloaded if all files of its weights are."""
    assert [info.name for info in available_local_generators()] == list(PUBLISHED)
    assert _downloads()["qwen2.5-vl"] == 17
    snapshot = empty_cache / "models--Qwen--Qwen2.5-VL-7B-Instruct" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("abc")
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (snapshot / "config.json").write_text("{}")
    (snapshot / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    (snapshot / shards["a"]).write_bytes(b"")
    assert _downloads()["qwen2.5-vl"] is not None
    (snapshot / shards["b"]).write_bytes(b"")
    assert _downloads()["qwen2.5-vl"] is None
    assert _downloads()["qwen3-vl"] == 18


def _downloads() -> dict[str, int | None]:
    """Return the download size of each model in gigabytes."""
    return {info.name: info.download for info in available_local_generators()}
