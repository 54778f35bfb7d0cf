from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from visar.encoders import registry
from visar.errors import CheckpointError, EncoderUnavailable, InvalidOption


def test_what_the_registry_says_of_an_encoder_is_true() -> None:
    for info in registry.available_encoders():
        if info.state != "missing":
            encoder = registry.get_encoder(info.name)
            assert (encoder.name, encoder.dimension, encoder.reads) == (
                info.name,
                info.dimension,
                info.reads,
            )


def test_the_default_comes_first_and_is_ready_after_a_plain_installation() -> None:
    first = registry.available_encoders()[0]
    assert first.name == registry.get_encoder().name == "embedded"
    assert first.is_ready


def test_the_embedded_encoder_has_neither_device_nor_revision() -> None:
    assert registry.get_encoder("embedded", device="cpu").name == "embedded"
    with pytest.raises(InvalidOption, match="runs on the CPU, in the one version"):
        registry.get_encoder("embedded", device="cuda")
    with pytest.raises(InvalidOption, match="runs on the CPU, in the one version"):
        registry.get_encoder("embedded@main")
    with pytest.raises(InvalidOption, match="no device 'gpu'"):
        registry.get_encoder(device="gpu")


def test_every_encoder_tells_its_size() -> None:
    sizes = {info.name: info.size for info in registry.available_encoders()}
    assert sizes["colpali"] == "3 B parameters, 6 GB"
    assert all(sizes.values())


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(InvalidOption, match=r"no encoder 'colpalli'.*embedded.*folder"):
        registry.get_encoder("colpalli")


def test_a_missing_package_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = dataclasses.replace(
        registry._ENCODERS["embedded"], packages=("numpy", "no_such_package")
    )
    monkeypatch.setitem(registry._ENCODERS, "embedded", entry)
    assert not registry.available_encoders()[0].is_ready
    with pytest.raises(EncoderUnavailable, match="needs no_such_package: pip install visar"):
        registry.get_encoder("embedded")


def test_the_revision_goes_to_the_hub_and_stays_in_the_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[str, str | None]] = []

    def download(name: str, _file: str, *, revision: str | None, **_options: Any) -> str:
        asked.append((name, revision))
        raise huggingface_hub.errors.LocalEntryNotFoundError("no network here")

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    named = registry.get_encoder("colpali@abc123+pool3")
    assert named.name == "colpali@abc123+pool3"
    with pytest.raises(CheckpointError, match=r"vidore/colpali-v1\.2 is not on this machine"):
        _ = named.version
    with pytest.raises(CheckpointError, match=r"hf download vidore/colpali-v1\.3`"):
        registry.get_encoder("vidore/colpali-v1.3@refs/pr/7")
    assert set(asked) == {("vidore/colpali-v1.2", "abc123"), ("vidore/colpali-v1.3", "refs/pr/7")}


@pytest.mark.parametrize(
    "address",
    ["http://127.0.0.1:8765@main", "https://host/colpali@v2+pool2", "vllm+http://h:1/o/model@v2"],
)
def test_an_address_has_no_revision(address: str) -> None:
    with pytest.raises(InvalidOption, match="An address takes no revision"):
        registry.get_encoder(address)


def test_a_folder_has_no_revision_and_an_unknown_name_no_factor(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="revision goes with a hub name"):
        registry.get_encoder(f"{tmp_path}@main")
    with pytest.raises(InvalidOption, match="no encoder 'colpalli'"):
        registry.get_encoder("colpalli@main+pool3")
    with pytest.raises(InvalidOption, match="vLLM serves cannot be pooled"):
        registry.get_encoder("vllm+http://127.0.0.1:1/org/model+pool2")
