from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from tests.cli.typed import Ran, Visar
from visar.cli import main


@pytest.fixture
def visar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Visar:
    """Type a command, with an index of its own; ``typed`` is what it then reads line by line."""
    monkeypatch.setenv("VISAR_INDEX", str(tmp_path / "index"))

    def run(*arguments: str | Path, typed: str = "") -> Ran:
        monkeypatch.setattr(sys, "argv", ["visar", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return Ran(int(ended.value.code or 0), captured.out, captured.err)

    return run
