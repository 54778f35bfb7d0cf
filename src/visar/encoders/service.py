"""Serve an encoder over HTTP; ``docs/http-api.md`` describes the requests."""

from __future__ import annotations

import asyncio
import base64
import io
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

from PIL import Image

from visar.documents.page import Page
from visar.encoders import remote
from visar.encoders.encoder import Encoder, EncoderRef
from visar.errors import EmptyQuestion, MalformedMessage, OutOfMemory
from visar.serving import MAX_REQUESTS, RequestGuard, answer_errors

# Imported after visar.serving, which reports missing packages.
from fastapi import FastAPI, Request, Response  # isort: skip

# A character takes up to 12 bytes in JSON.
_MAX_QUERY_BODY = 12 * remote.MAX_QUESTION + 1_000
_ERRORS: dict[type[Exception], tuple[int, str]] = {
    EmptyQuestion: (422, "empty_question"),
    MalformedMessage: (400, "malformed"),
    OutOfMemory: (500, "memory"),
}
_T = TypeVar("_T")


def create_encoder_app(
    encoder: Encoder, *, token: str | None = None, max_body: int = remote.MAX_BODY
) -> FastAPI:
    """Create the ASGI application that serves an encoder, one request at a time.

    Without a token, it only answers requests to localhost. ``max_body`` is the maximum size of a
    message with pages, in bytes.
    """
    who = EncoderRef.of(encoder)
    description = remote.Description(
        name=who.name,
        version=who.version,
        dimension=who.dimension,
        reads=encoder.reads,
        weak_match=float(encoder.weak_match),
        max_body=max_body,
    )
    app = FastAPI(openapi_url=None)
    app.add_middleware(
        RequestGuard,
        token=token,
        max_bytes={"application/json": _MAX_QUERY_BODY, "/v1/pages application/json": max_body},
        max_requests=MAX_REQUESTS,
    )
    answer_errors(app, _ERRORS)
    # Unpack the next request while the encoder works on the current one.
    unpacking, encoding = _DaemonExecutor(), _DaemonExecutor()

    @app.get("/v1/encoder")
    async def describe() -> remote.Description:
        return description

    @app.post("/v1/query")
    async def query(sent: remote.Question) -> Response:
        def encode() -> str:
            vectors = remote.Array.of(encoder.encode_query(sent.question), "float32")
            return remote.QueryReply(encoder=who, vectors=vectors).model_dump_json()

        return Response(await encoding.call(encode), media_type="application/json")

    @app.post("/v1/pages")
    async def pages(request: Request) -> Response:
        message = await request.body()
        pages, images = await unpacking.call(lambda: unpack_pages(message))
        if len(images) != (len(pages) if description.reads == "image" else 0):
            raise MalformedMessage(
                f"{description.name} reads {description.reads}: send images with all pages, "
                "or with none."
            )

        def encode() -> str:
            found = tuple(map(remote.EncodedPage.of, encoder.encode_pages(pages, images)))
            return remote.PagesReply(encoder=who, pages=found).model_dump_json()

        return Response(await encoding.call(encode), media_type="application/json")

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
    received = remote.parse(remote.SentPages, message).pages
    pngs = [each.image for each in received if each.image is not None]
    try:
        # Pillow only reads the headers here. A few bytes could decode to any number of pixels.
        images = [
            Image.open(io.BytesIO(base64.b64decode(png, validate=True)), formats=("PNG",))
            for png in pngs
        ]
        pixels = sum(image.width * image.height for image in images)
        if pixels <= remote.MAX_PIXELS:
            return [each.page for each in received], [image.convert("RGB") for image in images]
    # Pillow raises SyntaxError for a broken PNG.
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise MalformedMessage(f"an image can't be decoded: {error!s:.100}") from error
    raise MalformedMessage(f"the images have {pixels} pixels, more than {remote.MAX_PIXELS}")
