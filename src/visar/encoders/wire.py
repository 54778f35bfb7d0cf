"""What crosses between an encoder's service and its users: JSON and raw arrays, nothing else.

A message is 12 bytes (``VISR``, the format's version and the header's length, both unsigned 32-bit
little-endian), a JSON object, and a payload of arrays one after the other, little-endian, whose
lengths follow from the header. ``docs/remote-encoders.md`` tells every field.

Whoever receives a message trusts nothing in it: what is not exactly as described is a
:class:`~visar.errors.MalformedMessage`.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, get_args

import numpy as np
from numpy.typing import DTypeLike, NDArray

from visar.documents.page import Box, Page, TextSource, Word
from visar.encoders.protocol import Encoder, PageEmbedding
from visar.errors import MalformedMessage

if TYPE_CHECKING:
    from PIL.Image import Image

VERSION = 1
CONTENT_TYPE = "application/vnd.visar"
MAX_BODY = 128 * 2**20
"""Bytes of a message."""
MAX_PAGES = 64
"""Of one message."""
MAX_PIXELS = 100_000_000
"""Of all images of one message."""
MAX_QUESTION = 100_000
"""Characters."""

_MAGIC = b"VISR"
_PREFIX = struct.Struct("<4sII")
_PAGES_BEGIN, _PAGES_END = b'{"kind": "pages", "pages": [', b"]}"
OVERHEAD = _PREFIX.size + len(_PAGES_BEGIN) + len(_PAGES_END)
"""Bytes of a message of pages beside its pages."""
_MAX_DIMENSION = 65_536
# Without pages a header is short: JSON takes many times its length in memory.
_MAX_HEADER = 2 * 2**20
_MAX_NAME = 1_000
_MAX_REASON = 1_000
# Of unit length up to rounding to 16 bits.
_MAX_LENGTH = 1.01
_VECTORS = np.dtype("<f2")
_QUERY = np.dtype("<f4")
_BOXES = np.dtype("<f4")
_INDICES = np.dtype("<i4")
# Grids of patches end at 1 up to rounding.
_BOX_SLACK = 1e-3

Reads: TypeAlias = Literal["words", "image"]
_Scalar = TypeVar("_Scalar", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose vectors they are: what of an encoder must be the same for vectors to be compared."""

    name: str
    version: str
    dimension: int

    @classmethod
    def of(cls, encoder: Encoder) -> Identity:
        return cls(encoder.name, encoder.version, encoder.dimension)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Identity:
        """Read what :meth:`to_json` gave."""
        return cls(
            _label(values, "name"),
            _label(values, "version"),
            _whole(values, "dimension", 1, _MAX_DIMENSION),
        )

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "version": self.version, "dimension": self.dimension}

    def __str__(self) -> str:
        return f"{self.name} {self.version} ({self.dimension} dimensions)"


@dataclass(frozen=True, slots=True)
class Description:
    """What a service says of itself: its encoder, and how much it takes at once."""

    identity: Identity
    reads: Reads
    weak_match: float
    max_body: int
    """Bytes it accepts in one message."""

    @classmethod
    def from_json(cls, text: bytes) -> Description:
        """Read what :meth:`to_json` gave, of this version of the format or another."""
        values = _object(text)
        version = values.get("visar_wire")
        if version is None:
            raise MalformedMessage("it does not describe an encoder of ViSAR")
        if version != VERSION:
            raise MalformedMessage(
                f"it speaks version {version!r:.20} of the format, and this program version "
                f"{VERSION}: install the same version of visar on both sides"
            )
        reads: Reads = _one_of(values, "reads", ("words", "image"))
        return cls(
            Identity.from_json(values),
            reads,
            _number(values, "weak_match"),
            _whole(values, "max_body", 1, 2**40),
        )

    def to_json(self) -> bytes:
        return _dump(
            {
                "visar_wire": VERSION,
                **self.identity.to_json(),
                "reads": self.reads,
                "weak_match": self.weak_match,
                "max_body": self.max_body,
            }
        )


@dataclass(frozen=True, slots=True)
class PackedPage:
    """A page ready to be sent, alone or with others."""

    header: bytes
    payload: bytes

    @property
    def size(self) -> int:
        """What it adds to a message, in bytes."""
        return len(self.header) + len(b", ") + len(self.payload)


