"""The client for vLLM, tested with a fake server that follows vLLM's documentation."""

from __future__ import annotations

import base64
import io
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.encoders.samples import page_with, picture
from tests.encoders.servers import Asked, Says, answering
from visar import network
from visar.encoders.registry import get_encoder
from visar.errors import EmptyQuestion, InvalidOption, ServiceError
from visar.index import Index

MODEL = "vidore/colpali-v1.3-hf"
DIMENSION = 8


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "PAUSES", (0.01, 0.01))
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


def models(**changes: Any) -> Says:
    """Return a server's list of models, which includes its start time."""
    card = {
        "id": MODEL,
        "object": "model",
        "created": time.time_ns(),
        "owned_by": "vllm",
        "root": MODEL,
        "parent": None,
        "max_model_len": 8192,
        "permission": [{"id": f"modelperm-{time.time_ns()}"}],
    }
    return Says(200, json.dumps({"object": "list", "data": [card | changes]}).encode())


def image_sent(request: Asked) -> Image.Image:
    (message,) = json.loads(request.body)["messages"]
    first, second = message["content"]
    assert message["role"] == "user"
    assert second == {"type": "text", "text": "Describe the image."}
    assert first["type"] == "image_url"
    kind, _, data = first["image_url"]["url"].partition(",")
    assert kind == "data:image/png;base64"
    return Image.open(io.BytesIO(base64.b64decode(data)))


def weights(seed: int, noise: float = 0.0, **card: Any) -> Callable[[Asked], Says]:
    """A model with three vectors per page, by brightness, and one per word, not normalized."""

    def answer(request: Asked) -> Says:
        if (request.method, request.path) == ("GET", "/v1/models"):
            return models(**card)
        assert request.path == "/pooling"
        content = json.loads(request.body)
        assert (content["model"], content["task"]) == (MODEL, "token_embed")
        if "messages" in content:
            rng = np.random.default_rng(seed + int(np.asarray(image_sent(request)).sum()))
            return pooled((5 * rng.normal(size=(3, DIMENSION))).tolist())
        rng = np.random.default_rng(seed)
        vectors = 5 * rng.normal(size=(len(content["input"].split()), DIMENSION))
        vectors += noise * np.random.default_rng().normal(size=vectors.shape)
        return pooled(vectors.tolist())

    return answer


like_vllm = weights(0)


def scripted(*answers: Says) -> Callable[[Asked], Says]:
    """Return scripted responses of /pooling; the first one is for the probe sentence."""
    rest = iter(answers)
    return lambda request: models() if request.path == "/v1/models" else next(rest)


def test_pages_are_sent_as_images_and_get_unit_vectors() -> None:
    pages, images = [page_with("a"), page_with("b", 2)], [picture(1), picture(2)]
    with answering(like_vllm) as (url, requests):
        encoder = get_encoder(at(url))
        first, second = encoder.encode_pages(pages, images)
        received = [image_sent(request) for request in requests[2:]]
    for sent, arrived in zip(images, received, strict=True):
        np.testing.assert_array_equal(np.asarray(arrived), np.asarray(sent))
    assert first.vectors.shape == (3, DIMENSION)
    assert first.vectors.dtype == np.float16
    assert not np.array_equal(first.vectors, second.vectors)
    np.testing.assert_allclose(np.linalg.norm(first.vectors.astype("f4"), axis=1), 1, atol=1e-3)
    # Their positions are unknown.
    assert not first.boxes.any()
    assert first.boxes.shape == (3, 4)
    assert (first.words == -1).all()


def test_questions_are_sent_as_text() -> None:
    with answering(like_vllm) as (url, requests):
        encoder = get_encoder(at(url))
        assert requests == []
        assert encoder.name == f"vllm/{MODEL}"
        assert requests == []
        assert encoder.dimension == DIMENSION
        assert encoder.version.startswith("token-embed-1-")
        assert [request.path for request in requests] == ["/pooling", "/v1/models"]
        vectors = encoder.encode_query("where is it?")
        with pytest.raises(EmptyQuestion):
            encoder.encode_query("  ")
        with pytest.raises(InvalidOption, match="more than 4000 characters"):
            encoder.encode_query("x" * 4_001)
    assert json.loads(requests[2].body)["input"] == "where is it?"
    assert vectors.shape == (3, DIMENSION)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)


def version_of(served: Callable[[Asked], Says]) -> str:
    """Return the version of a model, from a new server and encoder."""
    with answering(served) as (url, _):
        return get_encoder(at(url)).version


def test_the_version_survives_a_restart() -> None:
    known = version_of(weights(0))
    assert version_of(weights(0)) == known
    # A different device or batch rounds differently.
    assert version_of(weights(0, noise=1e-4)) == known


@pytest.mark.parametrize(
    "other",
    [
        weights(1),
        weights(0, root="vidore/colpali-v1.2-hf"),
        weights(0, parent="google/paligemma"),
        weights(0, max_model_len=4096),
    ],
)
def test_a_different_model_under_the_same_name_has_a_different_version(
    other: Callable[[Asked], Says],
) -> None:
    assert version_of(other) != version_of(weights(0))


