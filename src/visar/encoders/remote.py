"""Encoders that run on another machine, and the messages exchanged with them.

Messages are safetensors files, described in ``docs/http-api.md``. Arrays named ``json`` hold
JSON, because safetensors loaded from memory have no metadata. Both sides validate all input.
Replies are validated as the encoders of this machine are, without pydantic, which clients of a
service don't need to install.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from visar.core.vectors import as_query, find_invalid
from visar.documents.page import Page
from visar.encoders.encoder import (
    IS_VALID,
    Encoder,
    EncoderRef,
    PageEmbedding,
    Reads,
    check_embedding,
    find_invalid_value,
    is_line,
    page_without_vectors,
    refuse_blank,
    unit_vectors,
)
from visar.errors import (
    EmptyQuestion,
    InvalidOption,
    InvalidVectors,
    MalformedMessage,
    ServiceError,
)
from visar.models.loading import Lazy
from visar.network import SECONDS_PER_REQUEST, ErrorResponse, ServiceClient, parse_address

if TYPE_CHECKING:
    from PIL.Image import Image

VERSION = 2
CONTENT_TYPE = "application/x-safetensors"
MAX_QUESTION = 4_000
"""Maximum number of characters: about 700 words, which take the embedded encoder a second."""
# Limits for one message: bytes, pages, and pixels of all images.
MAX_BODY = 128 * 2**20
MAX_PAGES = 64
MAX_PIXELS = 100_000_000
PROMPT = "Describe the image."
"""The text that models served by vLLM were trained to read next to a page image."""
_BYTES_PER_ARRAY = 100
_START = "`visar encoders serve NAME`"
_LONGEST_DESCRIPTION = 100_000
_LONGEST_VLLM = 256 * 2**20
_PROBE = "The harbour light was repaired in April 1987 for 4,210 crowns."
_UNUSABLE = "are zero or not finite"

Tensors = dict[str, NDArray[Any]]

_IS_VALID: dict[str, Callable[[Any], bool]] = {
    "visar_wire": lambda value: value == VERSION,
    **IS_VALID,
    "max_body": lambda value: type(value) is int and 0 < value <= 2**40,
}


@dataclass(frozen=True, slots=True)
class Description:
    """A service's description of its encoder."""

    name: str
    version: str
    dimension: int
    reads: Reads
    weak_match: float
    max_body: int
    """The maximum size of a message, in bytes."""

    @classmethod
    def from_json(cls, text: bytes) -> Description:
        """Parse the JSON of `to_json`."""
        values = _object(text)
        if mistake := find_invalid_value(values, _IS_VALID):
            raise MalformedMessage(
                f"{mistake}; if ViSAR serves the encoder, install the same version of visar on "
                "both sides"
            )
        return cls(**{key: values[key] for key in cls.__dataclass_fields__})

    def to_json(self) -> dict[str, Any]:
        return {"visar_wire": VERSION, **asdict(self)}

    @property
    def identity(self) -> dict[str, Any]:
        """The values that must be equal for vectors to be comparable."""
        return asdict(EncoderRef(self.name, self.version, self.dimension))


def check_question(question: str) -> None:
    """Raise an error for a question that is empty or too long to send."""
    if len(question) > MAX_QUESTION:
        raise InvalidOption(f"The question has more than {MAX_QUESTION} characters: shorten it.")
    refuse_blank(question)


def pack_page(page: Page, image: Image | None = None) -> Tensors:
    """Pack a page into arrays, with its image for an encoder that reads images."""
    values: dict[str, Any] = {"page": asdict(replace(page, blocks=None))}
    if image is None:
        return {"json": json_array(values)}
    # Level 1 is several times faster, and compresses mostly white pages well enough.
    pixels = zlib.compress(image.convert("RGB").tobytes(), 1)
    values["image"] = image.size
    return {"json": json_array(values), "pixels": np.frombuffer(pixels, np.uint8)}


def size_of(packed: Tensors) -> int:
    """Return the maximum number of bytes that a packed page adds to a message."""
    return sum(array.nbytes + _BYTES_PER_ARRAY for array in packed.values())


