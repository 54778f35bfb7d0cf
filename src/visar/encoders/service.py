"""Serve an encoder over HTTP; ``docs/http-api.md`` describes the requests."""

from __future__ import annotations

import asyncio
import threading
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from visar.documents.page import Page
from visar.encoders import remote
from visar.encoders.encoder import Encoder, PageEmbedding
from visar.errors import EmptyQuestion, MalformedMessage, OutOfMemory
from visar.serving import MAX_REQUESTS, RequestGuard, answer_errors, first_mistake

# Imported after visar.serving, which reports missing packages.
from fastapi import FastAPI, Request, Response  # isort: skip
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError  # isort: skip

# A character takes up to 12 bytes in JSON.
_MAX_QUERY_BODY = 12 * remote.MAX_QUESTION + 1_000
_ERRORS: dict[type[Exception], tuple[int, str]] = {
    EmptyQuestion: (422, "empty_question"),
    MalformedMessage: (400, "malformed"),
    OutOfMemory: (500, "memory"),
}
_T = TypeVar("_T")


class _Question(BaseModel):
    question: str = Field(max_length=remote.MAX_QUESTION)


class _SentPage(BaseModel):
    model_config = ConfigDict(allow_inf_nan=False, strict=True)

    page: Page
    image: tuple[PositiveInt, PositiveInt] | None = None


def create_encoder_app(
    encoder: Encoder, *, token: str | None = None, max_body: int = remote.MAX_BODY
) -> FastAPI:
    """Create the ASGI application that serves an encoder, one request at a time.

    Without a token, it only answers requests to localhost. ``max_body`` is the maximum size of a
    message with pages, in bytes.
    """
    description = remote.Description(
        encoder.name,
        encoder.version,
        encoder.dimension,
        encoder.reads,
        encoder.weak_match,
        max_body,
    )
    app = FastAPI(openapi_url=None)
    app.add_middleware(
        RequestGuard,
        token=token,
        max_bytes={"application/json": _MAX_QUERY_BODY, remote.CONTENT_TYPE: max_body},
        max_requests=MAX_REQUESTS,
    )
    answer_errors(app, _ERRORS)
    # Unpack the next request while the encoder works on the current one.
    unpacking, encoding = _DaemonExecutor(), _DaemonExecutor()

    @app.get("/v1/encoder")
    async def describe() -> dict[str, Any]:
        return description.to_json()

    @app.post("/v1/query")
    async def query(body: _Question) -> Response:
        def encode() -> bytes:
            return pack_query(description, encoder.encode_query(body.question))

        return Response(await encoding.call(encode), media_type=remote.CONTENT_TYPE)

    @app.post("/v1/pages")
    async def pages(request: Request) -> Response:
        message = await request.body()
        pages, images = await unpacking.call(lambda: unpack_pages(message))
        if len(images) != (len(pages) if description.reads == "image" else 0):
            raise MalformedMessage(
                f"{description.name} reads {description.reads}: send images with all pages, "
                "or with none."
            )

        def encode() -> bytes:
            return pack_embeddings(description, encoder.encode_pages(pages, images))

        return Response(await encoding.call(encode), media_type=remote.CONTENT_TYPE)

    return app


class _DaemonExecutor:
    """An executor with a single daemon thread.

    ThreadPoolExecutor would keep the process alive until a running model finishes.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    async def call(self, function: Callable[[], _T]) -> _T:
        """Run a function and return its result, or raise its exception."""
        future: Future[_T] = Future()
        future.set_running_or_notify_cancel()
        self._calls.put((future, function))
        return await asyncio.wrap_future(future)

    def _work(self) -> None:
        while True:
            future, function = self._calls.get()
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)
            del future, function  # free their memory while waiting for the next call


def unpack_pages(message: bytes) -> tuple[list[Page], list[Image.Image]]:
    """Unpack the pages and images of a message of `visar.encoders.remote.pack_pages`."""
    tensors = remote.load(message)
    count = sum(name.startswith("json.") for name in tensors)
    if not 0 < count <= remote.MAX_PAGES:
        raise MalformedMessage(f"the message has {count} pages, not 1 to {remote.MAX_PAGES}")
    try:
        received = [
            _SentPage.model_validate_json(remote.bytes_of(tensors, f"json.{n}"))
            for n in range(count)
        ]
    except ValidationError as error:
        raise MalformedMessage(first_mistake(error.errors())) from error
    # Check before unpacking, because a few bytes can unpack to any number of pixels.
    pixels = sum(each.image[0] * each.image[1] for each in received if each.image)
    if pixels > remote.MAX_PIXELS:
        raise MalformedMessage(f"the images have {pixels} pixels, more than {remote.MAX_PIXELS}")
    return [each.page for each in received], [
        _image(each.image, remote.bytes_of(tensors, f"pixels.{n}"))
        for n, each in enumerate(received)
        if each.image
    ]


def _image(size: tuple[int, int], packed: bytes) -> Image.Image:
    expected = size[0] * size[1] * len("RGB")
    unpacker = zlib.decompressobj()
    try:
        # Unpack one extra byte to detect oversized data without unpacking all of it.
        pixels = unpacker.decompress(packed, expected + 1)
    except zlib.error as error:
        raise MalformedMessage(f"an image can't be unpacked: {error}") from error
    if len(pixels) != expected or not unpacker.eof or unpacker.unused_data:
        raise MalformedMessage(f"an image doesn't have its declared size {size[0]} × {size[1]}")
    return Image.frombytes("RGB", size, pixels)


def pack_embeddings(description: remote.Description, embeddings: Sequence[PageEmbedding]) -> bytes:
    """Pack the vectors of pages into a message."""
    values = {**description.identity, "invalid": [each.invalid for each in embeddings]}
    tensors: remote.Tensors = {"json": remote.json_array(values)}
    for n, each in enumerate(embeddings):
        tensors[f"vectors.{n}"] = np.asarray(each.vectors, np.float16)
        tensors[f"boxes.{n}"] = np.asarray(each.boxes, np.float32)
        tensors[f"words.{n}"] = np.asarray(each.words, np.int32)
    return remote.save(tensors)


def pack_query(description: remote.Description, vectors: NDArray[np.float32]) -> bytes:
    """Pack the vectors of a question into a message."""
    return remote.save(
        {
            "json": remote.json_array(description.identity),
            "vectors": np.asarray(vectors, np.float32),
        }
    )
