"""Multi-vector models that vLLM serves: ``vllm+http://host:port/MODEL``.

Written from vLLM's documentation of ``POST /pooling`` and tried on a server that answers as it
says. A page goes as an image in a chat message, a question as plain text; a vector for every token
comes back. Which of them stands for which part of the page vLLM does not say, so all boxes are
zero: pages are found as always, heat is not shown.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Sequence
from typing import Any, Literal
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from visar.documents.page import Page
from visar.encoders.protocol import PageEmbedding, page_without_vectors
from visar.encoders.transport import (
    SECONDS_PER_REQUEST,
    Reply,
    Transport,
    parse_address,
    printable,
)
from visar.errors import EmptyQuestion, InvalidOption, ServiceError
from visar.network import TOKEN_VARIABLE

# What the models of this kind were trained to read beside every page.
PROMPT = "Describe the image."
_LONGEST_ANSWER = 256 * 2**20
# The dimension is known from the first vectors; any text has some.
_ANY_TEXT = "page"
_UNUSABLE = "are zero or no numbers"


class VllmEncoder:
    """A model that vLLM serves for the task ``token_embed``, reading images of pages."""

    name: str
    version = "token-embed-1"
    dimension: int
    reads: Literal["words", "image"] = "image"
    # How well its questions match in general is not known: no match is called weak.
    weak_match = 0.0

    def __init__(self, address: str, *, timeout: float = SECONDS_PER_REQUEST) -> None:
        parts = parse_address(address)
        self._model = unquote(parts.path.strip("/"))
        if not self._model:
            raise InvalidOption(
                f"vllm+{address} names no model: write vllm+http://host:port/MODEL as it is served."
            )
        self._transport = Transport(
            f"{parts.scheme}://{parts.netloc}",
            timeout=timeout,
            start="`vllm serve MODEL --runner pooling`",
        )
        self.name = f"vllm/{self._model}"

    def __repr__(self) -> str:
        return f"VllmEncoder({self._transport.address!r}, {self._model!r})"

    def __getattr__(self, attribute: str) -> Any:
        """Ask for some vectors when their dimension is first needed."""
        if attribute != "dimension":
            raise AttributeError(f"{type(self).__name__} has no attribute {attribute!r}")
        vectors = self._embed({"input": _ANY_TEXT}, "a word", started=False)
        self.dimension = vectors.shape[1]
        return self.dimension

    def encode_pages(self, pages: Sequence[Page], images: Sequence[Any]) -> list[PageEmbedding]:
        """Encode the image of each page; where on the page its vectors stand is not known."""
        return [
            self._placeless(self._checked(_as_chat(image), f"page {page.number}"))
            for page, image in zip(pages, images, strict=True)
        ]

    def encode_query(self, question: str) -> NDArray[np.float32]:
        """Encode a question as it was asked, without what some models want before and after."""
        if not question.strip():
            raise EmptyQuestion("The question is empty. Ask with at least one word.")
        vectors = _unit(self._checked({"input": question}, "the question"))
        if vectors is None:
            raise self._failed(f"gave vectors for the question {question[:80]!r} that {_UNUSABLE}")
        return vectors

    def _placeless(self, received: NDArray[np.float64]) -> PageEmbedding:
        vectors = _unit(received)
        if vectors is None:
            return page_without_vectors(
                self.dimension, f"the encoder gave vectors that {_UNUSABLE}"
            )
        count = len(vectors)
        return PageEmbedding(
            vectors.astype(np.float16),
            np.zeros((count, 4), np.float32),
            np.full(count, -1, np.int32),
        )

    def _checked(self, content: dict[str, Any], what: str) -> NDArray[np.float64]:
        dimension = self.dimension
        vectors = self._embed(content, what)
        if vectors.shape[1] != dimension:
            raise self._failed(
                f"gave {vectors.shape[1]} dimensions for {what} and {dimension} before"
            )
        return vectors

    def _embed(
        self, content: dict[str, Any], what: str, *, started: bool = True
    ) -> NDArray[np.float64]:
        request = {"model": self._model, "task": "token_embed", "encoding_format": "float"}
        reply = self._transport.request(
            "POST",
            "/pooling",
            body=json.dumps(request | content).encode(),
            content_type="application/json",
            longest=_LONGEST_ANSWER,
            started=started,
        )
        if reply.status != 200:
            raise self._refused(reply)
        try:
            (item,) = json.loads(reply.body)["data"]
            vectors = np.array(item["data"], np.float64)
        except (ValueError, LookupError, TypeError, OverflowError, RecursionError) as error:
            raise self._failed(f"gave no vectors for {what}: is it vLLM's /pooling?") from error
        if vectors.ndim != 2 or not vectors.size:
            raise self._failed(
                f"gave numbers of the shape {vectors.shape} for {what}, not a vector for every "
                "token: serve a multi-vector model, with --pooler-config.task token_embed if it "
                "can do more"
            )
        return vectors

    def _refused(self, reply: Reply) -> ServiceError:
        if reply.status in (401, 403):
            return self._failed(f"wants its API key: set {TOKEN_VARIABLE} in the environment to it")
        return self._failed(f"says ({reply.status}): {_reason(reply.body)}")

    def _failed(self, what: str) -> ServiceError:
        return ServiceError(f"{self._model} at {self._transport.address} {what}.")


def _unit(vectors: NDArray[np.float64]) -> NDArray[np.float32] | None:
    """Vectors of length 1; None where some have none."""
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not (np.isfinite(lengths).all() and lengths.all()):
        return None
    return np.asarray(vectors / lengths, np.float32)


def _as_chat(image: Any) -> dict[str, Any]:
    """A page as a user's message."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    url = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
    content = [
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": PROMPT},
    ]
    return {"messages": [{"role": "user", "content": content}]}


def _reason(body: bytes) -> str:
    """What vLLM says went wrong; its versions differ in where."""
    try:
        said = json.loads(body)
        if isinstance(said.get("error"), dict):
            said = said["error"]
        return printable(said.get("message") or said.get("detail") or "no reason").rstrip(".")
    except (ValueError, AttributeError, RecursionError):
        return "no reason"