def pack_pages(packed: Sequence[Tensors]) -> bytes:
    """Pack pages into a message."""
    return save(
        {f"{key}.{n}": array for n, page in enumerate(packed) for key, array in page.items()}
    )


def unpack_embeddings(
    message: bytes, description: Description, pages: Sequence[Page]
) -> list[PageEmbedding]:
    """Unpack and validate the embeddings of the pages that were sent."""
    values, tensors = _open(message, description)
    reasons = values.get("invalid")
    if not isinstance(reasons, list) or len(reasons) != len(pages):
        raise MalformedMessage(f"invalid must have {len(pages)} entries, one for each page")
    found = []
    for n, (page, reason) in enumerate(zip(pages, reasons, strict=True)):
        if reason is not None and not is_line(reason):
            raise MalformedMessage(f"the reason of invalid page {page.number} must be a short line")
        arrays: dict[str, Any] = {
            name: tensors.get(f"{name}.{n}") for name in ("vectors", "boxes", "words")
        }
        found.append(PageEmbedding(**arrays, invalid=reason))
        check_embedding(found[-1], page, description.dimension, f"page {page.number}")
    return found


def unpack_query(message: bytes, description: Description) -> NDArray[np.float32]:
    """Unpack and validate the vectors of a question."""
    _, tensors = _open(message, description)
    with np.errstate(over="ignore"):  # numbers beyond float32 become infinite, which is an error
        return as_query(tensors.get("vectors"), description.dimension)


def load(message: bytes) -> Tensors:
    """Return the arrays of a message."""
    from safetensors import SafetensorError
    from safetensors import numpy as safetensors

    try:
        return safetensors.load(message)
    # KeyError: a number type that numpy doesn't support.
    except (SafetensorError, LookupError, ValueError, TypeError, OverflowError) as error:
        raise MalformedMessage(f"not a safetensors message ({error!s:.100})") from error


def bytes_of(tensors: Tensors, name: str) -> bytes:
    """Return the content of an array of bytes."""
    array = tensors.get(name)
    if array is None or array.dtype != np.uint8 or array.ndim != 1:
        raise MalformedMessage(f"{name} must be an array of bytes")
    return array.tobytes()


def _open(message: bytes, description: Description) -> tuple[dict[str, Any], Tensors]:
    """Return the JSON and arrays of a reply, checking that it comes from the same encoder."""
    tensors = load(message)
    values = _object(bytes_of(tensors, "json"))
    found = {key: values.get(key) for key in description.identity}
    if found != description.identity:
        raise ServiceError(
            f"The service changed its encoder from {description.identity} to {found!r:.300}. Start "
            "over, because vectors of different encoders can't be mixed."
        )
    return values, tensors


def json_array(values: dict[str, Any]) -> NDArray[np.uint8]:
    """Encode JSON as an array of bytes."""
    return np.frombuffer(json.dumps(values).encode(), np.uint8)


def save(tensors: Tensors) -> bytes:
    """Save arrays as a message."""
    from safetensors import numpy as safetensors

    return safetensors.save({name: np.ascontiguousarray(each) for name, each in tensors.items()})


def _object(text: bytes) -> dict[str, Any]:
    try:
        values = json.loads(text)
    # RecursionError: the JSON is nested too deeply.
    except (ValueError, RecursionError) as error:
        raise MalformedMessage("invalid JSON") from error
    if not isinstance(values, dict):
        raise MalformedMessage("the JSON isn't an object")
    return values


