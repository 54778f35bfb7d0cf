"""Run the Python example of docs/generators.md."""

from __future__ import annotations

import pytest

from tests.docs.shown import blocks, read
from tests.generation.smollm import SmolLM

(EXAMPLE,) = blocks(read("generators.md"), "python")


def test_a_server_is_asked(smollm: SmolLM, capsys: pytest.CaptureFixture[str]) -> None:
    code = EXAMPLE.replace("http://127.0.0.1:11434/v1", smollm.base_url)
    exec(code.replace("qwen2.5vl", smollm.model), {})  # noqa: S102
    assert "sky" in capsys.readouterr().out
