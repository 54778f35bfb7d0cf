"""Tests of the OpenAI-compatible backend with a scripted server."""

from __future__ import annotations

import base64
import io
import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from tests.generation.openai_samples import QUESTION
from tests.generation.openai_samples import alone as alone
from tests.generation.scripted import (
    DONE,
    Says,
    delta,
    event,
    refuses,
    replies,
    scripted,
    streams,
    usage,
)
from visar.errors import GenerationError, InvalidOption
from visar.generation.generator import (
    Prompt,
    Reply,
    StreamingGenerator,
    read_pieces,
    stream_reply,
)
from visar.generation.openai_server import OpenAIGenerator

pytestmark = pytest.mark.usefixtures("alone")


def noise(width: int, height: int) -> Image.Image:
    pixels = np.random.default_rng(width).integers(0, 255, (height, width, 3), np.uint8)
    return Image.fromarray(pixels)


def reply_to(says: Says) -> Reply:
    with scripted(says) as server:
        return OpenAIGenerator("m", base_url=server.url).generate(QUESTION, max_tokens=64)


def test_a_reply_is_streamed_and_counted() -> None:
    pieces: list[str] = []
    with scripted(replies("60 ", "months")) as server:
        generator = OpenAIGenerator("m", reads="text", base_url=server.url)
        reply = generator.generate(QUESTION, max_tokens=64, on_text=pieces.append)
    assert reply == Reply("60 months", "m-1", input_tokens=7, output_tokens=2, complete=True)
    assert pieces == ["60 ", "months"]
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("POST", "/v1/chat/completions")
    assert asked.json == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Answer from the pages."},
            {"role": "user", "content": "Page 1:\nThe warranty lasts 60 months.\nHow long?"},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
        "seed": 0,
        "max_tokens": 64,
    }
    assert asked.headers["user-agent"].startswith("visar/")


def test_threads_share_the_client_and_rejected_parameters() -> None:
    refusal = refuses(400, "Unsupported parameter: 'seed'", param="seed")
    answers = [replies("60 ", "months") for _ in range(16)]
    with scripted(refusal, *answers) as server:
        generator = OpenAIGenerator("m", base_url=server.url)

        def ask(_: int) -> tuple[str, int]:
            reply = generator.generate(QUESTION, max_tokens=8)
            return reply.text, id(generator._client())

        first = ask(0)
        with ThreadPoolExecutor(8) as threads:
            assert set(threads.map(ask, range(15))) == {first}
    assert [("seed" in asked.json) for asked in server.asked] == [True] + [False] * 16


@pytest.mark.parametrize(
    ("model", "as_in_paper", "temperature"),
    [
        ("Qwen/Qwen2.5-14B-Instruct", True, None),
        ("Qwen/Qwen2.5-14B-Instruct", False, 0),
        ("Qwen/Qwen2.5-VL-7B-Instruct", True, 0),
        ("OpenGVLab/InternVL3_5-8B-Instruct", True, 0),
        ("m", True, 0),
    ],
)
def test_models_that_sampled_in_the_paper_get_no_temperature(
    model: str, as_in_paper: bool, temperature: int | None
) -> None:
    """Servers such as vLLM then use the checkpoint's sampling, as the paper did."""
    with scripted(replies("60")) as server:
        generator = OpenAIGenerator(model, base_url=server.url, reads="text")
        generator.generate(Prompt("", ("Why?",), as_in_paper), max_tokens=8)
    assert server.asked[0].json.get("temperature") == temperature


def test_a_reply_can_be_read_as_an_iterator() -> None:
    with scripted(replies("60 ", "months")) as server:
        generator = OpenAIGenerator("m", base_url=server.url)
        assert isinstance(generator, StreamingGenerator)
        pieces: list[str] = []
        reply = read_pieces(stream_reply(generator, QUESTION, max_tokens=8), pieces.append)
    assert (reply.text, pieces) == ("60 months", ["60 ", "months"])


def test_names_are_kept_as_typed() -> None:
    def named(model: str, **options: str) -> str:
        return OpenAIGenerator(model, base_url="http://127.0.0.1:1/v1", **options).name  # type: ignore[arg-type]

    assert named("gpt-x") == "openai:gpt-x"
    assert named("org/model", reads="text") == "openai-text:org/model"


