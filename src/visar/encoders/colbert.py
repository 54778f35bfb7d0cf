"""ColBERT: a vector for each token of a page's words, through sentence-transformers.

ColBERTv2 and answerai-colbert-small as Stanford's program saves them, mxbai-edge-colbert as PyLate
does.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from visar.documents.page import Page
from visar.encoders.checkpoint_encoder import CheckpointEncoder, LoadedModel
from visar.encoders.protocol import PageEmbedding, page_without_vectors, unit_vectors
from visar.errors import CheckpointError, extra_needed
from visar.models.checkpoints import COLBERT, Checkpoint, refuse_other_kinds
from visar.models.devices import choose_device
from visar.models.loading import Lazy, import_torchvision, loading

_BARE = {"add_special_tokens": False}


class _EncodedText(NamedTuple):
    tokens: NDArray[np.int64]
    """With the marks around them, and padding."""
    is_scored: NDArray[np.bool_]
    """False for padding, and for punctuation, which ColBERT leaves out."""
    vectors: NDArray[np.float32]


class ColbertEncoder(CheckpointEncoder):
    """A checkpoint of ColBERT, made with the options of CheckpointEncoder.

    ``dimension`` is the number of components that its vectors must have; None to read it from its
    files.
    """

    reads = "words"
    # A page is read in short parts.
    _batch_factor = 8

    def __init__(self, *arguments: Any, dimension: int | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._dimension = Lazy(
            lambda: dimension or _dimension(Path(self._checkpoint.get().folder()))
        )

    @property
    def dimension(self) -> int:
        return self._dimension.get()

    def encode_pages(
        self,
        pages: Sequence[Page],
        images: Sequence[Any] = (),  # noqa: ARG002 - part of the protocol
    ) -> list[PageEmbedding]:
        """Encode the words of each page; each token has the place of its word."""
        embeddings = []
        for page in pages:
            # One thread at a time: a tokenizer keeps the padding and the length of its last call.
            with self._use() as loaded:
                embeddings.append(self._encode(loaded, page))
        return embeddings

    def _encode(self, loaded: LoadedModel, page: Page) -> PageEmbedding:
        tokenizer = loaded.model.tokenizer
        mark = str(loaded.model.prompts.get("document") or "")
        limit = int(loaded.model[0].document_length or loaded.model.max_seq_length)
        # Around the words of a document: its beginning, that it is a document, its end.
        longest = limit - len(tokenizer(mark)["input_ids"])
        parts = list(_cut(_lengths(tokenizer, page, longest), longest))
        if not parts:
            return page_without_vectors(self.dimension)
        texts = [" ".join(page.words[i].text for i in part) for part in parts]
        encoded = self._batches.get().run(texts, self._encode_texts)
        vectors = np.concatenate([text.vectors[text.is_scored] for text in encoded])
        if not np.isfinite(vectors).all():
            return page_without_vectors(
                self.dimension, "the encoder gave values that are no numbers"
            )
        places = tokenizer(
            [mark + text for text in texts],
            return_offsets_mapping=True,
            truncation=True,
            max_length=limit,
        )
        words = np.concatenate(
            [
                self._words_of(page, part, len(mark), places[n], text.tokens)[text.is_scored]
                for n, (part, text) in enumerate(zip(parts, encoded, strict=True))
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
        self,
        page: Page,
        part: Sequence[int],
        first: int,
        places: Any,
        tokens: NDArray[np.int64],
    ) -> NDArray[np.int32]:
        """Return the word each token belongs to, -1 for marks and padding.

        ``places`` are the tokens of the part's text with their characters, of which the words'
        begin at ``first``.
        """
        count = len(places.ids)
        if tokens[:count].tolist() != places.ids:
            raise CheckpointError(
                f"{self.name} reads a page as other tokens than its tokenizer gives: its vectors "
                "cannot be placed on the page."
            )
        lengths = (len(page.words[word].text) + 1 for word in part)
        starts = list(accumulate(lengths, initial=first))[:-1]
        # A token's last character: the first may be the space before the word.
        last = np.array([end - 1 for _, end in places.offsets])
        owners = np.searchsorted(starts, last, side="right") - 1
        words = np.full(len(tokens), -1, np.int32)
        words[:count] = np.where(owners >= 0, np.take(part, owners), -1)
        return words

    def _check(self, found: Checkpoint) -> Checkpoint:
        refuse_other_kinds(found, COLBERT, "colbert-ir/colbertv2.0")
        return found

    def _load(self) -> LoadedModel:
        checkpoint = self._checkpoint.get()
        if importlib.util.find_spec("torchvision") is not None:
            import_torchvision()  # transformers imports it wherever it is installed
        with extra_needed("ColBERT", "colbert"):
            from sentence_transformers import MultiVectorEncoder
        folder = checkpoint.folder()
        with loading(checkpoint):
            model = MultiVectorEncoder(
                folder,
                device=choose_device(self._device),
                local_files_only=True,
                # Small enough for full precision everywhere.
                model_kwargs={"dtype": "float32", "use_safetensors": True},
            )
        if model.get_embedding_dimension() != self.dimension:
            raise CheckpointError(
                f"{checkpoint.name} makes vectors of {model.get_embedding_dimension()} dimensions, "
                f"not {self.dimension}: the repository has changed. Give the revision you want."
            )
        return LoadedModel(model)


def _dimension(folder: Path) -> int:
    """Return the number of components of a checkpoint's vectors, without loading it.

    Stanford's program saves it as ``dim``; else it is the width of the last projection.
    """
    metadata, modules = folder / "artifact.metadata", folder / "modules.json"
    try:
        if not modules.exists():
            return int(json.loads(metadata.read_text(encoding="utf-8"))["dim"])
        parts = json.loads(modules.read_text(encoding="utf-8"))
        projections = [part["path"] for part in parts if str(part["type"]).endswith(".Dense")]
        config = folder / projections[-1] / "config.json"
        return int(json.loads(config.read_text(encoding="utf-8"))["out_features"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise CheckpointError(
            f"{folder} does not say how long its vectors are: it has neither the dim of an "
            "artifact.metadata nor a modules.json with a projection."
        ) from error


def _lengths(tokenizer: Any, page: Page, longest: int) -> list[int]:
    """Return the most tokens that each word takes; one word is cut to what is read at once."""
    if not page.words:
        return []
    # Some tokenizers read a word after a space as other tokens than at the beginning.
    counts = (
        map(len, tokenizer([space + word.text for word in page.words], **_BARE)["input_ids"])
        for space in ("", " ")
    )
    return [min(longest, max(both)) for both in zip(*counts, strict=True)]


def _cut(lengths: Sequence[int], longest: int) -> Iterator[list[int]]:
    """Cut a page's words, given as the tokens of each, into parts the model reads at once.

    >>> list(_cut([2, 1, 0, 2], longest=3))
    [[0, 1], [3]]
    """
    part: list[int] = []
    length = 0
    for word, tokens in enumerate(lengths):
        if length + tokens > longest:
            yield part
            part, length = [], 0
        if tokens:
            part.append(word)
            length += tokens
    if part:
        yield part
