"""The messages between an encoder's service and its users: safetensors, nothing else.

Arrays named ``json`` hold JSON as UTF-8 bytes: safetensors loaded from memory come without their
metadata. Receivers trust nothing: what is not as ``docs/remote-encoders.md`` says is a
`MalformedMessage`. Pages are received in `visar.encoders.service`.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from visar.documents.page import Page
from visar.encoders.protocol import PageEmbedding
from visar.errors import EmptyQuestion, InvalidOption, MalformedMessage, ServiceError

if TYPE_CHECKING:
    from PIL.Image import Image

VERSION = 2
CONTENT_TYPE = "application/x-safetensors"
MAX_QUESTION = 4_000
"""Characters: some 700 words, which the embedded encoder reads in a second."""
# Of one message: its bytes, its pages, the pixels of all its images.
MAX_BODY = 128 * 2**20
MAX_PAGES = 64
MAX_PIXELS = 100_000_000
_BYTES_PER_ARRAY = 100
_MAX_LINE = 1_000
# Of unit length up to rounding to 16 bits.
_MAX_LENGTH = 1.01
# Grids of patches end at 1 up to rounding.
_BOX_SLACK = 1e-3

Tensors = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Description:
    """What a service says of itself."""

    name: str
    version: str
    dimension: int
    reads: Literal["words", "image"]
    weak_match: float
    max_body: int
    """Bytes it accepts in one message."""

    @classmethod
    def from_json(cls, text: bytes) -> Description:
        """Read what `to_json` gave."""
        values = _object(text)
        valid: dict[str, Callable[[Any], bool]] = {
            "visar_wire": lambda value: value == VERSION,
            "name": _is_line,
            "version": _is_line,
            "dimension": lambda value: type(value) is int and 0 < value <= 65_536,
            "reads": lambda value: value in ("words", "image"),
            "weak_match": lambda value: type(value) in (int, float) and abs(value) <= 1,
            "max_body": lambda value: type(value) is int and 0 < value <= 2**40,
        }
        for key, is_valid in valid.items():
            if not is_valid(values.get(key)):
                raise MalformedMessage(
                    f"its {key} is {values.get(key)!r:.40}; if it is an encoder of ViSAR, install "
                    "the same version of visar on both sides"
                )
        return cls(**{key: values[key] for key in cls.__dataclass_fields__})

    def to_json(self) -> dict[str, Any]:
        return {"visar_wire": VERSION, **asdict(self)}

    @property
    def identity(self) -> dict[str, Any]:
        """What must be the same for vectors to be compared."""
        return {"name": self.name, "version": self.version, "dimension": self.dimension}


def check_question(question: str) -> None:
    """Refuse a question that is empty or too long before it is sent."""
    if len(question) > MAX_QUESTION:
        raise InvalidOption(f"The question has more than {MAX_QUESTION} characters: shorten it.")
    if not question.strip():
        raise EmptyQuestion("The question is empty. Ask with at least one word.")


def pack_page(page: Page, image: Image | None = None) -> Tensors:
    """A page as arrays, with its image for an encoder that reads images."""
    fields = {key: getattr(page, key) for key in Page.__slots__ if key != "blocks"}
    words = [{"text": word.text, "box": word.box, "line": word.line} for word in page.words]
    values: dict[str, Any] = {"page": {**fields, "words": words}}
    if image is None:
        return {"json": _as_array(values)}
    rgb = image if image.mode == "RGB" else image.convert("RGB")
    # Level 1: several times faster than the default, and pages are mostly white either way.
    pixels = zlib.compress(rgb.tobytes(), 1)
    values["image"] = image.size
    return {"json": _as_array(values), "pixels": np.frombuffer(pixels, np.uint8)}


def size_of(packed: Tensors) -> int:
    """Bytes a page adds to a message, at most."""
    return sum(array.nbytes + _BYTES_PER_ARRAY for array in packed.values())


def join_pages(packed: Sequence[Tensors]) -> bytes:
    """Pages as one message."""
    return _save(
        {f"{key}.{n}": array for n, page in enumerate(packed) for key, array in page.items()}
    )


def pack_embeddings(who: Description, embeddings: Sequence[PageEmbedding]) -> bytes:
    """The vectors of pages as one message."""
    values = {**who.identity, "invalid": [each.invalid for each in embeddings]}
    tensors: Tensors = {"json": _as_array(values)}
    for n, each in enumerate(embeddings):
        tensors[f"vectors.{n}"] = np.asarray(each.vectors, np.float16)
        tensors[f"boxes.{n}"] = np.asarray(each.boxes, np.float32)
        tensors[f"words.{n}"] = np.asarray(each.words, np.int32)
    return _save(tensors)


def unpack_embeddings(
    message: bytes, who: Description, pages: Sequence[Page]
) -> list[PageEmbedding]:
    """The vectors of the pages that were sent, if they are of that encoder."""
    values, tensors = _open(message, who)
    reasons = values.get("invalid")
    if not isinstance(reasons, list) or len(reasons) != len(pages):
        raise MalformedMessage(f"invalid must have {len(pages)} entries")
    return [
        _embedding(tensors, n, who.dimension, page, reason)
        for n, (page, reason) in enumerate(zip(pages, reasons, strict=True))
    ]


def pack_query(who: Description, vectors: NDArray[np.float32]) -> bytes:
    """A question's vectors as a message."""
    return _save({"json": _as_array(who.identity), "vectors": np.asarray(vectors, np.float32)})


