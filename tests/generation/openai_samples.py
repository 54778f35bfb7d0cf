"""What the tests of OpenAI-compatible servers share."""

from __future__ import annotations

import pytest
from openai import _base_client

from visar.generation.protocol import Prompt

QUESTION = Prompt(
    "Answer from the pages.", ("Page 1:", "The warranty lasts 60 months.", "How long?")
)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key, address or proxy of the one who runs the tests, and hardly any waiting."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(_base_client, "INITIAL_RETRY_DELAY", 0.001)
