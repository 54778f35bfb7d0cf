"""Encoders that run on another machine, and the messages exchanged with them.

Messages are JSON, described in ``docs/http-api.md``. Client and service use the same classes, which
validate all input.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from visar.core.vectors import as_query
from visar.documents.page import Page
from visar.encoders.encoder import (
    EncoderRef,
    PageEmbedding,
    Reads,
    check_embedding,
    is_line,
    refuse_blank,
)
from visar.errors import (
    EmptyQuestion,
    InvalidOption,
    InvalidVectors,
    MalformedMessage,
    ServiceError,
)
from visar.models.loading import Lazy
from visar.network import SECONDS_PER_REQUEST, ErrorResponse, ServiceClient
from visar.text import clean_line, encodable

if TYPE_CHECKING:
    from PIL.Image import Image

VERSION: Literal[3] = 3
MAX_QUESTION = 4_000
"""Maximum number of characters: about 700 words, which take the embedded encoder a second."""
# Limits for one message: bytes, pages, and pixels of all images.
MAX_BODY = 128 * 2**20
MAX_PAGES = 64
MAX_PIXELS = 100_000_000
_START = "`visar encoders serve NAME`"
_LONGEST_DESCRIPTION = 100_000
_LONGEST_REPLY = 256 * 2**20
_BEFORE, _AFTER = b'{"pages":[', b"]}"


def _check_line(text: str) -> str:
    if not is_line(text):
        raise ValueError("must be a short line of printable text")
    return text


_Length = Annotated[int, Field(ge=0, lt=2**31)]
_Line = Annotated[str, AfterValidator(_check_line)]
Dtype = Literal["float16", "float32", "int32"]


class Message(BaseModel):
    """Base class of messages and their parts."""

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)


class Array(Message):
    """An array as text."""

    dtype: Dtype
    shape: tuple[_Length, ...] = Field(max_length=2)
    data: str
    """Little-endian bytes in row order, in base64."""

    @classmethod
    def of(cls, array: NDArray[Any], dtype: Dtype) -> Array:
        """Pack an array."""
        content = np.ascontiguousarray(array, np.dtype(dtype).newbyteorder("<"))
        return cls(
            dtype=dtype, shape=content.shape, data=base64.b64encode(content.tobytes()).decode()
        )

    def unpack(self) -> NDArray[Any]:
        """Return the array; raise MalformedMessage if the data doesn't match the shape."""
        dtype = np.dtype(self.dtype).newbyteorder("<")
        size = math.prod(self.shape) * dtype.itemsize
        # Nothing is decoded that isn't as large as declared.
        if len(self.data) == (size + 2) // 3 * 4:
            with suppress(ValueError):
                content = base64.b64decode(self.data, validate=True)
                return np.frombuffer(content, dtype).reshape(self.shape).copy()
        raise MalformedMessage(
            f"an array of {self.dtype} and shape {self.shape} must have {size} bytes in base64"
        )


class Description(Message):
    """A service's description of its encoder."""

    visar_wire: Literal[3] = VERSION
    """The version of the messages."""
    name: _Line
    version: _Line
    dimension: int = Field(gt=0, le=65_536)
    reads: Reads
    weak_match: float = Field(ge=-1, le=1)
    max_body: int = Field(gt=0, le=2**40)
    """The maximum size of a message, in bytes."""

    @property
    def encoder(self) -> EncoderRef:
        """The values that must be equal for vectors to be comparable."""
        return EncoderRef(self.name, self.version, self.dimension)


class Question(Message):
    """A question to encode."""

    question: str = Field(max_length=MAX_QUESTION)


class SentPage(Message):
    """A page to encode."""

    page: Page
    image: str | None = None
    """A PNG in base64, for encoders that read images."""


class SentPages(Message):
    """Pages to encode."""

    pages: tuple[SentPage, ...] = Field(min_length=1, max_length=MAX_PAGES)


class Reply(Message):
    """Base class of replies with vectors, which name the encoder that computed them."""

    encoder: EncoderRef


class QueryReply(Reply):
    """The vectors of a question."""

    vectors: Array


class EncodedPage(Message):
    """The vectors of a page."""

    vectors: Array
    boxes: Array
    words: Array
    invalid: _Line | None = None

    @classmethod
    def of(cls, found: PageEmbedding) -> EncodedPage:
        """Pack an embedding."""
        return cls(
            vectors=Array.of(found.vectors, "float16"),
            boxes=Array.of(found.boxes, "float32"),
            words=Array.of(found.words, "int32"),
            invalid=found.invalid,
        )

    def unpack(self) -> PageEmbedding:
        """Return the embedding, which isn't checked."""
        return PageEmbedding(
            self.vectors.unpack(), self.boxes.unpack(), self.words.unpack(), self.invalid
        )


class PagesReply(Reply):
    """The vectors of pages, in the order in which the pages were sent."""

    pages: tuple[EncodedPage, ...]


_M = TypeVar("_M", bound=Message)
_R = TypeVar("_R", bound=Reply)


def parse(kind: type[_M], message: bytes) -> _M:
    """Parse and validate a message; raise MalformedMessage if it is invalid."""
    try:
        return kind.model_validate_json(message)
    except ValidationError as error:
        mistake = error.errors(include_url=False)[0]
        where = ".".join(map(str, mistake["loc"]))
        what = str(mistake["msg"]).removeprefix("Value error, ")
        given = mistake["input"]
        if where and isinstance(given, str | int | float | None):
            what += f", not {given!r:.40}"
        raise MalformedMessage(f"{where}: {what}" if where else what) from error


