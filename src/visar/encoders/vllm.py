"""Multi-vector models that vLLM serves: ``vllm+http://host:port/MODEL``.

Written from vLLM's documentation of ``POST /pooling`` and ``GET /v1/models`` and tried on a server
that answers as it says. A page goes as an image in a chat message, a question as plain text; a
vector for every token comes back. Which part of the page it stands for vLLM does not say, so all
boxes are zero: pages are found as always, heat is not shown.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from visar.documents.page import Page
from visar.encoders.protocol import PageEmbedding, page_without_vectors
from visar.encoders.wire import check_question
from visar.errors import InvalidOption, ServiceError
from visar.models.loading import Lazy
from visar.network import ServiceClient, parse_address

PROMPT = "Describe the image."
"""What the models of this kind were trained to read beside every page."""
_PROBE = "The harbour light was repaired in April 1987 for 4,210 crowns."
_LONGEST_ANSWER = 256 * 2**20
_UNUSABLE = "are zero or no numbers"


class _Model(NamedTuple):
    dimension: int
    version: str


class VllmEncoder:
    """A model that vLLM serves for the task ``token_embed``, reading images of pages.

    Its dimension and version are asked for once, when they are needed. The version tells models
    apart that are served under one name.
    """

    reads: Literal["words", "image"] = "image"
    # How well its questions match in general is not known: no match is called weak.
    weak_match = 0.0

    def __init__(self, address: str) -> None:
        parts = parse_address(address)
        self._served_as = unquote(parts.path.strip("/"))
        if not self._served_as:
            raise InvalidOption(
                f"vllm+{address} names no model: write vllm+http://host:port/MODEL as it is served."
            )
        self._client = ServiceClient(
            f"{parts.scheme}://{parts.netloc}",
            start="`vllm serve MODEL --runner pooling`",
        )
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
        """Encode the image of each page; where on the page its vectors stand is not known."""
        return [
            self._placeless(self._checked(_as_chat(image), f"page {page.number}"))
            for page, image in zip(pages, images, strict=True)
        ]

    def encode_query(self, question: str) -> NDArray[np.float32]:
        """Encode a question as it was asked, without what some models want before and after."""
        check_question(question)
        vectors = _unit(self._checked({"input": question}, "the question"))
        if vectors is None:
            raise self._failed(f"gave vectors for the question {question[:80]!r} that {_UNUSABLE}")
        return vectors

    def _describe(self) -> _Model:
        vectors = self._embed({"input": _PROBE}, "a sentence")
        facts = [self._card(), vectors.shape[1], _signature(vectors)]
        digest = sha256(json.dumps(facts).encode()).hexdigest()[:12]
        return _Model(vectors.shape[1], f"token-embed-1-{digest}")

    def _card(self) -> list[Any]:
        """What of the server's description of the model stays the same when it starts anew."""
        answer = self._request("GET", "/v1/models")
        try:
            cards = {card["id"]: card for card in answer["data"]}
            card = cards[self._served_as]
            return [card.get(key) for key in ("id", "root", "parent", "max_model_len")]
        except (LookupError, TypeError, AttributeError) as error:
            raise self._failed("is not among the models of GET /v1/models") from error

    def _placeless(self, received: NDArray[np.float64]) -> PageEmbedding:
        vectors = _unit(received)
        if vectors is None:
            return page_without_vectors(
                self.dimension, f"the encoder gave vectors that {_UNUSABLE}"
            )
        return PageEmbedding(
            vectors.astype(np.float16),
            np.zeros((len(vectors), 4), np.float32),
            np.full(len(vectors), -1, np.int32),
        )

    def _checked(self, content: dict[str, Any], what: str) -> NDArray[np.float64]:
        dimension = self.dimension
        vectors = self._embed(content, what)
        if vectors.shape[1] != dimension:
            raise self._failed(
                f"gave {vectors.shape[1]} dimensions for {what} and {dimension} before"
            )
        return vectors

    def _embed(self, content: dict[str, Any], what: str) -> NDArray[np.float64]:
        asked = {"model": self._served_as, "task": "token_embed", "encoding_format": "float"}
        answer = self._request("POST", "/pooling", asked | content)
        try:
            (item,) = answer["data"]
            vectors = np.array(item["data"], np.float64)
        except (ValueError, LookupError, TypeError, OverflowError) as error:
            raise self._failed(f"gave no vectors for {what}: is it vLLM's /pooling?") from error
        if vectors.ndim != 2 or not vectors.size:
            raise self._failed(
                f"gave numbers of the shape {vectors.shape} for {what}, not a vector for every "
                "token: serve a multi-vector model, with --pooler-config.task token_embed if it "
                "can do more"
            )
        return vectors

    def _request(self, method: str, path: str, values: dict[str, Any] | None = None) -> Any:
        """The JSON of an answer; None if it is none."""
        body = b"" if values is None else json.dumps(values).encode()
        answer = self._client.request(
            method, path, longest=_LONGEST_ANSWER, body=body, content_type="application/json"
        )
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(answer)
        return None

    def _failed(self, what: str) -> ServiceError:
        return ServiceError(f"{self._served_as} at {self._client.address} {what}.")


def _signature(vectors: NDArray[np.float64]) -> list[list[int]]:
    """The dimension in which each vector is longest, and its sign.

    Other weights change some of them; rounding on other hardware, or in other batches, hardly ever.
    """
    longest = np.abs(np.nan_to_num(vectors)).argmax(axis=1)
    signs = np.signbit(vectors[np.arange(len(vectors)), longest])
    return [longest.tolist(), signs.astype(int).tolist()]


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
