"""ColBERTv2: the words of a page as vectors of its tokens, through sentence-transformers."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from visar.documents.page import Page
from visar.encoders.protocol import PageEmbedding
from visar.encoders.vectors import page_without_vectors, unit_vectors
from visar.errors import CheckpointError, EmptyQuestion, InvalidVectors, MissingExtra
from visar.models.checkpoints import Checkpoint, find_checkpoint, refuse_other_kinds
from visar.models.devices import Batches, check_device, choose_device, first_batch
from visar.models.loading import explained, import_torchvision, quietly

ARCHITECTURE = "HF_ColBERT"
DIMENSION = 128
_RECIPE = "1"
# Marks around the words of a document: its beginning, that it is a document, its end.
_MARKS = 3


def is_colbert(checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint is one of ColBERT's, as its authors publish them."""
    return ARCHITECTURE in checkpoint.architectures


class _EncodedText(NamedTuple):
    tokens: NDArray[np.int64]
    """With the marks around them, and padding."""
    is_scored: NDArray[np.bool_]
    """Neither padding nor punctuation, which ColBERT leaves out."""
    vectors: NDArray[np.float32]


class ColbertEncoder:
    """A checkpoint of ColBERT; its model is loaded when it is first used."""

    reads: Literal["words", "image"] = "words"
    dimension = DIMENSION
    # Measured for no checkpoint: every question counts as answered.
    weak_match = 0.0

    def __init__(
        self,
        name: str,
        source: str | Checkpoint | None = None,
        *,
        expected: str = ARCHITECTURE,
        revision: str | None = None,
        device: str = "auto",
    ) -> None:
        """Name what to use; ``source`` says where it is, if that is not a folder or hub name."""
        check_device(device)
        self.name = name
        self._source = source or name
        self._expected = expected
        self._revision = revision
        self._device = device

    @functools.cached_property
    def version(self) -> str:
        """The checkpoint and the way it is used."""
        return f"{self._checkpoint.fingerprint}-{_RECIPE}"

    def fetch(self) -> None:
        """Download the checkpoint, if it is not on this machine."""
        self._checkpoint.folder()

    def encode_pages(
        self,
        pages: Sequence[Page],
        images: Sequence[Any] = (),  # noqa: ARG002 - for the encoders that look
    ) -> list[PageEmbedding]:
        """Encode the words of each page, each token with the place of its word."""
        return [self._encode(page) for page in pages]

    def encode_query(self, question: str) -> NDArray[np.float32]:
        """Encode a question, filled up with masks as ColBERT's training has it."""
        if not question.strip():
            raise EmptyQuestion("The question is empty. Ask with at least one word.")
        with quietly():
            vectors = self._model.encode_query(
                [question], convert_to_numpy=True, show_progress_bar=False
            )[0]
        if not np.isfinite(vectors).all():
            raise InvalidVectors(f"{self.name} makes no numbers of the question {question[:80]!r}.")
        return unit_vectors(vectors)

    def _encode(self, page: Page) -> PageEmbedding:
        pieces = self._pieces(page)
        parts = list(_cut(pieces, self._longest))
        if not parts:
            return page_without_vectors(DIMENSION)
        texts = [" ".join(page.words[i].text for i in part) for part in parts]
        encoded = self._batches.run(texts, self._encode_texts)
        vectors = np.concatenate([text.vectors[text.is_scored] for text in encoded])
        if not np.isfinite(vectors).all():
            return page_without_vectors(DIMENSION, "the encoder gave values that are no numbers")
        words = np.concatenate(
            [
                self._words_of(part, pieces, text.tokens)[text.is_scored]
                for part, text in zip(parts, encoded, strict=True)
            ]
        )
        # The last box, at -1, is that of the marks, which have no place.
        boxes = np.array([*(word.box for word in page.words), (0, 0, 0, 0)], np.float32)
        return PageEmbedding(unit_vectors(vectors).astype(np.float16), boxes[words], words)

    def _pieces(self, page: Page) -> list[list[int]]:
        """The tokens of each word; what the model has no room for in one word is cut off."""
        if not page.words:
            return []
        texts = [word.text for word in page.words]
        with quietly():
            ids = self._model.tokenizer(texts, add_special_tokens=False)["input_ids"]
        return [list(tokens)[: self._longest] for tokens in ids]

    def _encode_texts(self, texts: Sequence[str]) -> list[_EncodedText]:
        with quietly():
            outputs = self._model.encode_document(
                list(texts), output_value=None, batch_size=len(texts), show_progress_bar=False
            )
        return [
            _EncodedText(
                output["input_ids"].cpu().numpy(),
                output["attention_mask"].bool().cpu().numpy(),
                output["token_embeddings"].float().cpu().numpy(),
            )
            for output in outputs
        ]

    def _words_of(
        self, part: Sequence[int], pieces: Sequence[Sequence[int]], tokens: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        """The word each token belongs to, -1 for marks and padding."""
        owners = list(chain.from_iterable([word] * len(pieces[word]) for word in part))
        expected = list(chain.from_iterable(pieces[word] for word in part))
        first = _MARKS - 1
        if tokens[first : first + len(owners)].tolist() != expected:
            raise CheckpointError(
                f"{self.name} reads words beside each other as other tokens than alone: its "
                "tokenizer is not ColBERT's, and its vectors cannot be placed on the page."
            )
        words = np.full(len(tokens), -1, np.int32)
        words[first : first + len(owners)] = owners
        return words

    @functools.cached_property
    def _checkpoint(self) -> Checkpoint:
        found = find_checkpoint(self._source, self._revision)
        refuse_other_kinds(found, self._expected, "colbert-ir/colbertv2.0")
        return found

    @functools.cached_property
    def _model(self) -> Any:
        if importlib.util.find_spec("torchvision") is not None:
            import_torchvision()  # transformers imports it wherever it is installed
        try:
            from sentence_transformers import MultiVectorEncoder
        except ImportError as error:
            raise MissingExtra("ColBERT", "colbert") from error
        folder = self._checkpoint.folder()
        with quietly(), explained(self._checkpoint):
            return MultiVectorEncoder(
                folder,
                device=choose_device(self._device),
                local_files_only=True,
                # Small enough for full precision everywhere.
                model_kwargs={"dtype": "float32", "use_safetensors": True},
            )

    @functools.cached_property
    def _longest(self) -> int:
        """How many tokens of words a document may have."""
        return int(self._model[0].document_length) - _MARKS

    @functools.cached_property
    def _batches(self) -> Batches:
        return Batches(8 * first_batch(choose_device(self._device)))


def _cut(pieces: Sequence[Sequence[int]], longest: int) -> Iterator[list[int]]:
    """Cut a page's words, given the tokens of each, into parts the model reads at once.

    >>> list(_cut([[1, 2], [3], [], [4, 5]], longest=3))
    [[0, 1], [3]]
    """
    part: list[int] = []
    length = 0
    for word, tokens in enumerate(pieces):
        if length + len(tokens) > longest:
            yield part
            part, length = [], 0
        if tokens:
            part.append(word)
            length += len(tokens)
    if part:
        yield part
