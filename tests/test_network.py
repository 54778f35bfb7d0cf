"""The token of a server, from the environment or from a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import visar as visar
from tests.cli.typed import Visar
from visar.errors import InvalidOption
from visar.network import own_token


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VISAR_TOKEN", "VISAR_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)


def test_a_token_is_read_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert own_token() is None
    file = tmp_path / "token"
    file.write_text("a-long-enough-secret\n")
    monkeypatch.setenv("VISAR_TOKEN_FILE", str(file))
    assert own_token() == "a-long-enough-secret"
    monkeypatch.setenv("VISAR_TOKEN", "another")
    assert own_token() == "another"


def test_a_server_does_not_start_with_a_missing_or_empty_token_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, visar: Visar
) -> None:
    monkeypatch.setenv("VISAR_TOKEN_FILE", str(tmp_path / "token"))
    with pytest.raises(InvalidOption, match="VISAR_TOKEN_FILE"):
        own_token()
    (tmp_path / "token").write_text("\n")
    ran = visar("serve", "--host", "0.0.0.0", "--port", "0")  # noqa: S104 - it doesn't start
    assert ran.code == 2
    assert "VISAR_TOKEN_FILE" in ran.err