def pack_page(page: Page, image: Image | None = None) -> PackedPage:
    """A page with its words, and with its image for an encoder that reads images."""
    boxes = np.array([word.box for word in page.words], _BOXES)
    lines = np.array([word.line for word in page.words], _INDICES)
    header: dict[str, Any] = {
        "number": page.number,
        "width": page.width,
        "height": page.height,
        "rotation": page.rotation,
        "text_source": page.text_source,
        "words": [word.text for word in page.words],
    }
    payload = boxes.tobytes() + lines.tobytes()
    if image is not None:
        # Level 1: several times faster than the default, and pages are mostly white either way.
        pixels = zlib.compress(image.convert("RGB").tobytes(), 1)
        header["image"] = {"width": image.width, "height": image.height, "bytes": len(pixels)}
        payload += pixels
    return PackedPage(_dump(header), payload)


def join_pages(pages: Sequence[PackedPage]) -> bytes:
    """Pages as one message."""
    header = _PAGES_BEGIN + b", ".join(page.header for page in pages) + _PAGES_END
    return _frame(header, *(page.payload for page in pages))


def unpack_pages(message: bytes) -> tuple[list[Page], list[Image]]:
    """The pages of a message, and the image of each if they have any."""
    header, payload = _open(message, "pages", MAX_BODY)
    entries = _list(header, "pages", MAX_PAGES)
    if not entries:
        raise MalformedMessage("it has no pages")
    _check_pixels(entries)
    pages, images = [], []
    for entry in entries:
        pages.append(_page(entry, payload))
        if "image" in entry:
            images.append(_image(entry["image"], payload))
    payload.end()
    if images and len(images) < len(pages):
        raise MalformedMessage("some pages have an image and some have none")
    return pages, images


def pack_embeddings(identity: Identity, embeddings: Sequence[PageEmbedding]) -> bytes:
    """Vectors of pages with their places as one message."""
    for embedding in embeddings:
        _check_embedding(embedding, identity.dimension)
    header = {
        "kind": "embeddings",
        **identity.to_json(),
        "counts": [len(embedding.vectors) for embedding in embeddings],
        "invalid": [embedding.invalid for embedding in embeddings],
    }
    return _frame(
        _dump(header),
        *(_bytes(embedding.vectors, _VECTORS) for embedding in embeddings),
        *(_bytes(embedding.boxes, _BOXES) for embedding in embeddings),
        *(_bytes(embedding.words, _INDICES) for embedding in embeddings),
    )


def unpack_embeddings(
    message: bytes, pages: Sequence[Page]
) -> tuple[Identity, list[PageEmbedding]]:
    """The vectors of the pages that were sent, and whose they are."""
    header, payload = _open(message, "embeddings")
    identity = Identity.from_json(header)
    counts = _list(header, "counts", MAX_PAGES)
    if len(counts) != len(pages):
        raise MalformedMessage(f"it has vectors for {len(counts)} pages, not for {len(pages)}")
    rows = [_whole({"counts": count}, "counts", 0, MAX_BODY) for count in counts]
    reasons = _reasons(header, len(pages))
    total, ends = sum(rows), np.cumsum(rows).tolist()
    vectors = payload.array(_VECTORS, np.float16, total, identity.dimension)
    boxes = payload.array(_BOXES, np.float32, total, 4)
    words = payload.array(_INDICES, np.int32, total)
    payload.end()
    embeddings = []
    for count, end, reason in zip(rows, ends, reasons, strict=True):
        part = slice(end - count, end)
        embeddings.append(PageEmbedding(vectors[part], boxes[part], words[part], reason))
    for embedding, page in zip(embeddings, pages, strict=True):
        _check_embedding(embedding, identity.dimension)
        if embedding.words.max(initial=-1) >= len(page.words):
            raise MalformedMessage(f"it speaks of words that page {page.number} does not have")
    return identity, embeddings


def pack_question(question: str) -> bytes:
    """A question as a message."""
    return _frame(_dump({"kind": "question", "question": question}))


def unpack_question(message: bytes) -> str:
    """The question of a message."""
    header, payload = _open(message, "question")
    payload.end()
    question = _text(header, "question")
    if len(question) > MAX_QUESTION:
        raise MalformedMessage(f"the question has more than {MAX_QUESTION} characters")
    return question


def pack_query(identity: Identity, vectors: NDArray[np.float32]) -> bytes:
    """A question's vectors as a message."""
    _check_vectors(vectors, identity.dimension)
    header = {"kind": "query", **identity.to_json(), "count": len(vectors)}
    return _frame(_dump(header), _bytes(vectors, _QUERY))


def unpack_query(message: bytes) -> tuple[Identity, NDArray[np.float32]]:
    """A question's vectors, and whose they are."""
    header, payload = _open(message, "query")
    identity = Identity.from_json(header)
    count = _whole(header, "count", 1, MAX_BODY)
    vectors = payload.array(_QUERY, np.float32, count, identity.dimension)
    payload.end()
    _check_vectors(vectors, identity.dimension)
    return identity, vectors


