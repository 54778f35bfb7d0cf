"""Tests of keys and addresses of OpenAI-compatible servers."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import traceback

import pytest

from tests.generation.openai_samples import QUESTION
from tests.generation.openai_samples import alone as alone
from tests.generation.scripted import (
    DONE,
    Asked,
    Behaviour,
    Says,
    delta,
    event,
    refuses,
    replies,
    scripted,
    streams,
)
from visar.errors import GenerationError, GeneratorUnavailable, InvalidOption, MissingExtra
from visar.generation.openai_server import OpenAIGenerator
from visar.generation.registry import get_generator

pytestmark = pytest.mark.usefixtures("alone")
KEY = "sk-secret+/0123456789abcdef"


def echoed(asked: Asked) -> str:
    return f"Incorrect API key provided: {asked.headers['authorization']}"


def echoes_in_an_error(asked: Asked) -> Says:
    return refuses(401, echoed(asked))


def echoes_in_plain_text(asked: Asked) -> Says:
    return Says(400, body=f"headers: {asked.headers}".encode())


def echoes_where_it_is_cut(asked: Asked) -> Says:
    """Shortening a message in the middle of the key would leave a part of it."""
    return refuses(400, "x" * 370 + echoed(asked))


def echoes_in_a_stream(asked: Asked) -> Says:
    return streams(delta(content="6"), event({"error": {"message": echoed(asked)}}))


def echoes_as_malformed_json(asked: Asked) -> Says:
    return streams(b"data: {" + echoed(asked).encode() + b"\n\n")


def echoes_as_a_refusal(asked: Asked) -> Says:
    return streams(delta("stop", refusal=echoed(asked)), DONE)


def echoes_in_a_redirect(asked: Asked) -> Says:
    return Says(307, {"Location": f"https://other.example/?{asked.headers['authorization']}"})


def echoes_url_encoded(_: Asked) -> Says:
    return refuses(403, "key=sk-secret%2B%2F0123456789abcdef")


ECHOES: list[Behaviour] = [
    echoes_in_an_error,
    echoes_in_plain_text,
    echoes_where_it_is_cut,
    echoes_in_a_stream,
    echoes_as_malformed_json,
    echoes_as_a_refusal,
    echoes_in_a_redirect,
    echoes_url_encoded,
]


@pytest.mark.parametrize("echoing", ECHOES)
def test_a_key_that_a_server_echoes_is_hidden(
    echoing: Behaviour, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    # Includes the logs of the client and its HTTP library.
    caplog.set_level(logging.DEBUG)
    with scripted(echoing) as server:
        generator = OpenAIGenerator("m", base_url=server.url)
        with pytest.raises(GenerationError) as caught:
            generator.generate(QUESTION, max_tokens=8)
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"
    shown = [str(caught.value), repr(caught.value), repr(generator), repr(vars(generator))]
    shown += ["".join(traceback.format_exception(caught.value))]
    if echoing is not echoes_in_a_redirect:
        # There the HTTP client logs the headers it received, at DEBUG: not ours to change.
        shown.append(caplog.text)
    for text in shown:
        assert "secret" not in text
        assert "0123456" not in text


def test_a_redirect_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with scripted() as other, scripted(Says(307, {"Location": other.url})) as server:
        with pytest.raises(GenerationError, match=other.url):
            OpenAIGenerator("m", base_url=server.url).generate(QUESTION, max_tokens=8)
        assert other.asked == []


def test_local_servers_get_no_key_and_no_system_information() -> None:
    with scripted(replies("60")) as server:
        OpenAIGenerator("m", base_url=server.url).generate(QUESTION, max_tokens=8)
    headers = server.asked[0].headers
    assert headers["authorization"] == "Bearer no-key"
    assert not [name for name in headers if name.startswith("x-stainless")]


def test_the_error_of_a_missing_key_names_the_variable() -> None:
    with (
        scripted(refuses(401, "Unauthorized")) as server,
        pytest.raises(GenerationError, match=r"401.*OPENAI_API_KEY"),
    ):
        OpenAIGenerator("m", base_url=server.url).generate(QUESTION, max_tokens=8)


def test_openai_needs_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GeneratorUnavailable, match="OPENAI_API_KEY"):
        OpenAIGenerator("gpt-x")
    monkeypatch.setenv("OPENAI_API_KEY", f" {KEY}\n")
    assert "api.openai.com/v1" in repr(OpenAIGenerator("gpt-x"))


def test_the_address_comes_from_the_environment_or_the_argument(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with scripted(replies("1")) as mine, scripted(replies("2")) as other:
        monkeypatch.setenv("OPENAI_BASE_URL", mine.url + "/")
        assert OpenAIGenerator("m").generate(QUESTION, max_tokens=8).text == "1"
        given = OpenAIGenerator("m", base_url=other.url)
        assert given.generate(QUESTION, max_tokens=8).text == "2"


def test_local_servers_are_not_reached_through_a_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with scripted() as proxy, scripted(replies("60")) as server:
        monkeypatch.setenv("HTTP_PROXY", proxy.url.removesuffix("/v1"))
        monkeypatch.setenv("ALL_PROXY", proxy.url.removesuffix("/v1"))
        OpenAIGenerator("m", base_url=server.url).generate(QUESTION, max_tokens=8)
        assert proxy.asked == []


@pytest.mark.parametrize("address", ["http://192.168.1.5:11434/v1", "http://gpu.example/v1"])
def test_a_key_is_not_sent_over_plain_http(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without a key, plain HTTP is allowed.
    OpenAIGenerator("m", base_url=address)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with pytest.raises(GeneratorUnavailable, match="OPENAI_API_KEY") as caught:
        OpenAIGenerator("m", base_url=address)
    assert KEY not in str(caught.value)
    OpenAIGenerator("m", base_url=address.replace("http:", "https:"))


@pytest.mark.parametrize("key", ["ключ", "two words", "line\nbreak"])
def test_an_invalid_key_is_not_shown(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(GeneratorUnavailable, match="OPENAI_API_KEY") as caught:
        OpenAIGenerator("m")
    assert key not in str(caught.value)


@pytest.mark.parametrize(
    "address",
    [
        "localhost:8000",
        "ftp://host/v1",
        "http://",
        "http://host:x/v1",
        "http://h/v1?a=b",
        "http://ä",
    ],
)
def test_invalid_addresses_raise_an_error(address: str) -> None:
    with pytest.raises(InvalidOption, match=re.escape(address)):
        OpenAIGenerator("m", base_url=address)


@pytest.mark.parametrize("address", ["https://me:hidden@host/v1", "https://me:hidden@host:x/v1"])
def test_an_address_with_a_password_raises_an_error(address: str) -> None:
    with pytest.raises(InvalidOption, match="OPENAI_API_KEY") as caught:
        OpenAIGenerator("m", base_url=address)
    assert "hidden" not in str(caught.value)


def test_the_error_of_a_missing_client_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("visar.generation.openai_")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(MissingExtra, match=r"pip install 'visar-rag\[openai\]'"):
        get_generator("openai:m", base_url="http://127.0.0.1:1/v1")


def test_the_client_is_imported_on_first_use() -> None:
    code = "import sys, visar.index, visar.generation.registry; sys.exit('openai' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