def unpack_query(message: bytes, who: Description) -> NDArray[np.float32]:
    """A question's vectors, if they are of that encoder."""
    _, tensors = _open(message, who)
    vectors = _vectors(tensors, "vectors", np.float32, who.dimension)
    if not len(vectors):
        raise MalformedMessage("the question has no vectors")
    return vectors


def load(message: bytes) -> Tensors:
    """The arrays of a message."""
    from safetensors import SafetensorError
    from safetensors import numpy as safetensors

    try:
        return safetensors.load(message)
    # A kind of numbers that numpy does not know is a KeyError.
    except (SafetensorError, LookupError, ValueError, TypeError, OverflowError) as error:
        raise MalformedMessage(f"it is no safetensors message ({error!s:.100})") from error


def tensor(tensors: Tensors, name: str, kind: type[Any], *shape: int | None) -> NDArray[Any]:
    """The array of that name, kind and shape; None stands for any length."""
    array = tensors.get(name)
    if array is None:
        raise MalformedMessage(f"it has no {name}")
    fits = array.dtype == kind and array.ndim == len(shape)
    if not fits or any(n not in (None, m) for n, m in zip(shape, array.shape, strict=True)):
        found = f"{array.dtype} of the shape {array.shape}"
        raise MalformedMessage(f"{name} must be {kind.__name__} of the shape {shape}, not {found}")
    return array


def _open(message: bytes, who: Description) -> tuple[dict[str, Any], Tensors]:
    """The JSON and the arrays of an answer, if it comes from that encoder."""
    tensors = load(message)
    values = _object(tensor(tensors, "json", np.uint8, None).tobytes())
    found = {key: values.get(key) for key in who.identity}
    if found != who.identity:
        raise ServiceError(
            f"The service had the encoder {who.identity} and now has {found!r:.300}: begin again, "
            "vectors of both do not mix."
        )
    return values, tensors


def _embedding(tensors: Tensors, n: int, dimension: int, page: Page, invalid: Any) -> PageEmbedding:
    vectors = _vectors(tensors, f"vectors.{n}", np.float16, dimension)
    boxes = tensor(tensors, f"boxes.{n}", np.float32, len(vectors), 4)
    words = tensor(tensors, f"words.{n}", np.int32, len(vectors))
    if not ((boxes >= -_BOX_SLACK) & (boxes <= 1 + _BOX_SLACK)).all():
        raise MalformedMessage(f"boxes.{n} are not on the page")
    if words.min(initial=-1) < -1 or words.max(initial=-1) >= len(page.words):
        raise MalformedMessage(f"words.{n} speak of words that page {page.number} does not have")
    if invalid is not None and (len(vectors) or not _is_line(invalid)):
        raise MalformedMessage(f"page {page.number} is invalid with vectors, or no short reason")
    return PageEmbedding(vectors, boxes, words, invalid)


def _vectors(tensors: Tensors, name: str, kind: type[Any], dimension: int) -> NDArray[Any]:
    vectors = tensor(tensors, name, kind, None, dimension)
    if not np.isfinite(vectors).all():
        raise MalformedMessage(f"{name} are not finite")
    squares = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float32)
    if squares.max(initial=0) > _MAX_LENGTH**2:
        raise MalformedMessage(f"{name} are longer than 1")
    return vectors


def _as_array(values: dict[str, Any]) -> NDArray[np.uint8]:
    return np.frombuffer(json.dumps(values).encode(), np.uint8)


def _save(tensors: Tensors) -> bytes:
    from safetensors import numpy as safetensors

    return safetensors.save({name: np.ascontiguousarray(each) for name, each in tensors.items()})


def _object(text: bytes) -> dict[str, Any]:
    try:
        values = json.loads(text)
    # Brackets can be nested deeper than Python calls.
    except (ValueError, RecursionError) as error:
        raise MalformedMessage("it has no JSON") from error
    if not isinstance(values, dict):
        raise MalformedMessage("its JSON is no object")
    return values


def _is_line(value: object) -> bool:
    """Whether it is a short text with nothing in it that a terminal obeys."""
    return isinstance(value, str) and 0 < len(value) <= _MAX_LINE and value.isprintable()
