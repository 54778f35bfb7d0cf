"""Tests of finding models on local servers."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable

import pytest

from tests.encoders.servers import Asked, Says, answering
from visar.generation.registry import SERVERS, ServedModel, find_served_models, get_generator


def like_ollama(capabilities: dict[str, list[str]]) -> Callable[[Asked], Says]:
    """Return a handler that responds like Ollama, for models with capabilities."""

    def answer(request: Asked) -> Says:
        if request.path == "/v1/models":
            listed = [{"id": name, "object": "model"} for name in capabilities]
            return Says(200, json.dumps({"object": "list", "data": listed}).encode())
        if request.path == "/api/show":
            known = capabilities[json.loads(request.body)["model"]]
            return Says(200, json.dumps({"capabilities": known}).encode())
        return Says(404)

    return answer


def like_vllm(request: Asked) -> Says:
    if request.path == "/v1/models":
        return Says(200, b'{"data": [{"id": "Qwen/Qwen2.5-7B-Instruct"}]}')
    return Says(404, b'{"detail": "Not Found"}')


def test_models_are_found_with_their_image_support() -> None:
    ollama = like_ollama(
        {
            "llama3.2:latest": ["completion", "tools"],
            "nomic-embed-text:latest": ["embedding"],
            "qwen2.5vl:7b": ["completion", "vision"],
        }
    )
    with answering(ollama) as (here, _), answering(like_vllm) as (there, _):
        found = find_served_models([f"{there}/v1/", f"{here}/v1"])
    assert found == [
        ServedModel("qwen2.5vl:7b", f"{here}/v1", sees_images=True),
        ServedModel("Qwen/Qwen2.5-7B-Instruct", f"{there}/v1", sees_images=False),
        ServedModel("llama3.2:latest", f"{here}/v1", sees_images=False),
    ]
    assert [model.generator for model in found] == [
        f"openai:qwen2.5vl:7b@{here}/v1",
        f"openai-text:Qwen/Qwen2.5-7B-Instruct@{there}/v1",
        f"openai-text:llama3.2:latest@{here}/v1",
    ]


@pytest.mark.parametrize(
    "says",
    [
        Says(None),
        Says(500),
        Says(302, headers={"Location": "http://127.0.0.1:1/"}),
        Says(200, b"<html>a page of something else</html>"),
        Says(200, b"[1]"),
        Says(200, b'{"data": {"id": "x"}}'),
        Says(200, b'{"data": ["x", {"id": 3}, {"id": ""}, {"id": "a\\u001b[31mb"}]}'),
        Says(200, b"[" * 100_000),
        Says(200, b'{"data": [' + b" " * 2**21 + b"]}"),
    ],
)
def test_other_servers_have_no_models(says: Says) -> None:
    with answering(lambda _: says) as (url, _):
        assert find_served_models([f"{url}/v1"]) == []


def test_missing_and_silent_servers_have_no_models() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # and not listening: refused
        ports = [each.getsockname()[1] for each in (silent, free)]
        addresses = [f"http://127.0.0.1:{port}/v1" for port in ports]
        assert find_served_models([*addresses, "no address"]) == []


def test_names_of_local_models_have_their_server(monkeypatch: pytest.MonkeyPatch) -> None:
    ollama = like_ollama({"llama3.2": ["completion"], "qwen2.5vl:7b": ["completion", "vision"]})
    with answering(ollama) as (address, _):
        monkeypatch.setitem(SERVERS, "ollama", f"{address}/v1")
        for name in ("lmstudio", "vllm", "llama.cpp"):
            monkeypatch.setitem(SERVERS, name, "http://127.0.0.1:1/v1")
        found = [model.generator for model in find_served_models()]
        assert found == ["ollama:qwen2.5vl:7b", "ollama:llama3.2"]
        assert [get_generator(name).reads for name in found] == ["images", "text"]
        assert f"{address}/v1" in repr(get_generator(found[0]))
