"""Tests of the frameworks in docs/assistants.md, with a fake vision model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pikepdf
import pytest

from tests.docs.shown import blocks, read
from tests.generation.scripted import Asked, Says, scripted
from tests.integrations.conftest import Run

PAGE = read("assistants.md")
SECTIONS = {section.partition("\n")[0]: section for section in PAGE.split("\n## ")}
ANSWER = "It more than doubled."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, report: Path) -> Path:
    folder = tmp_path_factory.mktemp("frameworks")
    with pikepdf.open(report) as pdf:
        del pdf.pages[5:]
        pdf.save(folder / "annual-report.pdf")
    return folder


def completion(asked: Asked) -> Says:
    """Return the reply of an OpenAI-compatible server."""
    message = {"role": "assistant", "content": ANSWER}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    reply = {"id": "1", "object": "chat.completion", "created": 1, "model": asked.json["model"]}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return Says(body=json.dumps({**reply, "choices": [choice], "usage": usage}).encode())


def parts(asked: Asked) -> list[Any]:
    """Return the parts of all messages in a request."""
    contents = [message["content"] for message in asked.json["messages"]]
    return [part for content in contents if isinstance(content, list) for part in content]


@pytest.mark.parametrize("framework", ["LangChain", "LlamaIndex", "Haystack"])
def test_the_example_sends_the_pages_to_the_model_and_shows_its_answer(
    framework: str, folder: Path, in_own_environment: Run
) -> None:
    (example,) = blocks(SECTIONS[framework], "python")
    with scripted(completion) as server:
        shown = in_own_environment(
            "-c",
            example,
            cwd=folder,
            OPENAI_BASE_URL=server.url,
            OPENAI_API_BASE=server.url,
            OPENAI_API_KEY="not-a-key",
            OMP_NUM_THREADS="1",
        )
    assert ANSWER in shown
    assert "annual-report.pdf 4" in shown
    (asked,) = server.asked
    images = [part for part in parts(asked) if part["type"] == "image_url"]
    assert images
    assert all(part["image_url"]["url"].startswith("data:image/png;base64,") for part in images)