def encoder_at(address: str) -> Encoder:
    """Return the encoder at ``http(s)://…`` or ``vllm+http(s)://…/MODEL``."""
    if address.startswith("vllm+"):
        return VllmEncoder(address.removeprefix("vllm+"))
    return RemoteEncoder(address)


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
            body = self._post("/v1/pages", pack_pages(batch), CONTENT_TYPE)
            with self._checked_reply():
                embeddings += unpack_embeddings(body, self._description, sent)
        return embeddings

    def encode_query(self, question: str) -> NDArray[np.float32]:
        """Encode a question on the service."""
        check_question(question)
        request = json.dumps({"question": question}).encode()
        try:
            body = self._post("/v1/query", request, "application/json")
        except ErrorResponse as error:
            if error.code == "empty_question":
                raise EmptyQuestion(error.reason) from error
            raise
        with self._checked_reply():
            return unpack_query(body, self._description)

    @property
    def _description(self) -> Description:
        return self._lazy_description.get()

    def _describe(self) -> Description:
        body = self._client.request("GET", "/v1/encoder", longest=_LONGEST_DESCRIPTION)
        with self._checked_reply():
            return Description.from_json(body)

    def _batches(self, pages: Iterable[tuple[Page, Image | None]]) -> Iterator[list[Tensors]]:
        """Yield batches of packed pages that fit into one message."""
        limit = self._description.max_body
        batch: list[Tensors] = []
        size = pixels = 0
        for page, image in pages:
            packed = pack_page(page, image)
            bytes_, area = size_of(packed), image.width * image.height if image else 0
            if bytes_ > limit or area > MAX_PIXELS:
                raise ServiceError(
                    f"Page {page.number} is too large for the encoder at {self._client.address}, "
                    f"which accepts {limit} bytes and {MAX_PIXELS} pixels per message: add the "
                    "document with a lower --max-megapixels."
                )
            full = size + bytes_ > limit or pixels + area > MAX_PIXELS
            if batch and (full or len(batch) == MAX_PAGES):
                yield batch
                batch, size, pixels = [], 0, 0
            batch.append(packed)
            size, pixels = size + bytes_, pixels + area
        if batch:
            yield batch

    def _post(self, path: str, body: bytes, kind: str) -> bytes:
        _ = self._description  # first check that the service runs a known encoder
        return self._client.request("POST", path, body=body, content_type=kind, longest=MAX_BODY)

    @contextlib.contextmanager
    def _checked_reply(self) -> Iterator[None]:
        try:
            yield
        except InvalidVectors as error:
            raise ServiceError(
                f"Invalid vectors from the encoder at {self._client.address}: {error}"
            ) from error
        except MalformedMessage as error:
            raise ServiceError(
                f"Invalid reply from the encoder at {self._client.address}: {error}. Start the "
                f"service with {_START}."
            ) from error