def test_images_and_texts_are_sent_in_order() -> None:
    photo, drawing = noise(40, 30), Image.new("RGB", (60, 80), "white")
    see_through = Image.new("RGBA", (20, 20), (0, 0, 0, 0))
    prompt = Prompt("s", ("Page 1:", photo, "Page 2:", drawing, see_through, "Why?"))
    with scripted(replies("Because.")) as server:
        OpenAIGenerator("m", base_url=server.url).generate(prompt, max_tokens=8)
    content = server.asked[0].json["messages"][1]["content"]
    kinds = [part["type"] for part in content]
    assert kinds == ["text", "image_url", "text", "image_url", "image_url", "text"]
    assert [part["text"] for part in content if "text" in part] == ["Page 1:", "Page 2:", "Why?"]
    uris = [part["image_url"]["url"] for part in content if part["type"] == "image_url"]
    assert [uri.partition(";")[0] for uri in uris] == [
        "data:image/jpeg",
        "data:image/png",
        "data:image/png",
    ]
    images = [Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))) for uri in uris]
    assert [image.size for image in images] == [(40, 30), (60, 80), (20, 20)]
    np.testing.assert_array_equal(np.asarray(images[1]), np.asarray(drawing))
    # Transparent pixels become white, not black.
    assert (np.asarray(images[2].convert("RGB")) == 255).all()


def test_lone_surrogates_in_a_page_are_accepted() -> None:
    with scripted(replies("60")) as server:
        prompt = Prompt("s\ud800", ("page \udcff",))
        OpenAIGenerator("m", base_url=server.url).generate(prompt, max_tokens=8)
    system, user = server.asked[0].json["messages"]
    assert (system["content"], user["content"]) == ("s?", "page ?")


