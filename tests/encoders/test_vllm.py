"""vLLM's ``POST /pooling`` as its documentation describes it. No vLLM was run."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.encoders.samples import page_with, picture
from tests.encoders.servers import Asked, Says, answering
from visar.encoders import transport
from visar.encoders.registry import get_encoder
from visar.errors import EmptyQuestion, InvalidOption, ServiceError
from visar.index import Index

MODEL = "vidore/colpali-v1.3-hf"
DIMENSION = 8


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "PAUSES", (0.01, 0.01))
    monkeypatch.delenv("VISAR_TOKEN", raising=False)


def at(url: str, model: str = MODEL) -> str:
    return f"vllm+{url}/{model}"


def pooled(*data: Any) -> Says:
    items = [{"index": i, "object": "pooling", "data": each} for i, each in enumerate(data)]
    answer = {
        "id": "pooling-1",
        "object": "list",
        "created": 1_700_000_000,
        "model": MODEL,
        "data": items,
        "usage": {"prompt_tokens": 9, "total_tokens": 9},
    }
    return Says(200, json.dumps(answer).encode())


def image_sent(request: Asked) -> Image.Image:
    (message,) = json.loads(request.body)["messages"]
    first, second = message["content"]
    assert message["role"] == "user"
    assert second == {"type": "text", "text": "Describe the image."}
    assert first["type"] == "image_url"
    kind, _, data = first["image_url"]["url"].partition(",")
    assert kind == "data:image/png;base64"
    return Image.open(io.BytesIO(base64.b64decode(data)))


def like_vllm(request: Asked) -> Says:
    """Three vectors a page, by its brightness; one a word. Not of unit length."""
    content = json.loads(request.body)
    assert request.path == "/pooling"
    assert (content["model"], content["task"]) == (MODEL, "token_embed")
    if "messages" in content:
        rng = np.random.default_rng(int(np.asarray(image_sent(request)).sum()))
        return pooled((5 * rng.normal(size=(3, DIMENSION))).tolist())
    return pooled(np.ones((len(content["input"].split()), DIMENSION)).tolist())


def test_pages_go_as_images_and_come_back_as_unit_vectors() -> None:
    pages, images = [page_with("a"), page_with("b", 2)], [picture(1), picture(2)]
    with answering(like_vllm) as (url, asked):
        encoder = get_encoder(at(url))
        first, second = encoder.encode_pages(pages, images)
        received = [image_sent(request) for request in asked[1:]]
    for sent, arrived in zip(images, received, strict=True):
        np.testing.assert_array_equal(np.asarray(arrived), np.asarray(sent))
    assert first.vectors.shape == (3, DIMENSION)
    assert first.vectors.dtype == np.float16
    assert not np.array_equal(first.vectors, second.vectors)
    np.testing.assert_allclose(np.linalg.norm(first.vectors.astype("f4"), axis=1), 1, atol=1e-3)
    # Where they stand is not known, and is not made up.
    assert not first.boxes.any()
    assert first.boxes.shape == (3, 4)
    assert (first.words == -1).all()


def test_questions_go_as_text() -> None:
    with answering(like_vllm) as (url, asked):
        encoder = get_encoder(at(url))
        assert asked == []
        assert (encoder.name, encoder.version) == (f"vllm/{MODEL}", "token-embed-1")
        assert encoder.dimension == DIMENSION
        assert len(asked) == 1
        vectors = encoder.encode_query("where is it?")
        with pytest.raises(EmptyQuestion):
            encoder.encode_query("  ")
    assert json.loads(asked[1].body)["input"] == "where is it?"
    assert vectors.shape == (3, DIMENSION)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)


def test_documents_can_be_searched(make_pdf: Callable[..., Path], tmp_path: Path) -> None:
    index = Index.open(tmp_path / "index")
    with answering(like_vllm) as (url, _):
        index.add(make_pdf("two.pdf", "Sailing boats.", "Income tax."), encoder=at(url))
        answer = index.ask("When is tax due?", encoder=at(url))
    assert answer.search.pages_searched == 2
    assert answer.search.pages
    assert answer.search.encoder.name == f"vllm/{MODEL}"


def test_the_api_key_is_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISAR_TOKEN", "sesame")
    with answering(like_vllm) as (url, asked):
        assert get_encoder(at(url)).dimension == DIMENSION
    assert asked[0].headers["Authorization"] == "Bearer sesame"


NOT_FOUND = {"error": {"message": "The model `x` does not exist.", "type": "NotFoundError"}}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Says(404, json.dumps(NOT_FOUND).encode()), r"says \(404\): The model `x` does not exist"),
        (Says(404, b'{"detail": "Not Found"}'), "Not Found"),
        (Says(500, b"<html>"), r"says \(500\)"),
        (Says(401, b"{}"), "VISAR_TOKEN"),
        (Says(200, b"<html>"), "is it vLLM's /pooling"),
        (Says(200, b"[]"), "is it vLLM's /pooling"),
        (pooled(), "gave no vectors"),
        (pooled([[1.0, 2.0]], [[1.0, 2.0]]), "gave no vectors"),
        (pooled([[1.0, 2.0], [1.0]]), "gave no vectors"),
        (pooled([[1.0, "x"]]), "gave no vectors"),
        (pooled("AAAA"), "gave no vectors"),
        (pooled([0.1, 0.2]), r"shape \(2,\).*token_embed"),
        (pooled([]), "not a vector for every token"),
        (pooled([[10**400, 0]]), "gave no vectors"),
        (Says(500, b'{"message": "gone \\u001b[2J away."}'), r"gone  \[2J away\.$"),
    ],
)
def test_what_is_not_as_documented_is_told(answer: Says, said: str) -> None:
    with answering(lambda _: answer) as (url, _), pytest.raises(ServiceError, match=said):
        _ = get_encoder(at(url)).dimension


def test_a_page_of_another_dimension_is_named() -> None:
    answers = iter([pooled([[1.0, 0.0]]), pooled([[1.0, 0.0, 0.0]])])
    with (
        answering(lambda _: next(answers)) as (url, _),
        pytest.raises(ServiceError, match="3 dimensions for page 7 and 2 before"),
    ):
        get_encoder(at(url)).encode_pages([page_with("a", 7)], [picture(1)])


NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    "vector", [[NAN, 1.0], [INFINITE, 1.0], [None, 1.0], [1e308, 1e308], [0.0, 0.0]]
)
def test_a_page_without_numbers_is_marked_and_leaves_the_others_alone(vector: list[Any]) -> None:
    pages = [page_with("a", number) for number in (1, 2, 3)]
    good = pooled([[3.0, 4.0], [0.0, 2.0]])
    answers = iter([good, good, pooled([[1.0, 0.0], vector]), good])
    with answering(lambda _: next(answers)) as (url, _):
        first, second, third = get_encoder(at(url)).encode_pages(pages, [picture(1)] * 3)
    assert second.invalid == "the encoder gave vectors that are zero or no numbers"
    assert (second.vectors.shape, second.boxes.shape, second.words.shape) == ((0, 2), (0, 4), (0,))
    for page in (first, third):
        assert page.invalid is None
        expected = np.array([[0.6, 0.8], [0.0, 1.0]])
        np.testing.assert_allclose(page.vectors.astype(np.float64), expected, atol=1e-3)


def test_a_question_without_numbers_is_an_error() -> None:
    answers = iter([pooled([[1.0, 0.0]]), pooled([[1.0, NAN]])])
    with (
        answering(lambda _: next(answers)) as (url, _),
        pytest.raises(ServiceError, match="for the question 'why' that are zero or no numbers"),
    ):
        get_encoder(at(url)).encode_query("why")


def test_a_server_that_does_not_run_is_told() -> None:
    with answering(like_vllm) as (url, _):
        pass
    with pytest.raises(ServiceError, match=r"No encoder answers.*vllm serve"):
        _ = get_encoder(at(url)).dimension


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("vllm+http://host:8000", "names no model"),
        ("vllm+http://host:8000/", "names no model"),
        ("vllm+ftp://host/model", "no address of an encoder"),
        ("vllm+http://host/a model", "more than a host, a port and a path"),
    ],
)
def test_an_address_without_a_model_is_told(address: str, said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        get_encoder(address)
