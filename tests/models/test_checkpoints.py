"""Which checkpoints are taken, and what is said of the others."""

from __future__ import annotations

import json
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
def test_without_a_network_the_next_step_is_a_local_path(name: str) -> None:
    with pytest.raises(CheckpointError, match=r"hub cannot be reached.*give the folder's path"):
        _ = registry.get_encoder(name).version


@pytest.mark.usefixtures("no_network")
def test_an_adapter_whose_base_is_not_here_says_what_to_do(
    checkpoint: Make, tmp_path: Path
) -> None:
    copy = _changed(checkpoint("colqwen2.5"), tmp_path, base_model_name_or_path="vidore/base")
    with pytest.raises(CheckpointError, match=r"adapter on vidore/base, which is not on this"):
        registry.get_encoder(str(copy))


def test_an_adapter_whose_base_has_no_weights_says_so(checkpoint: Make, tmp_path: Path) -> None:
    adapter = checkpoint("colqwen2.5")
    base = tmp_path / "base"
    shutil.copytree(f"{adapter}-base", base)
    for weights in base.glob("*.safetensors"):
        weights.unlink()
    copy = _changed(adapter, tmp_path, base_model_name_or_path=str(base))
    with pytest.raises(CheckpointError) as told:
        registry.get_encoder(str(copy))
    assert f"{copy} is an adapter on {base}, which has no weights" in str(told.value)
    shutil.rmtree(base)
    with pytest.raises(CheckpointError) as told:
        registry.get_encoder(str(copy))
    assert f"{copy} is an adapter on {base}, which is not on this machine" in str(told.value)


def test_an_adapter_that_does_not_go_with_its_base_names_both(
    checkpoint: Make, tmp_path: Path
) -> None:
    base = tmp_path / "base"
    shutil.copytree(f"{checkpoint('colqwen2.5')}-base", base)
    (base / "model.safetensors").write_bytes(b"no tensors in here")
    copy = _changed(checkpoint("colqwen2.5"), tmp_path, base_model_name_or_path=str(base))
    with pytest.raises(CheckpointError, match=f"{copy} on {base} cannot be loaded"):
        registry.get_encoder(str(copy), device="cpu").encode_query("revenue")


def _changed(adapter: Path, tmp_path: Path, **values: str) -> Path:
    copy = tmp_path / "changed"
    shutil.copytree(adapter, copy)
    config = json.loads((copy / "adapter_config.json").read_text())
    (copy / "adapter_config.json").write_text(json.dumps(config | values))
    return copy


def test_what_is_no_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"neither a config\.json nor an adapter_config"):
        find_checkpoint(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "paligemma"}')
    with pytest.raises(CheckpointError, match=r"has no weights"):
        find_checkpoint(str(tmp_path))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"config\.json cannot be read"):
        find_checkpoint(str(tmp_path))
    with pytest.raises(CheckpointError, match="is a file; a checkpoint is a folder"):
        find_checkpoint(str(tmp_path / "config.json"))
    with pytest.raises(CheckpointError, match=r"There is no folder \./nowhere"):
        find_checkpoint("./nowhere")
    with pytest.raises(InvalidOption, match="revision goes with a hub name"):
        find_checkpoint(str(tmp_path), "v2")


def test_weights_that_are_no_safetensors_are_refused(checkpoint: Make, tmp_path: Path) -> None:
    """A damaged file is an error that names the checkpoint, not a crash."""
    copy = tmp_path / "damaged"
    shutil.copytree(checkpoint("colqwen2.5"), copy)
    (copy / "adapter_model.safetensors").write_bytes(b"no tensors in here")
    encoder = VisualEncoder(str(copy), device="cpu")
    with pytest.raises(CheckpointError, match=r"damaged on .*-base cannot be loaded"):
        encoder.encode_query("revenue")


def test_the_hub_s_answer_decides_version_and_kind(
    checkpoint: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As the hub's cache lays it out: the folder a file lies in is named after the commit."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    snapshot = tmp_path / "snapshots" / commit
    shutil.copytree(checkpoint("colqwen2.5"), snapshot)
    asked: list[tuple[str, str | None]] = []

    def download(name: str, file: str, *, revision: str | None, local_files_only: bool) -> str:
        assert not local_files_only
        asked.append((name, revision))
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
    assert ("someone/colqwen", "v0.1") in asked
    assert found.identity.startswith(f"someone/colqwen@{commit}")
    base = f"{checkpoint('colqwen2.5')}-base"
    assert (base, None) in asked
    find_checkpoint("someone/colqwen", "v0.1", "v9")
    assert (base, "v9") in asked
    wrong = VisualEncoder("colpali", "someone/colqwen", expected="ColPali")
    with pytest.raises(CheckpointError, match="is ColQwen2_5 where ColPali was expected"):
        wrong.encode_query("revenue")


@pytest.mark.parametrize("name", ["~nobody-of-that-name/model", "a/" + "b" * 5000])
def test_a_name_that_can_be_no_path_is_told(name: str) -> None:
    with pytest.raises(InvalidOption, match="is no encoder and no path"):
        registry.get_encoder(name)


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("name", ["a\0b/c", "vidore/col pali", "vidore/colpali--v1"])
def test_a_name_that_no_repository_can_have_is_told(name: str) -> None:
    with pytest.raises(CheckpointError, match="no folder here and no name a repository can have"):
        registry.get_encoder(name)


def test_a_configuration_of_odd_content_is_no_crash(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nowhere")
    (tmp_path / "config.json").write_text("[" * 100_000)
    with pytest.raises(CheckpointError, match=r"config\.json cannot be read"):
        find_checkpoint(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "llama", "architectures": 5}')
    assert find_checkpoint(str(tmp_path)).architectures == []
    with pytest.raises(CheckpointError, match="type 'llama'"):
        registry.get_encoder(str(tmp_path))
