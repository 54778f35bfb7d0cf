"""Tests of the OpenAI-compatible backend with servers that refuse, fail, stall or disconnect."""

from __future__ import annotations

import itertools
import signal
import socket
import threading
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from PIL import Image

from tests.generation.openai_samples import QUESTION
from tests.generation.openai_samples import alone as alone
from tests.generation.scripted import (
    DONE,
    Behaviour,
    Says,
    Step,
    delta,
    refuses,
    replies,
    scripted,
    streams,
)
from visar.errors import GenerationError, InvalidOption
from visar.generation.generator import Prompt
from visar.generation.openai_server import OpenAIGenerator

pytestmark = pytest.mark.usefixtures("alone")
PICTURE = Prompt("s", (Image.new("RGB", (8, 8), "red"), "What colour?"))


def failure_of(*behaviors: Behaviour, prompt: Prompt = QUESTION, **options: Any) -> str:
    """Return the error message after a sequence of responses."""
    with scripted(*behaviors) as server, pytest.raises(GenerationError) as caught:
        OpenAIGenerator("m", base_url=server.url, **options).generate(prompt, max_tokens=64)
    assert len(server.asked) == len(behaviors)
    # Exceptions of the client can contain the key, so they are not chained.
    assert caught.value.__cause__ is caught.value.__context__ is None
    return str(caught.value).removeprefix(f"m at {server.url} ")


PASSING = {
    "busy": refuses(429, "slow down"),
    "busy for a moment": refuses(429, "slow down", {"Retry-After": "0.01"}),
    "busy until then": refuses(
        429, "slow down", {"Retry-After": format_datetime(datetime.now(UTC) - timedelta(1))}
    ),
    "loading": refuses(503, "Loading model"),
    "behind a broken proxy": Says(502, {"Content-Type": "text/html"}, b"<html>Bad gateway</html>"),
    "cut before an answer": Says(cut=True),
}


@pytest.mark.parametrize("case", PASSING)
def test_temporary_failures_are_retried(case: str) -> None:
    pieces: list[str] = []
    with scripted(PASSING[case], PASSING[case], replies("60")) as server:
        generator = OpenAIGenerator("m", base_url=server.url, retries=2)
        assert generator.generate(QUESTION, max_tokens=8, on_text=pieces.append).text == "60"
    assert len(server.asked) == 3
    assert pieces == ["60"]


def test_retries_are_limited() -> None:
    busy = refuses(503, "Loading model")
    assert "503: Loading model" in failure_of(busy, busy, busy, retries=2)
    assert "ProtocolError" in failure_of(Says(cut=True), retries=0)


def test_retry_after_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    told = [refuses(429, "slow down", {"Retry-After": wait}) for wait in ("7", "30", "0.5")]
    with scripted(*told, refuses(503, "busy"), replies("60")) as server:
        OpenAIGenerator("m", base_url=server.url).generate(QUESTION, max_tokens=8)
    assert pauses[:3] == [7, 30, 0.5]
    assert len(pauses) == 4


def test_long_pauses_are_not_waited_for() -> None:
    later = refuses(429, "slow down", {"Retry-After": "86400"})
    assert "86400" in failure_of(later)


def test_an_exhausted_quota_is_not_retried() -> None:
    assert failure_of(refuses(429, "You exceeded your limit", code="insufficient_quota"))


def test_a_partial_reply_is_not_retried() -> None:
    """The user has already seen its beginning."""
    assert failure_of(streams(delta(content="60 mo"), cut=True))


def test_silence_times_out() -> None:
    for begin in ([], [delta(content="60")]):
        with scripted() as server:
            server.then(streams(*begin, server.stay_silent))
            generator = OpenAIGenerator("m", base_url=server.url, timeout=0.2)
            with pytest.raises(GenerationError, match=r"0\.2 s"):
                generator.generate(QUESTION, max_tokens=8)


def test_comments_count_as_silence() -> None:
    """Some proxies send them forever to keep the connection alive."""
    with scripted() as server:
        steps: list[Step] = [b": still here\n\n", server.pause]
        server.then(Says(stream=itertools.cycle(steps)))
        generator = OpenAIGenerator("m", base_url=server.url, timeout=0.2)
        with pytest.raises(GenerationError, match=r"0\.2 s"):
            generator.generate(QUESTION, max_tokens=8)
        assert server.left_alone.wait(10)


