"""An encoder that runs elsewhere, used like one that runs here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from visar.documents.page import Page
from visar.encoders import wire
from visar.encoders.protocol import Encoder, PageEmbedding
from visar.encoders.vllm import VllmEncoder
from visar.errors import EmptyQuestion, MalformedMessage, ServiceError
from visar.models.loading import Lazy
from visar.network import SECONDS_PER_REQUEST, Refused, ServiceClient

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
    """The encoder that ``visar encoders serve`` runs at an address, for any number of threads.

    It has the name and version of the encoder behind the service, so that vectors made here and
    there are the same in the index. The service is asked for them once, when they are needed.
    """

    def __init__(self, address: str, *, timeout: float = SECONDS_PER_REQUEST) -> None:
        self._client = ServiceClient(address, start=_START, timeout=timeout)
        self._description = Lazy(self._describe)

    def __repr__(self) -> str:
        return f"RemoteEncoder({self._client.address!r})"

    @property
    def name(self) -> str:
        return self._described.name

    @property
    def version(self) -> str:
        return self._described.version

    @property
    def dimension(self) -> int:
        return self._described.dimension

    @property
    def reads(self) -> Literal["words", "image"]:
        return self._described.reads

    @property
    def weak_match(self) -> float:
        return self._described.weak_match

    def encode_pages(self, pages: Sequence[Page], images: Sequence[Any]) -> list[PageEmbedding]:
        """Encode pages there, as many at once as the service takes."""
        shown: Sequence[Image | None] = images if self.reads == "image" else [None] * len(pages)
        embeddings: list[PageEmbedding] = []
        for batch in self._batches(zip(pages, shown, strict=True)):
            sent = pages[len(embeddings) : len(embeddings) + len(batch)]
            body = self._post("/v1/pages", wire.join_pages(batch), wire.CONTENT_TYPE)
            try:
                embeddings += wire.unpack_embeddings(body, self._described, sent)
            except MalformedMessage as error:
                self._misunderstood(error)
        return embeddings

    def encode_query(self, question: str) -> NDArray[np.float32]:
        """Encode a question there."""
        wire.check_question(question)
        asked = json.dumps({"question": question}).encode()
        try:
            body = self._post("/v1/query", asked, "application/json")
            return wire.unpack_query(body, self._described)
        except Refused as error:
            if error.code == "empty_question":
                raise EmptyQuestion(error.reason) from error
            raise
        except MalformedMessage as error:
            self._misunderstood(error)

    @property
    def _described(self) -> wire.Description:
        return self._description.get()

    def _describe(self) -> wire.Description:
        body = self._client.request("GET", "/v1/encoder", longest=_LONGEST_DESCRIPTION)
        try:
            return wire.Description.from_json(body)
        except MalformedMessage as error:
            self._misunderstood(error)

    def _batches(self, pages: Iterable[tuple[Page, Image | None]]) -> Iterator[list[wire.Tensors]]:
        """Pages in messages that are not too long for the service."""
        limit = self._described.max_body
        batch: list[wire.Tensors] = []
        size = pixels = 0
        for page, image in pages:
            packed = wire.pack_page(page, image)
            bytes_, area = wire.size_of(packed), image.width * image.height if image else 0
            if bytes_ > limit or area > wire.MAX_PIXELS:
                raise ServiceError(
                    f"Page {page.number} is too large for the encoder at {self._client.address}, "
                    f"which takes {limit} bytes and {wire.MAX_PIXELS} pixels at once: add the "
                    "document with a lower --max-megapixels."
                )
            full = size + bytes_ > limit or pixels + area > wire.MAX_PIXELS
            if batch and (full or len(batch) == wire.MAX_PAGES):
                yield batch
                batch, size, pixels = [], 0, 0
            batch.append(packed)
            size, pixels = size + bytes_, pixels + area
        if batch:
            yield batch

    def _post(self, path: str, body: bytes, content_type: str) -> bytes:
        _ = self._described  # who it is, and whether it runs, comes first
        return self._client.request(
            "POST", path, body=body, content_type=content_type, longest=wire.MAX_BODY
        )

    def _misunderstood(self, why: object) -> NoReturn:
        raise ServiceError(
            f"What answers at {self._client.address} is no encoder this program understands: "
            f"{why}. {_START} runs one."
        )