def test_a_server_without_streaming_is_supported() -> None:
    message = {"role": "assistant", "content": "60 months", "reasoning_content": "hm"}
    whole = {
        "model": "m-2",
        "choices": [{"message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2},
    }
    reply = reply_to(Says(body=json.dumps(whole).encode()))
    assert reply == Reply("60 months", "m-2", 5, 2, complete=True)


def test_reasoning_is_ignored_except_in_the_text() -> None:
    """Only the parser knows where the answer in the text begins."""
    said = streams(
        delta(reasoning_content="Let me see."),
        delta(content="<think>hm</think>"),
        delta(reasoning="more"),
        delta(content=[{"type": "thinking", "thinking": []}, {"type": "text", "text": "60"}]),
        delta("stop", content=None),
        DONE,
    )
    assert reply_to(said).text == "<think>hm</think>60"


def test_a_reply_at_the_limit_is_incomplete() -> None:
    assert not reply_to(replies("60 mon", finish="length")).complete
    assert reply_to(replies("60 mon", finish="eos")).complete


def test_a_stream_without_its_end_is_incomplete() -> None:
    assert not reply_to(streams(delta(content="60"))).complete
    # The reply is complete; only the token counts are missing.
    cut = reply_to(streams(delta(content="60"), delta("stop"), cut=True))
    assert (cut.text, cut.output_tokens, cut.complete) == ("60", None, True)


UNUSABLE = {
    "broken in the middle": (streams(delta(content="60 mo"), cut=True), None),
    "malformed": (streams(b'data: {"choices": [\n\n'), "OpenAI"),
    "no object": (streams(b"data: [1]\n\n"), "OpenAI"),
    "no text": (streams(b"data: \xff\n\n"), "OpenAI"),
    "an error": (streams(delta(content="6"), event({"error": {"message": "CUDA"}})), "CUDA"),
    "empty choices": (streams(usage(7, 0), DONE), "empty"),
    "null content": (streams(delta("stop", content=None), DONE), "empty"),
    "a refusal": (streams(delta(refusal="I can"), delta("stop", refusal="not."), DONE), "I cannot"),
    "a filter": (replies("Ho", finish="content_filter"), "filter"),
    "only thoughts": (
        streams(delta(reasoning_content="hm"), delta("length"), DONE),
        "64",
    ),
    "a web page": (Says(headers={"Content-Type": "text/html"}, body=b"<html>"), "text/html"),
    "no JSON": (Says(body=b"<html>"), "OpenAI"),
    "an error as a reply": (Says(body=b'{"error": {"message": "CUDA"}}'), "CUDA"),
    "odd types": (streams(event({"choices": "x", "usage": [], "model": 3}), DONE), "OpenAI"),
}


def test_unexpected_types_become_text_or_none() -> None:
    odd = {"model": 3, "usage": {"prompt_tokens": "7"}, "choices": [{"delta": {"content": 60}}]}
    reply = reply_to(streams(event(odd), delta("stop"), DONE))
    assert reply == Reply("60", "m-1", None, None, complete=True)


@pytest.mark.parametrize("case", UNUSABLE)
def test_errors_of_unusable_replies_name_model_and_reason(case: str) -> None:
    says, why = UNUSABLE[case]
    with scripted(says) as server, pytest.raises(GenerationError, match=why) as caught:
        OpenAIGenerator("m", base_url=server.url).generate(QUESTION, max_tokens=64)
    assert server.url in str(caught.value)
    assert len(server.asked) == 1


@pytest.mark.parametrize("model", ["", " "])
def test_a_model_needs_a_name(model: str) -> None:
    with pytest.raises(InvalidOption, match="openai:MODEL"):
        OpenAIGenerator(model)


def test_token_estimates_are_upper_bounds() -> None:
    """Tokenizers use at most one token per byte, and fewer for words."""
    count = OpenAIGenerator("m", base_url="http://127.0.0.1:1/v1").count_tokens
    assert count("") == 0
    assert count("1,234.5") == 7
    assert count("年") == 3
    assert count("\ud800") == 3
    assert count("the warranty") == 2 + 4


VERDICTS = ("correct", "incorrect")


def test_choices_are_sent_as_a_strict_schema() -> None:
    with scripted(replies('{"choice":', ' "correct"}')) as server:
        generator = OpenAIGenerator("m", base_url=server.url)
        reply = generator.generate(QUESTION, max_tokens=16, choices=VERDICTS)
    assert reply.text == '{"choice": "correct"}'
    assert server.asked[0].json["response_format"] == {
        "type": "json_schema",
        "json_schema": {
            "name": "choice",
            "strict": True,
            "schema": {
                "type": "object",
                "properties": {"choice": {"type": "string", "enum": ["correct", "incorrect"]}},
                "required": ["choice"],
                "additionalProperties": False,
            },
        },
    }


@pytest.mark.parametrize(
    "refusal",
    [
        refuses(400, "'response_format.type' must be 'json_object'"),
        refuses(400, "json_schema is not supported by this model"),
        Says(501, body=b'{"error": "Grammar sampling is not available"}'),
    ],
)
def test_a_server_without_schemas_gets_choices_in_the_prompt(refusal: Says) -> None:
    with scripted(refusal, replies("Incorrect."), replies("correct")) as server:
        generator = OpenAIGenerator("m", base_url=server.url)
        first = generator.generate(QUESTION, max_tokens=16, choices=VERDICTS)
        second = generator.generate(QUESTION, max_tokens=16, choices=VERDICTS)
    assert [first.text, second.text] == ['{"choice": "incorrect"}', '{"choice": "correct"}']
    for asked in server.asked[1:]:
        assert "response_format" not in asked.json
        assert asked.json["messages"][1]["content"].endswith(
            'nothing else: {"choice": "correct"} or {"choice": "incorrect"}'
        )


@pytest.mark.parametrize(
    "said", ["I think it is right.", '{"choice": "maybe"}', '{"choice": "corr']
)
def test_a_reply_without_a_choice_raises_an_error(said: str) -> None:
    with (
        scripted(replies(said)) as server,
        pytest.raises(GenerationError, match="correct, incorrect"),
    ):
        OpenAIGenerator("m", base_url=server.url).generate(
            QUESTION, max_tokens=16, choices=VERDICTS
        )