def check_question(question: str) -> None:
    """Raise an error for a question that is empty or too long to send."""
    if len(question) > MAX_QUESTION:
        raise InvalidOption(f"The question has more than {MAX_QUESTION} characters: shorten it.")
    refuse_blank(question)


def as_png(image: Image) -> str:
    """Return an image as PNG in base64."""
    buffer = io.BytesIO()
    # Level 1 is several times faster, and compresses mostly white pages well enough.
    image.convert("RGB").save(buffer, "PNG", compress_level=1)
    return base64.b64encode(buffer.getbuffer()).decode()


def pack_page(page: Page, image: Image | None = None) -> bytes:
    """Pack a page for `pack_pages`, with its image for an encoder that reads images."""
    words = tuple(replace(word, text=encodable(word.text)) for word in page.words)
    sent = replace(page, words=words, label=encodable(page.label), blocks=None)
    packed = SentPage(page=sent, image=None if image is None else as_png(image))
    return packed.model_dump_json().encode()


def pack_pages(packed: Sequence[bytes]) -> bytes:
    """Join packed pages to the JSON of `SentPages`."""
    return _BEFORE + b",".join(packed) + _AFTER


class RemoteEncoder:
    """A thread-safe client for an encoder served by ``visar encoders serve``.

    It has the name and version of the served encoder, so vectors computed locally and remotely are
    interchangeable.
    """

    def __init__(self, address: str, *, timeout: float = SECONDS_PER_REQUEST) -> None:
        self._client = ServiceClient(address, start=_START, timeout=timeout)
        self._lazy_description = Lazy(self._describe)

    def __repr__(self) -> str:
        return f"RemoteEncoder({self._client.address!r})"

    @property
    def name(self) -> str:
        return self._description.name

    @property
    def version(self) -> str:
        return self._description.version

    @property
    def dimension(self) -> int:
        return self._description.dimension

    @property
    def reads(self) -> Reads:
        return self._description.reads

    @property
    def weak_match(self) -> float:
        return self._description.weak_match

    def encode_pages(self, pages: Sequence[Page], images: Sequence[Any]) -> list[PageEmbedding]:
        """Encode pages on the service, in messages as large as it accepts."""
        inputs: Sequence[Image | None] = images if self.reads == "image" else [None] * len(pages)
        embeddings: list[PageEmbedding] = []
        for batch in self._batches(zip(pages, inputs, strict=True)):
            sent = pages[len(embeddings) : len(embeddings) + len(batch)]
            with self._checked_reply():
                reply = self._post("/v1/pages", pack_pages(batch), PagesReply)
                if len(reply.pages) != len(sent):
                    raise MalformedMessage(f"{len(reply.pages)} pages instead of {len(sent)}")
                for page, packed in zip(sent, reply.pages, strict=True):
                    embeddings.append(packed.unpack())
                    check_embedding(embeddings[-1], page, self.dimension, f"page {page.number}")
        return embeddings

    def encode_query(self, question: str) -> NDArray[np.float32]:
        """Encode a question on the service."""
        check_question(question)
        request = Question(question=encodable(question)).model_dump_json().encode()
        try:
            with self._checked_reply():
                reply = self._post("/v1/query", request, QueryReply)
                return as_query(reply.vectors.unpack(), self.dimension)
        except ErrorResponse as error:
            if error.code == "empty_question":
                raise EmptyQuestion(error.reason) from error
            raise

    @property
    def _description(self) -> Description:
        return self._lazy_description.get()

    def _describe(self) -> Description:
        body = self._client.request("GET", "/v1/encoder", longest=_LONGEST_DESCRIPTION)
        with self._checked_reply(
            "; if ViSAR serves it, install the same version of visar on both sides"
        ):
            return parse(Description, body)

    def _batches(self, pages: Iterable[tuple[Page, Image | None]]) -> Iterator[list[bytes]]:
        """Yield batches of packed pages that fit into one message."""
        limit = self._description.max_body - len(_BEFORE + _AFTER)
        batch: list[bytes] = []
        size = pixels = 0
        for page, image in pages:
            packed = pack_page(page, image)
            bytes_, area = len(packed) + 1, image.width * image.height if image else 0
            if bytes_ > limit or area > MAX_PIXELS:
                raise ServiceError(
                    f"Page {page.number} is too large for the encoder at {self._client.address}, "
                    f"which accepts {self._description.max_body} bytes and {MAX_PIXELS} pixels per "
                    "message: add the document with a lower --max-megapixels."
                )
            full = size + bytes_ > limit or pixels + area > MAX_PIXELS
            if batch and (full or len(batch) == MAX_PAGES):
                yield batch
                batch, size, pixels = [], 0, 0
            batch.append(packed)
            size, pixels = size + bytes_, pixels + area
        if batch:
            yield batch

    def _post(self, path: str, body: bytes, kind: type[_R]) -> _R:
        """Send a message; return the reply, checking that it comes from the same encoder."""
        expected = self._description.encoder
        answer = self._client.request(
            "POST", path, body=body, content_type="application/json", longest=_LONGEST_REPLY
        )
        reply = parse(kind, answer)
        if reply.encoder != expected:
            raise ServiceError(
                f"The service at {self._client.address} changed its encoder from {expected} to "
                f"{clean_line(reply.encoder, 300)}. Start over, because vectors of different "
                "encoders can't be mixed."
            )
        return reply

    @contextmanager
    def _checked_reply(self, hint: str = "") -> Iterator[None]:
        try:
            yield
        except InvalidVectors as error:
            raise ServiceError(
                f"Invalid vectors from the encoder at {self._client.address}: {error}"
            ) from error
        except MalformedMessage as error:
            raise ServiceError(
                f"Invalid reply from the encoder at {self._client.address}: {error}{hint}. Start "
                f"the service with {_START}."
            ) from error
