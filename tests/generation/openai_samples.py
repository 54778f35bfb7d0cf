"""Fixtures and samples for the tests of OpenAI-compatible servers."""

from __future__ import annotations

import pytest
from openai import _base_client

from visar.generation.generator import Prompt

QUESTION = Prompt(
    "Answer from the pages.", ("Page 1:", "The warranty lasts 60 months.", "How long?")
)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove keys, addresses and proxies from the environment, and shorten waits."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(_base_client, "INITIAL_RETRY_DELAY", 0.001)
