"""The requests that docs/remote-encoders.md shows are answered as it says."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from safetensors.numpy import load

from tests.encoders.servers import serving
from visar.encoders.embedded import EmbeddedEncoder

PAGE = Path(__file__).parents[2] / "docs" / "remote-encoders.md"


@pytest.mark.skipif(shutil.which("curl") is None, reason="the examples use curl")
def test_the_requests_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    steps = re.findall(
        r"^\$ (curl [^\n]*)$|```python\n(.*?)```", PAGE.read_text("utf-8"), re.M | re.S
    )
    assert len(steps) == 4
    with serving(EmbeddedEncoder()) as url:
        for command, example in steps:
            exec(example, {})  # noqa: S102
            if command:
                asked = command.replace("http://127.0.0.1:8765", url)
                subprocess.run(["/bin/sh", "-c", asked], check=True)
    assert "(7, 448) {'name': 'embedded'" in capsys.readouterr().out
    assert load(Path("vectors.safetensors").read_bytes())["vectors.0"].shape == (1, 448)