class VllmEncoder:
    """A model for page images, served by vLLM for the task ``token_embed``.

    Written from vLLM's documentation of ``POST /pooling`` and ``GET /v1/models``, and tested with a
    server that responds as documented. Pages are sent as images in a chat message. All boxes are
    zero, because vLLM doesn't say which part of the page a vector represents. The version
    distinguishes models served under the same name.
    """

    reads: Reads = "image"
    # Not measured, so no match counts as weak.
    weak_match = 0.0

    def __init__(self, address: str) -> None:
        parts = parse_address(address)
        self._served_as = unquote(parts.path.strip("/"))
        if not self._served_as:
            raise InvalidOption(
                f"No model in vllm+{address}: use the form vllm+http://host:port/MODEL, with the "
                "name the model is served as."
            )
        server = f"{parts.scheme}://{parts.netloc}"
        self._client = ServiceClient(server, start="`vllm serve MODEL --runner pooling`")
        self._model = Lazy(self._describe)

    def __repr__(self) -> str:
        return f"VllmEncoder({self._client.address!r}, {self._served_as!r})"

    @property
    def name(self) -> str:
        return f"vllm/{self._served_as}"

    @property
    def dimension(self) -> int:
        return self._model.get().dimension

    @property
    def version(self) -> str:
        return self._model.get().version

    def encode_pages(self, pages: Sequence[Page], images: Sequence[Any]) -> list[PageEmbedding]:
        """Encode the image of each page; its vectors have no boxes."""
        return [
            self._embedding(self._checked(_as_chat(image), f"page {page.number}"))
            for page, image in zip(pages, images, strict=True)
        ]

    def encode_query(self, question: str) -> NDArray[np.float32]:
        """Encode a question verbatim, without the prefixes and suffixes of some models."""
        check_question(question)
        vectors = _unit(self._checked({"input": question}, "the question"))
        if vectors is None:
            raise self._failed(
                f"returned vectors for the question {question[:80]!r} that {_UNUSABLE}"
            )
        return vectors

    def _describe(self) -> EncoderRef:
        vectors = self._embed({"input": _PROBE}, "a sentence")
        facts = json.dumps([self._card(), vectors.shape[1], _signature(vectors)])
        digest = sha256(facts.encode()).hexdigest()[:12]
        return EncoderRef(self.name, f"token-embed-1-{digest}", vectors.shape[1])

    def _card(self) -> list[Any]:
        """Return the parts of the server's model description that don't change on restart."""
        answer = self._request("GET", "/v1/models")
        try:
            card = {card["id"]: card for card in answer["data"]}[self._served_as]
            return [card.get(key) for key in ("id", "root", "parent", "max_model_len")]
        except (LookupError, TypeError, AttributeError) as error:
            raise self._failed("isn't listed by GET /v1/models") from error

    def _embedding(self, received: NDArray[np.float64]) -> PageEmbedding:
        vectors = _unit(received)
        if vectors is None:
            reason = f"the encoder returned vectors that {_UNUSABLE}"
            return page_without_vectors(self.dimension, reason)
        boxes, words = np.zeros((len(vectors), 4), np.float32), np.full(len(vectors), -1, np.int32)
        return PageEmbedding(vectors.astype(np.float16), boxes, words)

    def _checked(self, content: dict[str, Any], what: str) -> NDArray[np.float64]:
        expected = self.dimension
        vectors = self._embed(content, what)
        if vectors.shape[1] != expected:
            raise self._failed(f"returned {vectors.shape[1]} dimensions for {what}, not {expected}")
        return vectors

    def _embed(self, content: dict[str, Any], what: str) -> NDArray[np.float64]:
        options = {"model": self._served_as, "task": "token_embed", "encoding_format": "float"}
        answer = self._request("POST", "/pooling", options | content)
        try:
            (item,) = answer["data"]
            vectors = np.array(item["data"], np.float64)
        except (ValueError, LookupError, TypeError, OverflowError) as error:
            raise self._failed(f"returned no vectors for {what}: is it vLLM's /pooling?") from error
        if vectors.ndim != 2 or not vectors.size:
            raise self._failed(
                f"returned numbers of shape {vectors.shape} for {what}, not one vector per token: "
                "serve a multi-vector model, with --pooler-config.task token_embed if it supports "
                "several tasks"
            )
        return vectors

    def _request(self, method: str, path: str, values: dict[str, Any] | None = None) -> Any:
        """Send a request and return its JSON reply; None if the reply isn't JSON."""
        body = b"" if values is None else json.dumps(values).encode()
        answer = self._client.request(
            method, path, longest=_LONGEST_VLLM, body=body, content_type="application/json"
        )
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(answer)
        return None

    def _failed(self, what: str) -> ServiceError:
        return ServiceError(f"{self._served_as} at {self._client.address} {what}.")


def _signature(vectors: NDArray[np.float64]) -> list[list[int]]:
    """Return the dimension of each vector's largest component, and its sign.

    They change with the model's weights, but rarely with rounding on other hardware or batches.
    """
    longest = np.abs(np.nan_to_num(vectors)).argmax(axis=1)
    signs = np.signbit(vectors[np.arange(len(vectors)), longest])
    return [longest.tolist(), signs.astype(int).tolist()]


def _unit(vectors: NDArray[np.float64]) -> NDArray[np.float32] | None:
    """Scale vectors to length 1; return None if a vector is zero or not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = unit_vectors(vectors)
    return scaled if find_invalid(scaled) is None else None


def _as_chat(image: Any) -> dict[str, Any]:
    """Return a page image as a user's chat message."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    url = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
    image_part = {"type": "image_url", "image_url": {"url": url}}
    content = [image_part, {"type": "text", "text": PROMPT}]
    return {"messages": [{"role": "user", "content": content}]}