def test_a_different_model_under_the_same_name_encodes_documents_again(
    make_pdf: Callable[..., Path], tmp_path: Path
) -> None:
    index = Index.open(tmp_path / "index")
    path = make_pdf("two.pdf", "Sailing boats.", "Income tax.")
    versions = []
    for seed in (0, 1):
        with answering(weights(seed)) as (url, requests):
            document = index.add(path, encoder=at(url))
            assert sum(b"messages" in request.body for request in requests) == 2
        versions.append([encoder.version for encoder in document.encoders])
    assert versions[0][-1] != versions[1][-1]


def test_threads_request_the_model_once() -> None:
    with answering(like_vllm) as (url, requests), ThreadPoolExecutor(8) as pool:
        encoder = get_encoder(at(url))
        assert len(set(pool.map(lambda _: encoder.version, range(8)))) == 1
        assert len(requests) == 2


@pytest.mark.parametrize(
    "answer",
    [
        models(id="another"),
        Says(200, b"{}"),
        Says(200, b"[]"),
        Says(200, b'{"data": ["x"]}'),
        Says(200, b"<html>"),
    ],
)
def test_an_unlisted_model_is_an_error(answer: Says) -> None:
    def served(request: Asked) -> Says:
        return answer if request.path == "/v1/models" else pooled([[1.0, 0.0]])

    with (
        answering(served) as (url, _),
        pytest.raises(ServiceError, match="GET /v1/models"),
    ):
        _ = get_encoder(at(url)).version


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
    with answering(like_vllm) as (url, requests):
        assert get_encoder(at(url)).dimension == DIMENSION
    assert requests[0].headers["Authorization"] == "Bearer sesame"


NOT_FOUND = {"error": {"message": "The model `x` does not exist.", "type": "NotFoundError"}}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Says(404, json.dumps(NOT_FOUND).encode()), r"404: The model `x` does not exist"),
        (Says(404, b'{"detail": "Not Found"}'), "Not Found"),
        (Says(500, b"<html>"), "500"),
        (Says(401, b"{}"), "VISAR_TOKEN"),
        (Says(200, b"<html>"), "is it vLLM's /pooling"),
        (Says(200, b"[]"), "is it vLLM's /pooling"),
        (pooled(), "no vectors"),
        (pooled([[1.0, 2.0]], [[1.0, 2.0]]), "no vectors"),
        (pooled([[1.0, 2.0], [1.0]]), "no vectors"),
        (pooled([[1.0, "x"]]), "no vectors"),
        (pooled("AAAA"), "no vectors"),
        (pooled([0.1, 0.2]), r"shape \(2,\).*token_embed"),
        (pooled([]), "token_embed"),
        (pooled([[10**400, 0]]), "no vectors"),
        (Says(500, b'{"message": "gone \\u001b[2J away."}'), r"gone \[2J away\.$"),
    ],
)
def test_undocumented_replies_are_errors(answer: Says, message: str) -> None:
    with answering(lambda _: answer) as (url, _), pytest.raises(ServiceError, match=message):
        _ = get_encoder(at(url)).dimension


def test_the_error_for_an_unexpected_dimension_names_the_page() -> None:
    answers = scripted(pooled([[1.0, 0.0]]), pooled([[1.0, 0.0, 0.0]]))
    with (
        answering(answers) as (url, _),
        pytest.raises(ServiceError, match="3 dimensions for page 7, not 2"),
    ):
        get_encoder(at(url)).encode_pages([page_with("a", 7)], [picture(1)])


NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    "vector", [[NAN, 1.0], [INFINITE, 1.0], [None, 1.0], [1e308, 1e308], [0.0, 0.0]]
)
def test_a_page_with_invalid_vectors_is_invalid_but_others_are_not(vector: list[Any]) -> None:
    pages = [page_with("a", number) for number in (1, 2, 3)]
    good = pooled([[3.0, 4.0], [0.0, 2.0]])
    answers = scripted(good, good, pooled([[1.0, 0.0], vector]), good)
    with answering(answers) as (url, _):
        first, second, third = get_encoder(at(url)).encode_pages(pages, [picture(1)] * 3)
    assert second.invalid == "the encoder returned vectors that are zero or not finite"
    assert (second.vectors.shape, second.boxes.shape, second.words.shape) == ((0, 2), (0, 4), (0,))
    for page in (first, third):
        assert page.invalid is None
        expected = np.array([[0.6, 0.8], [0.0, 1.0]])
        np.testing.assert_allclose(page.vectors.astype(np.float64), expected, atol=1e-3)


def test_a_question_with_invalid_vectors_is_an_error() -> None:
    answers = scripted(pooled([[1.0, 0.0]]), pooled([[1.0, NAN]]))
    with (
        answering(answers) as (url, _),
        pytest.raises(ServiceError, match="'why'"),
    ):
        get_encoder(at(url)).encode_query("why")


def test_a_server_that_is_not_running_is_an_error() -> None:
    with answering(like_vllm) as (url, _):
        pass
    with pytest.raises(ServiceError, match="vllm serve"):
        _ = get_encoder(at(url)).dimension


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("vllm+http://host:8000", "MODEL"),
        ("vllm+http://host:8000/", "MODEL"),
        ("vllm+ftp://host/model", "address"),
        ("vllm+http://host/a model", "more than a host, a port and a path"),
    ],
)
def test_an_address_without_a_model_is_an_error(address: str, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        get_encoder(address)