class _Payload:
    """The bytes after the header, taken from front to back."""

    def __init__(self, data: memoryview) -> None:
        self._rest = data

    def take(self, count: int) -> memoryview:
        if count > len(self._rest):
            raise MalformedMessage(f"it ends {count - len(self._rest)} bytes too early")
        taken, self._rest = self._rest[:count], self._rest[count:]
        return taken

    def array(self, sent: np.dtype[Any], kept: type[_Scalar], *shape: int) -> NDArray[_Scalar]:
        values = np.frombuffer(self.take(math.prod(shape) * sent.itemsize), sent)
        return values.reshape(shape).astype(kept)

    def end(self) -> None:
        if len(self._rest):
            raise MalformedMessage(f"it has {len(self._rest)} bytes too many")


def _frame(header: bytes, *payload: bytes) -> bytes:
    return b"".join((_PREFIX.pack(_MAGIC, VERSION, len(header)), header, *payload))


def _open(
    message: bytes, kind: str, longest_header: int = _MAX_HEADER
) -> tuple[dict[str, Any], _Payload]:
    """The header of a message of that kind, and its payload still to be read."""
    if len(message) > MAX_BODY:
        raise MalformedMessage(f"it has {len(message)} bytes, more than {MAX_BODY}")
    if len(message) < _PREFIX.size or not message.startswith(_MAGIC):
        raise MalformedMessage("it is no message of ViSAR")
    _, version, length = _PREFIX.unpack_from(message)
    if version != VERSION:
        raise MalformedMessage(f"it has version {version} of the format, not {VERSION}")
    if length > longest_header:
        raise MalformedMessage(f"its header has {length} bytes, more than {longest_header}")
    payload = _Payload(memoryview(message)[_PREFIX.size :])
    header = _object(bytes(payload.take(length)))
    if header.get("kind") != kind:
        raise MalformedMessage(f"it is of the kind {header.get('kind')!r:.40}, not {kind!r}")
    return header, payload


def _reasons(header: dict[str, Any], pages: int) -> list[str | None]:
    """Why a page has no vectors, for each of them."""
    reasons = _list(header, "invalid", MAX_PAGES)
    if len(reasons) != pages or not all(isinstance(why, str | None) for why in reasons):
        raise MalformedMessage(f"invalid must say of each of the {pages} pages why, or null")
    if any(why is not None and not _is_line(why, _MAX_REASON) for why in reasons):
        raise MalformedMessage(f"invalid must give lines of at most {_MAX_REASON} characters")
    return reasons


def _page(entry: dict[str, Any], payload: _Payload) -> Page:
    texts = _list(entry, "words", MAX_BODY)
    if not all(isinstance(text, str) for text in texts):
        raise MalformedMessage("a word is no text")
    boxes = payload.array(_BOXES, np.float32, len(texts), 4)
    lines = payload.array(_INDICES, np.int32, len(texts))
    if not np.isfinite(boxes).all():
        raise MalformedMessage("the place of a word is not finite")
    source: TextSource = _one_of(entry, "text_source", get_args(TextSource))
    return Page(
        number=_whole(entry, "number", 1, 2**31),
        width=_positive(entry, "width"),
        height=_positive(entry, "height"),
        rotation=_whole(entry, "rotation", -(2**31), 2**31),
        words=tuple(_words(texts, boxes, lines)),
        text_source=source,
    )


def _words(
    texts: list[str], boxes: NDArray[np.float32], lines: NDArray[np.int32]
) -> Iterator[Word]:
    for text, corners, line in zip(texts, boxes.tolist(), lines.tolist(), strict=True):
        box: Box = tuple(corners)
        yield Word(text, box, line)


def _check_pixels(entries: Sequence[Any]) -> None:
    """Refuse before anything is unpacked: a few bytes can stand for any number of pixels."""
    pixels = 0
    for entry in entries:
        if not isinstance(entry, dict):
            raise MalformedMessage("a page is no object")
        if "image" in entry:
            width, height = _size(entry["image"])
            pixels += width * height
    if pixels > MAX_PIXELS:
        raise MalformedMessage(f"its images have {pixels} pixels, more than {MAX_PIXELS}")


def _size(entry: Any) -> tuple[int, int]:
    if not isinstance(entry, dict):
        raise MalformedMessage("an image is no object")
    return _whole(entry, "width", 1, MAX_PIXELS), _whole(entry, "height", 1, MAX_PIXELS)


