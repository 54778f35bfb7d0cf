"""Finding checkpoints, and the errors for invalid ones."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import huggingface_hub.constants
import pytest

from visar.encoders import registry
from visar.encoders.visual import VisualEncoder, family_of
from visar.errors import CheckpointError, InvalidOption
from visar.models.checkpoints import find_checkpoint

Make = Callable[[str], Path]


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("name", ["vidore/colpali-v1.3", "colpali", "colqwen2.5", "colmodernvbert"])
def test_without_a_network_the_error_names_the_download_command(name: str) -> None:
    with pytest.raises(CheckpointError, match=r"hf download (vidore|ModernVBERT)/"):
        _ = registry.get_encoder(name).version


@pytest.mark.usefixtures("no_network")
def test_an_adapter_without_its_base_model_is_an_error(checkpoint: Make, tmp_path: Path) -> None:
    copy = _copy_with_config(
        checkpoint("colqwen2.5"), tmp_path, base_model_name_or_path="vidore/base"
    )
    with pytest.raises(CheckpointError, match=r"vidore/base.*base_model_name_or_path"):
        registry.get_encoder(str(copy))


def test_a_base_model_without_weights_is_an_error(checkpoint: Make, tmp_path: Path) -> None:
    adapter = checkpoint("colqwen2.5")
    base = tmp_path / "base"
    shutil.copytree(f"{adapter}-base", base)
    for weights in base.glob("*.safetensors"):
        weights.unlink()
    copy = _copy_with_config(adapter, tmp_path, base_model_name_or_path=str(base))
    with pytest.raises(CheckpointError) as caught:
        registry.get_encoder(str(copy))
    assert str(copy) in str(caught.value)
    assert str(base) in str(caught.value)
    shutil.rmtree(base)
    with pytest.raises(CheckpointError) as caught:
        registry.get_encoder(str(copy))
    assert str(base) in str(caught.value)


def test_the_error_for_a_damaged_base_names_adapter_and_base(
    checkpoint: Make, tmp_path: Path
) -> None:
    base = tmp_path / "base"
    shutil.copytree(f"{checkpoint('colqwen2.5')}-base", base)
    (base / "model.safetensors").write_bytes(b"no tensors in here")
    copy = _copy_with_config(checkpoint("colqwen2.5"), tmp_path, base_model_name_or_path=str(base))
    with pytest.raises(CheckpointError, match=f"{copy}.*{base}"):
        registry.get_encoder(str(copy), device="cpu").encode_query("revenue")


def _copy_with_config(adapter: Path, tmp_path: Path, **values: str) -> Path:
    copy = tmp_path / "changed"
    shutil.copytree(adapter, copy)
    config = json.loads((copy / "adapter_config.json").read_text())
    (copy / "adapter_config.json").write_text(json.dumps(config | values))
    return copy


def test_invalid_checkpoints_are_errors(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json.*adapter_config\.json"):
        find_checkpoint(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "paligemma"}')
    with pytest.raises(CheckpointError, match=r"\*\.safetensors"):
        find_checkpoint(str(tmp_path))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"config\.json"):
        find_checkpoint(str(tmp_path))
    with pytest.raises(CheckpointError, match=r"config\.json"):
        find_checkpoint(str(tmp_path / "config.json"))
    with pytest.raises(CheckpointError, match=r"\./nowhere"):
        find_checkpoint("./nowhere")
    with pytest.raises(InvalidOption, match="@v2"):
        find_checkpoint(str(tmp_path), "v2")


def test_damaged_weights_are_an_error_that_names_the_checkpoint(
    checkpoint: Make, tmp_path: Path
) -> None:
    copy = tmp_path / "damaged"
    shutil.copytree(checkpoint("colqwen2.5"), copy)
    (copy / "adapter_model.safetensors").write_bytes(b"no tensors in here")
    encoder = VisualEncoder(str(copy), device="cpu")
    with pytest.raises(CheckpointError, match=r"damaged.*-base"):
        encoder.encode_query("revenue")


def test_version_and_family_come_from_the_hub(
    checkpoint: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In the hub's cache, the folder of a file is named after the commit."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    snapshot = tmp_path / "snapshots" / commit
    shutil.copytree(checkpoint("colqwen2.5"), snapshot)
    requests: list[tuple[str, str | None]] = []

    def download(name: str, file: str, *, revision: str | None, local_files_only: bool) -> str:
        assert not local_files_only
        requests.append((name, revision))
        folder = snapshot if name == "someone/colqwen" else Path(name)
        if not (folder / file).exists():
            raise huggingface_hub.errors.EntryNotFoundError("no such file")
        return str(folder / file)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", lambda *_a, **_o: None)
    found = find_checkpoint("someone/colqwen", "v0.1")
    assert (found.revision, found.is_local) == (commit, False)
    assert family_of(found).model_class == "ColQwen2_5"
    assert VisualEncoder("mine", found).version.startswith(commit)
    assert ("someone/colqwen", "v0.1") in requests
    assert found.identity.startswith(f"someone/colqwen@{commit}")
    base = f"{checkpoint('colqwen2.5')}-base"
    assert (base, None) in requests
    find_checkpoint("someone/colqwen", "v0.1", "v9")
    assert (base, "v9") in requests
    wrong = VisualEncoder("colpali", "someone/colqwen", expected="ColPali")
    with pytest.raises(CheckpointError, match=r"ColQwen2_5.*ColPali"):
        wrong.encode_query("revenue")


@pytest.mark.parametrize("name", ["~nobody-of-that-name/model", "a/" + "b" * 5000])
def test_a_name_that_is_not_a_valid_path_is_an_error(name: str) -> None:
    with pytest.raises(InvalidOption, match=re.escape(repr(name[:80]))):
        registry.get_encoder(name)


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("name", ["a\0b/c", "vidore/col pali", "vidore/colpali--v1"])
def test_an_invalid_repository_name_is_an_error(name: str) -> None:
    with pytest.raises(CheckpointError, match=re.escape(repr(name))):
        registry.get_encoder(name)


def test_a_malformed_configuration_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nowhere")
    (tmp_path / "config.json").write_text("[" * 100_000)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        find_checkpoint(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "llama", "architectures": 5}')
    assert find_checkpoint(str(tmp_path)).architectures == []
    with pytest.raises(CheckpointError, match="'llama'"):
        registry.get_encoder(str(tmp_path))
