"""The OpenAI-compatible API, tested with OpenAI's own client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from tests.conftest import write_pdf
from tests.generation.scripted import Says, Scripted, delta, refuses, replies, scripted, streams
from tests.server.service import QUESTION, TOKEN, serving, wait_until
from visar.index import Index
from visar.results import Turn
from visar.server import Settings

MODEL = {"model": "openai:m-1"}
PIECES = "The warranty is ", "seven years [2]. Ask the shop [9]."
WRITTEN = "The warranty is seven years [1]. Ask the shop [2]."


@contextmanager
def chatting(address: str, key: str = "none") -> Iterator[openai.OpenAI]:
    """Yield an OpenAI client for a server."""
    http = httpx2.Client(trust_env=False)
    with openai.OpenAI(
        base_url=f"{address}/v1", api_key=key, max_retries=0, http_client=http
    ) as one:
        yield one


@pytest.fixture(scope="module")
def chat(address: str) -> Iterator[openai.OpenAI]:
    with chatting(address) as one:
        yield one


@contextmanager
def writing(index: Index, *behaviors: Says) -> Iterator[tuple[openai.OpenAI, Scripted]]:
    """Serve an index with a scripted language model; yields a client and the model."""
    with scripted(*behaviors) as model:
        settings = Settings(generators=MODEL, base_url=model.url, requests_per_minute=100_000)
        with serving(index, settings) as address, chatting(address) as one:
            yield one, model


def user(text: Any = QUESTION) -> Any:
    return {"role": "user", "content": text}


def assistant(text: str) -> Any:
    return {"role": "assistant", "content": text}


def read(chat: openai.OpenAI, *, stream: bool = False, messages: Any = None) -> str:
    """Request an answer, complete or streamed, and return its text."""
    messages = messages or [user()]
    if not stream:
        completion = chat.chat.completions.create(model="visar", messages=messages)
        return completion.choices[0].message.content or ""
    chunks = chat.chat.completions.create(model="visar", messages=messages, stream=True)
    return "".join(choice.delta.content or "" for one in chunks for choice in one.choices)


def test_the_library_and_its_collections_are_models(
    index: Index, chat: openai.OpenAI, document: str, tmp_path: Path
) -> None:
    assert [one.id for one in chat.models.list()] == ["visar"]
    leaflet = index.add(
        write_pdf(tmp_path / "leaflet.pdf", "The warranty of the lantern is one day."),
        collection="A / B",
    )
    try:
        assert [one.id for one in chat.models.list()] == ["visar", "visar/A / B"]
        assert chat.models.retrieve("visar/A / B").id == "visar/A / B"
        answer = chat.chat.completions.create(model="visar/A / B", messages=[user()])
        content = answer.choices[0].message.content or ""
        assert "one day" in content
        assert "seven" not in content
        assert leaflet.id in content
        assert document not in content
    finally:
        index.remove(leaflet.id)
    with pytest.raises(openai.NotFoundError) as error:
        chat.models.retrieve("visar/A / B")
    assert error.value.code == "model_not_found"


def test_passages_are_quoted_with_links_without_a_generator(
    chat: openai.OpenAI, http: httpx2.Client
) -> None:
    answer = chat.chat.completions.create(model="visar", messages=[user()])
    assert (answer.object, answer.model) == ("chat.completion", "visar")
    (choice,) = answer.choices
    assert (choice.finish_reason, choice.message.role) == ("stop", "assistant")
    content = choice.message.content or ""
    assert content.startswith("> ")
    assert "seven years" in content
    first = (choice.message.annotations or [])[0].url_citation
    assert first.title in ("manual.pdf, page 2", "manual.pdf, page 4")
    assert content[first.start_index : first.end_index] == f"[{first.title}]({first.url})"
    assert http.get(first.url).headers["content-type"] == "image/png"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 0


def test_a_streamed_answer_equals_the_complete_answer(chat: openai.OpenAI) -> None:
    whole = chat.chat.completions.create(model="visar", messages=[user()]).choices[0].message
    chunks = list(
        chat.chat.completions.create(
            model="visar",
            messages=[user()],
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert {one.object for one in chunks} == {"chat.completion.chunk"}
    assert len({one.id for one in chunks}) == 1
    deltas = [one.choices[0].delta for one in chunks if one.choices]
    assert deltas[0].role == "assistant"
    assert "".join(one.content or "" for one in deltas) == whole.content
    annotations = [one for each in deltas for one in getattr(each, "annotations", [])]
    assert annotations == [one.model_dump() for one in whole.annotations or []]
    assert [one.choices[0].finish_reason for one in chunks if one.choices][-1] == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None


@pytest.mark.parametrize("stream", [False, True])
def test_the_answer_of_a_generator_links_to_its_pages(index: Index, stream: bool) -> None:
    with writing(index, replies(*PIECES)) as (chat, model):
        request: dict[str, Any] = {"model": "visar", "messages": [user()], "temperature": 0.7}
        request |= {"max_tokens": 99, "stop": ["\n"], "user": "u", "tools": []}
        if stream:
            request |= {"stream": True, "stream_options": {"include_usage": True}}
            chunks = list(chat.chat.completions.create(**request))
            content = "".join(
                choice.delta.content or "" for one in chunks for choice in one.choices
            )
            usage = chunks[-1].usage
        else:
            answer = chat.chat.completions.create(**request)
            content, usage = answer.choices[0].message.content, answer.usage
        sent = model.asked[0].json
    text, page, unknown = content.rsplit("\n", 2)
    assert text == f"{WRITTEN}\n"
    assert page.startswith("- [1] [manual.pdf, page 2](http://")
    assert page.endswith("/pages/2/image)")
    assert unknown.startswith("- [2] page 9")
    assert "http" not in unknown
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (7, 2, 9)
    assert 99 in sent.values()
    assert "temperature" not in sent or sent["temperature"] != 0.7


def test_a_missing_answer_links_to_the_closest_page(chat: openai.OpenAI) -> None:
    question = user("Which chemical element boils at 4,000 kelvin?")
    answer = chat.chat.completions.create(model="visar", messages=[question])
    content = answer.choices[0].message.content or ""
    assert not content.startswith(">")
    assert "manual.pdf" in content
    assert len(answer.choices[0].message.annotations or []) == 1


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "system", "content": "Answer in French."}, user()],
        [
            user(
                [
                    {"type": "text", "text": "How long is the warranty"},
                    {"type": "text", "text": "of the Aurora lantern?"},
                ]
            )
        ],
        [{"role": "developer", "content": "Be brief."}, user(), {"role": "system", "content": "x"}],
    ],
)
def test_the_question_is_the_last_text_of_the_user(chat: openai.OpenAI, messages: Any) -> None:
    plain = chat.chat.completions.create(model="visar", messages=[user()])
    answer = chat.chat.completions.create(model="visar", messages=messages)
    assert answer.choices[0].message.content == plain.choices[0].message.content


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("request_", "error", "code", "named"),
    [
        ({"model": "gpt-4"}, openai.NotFoundError, "model_not_found", "gpt-4"),
        ({"model": "visar/none"}, openai.NotFoundError, "model_not_found", "visar/none"),
        ({"n": 2}, openai.UnprocessableEntityError, "invalid", "n must be 1"),
        ({"messages": []}, openai.UnprocessableEntityError, "invalid", "messages"),
        ({"messages": [user(" ")]}, openai.UnprocessableEntityError, "empty_question", ""),
        ({"messages": [user("a" * 4001)]}, openai.UnprocessableEntityError, "too_long", "4001"),
        ({"messages": [assistant("Hi")]}, openai.UnprocessableEntityError, "invalid", "last"),
        (
            {"messages": [user([{"type": "image_url", "image_url": {"url": "data:,"}}])]},
            openai.UnprocessableEntityError, "invalid", "image_url",
        ),
    ],
)  # fmt: skip
def test_errors_have_the_format_of_openai(
    chat: openai.OpenAI,
    request_: dict[str, Any],
    stream: bool,
    error: type[openai.APIStatusError],
    code: str,
    named: str,
) -> None:
    body: dict[str, Any] = {"model": "visar", "messages": [user()], **request_}
    with pytest.raises(error) as caught:
        chat.chat.completions.create(**body, stream=stream)
    assert (caught.value.code, caught.value.type) == (code, "invalid_request_error")
    assert named in caught.value.message


def test_the_token_is_the_api_key(index: Index) -> None:
    with serving(index, Settings(token=TOKEN)) as address:
        with chatting(address, TOKEN) as right:
            assert [one.id for one in right.models.list()] == ["visar"]
            right.chat.completions.create(model="visar", messages=[user()])
        with chatting(address, "wrong") as wrong:
            for ask in (
                wrong.models.list,
                lambda: wrong.chat.completions.create(model="visar", messages=[user()]),
            ):
                with pytest.raises(openai.AuthenticationError) as error:
                    ask()
                assert (error.value.code, error.value.type) == ("token", "authentication_error")


def test_the_rate_limit_applies(index: Index) -> None:
    with serving(index, Settings(requests_per_minute=1)) as address, chatting(address) as chat:
        chat.models.list()
        with pytest.raises(openai.RateLimitError) as error:
            chat.models.list()
        assert (error.value.code, error.value.type) == ("rate", "rate_limit_error")
        assert int(error.value.response.headers["retry-after"]) > 0


def test_other_paths_are_not_found(address: str) -> None:
    for method, path, status in (
        ("POST", "/v1/embeddings", 404),
        ("GET", "/v1/chat/completions", 405),
        ("GET", "/v1/index.html", 404),
    ):
        response = httpx2.request(method, address + path, trust_env=False)
        assert response.status_code == status
        assert set(response.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_quotes_the_pages_if_the_generator_fails(index: Index, stream: bool) -> None:
    with writing(index, refuses(400, "No such *model*.")) as (chat, _):
        content = read(chat, stream=stream)
    problem, quoted = content.split("\n\n", 1)
    assert problem.startswith("*")
    assert "No such \\*model\\*" in problem
    assert quoted.startswith("> ")
    assert "/image)" in quoted


def test_an_error_after_the_first_chunk_is_an_event(tmp_path: Path) -> None:
    with Index.open(tmp_path / "index") as index:
        added = index.add(write_pdf(tmp_path / "manual.pdf", "The warranty is seven years."))
        original = index.original(added.id)
        assert original is not None
        original.unlink()
        (tmp_path / "manual.pdf").unlink()
        with writing(index) as (chat, _), pytest.raises(openai.APIError) as error:
            read(chat, stream=True)
    assert (error.value.code, error.value.type) == ("document", "invalid_request_error")


def test_a_follow_up_is_understood(index: Index, chat: openai.OpenAI) -> None:
    """Rules rewrite it if there is no generator. A generator gets the history without links."""
    first = chat.chat.completions.create(model="visar", messages=[user()]).choices[0].message
    messages = [user(), assistant(first.content or ""), user("And how is it cleaned?")]
    system = {"role": "system", "content": "You are a pirate."}
    history = [Turn(QUESTION, index.ask(QUESTION).text)]
    rewritten = index.ask("And how is it cleaned?", history=history).search.question
    assert "lantern" in rewritten
    assert read(chat, messages=[system, *messages]) == read(chat, messages=[user(rewritten)])
    by_model = '{"question": "How is the glass of the Aurora lantern cleaned?"}'
    with writing(index, replies(by_model), replies("With a dry cloth [3].")) as (chat_, model):
        content = read(chat_, messages=[system, *messages])
        request = model.asked[0].body.decode()
    assert content.startswith("With a dry cloth [1].\n\n- [1] [manual.pdf, page 3](")
    assert "seven years" in request
    assert "/image" not in request
    assert "pirate" not in request


def test_disconnecting_stops_the_model_and_frees_the_slot(index: Index) -> None:
    """The server only answers one question at a time."""
    with scripted() as model:
        endless = iter(lambda: delta(content="and "), None)
        steps = (step for one in endless for step in (one, model.pause))
        model.then(streams(delta(content="Years "), *[next(steps) for _ in range(2_000)]))
        settings = Settings(
            generators=MODEL, base_url=model.url, max_questions=1, requests_per_minute=100_000
        )
        with serving(index, settings) as address, chatting(address) as chat:
            stream = chat.chat.completions.create(model="visar", messages=[user()], stream=True)
            assert any(one.choices[0].delta.content for one in stream)
            with pytest.raises(openai.RateLimitError) as error:
                chat.chat.completions.create(model="visar", messages=[user()])
            assert error.value.code == "busy"
            stream.close()
            wait_until(model.left_alone.is_set, "the model is stopped")
            model.then(replies(*PIECES))

            def is_free() -> bool:
                try:
                    chat.chat.completions.create(model="visar", messages=[user()])
                except openai.RateLimitError:
                    return False
                return True

            wait_until(is_free, "the slot is free")