def _image(entry: Any, payload: _Payload) -> Image:
    from PIL import Image

    size = _size(entry)
    wanted = size[0] * size[1] * len("RGB")
    packed = payload.take(_whole(entry, "bytes", 0, MAX_BODY))
    unpacker = zlib.decompressobj()
    try:
        # One byte more than there may be, so that too many are noticed and not unpacked.
        pixels = unpacker.decompress(packed, wanted + 1)
    except zlib.error as error:
        raise MalformedMessage(f"an image cannot be unpacked: {error}") from error
    if len(pixels) != wanted or not unpacker.eof or unpacker.unused_data:
        raise MalformedMessage(f"an image is not of the size {size[0]} × {size[1]} it says")
    return Image.frombytes("RGB", size, pixels)


def _check_embedding(embedding: PageEmbedding, dimension: int) -> None:
    rows = len(embedding.vectors)
    _check_vectors(embedding.vectors, dimension)
    if embedding.boxes.shape != (rows, 4) or embedding.words.shape != (rows,):
        raise MalformedMessage(
            f"{rows} vectors have places of the shape {embedding.boxes.shape} and words of the "
            f"shape {embedding.words.shape}"
        )
    inside = (embedding.boxes >= -_BOX_SLACK) & (embedding.boxes <= 1 + _BOX_SLACK)
    if not inside.all():
        raise MalformedMessage("the place of a vector is not on the page")
    if embedding.invalid is not None and rows:
        raise MalformedMessage("a page that is invalid has vectors")
    if embedding.words.min(initial=-1) < -1:
        raise MalformedMessage("the word of a vector is below -1")


def _check_vectors(vectors: NDArray[Any], dimension: int) -> None:
    if vectors.ndim != 2 or vectors.shape[1] != dimension:
        raise MalformedMessage(f"vectors have the shape {vectors.shape}, not (…, {dimension})")
    if not np.isfinite(vectors).all():
        raise MalformedMessage("vectors are not finite")
    squares = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float32)
    if squares.max(initial=0) > _MAX_LENGTH**2:
        raise MalformedMessage("vectors are longer than 1")


def _bytes(values: NDArray[Any], sent: DTypeLike) -> bytes:
    return np.ascontiguousarray(values, sent).tobytes()


def _dump(values: dict[str, Any]) -> bytes:
    return json.dumps(values, allow_nan=False).encode()


def _object(text: bytes) -> dict[str, Any]:
    try:
        values = json.loads(text)
    # Brackets can be nested deeper than Python calls.
    except (ValueError, RecursionError) as error:
        raise MalformedMessage("its header is no JSON") from error
    if not isinstance(values, dict):
        raise MalformedMessage("its header is no JSON object")
    return values


def _text(values: dict[str, Any], key: str) -> str:
    value = values.get(key)
    if not isinstance(value, str) or not value:
        raise MalformedMessage(f"{key} must be text, not {value!r:.40}")
    return value


def _label(values: dict[str, Any], key: str) -> str:
    """Text that is shown to people, and kept."""
    value = _text(values, key)
    if not _is_line(value, _MAX_NAME):
        raise MalformedMessage(f"{key} must be a line of at most {_MAX_NAME} characters")
    return value


def _is_line(text: str, longest: int) -> bool:
    """Whether a text is not too long, and has nothing in it that a terminal obeys."""
    return len(text) <= longest and text.isprintable()


def _one_of(values: dict[str, Any], key: str, choices: Sequence[Any]) -> Any:
    value = values.get(key)
    if value not in choices:
        raise MalformedMessage(f"{key} must be one of {choices}, not {value!r:.40}")
    return value


def _list(values: dict[str, Any], key: str, longest: int) -> list[Any]:
    value = values.get(key)
    if not isinstance(value, list) or len(value) > longest:
        raise MalformedMessage(f"{key} must be a list of at most {longest}")
    return value


def _whole(values: dict[str, Any], key: str, lowest: int, highest: int) -> int:
    value = values.get(key)
    if type(value) is not int or not lowest <= value <= highest:
        raise MalformedMessage(f"{key} must be {lowest} to {highest}, not {value!r:.40}")
    return value


def _number(values: dict[str, Any], key: str) -> float:
    value: Any = values.get(key)
    try:
        number = float(value) if type(value) in (int, float) else math.nan
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise MalformedMessage(f"{key} must be a finite number, not {value!r:.40}")
    return number


def _positive(values: dict[str, Any], key: str) -> float:
    value = _number(values, key)
    if value <= 0:
        raise MalformedMessage(f"{key} must be above 0, not {value}")
    return value
