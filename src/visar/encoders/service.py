"""Any encoder as an HTTP service; ``docs/remote-encoders.md`` has its three requests."""

from __future__ import annotations

import asyncio
import threading
import zlib
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

import numpy as np
from PIL import Image

from visar.documents.page import Page
from visar.encoders import wire
from visar.encoders.protocol import Encoder
from visar.errors import EmptyQuestion, MalformedMessage, OutOfMemory
from visar.serving import MAX_REQUESTS, RequestGuard, answer_errors, first_mistake

# After visar.serving, which says what to install if they are missing.
from fastapi import FastAPI, Request, Response  # isort: skip
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError  # isort: skip

# A character takes up to 12 bytes in JSON.
_MAX_QUERY_BODY = 12 * wire.MAX_QUESTION + 1_000
_ERRORS: dict[type[Exception], tuple[int, str]] = {
    EmptyQuestion: (422, "empty_question"),
    MalformedMessage: (400, "malformed"),
    OutOfMemory: (500, "memory"),
}
_T = TypeVar("_T")


class _Question(BaseModel):
    question: str = Field(max_length=wire.MAX_QUESTION)


class _SentPage(BaseModel):
    model_config = ConfigDict(allow_inf_nan=False, strict=True)

    page: Page
    image: tuple[PositiveInt, PositiveInt] | None = None


def create_encoder_app(
    encoder: Encoder, *, token: str | None = None, max_body: int = wire.MAX_BODY
) -> FastAPI:
    """Make the ASGI application that serves an encoder, one request at a time.

    Without a token only requests to localhost are answered. A message of pages may have
    ``max_body`` bytes.
    """
    who = wire.Description(
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
        max_bytes={"application/json": _MAX_QUERY_BODY, wire.CONTENT_TYPE: max_body},
        max_requests=MAX_REQUESTS,
    )
    answer_errors(app, _ERRORS)
    # The encoder works on one request while the pages of the next are unpacked.
    unpacking, encoding = _Worker(), _Worker()

    @app.get("/v1/encoder")
    async def describe() -> dict[str, Any]:
        return who.to_json()

    @app.post("/v1/query")
    async def query(asked: _Question) -> Response:
        def encode() -> bytes:
            return wire.pack_query(who, encoder.encode_query(asked.question))

        return Response(await encoding.call(encode), media_type=wire.CONTENT_TYPE)

    @app.post("/v1/pages")
    async def pages(request: Request) -> Response:
        message = await request.body()
        pages, images = await unpacking.call(lambda: unpack_pages(message))
        if len(images) != (len(pages) if who.reads == "image" else 0):
            raise MalformedMessage(
                f"{who.name} reads {who.reads}: send images with all pages, or with none."
            )

        def encode() -> bytes:
            return wire.pack_embeddings(who, encoder.encode_pages(pages, images))

        return Response(await encoding.call(encode), media_type=wire.CONTENT_TYPE)

    return app


class _Worker:
    """A daemon thread that calls functions one after the other.

    The threads of the usual executors would keep the process from ending while a model works.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    async def call(self, function: Callable[[], _T]) -> _T:
        """Return the function's result, or raise its exception."""
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
            del future, function  # free their memory while there is nothing to do


def unpack_pages(message: bytes) -> tuple[list[Page], list[Image.Image]]:
    """The pages of a message of `visar.encoders.wire.join_pages`, and their images."""
    tensors = wire.load(message)
    count = sum(name.startswith("json.") for name in tensors)
    if not 0 < count <= wire.MAX_PAGES:
        raise MalformedMessage(f"it has {count} pages, not 1 to {wire.MAX_PAGES}")
    texts = [wire.tensor(tensors, f"json.{n}", np.uint8, None).tobytes() for n in range(count)]
    try:
        sent = [_SentPage.model_validate_json(text) for text in texts]
    except ValidationError as error:
        raise MalformedMessage(first_mistake(error.errors())) from error
    # Before anything is unpacked: a few bytes can stand for any number of pixels.
    pixels = sum(each.image[0] * each.image[1] for each in sent if each.image)
    if pixels > wire.MAX_PIXELS:
        raise MalformedMessage(f"its images have {pixels} pixels, more than {wire.MAX_PIXELS}")
    return [each.page for each in sent], [
        _image(each.image, wire.tensor(tensors, f"pixels.{n}", np.uint8, None).tobytes())
        for n, each in enumerate(sent)
        if each.image
    ]


def _image(size: tuple[int, int], packed: bytes) -> Image.Image:
    wanted = size[0] * size[1] * len("RGB")
    unpacker = zlib.decompressobj()
    try:
        # One byte more than there may be, so that too many are noticed and not unpacked.
        pixels = unpacker.decompress(packed, wanted + 1)
    except zlib.error as error:
        raise MalformedMessage(f"an image cannot be unpacked: {error}") from error
    if len(pixels) != wanted or not unpacker.eof or unpacker.unused_data:
        raise MalformedMessage(f"an image is not of the size {size[0]} × {size[1]} it says")
    return Image.frombytes("RGB", size, pixels)
