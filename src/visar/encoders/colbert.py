"""ColBERTv2: a vector for each token of a page's words, through sentence-transformers."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from visar.documents.page import Page
from visar.encoders.checkpoint_encoder import CheckpointEncoder, LoadedModel
from visar.encoders.protocol import PageEmbedding, page_without_vectors, unit_vectors
from visar.errors import CheckpointError, MissingExtra
from visar.models.checkpoints import Checkpoint, refuse_other_kinds
from visar.models.devices import choose_device
from visar.models.loading import import_torchvision, loading

ARCHITECTURE = "HF_ColBERT"
DIMENSION = 128
# Marks around the words of a document: its beginning, that it is a document, its end.
_MARKS = 3


class _EncodedText(NamedTuple):
    tokens: NDArray[np.int64]
    """With the marks around them, and padding."""
    is_scored: NDArray[np.bool_]
    """False for padding, and for punctuation, which ColBERT leaves out."""
    vectors: NDArray[np.float32]


class ColbertEncoder(CheckpointEncoder):
    """A checkpoint of ColBERT, made with the options of CheckpointEncoder."""

    reads = "words"
    dimension = DIMENSION
    # A page is read in short parts.
    _batch_factor = 8

    def encode_pages(
        self,
        pages: Sequence[Page],
        images: Sequence[Any] = (),  # noqa: ARG002 - part of the protocol
    ) -> list[PageEmbedding]:
        """Encode the words of each page; each token has the place of its word."""
        return [self._encode(page) for page in pages]

    def _encode(self, page: Page) -> PageEmbedding:
        with self._use() as loaded:
            longest = int(loaded.model[0].document_length) - _MARKS
            pieces = _pieces(loaded.model, page, longest)
        parts = list(_cut(pieces, longest))
        if not parts:
            return page_without_vectors(DIMENSION)
        texts = [" ".join(page.words[i].text for i in part) for part in parts]
        encoded = self._batches.get().run(texts, self._encode_texts)
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

    def _encode_texts(self, texts: Sequence[str]) -> list[_EncodedText]:
        with self._use() as loaded:
            outputs = loaded.model.encode_document(
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

    def _query_vectors(self, loaded: LoadedModel, question: str) -> NDArray[np.float32]:
        """Encode a question, filled up with masks as in ColBERT's training."""
        (vectors,) = loaded.model.encode_query(
            [question], convert_to_numpy=True, show_progress_bar=False
        )
        return np.asarray(vectors, np.float32)

    def _words_of(
        self, part: Sequence[int], pieces: Sequence[Sequence[int]], tokens: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        """Return the word each token belongs to, -1 for marks and padding."""
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

    def _check(self, found: Checkpoint) -> Checkpoint:
        refuse_other_kinds(found, self._expected or ARCHITECTURE, "colbert-ir/colbertv2.0")
        return found

    def _load(self) -> LoadedModel:
        checkpoint = self._checkpoint.get()
        if importlib.util.find_spec("torchvision") is not None:
            import_torchvision()  # transformers imports it wherever it is installed
        try:
            from sentence_transformers import MultiVectorEncoder
        except ImportError as error:
            raise MissingExtra("ColBERT", "colbert") from error
        folder = checkpoint.folder()
        with loading(checkpoint):
            model = MultiVectorEncoder(
                folder,
                device=choose_device(self._device),
                local_files_only=True,
                # Small enough for full precision everywhere.
                model_kwargs={"dtype": "float32", "use_safetensors": True},
            )
        return LoadedModel(model)


def _pieces(model: Any, page: Page, longest: int) -> list[list[int]]:
    """Return the tokens of each word; one word is cut to what the model reads at once."""
    if not page.words:
        return []
    texts = [word.text for word in page.words]
    ids = model.tokenizer(texts, add_special_tokens=False)["input_ids"]
    return [list(tokens)[:longest] for tokens in ids]


def _cut(pieces: Sequence[Sequence[int]], longest: int) -> Iterator[list[int]]:
    """Cut a page's words, given as the tokens of each, into parts the model reads at once.

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