@pytest.mark.parametrize(
    "forever", [delta(content="and "), delta(reasoning_content="hm"), b"data: x", b": x\n"]
)
def test_an_endless_stream_is_aborted(forever: bytes) -> None:
    with scripted(Says(stream=itertools.repeat(forever * 1000))) as server:
        generator = OpenAIGenerator("m", base_url=server.url)
        with pytest.raises(GenerationError, match="1081344"):
            generator.generate(QUESTION, max_tokens=8)
        assert server.left_alone.wait(10)


def test_an_endless_error_is_aborted() -> None:
    with scripted(Says(status=400, stream=itertools.repeat(b"x" * 10_000))) as server:
        generator = OpenAIGenerator("m", base_url=server.url)
        with pytest.raises(GenerationError, match="1048576"):
            generator.generate(QUESTION, max_tokens=8)
        assert server.left_alone.wait(10)


def test_compressed_responses_are_rejected() -> None:
    """A few bytes could unpack to fill the memory."""
    assert failure_of(Says(headers={"Content-Encoding": "gzip"}, body=b"x"))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def test_a_refused_connection_is_not_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    address = f"http://127.0.0.1:{free_port()}/v1"
    generator = OpenAIGenerator("m", base_url=address)
    with pytest.raises(GenerationError, match=address):
        generator.generate(QUESTION, max_tokens=8)
    assert pauses == []


def test_a_lost_server_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    with scripted(replies("60")) as server:
        generator = OpenAIGenerator("m", base_url=server.url, retries=2)
        generator.generate(QUESTION, max_tokens=8)
    monkeypatch.setattr("time.sleep", pauses.append)
    with pytest.raises(GenerationError, match=server.url):
        generator.generate(QUESTION, max_tokens=8)
    assert len(pauses) == 2


def test_tls_errors_are_reported() -> None:
    with scripted() as server:
        secure = server.url.replace("http:", "https:")
        with pytest.raises(GenerationError, match="SSL"):
            OpenAIGenerator("m", base_url=secure).generate(QUESTION, max_tokens=8)


def test_the_error_of_a_missing_model_lists_available_ones() -> None:
    gone = refuses(404, "The model `m` does not exist.", code="model_not_found")
    models = Says(body=b'{"object": "list", "data": [{"id": "qwen"}, {"id": "llava"}]}')
    asked_for = refuses(400, "model 'm' not found, try pulling it first")
    for refusal in (gone, asked_for):
        assert "qwen, llava" in failure_of(refusal, models)
    for useless in (Says(500), Says(body=b"["), Says(body=b'{"data": 3}'), Says(cut=True)):
        assert "404" in failure_of(gone, useless)


def test_a_missing_path_in_the_address_is_suggested() -> None:
    with scripted(Says(404, body=b"not found"), Says(404)) as server:
        generator = OpenAIGenerator("m", base_url=server.url.removesuffix("/v1"))
        with pytest.raises(GenerationError, match="/v1"):
            generator.generate(QUESTION, max_tokens=8)


TOO_LONG = {
    "openai": refuses(400, "This model's maximum context length is 8 tokens. However, your "
                           "messages resulted in 9 tokens.", code="context_length_exceeded"),
    "vllm": refuses(400, "'max_tokens' or 'max_completion_tokens' is too large: 64. This model's "
                         "maximum context length is 32 tokens."),
    "llama.cpp": refuses(400, "the request exceeds the available context size, try increasing it",
                         type="exceed_context_size_error"),
    "a proxy": Says(413, {"Content-Type": "text/html"}, b"<html>Request Entity Too Large</html>"),
}  # fmt: skip


@pytest.mark.parametrize("case", TOO_LONG)
def test_the_error_of_a_long_prompt_names_options(case: str) -> None:
    message = failure_of(TOO_LONG[case])
    assert "--max-k" in message
    assert "--send-megapixels" in message


