from __future__ import annotations

import dataclasses

import pytest

from visar.encoders import registry
from visar.errors import EncoderUnavailable, InvalidOption


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
        registry.get_encoder("embedded", revision="main")
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
