"""An encoder that runs elsewhere, used like one that runs here."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from visar.documents.page import Page
from visar.encoders import wire
from visar.encoders.protocol import Encoder, PageEmbedding
from visar.encoders.transport import SECONDS_PER_REQUEST, Reply, Transport, printable
from visar.encoders.vllm import VllmEncoder
from visar.errors import EmptyQuestion, InvalidOption, MalformedMessage, ServiceError
from visar.network import TOKEN_VARIABLE

if TYPE_CHECKING:
    from PIL.Image import Image

_START = "`visar encoders serve NAME`"
_LONGEST_DESCRIPTION = 100_000


def encoder_at(address: str) -> Encoder:
    """The encoder at an address: ``http(s)://…``, or ``vllm+http(s)://…/MODEL``."""
    if address.startswith("vllm+"):
        return VllmEncoder(address.removeprefix("vllm+"))
    return RemoteEncoder(address)


class RemoteEncoder:
    """The encoder that ``visar encoders serve`` runs at an address.

    It has the name and version of the encoder behind the service, so that vectors made here and
    there are the same in the index. Nothing is asked before something is needed.
    """

    name: str
    version: str
    dimension: int
    reads: Literal["words", "image"]
    weak_match: float

    def __init__(self, address: str, *, timeout: float = SECONDS_PER_REQUEST) -> None:
        self._transport = Transport(address, timeout=timeout, start=_START)

    def __repr__(self) -> str:
        return f"RemoteEncoder({self._transport.address!r})"

    def __getattr__(self, attribute: str) -> Any:
        """Ask the service who it is when that is first needed."""
        if attribute not in RemoteEncoder.__annotations__:
            raise AttributeError(f"{type(self).__name__} has no attribute {attribute!r}")
        said = self._description
        vars(self).update(
            name=said.identity.name,
            version=said.identity.version,
            dimension=said.identity.dimension,
            reads=said.reads,
            weak_match=said.weak_match,
        )
        return vars(self)[attribute]

    def encode_pages(self, pages: Sequence[Page], images: Sequence[Any]) -> list[PageEmbedding]:
        """Encode pages there, as many at once as the service takes."""
        shown: Sequence[Image | None] = images if self.reads == "image" else [None] * len(pages)
        embeddings: list[PageEmbedding] = []
        for batch in self._batches(zip(pages, shown, strict=True)):
            sent = pages[len(embeddings) : len(embeddings) + len(batch)]
            body = self._post("/v1/pages", wire.join_pages(batch))
            try:
                identity, received = wire.unpack_embeddings(body, sent)
            except MalformedMessage as error:
                self._misunderstood(error)
            self._check(identity)
            embeddings += received
        return embeddings

    def encode_query(self, question: str) -> NDArray[np.float32]:
        """Encode a question there."""
        if len(question) > wire.MAX_QUESTION:
            raise InvalidOption(f"The question has more than {wire.MAX_QUESTION} characters.")
        if not question:
            raise EmptyQuestion("The question is empty. Ask with at least one word.")
        body = self._post("/v1/query", wire.pack_question(question))
        try:
            identity, vectors = wire.unpack_query(body)
        except MalformedMessage as error:
            self._misunderstood(error)
        self._check(identity)
        return vectors

    @functools.cached_property
    def _description(self) -> wire.Description:
        reply = self._transport.request(
            "GET", "/v1/encoder", longest=_LONGEST_DESCRIPTION, started=False
        )
        self._check_status(reply)
        try:
            return wire.Description.from_json(reply.body)
        except MalformedMessage as error:
            self._misunderstood(error)

    def _batches(
        self, pages: Iterator[tuple[Page, Image | None]]
    ) -> Iterator[list[wire.PackedPage]]:
        """Pages in messages that are not too long for the service."""
        room = self._description.max_body - wire.OVERHEAD
        batch: list[wire.PackedPage] = []
        size = pixels = 0
        for page, image in pages:
            packed = wire.pack_page(page, image)
            area = image.width * image.height if image else 0
            if packed.size > room or area > wire.MAX_PIXELS:
                raise ServiceError(
                    f"Page {page.number} is too large for the encoder at "
                    f"{self._transport.address}, which takes {room} bytes and {wire.MAX_PIXELS} "
                    "pixels at once: add the document with a lower --max-megapixels."
                )
            full = size + packed.size > room or pixels + area > wire.MAX_PIXELS
            if batch and (full or len(batch) == wire.MAX_PAGES):
                yield batch
                batch, size, pixels = [], 0, 0
            batch.append(packed)
            size, pixels = size + packed.size, pixels + area
        if batch:
            yield batch

    def _post(self, path: str, message: bytes) -> bytes:
        _ = self._description  # who it is, and whether it runs, comes first
        reply = self._transport.request(
            "POST", path, body=message, content_type=wire.CONTENT_TYPE, longest=wire.MAX_BODY
        )
        self._check_status(reply)
        return reply.body

    def _check(self, identity: wire.Identity) -> None:
        """Refuse vectors of another encoder than the one that was asked at first."""
        if identity != self._description.identity:
            raise ServiceError(
                f"The encoder at {self._transport.address} was {self._description.identity} and "
                f"is now {identity}: begin again, vectors of both do not mix."
            )

    def _check_status(self, reply: Reply) -> None:
        if reply.status == 200:
            return
        address = self._transport.address
        code, message = _mistake(reply.body)
        if code == "empty_question":
            raise EmptyQuestion(message)
        if reply.status in (401, 403):
            raise ServiceError(
                f"The encoder at {address} does not let you in: set {TOKEN_VARIABLE} in the "
                "environment to the token of the service."
            )
        if code is None:
            self._misunderstood(f"it answered {reply.status}")
        raise ServiceError(f"The encoder at {address} says ({reply.status}): {message}")

    def _misunderstood(self, why: object) -> NoReturn:
        raise ServiceError(
            f"What answers at {self._transport.address} is no encoder this program understands: "
            f"{why}. {_START} runs one."
        )


def _mistake(body: bytes) -> tuple[str | None, str]:
    """The code and the message of a service's refusal; None if it is not from a service of ours."""
    try:
        error = json.loads(body)["error"]
        return str(error["code"]), printable(error["message"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return None, ""