@pytest.mark.parametrize(
    "refusal",
    [
        refuses(500, "image input is not supported - hint: you may need to provide the mmproj"),
        refuses(400, "At most 1 image(s) may be provided in one request."),
    ],
)
def test_the_error_of_a_model_without_images_suggests_text(refusal: Says) -> None:
    assert "openai-text:m" in failure_of(refusal, prompt=PICTURE)


def test_other_errors_contain_the_server_s_message() -> None:
    assert "(400: No [31m way)" in failure_of(refuses(400, "No\x1b[31m way."))
    detail = Says(422, body=b'{"detail": [{"loc": ["body"], "msg": "bad"}]}')
    assert '"msg": "bad"' in failure_of(detail)
    assert "400" in failure_of(Says(400))
    assert len(failure_of(refuses(400, "long " * 10_000))) < 500


def test_the_limit_has_two_names() -> None:
    """New OpenAI models reject the old name, and old servers the new one."""
    only_new = refuses(400, "Unsupported parameter: 'max_tokens' is not supported with this model. "
                            "Use 'max_completion_tokens' instead.", param="max_tokens")  # fmt: skip
    with scripted(only_new, replies("60"), replies("61")) as server:
        generator = OpenAIGenerator("m", base_url=server.url)
        generator.generate(QUESTION, max_tokens=8)
        # What was learned is not learned again.
        generator.generate(QUESTION, max_tokens=9)
    first, second, third = (asked.json for asked in server.asked)
    assert first["max_tokens"] == second["max_completion_tokens"] == 8
    assert third["max_completion_tokens"] == 9
    assert not {"max_tokens"} & {*second, *third}
    # A server that rejects both names ends the loop.
    assert "(400: Unsupported" in failure_of(only_new, only_new)


@pytest.mark.parametrize("name", ["stream_options", "seed", "temperature"])
def test_unsupported_parameters_are_left_out(name: str) -> None:
    refusals = [
        refuses(400, f"Unsupported value: '{name}' is not supported.", param=name),
        Says(422, body=b'{"detail": [{"loc": ["body", "%b"], "msg": "Extra"}]}' % name.encode()),
    ]
    for refusal in refusals:
        with scripted(refusal, streams(delta(content="60"), DONE)) as server:
            generator = OpenAIGenerator("m", base_url=server.url)
            reply = generator.generate(QUESTION, max_tokens=8)
        assert (reply.text, reply.input_tokens, reply.output_tokens) == ("60", None, None)
        assert {*server.asked[0].json} - {*server.asked[1].json} == {name}


def test_ctrl_c_ends_the_request() -> None:
    heard = threading.Event()

    def press() -> None:
        assert heard.wait(10)
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)

    with scripted() as server:
        server.then(
            Says(
                stream=itertools.chain([delta(content="60"), press], itertools.repeat(server.pause))
            )
        )
        with pytest.raises(KeyboardInterrupt):
            OpenAIGenerator("m", base_url=server.url).generate(
                QUESTION, max_tokens=8, on_text=lambda _: heard.set()
            )
        assert server.left_alone.wait(10)


def test_an_error_in_on_text_closes_the_connection() -> None:
    """For example after a closed pipe: the caller gets the error."""

    def closed(_: str) -> None:
        raise BrokenPipeError

    with scripted() as server:
        server.then(
            Says(stream=itertools.chain([delta(content="60")], itertools.repeat(server.pause)))
        )
        with pytest.raises(BrokenPipeError):
            OpenAIGenerator("m", base_url=server.url).generate(
                QUESTION, max_tokens=8, on_text=closed
            )
        assert server.left_alone.wait(10)


def test_closing_the_iterator_closes_the_connection() -> None:
    with scripted() as server:
        server.then(
            Says(stream=itertools.chain([delta(content="60")], itertools.repeat(server.pause)))
        )
        pieces = OpenAIGenerator("m", base_url=server.url).stream(QUESTION, max_tokens=8)
        assert next(pieces) == "60"
        pieces.close()
        assert server.left_alone.wait(10)


@pytest.mark.parametrize("options", [{"timeout": 0}, {"timeout": float("nan")}, {"retries": -1}])
def test_invalid_settings_raise_an_error(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match=next(iter(options))):
        OpenAIGenerator("m", base_url="http://127.0.0.1:1/v1", **options)
