"""A client for page-image models that vLLM serves."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from visar.core.vectors import find_invalid
from visar.documents.page import Page
from visar.encoders.encoder import (
    EncoderRef,
    PageEmbedding,
    Reads,
    embed_page,
    page_without_vectors,
    unit_vectors,
)
from visar.encoders.remote import as_png, check_question
from visar.errors import InvalidOption, ServiceError
from visar.models.loading import Lazy
from visar.network import ServiceClient, parse_address

PROMPT = "Describe the image."
"""The text that models served by vLLM were trained to read next to a page image."""
_LONGEST_REPLY = 256 * 2**20
_PROBE = "The harbour light was repaired in April 1987 for 4,210 crowns."
_UNUSABLE = "are zero or not finite"


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
            self._embedding(self._embed(_as_chat(image), f"page {page.number}", self.dimension))
            for page, image in zip(pages, images, strict=True)
        ]

    def encode_query(self, question: str) -> NDArray[np.float32]:
        """Encode a question verbatim, without the prefixes and suffixes of some models."""
        check_question(question)
        vectors = _unit(self._embed({"input": question}, "the question", self.dimension))
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
        return embed_page(received, np.zeros((len(vectors), 4), np.float32))

    def _embed(
        self, content: dict[str, Any], what: str, dimension: int | None = None
    ) -> NDArray[np.float64]:
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
        if dimension not in (None, vectors.shape[1]):
            raise self._failed(
                f"returned {vectors.shape[1]} dimensions for {what}, not {dimension}"
            )
        return vectors

    def _request(self, method: str, path: str, values: dict[str, Any] | None = None) -> Any:
        """Send a request and return its JSON reply; None if the reply isn't JSON."""
        body = b"" if values is None else json.dumps(values).encode()
        answer = self._client.request(
            method, path, longest=_LONGEST_REPLY, body=body, content_type="application/json"
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
    url = f"data:image/png;base64,{as_png(image)}"
    image_part = {"type": "image_url", "image_url": {"url": url}}
    content = [image_part, {"type": "text", "text": PROMPT}]
    return {"messages": [{"role": "user", "content": content}]}
