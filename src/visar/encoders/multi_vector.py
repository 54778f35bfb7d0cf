"""Multi-vector models of sentence-transformers: ColBERT for text, and models for page images.

Supports ColBERTv2 and answerai-colbert-small in Stanford's layout, mxbai-edge-colbert in PyLate's,
ColPali in transformers', and all models in sentence-transformers' own layout.
sentence-transformers computes the vectors; this module finds their positions on the page.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from visar.documents.page import Page
from visar.encoders.checkpoint_encoder import CheckpointEncoder, LoadedModel, PageImageEncoder
from visar.encoders.encoder import PageEmbedding, embed_page, page_without_vectors
from visar.encoders.visual import grid_boxes
from visar.errors import CheckpointError, extra_needed
from visar.models.checkpoints import COLBERT, MULTI_VECTOR, Checkpoint, refuse_other_kinds
from visar.models.devices import choose_device, choose_dtype
from visar.models.loading import import_torchvision, loading

if TYPE_CHECKING:
    from PIL.Image import Image

_MODULES = "modules.json"
_MODEL_CONFIG = "config_sentence_transformers.json"
_NO_SPECIAL_TOKENS = {"add_special_tokens": False}


class _Output(NamedTuple):
    """The model's output for the tokens of an input, including special tokens and padding."""

    tokens: NDArray[np.int64]
    is_scored: NDArray[np.bool_]
    """False for padding and for punctuation, which ColBERT ignores."""
    vectors: NDArray[np.float32]


class _MultiVectorEncoder(CheckpointEncoder):
    """A sentence-transformers checkpoint, with the options of CheckpointEncoder."""

    _kind: ClassVar[str]
    _example: ClassVar[str]

    def _check(self, found: Checkpoint) -> Checkpoint:
        refuse_other_kinds(found, self._kind, self._example)
        return found

    def _read_dimension(self) -> int:
        checkpoint = self._checkpoint.get()
        return _dimension(Path(checkpoint.folder()), checkpoint.config)

    def _load(self) -> LoadedModel:
        checkpoint = self._checkpoint.get()
        if importlib.util.find_spec("torchvision") is not None:
            import_torchvision()  # transformers imports it if it is installed
        with extra_needed("A multi-vector encoder", "colbert"):
            from sentence_transformers import MultiVectorEncoder
        device, folder = choose_device(self._device), Path(checkpoint.folder())
        # Text models are small enough for full precision everywhere.
        dtype = "float32" if self.reads == "words" else choose_dtype(device)
        with loading(checkpoint), _one_layout(folder, checkpoint.config) as loadable:
            model = MultiVectorEncoder(
                str(loadable),
                device=device,
                local_files_only=True,
                model_kwargs={"dtype": dtype, "use_safetensors": True},
            )
        self._check_dimension(int(model.get_embedding_dimension() or 0))
        return LoadedModel(model)

    def _outputs(self, loaded: LoadedModel, pages: Sequence[Any]) -> list[_Output]:
        try:
            outputs = loaded.model.encode_document(
                list(pages), output_value=None, batch_size=len(pages), show_progress_bar=False
            )
        except (TypeError, ValueError) as error:
            raise CheckpointError(
                f"sentence-transformers can't encode pages with {self.name}: {error}"
            ) from error
        return [
            _Output(
                output["input_ids"].cpu().numpy(),
                output["attention_mask"].bool().cpu().numpy(),
                output["token_embeddings"].float().cpu().numpy(),
            )
            for output in outputs
        ]

    def _query_vectors(self, loaded: LoadedModel, question: str) -> NDArray[np.float32]:
        """Encode a question; for ColBERT, padded with mask tokens as in its training."""
        (vectors,) = loaded.model.encode_query([question], show_progress_bar=False)
        return np.asarray(vectors.float().cpu().numpy(), np.float32)


class ImageEncoder(_MultiVectorEncoder, PageImageEncoder):
    """A checkpoint that computes a vector for each token of a page image.

    Patches have boxes if sentence-transformers knows the grid: for square images and the Qwen-VL
    family. Otherwise all boxes are zero.
    """

    _kind = MULTI_VECTOR
    _example = "vidore/colpali-v1.3-hf"

    def _load(self) -> LoadedModel:
        loaded = super()._load()
        if "image" not in loaded.model[0].modalities:
            raise CheckpointError(
                f"{self.name} reads {', '.join(map(str, loaded.model[0].modalities))} but not "
                "images: use a multi-vector checkpoint for page images."
            )
        return loaded

    def _encode(self, loaded: LoadedModel, images: Sequence[Image]) -> list[PageEmbedding]:
        outputs = self._outputs(loaded, [image.convert("RGB") for image in images])
        return [
            embed_page(
                output.vectors[output.is_scored],
                _patch_boxes(loaded.model, image, output)[output.is_scored],
            )
            for image, output in zip(images, outputs, strict=True)
        ]


def _patch_boxes(model: Any, image: Image, output: _Output) -> NDArray[np.float32]:
    """Return the box of each token; zeros if it has none or the grid is unknown."""
    from sentence_transformers.multi_vector_encoder.interpretability import get_n_patches

    boxes = np.zeros((len(output.is_scored), 4), np.float32)
    config = model[0].config
    token = getattr(getattr(config, "vlm_config", config), "image_token_id", None)
    try:
        columns, rows = get_n_patches(model, image.size)
    except (NotImplementedError, LookupError, TypeError, ValueError):
        return boxes  # the processor's grid is unknown
    is_patch = output.tokens == token
    # Merged tokens can't be assigned to patches.
    if len(is_patch) == len(boxes) and is_patch.sum() == rows * columns:
        boxes[is_patch] = grid_boxes(rows, columns)
    return boxes


class TextEncoder(_MultiVectorEncoder):
    """A ColBERT encoder, which computes a vector for each token of a page's words."""

    reads = "words"
    _kind = COLBERT
    _example = "colbert-ir/colbertv2.0"
    # Pages are read in short parts.
    _batch_factor = 8

    def encode_pages(
        self,
        pages: Sequence[Page],
        images: Sequence[Any] = (),  # noqa: ARG002 - part of the protocol
    ) -> list[PageEmbedding]:
        """Encode the words of each page; each token has the box of its word."""
        embeddings = []
        for page in pages:
            # One thread at a time, because the tokenizer stores padding and length between calls.
            with self._use() as loaded:
                embeddings.append(self._encode(loaded, page))
        return embeddings

    def _encode(self, loaded: LoadedModel, page: Page) -> PageEmbedding:
        tokenizer = loaded.model.tokenizer
        prefix = str(loaded.model.prompts.get("document") or "")
        limit = int(loaded.model[0].document_length or loaded.model.max_seq_length)
        # The prefix and the special tokens take up part of the limit.
        max_tokens = limit - len(tokenizer(prefix)["input_ids"])
        parts = list(_split(_token_counts(tokenizer, page, max_tokens), max_tokens))
        if not parts:
            return page_without_vectors(self.dimension)
        texts = [" ".join(page.words[i].text for i in part) for part in parts]
        outputs = self._batches.get().run(texts, lambda batch: self._outputs(loaded, batch))
        vectors = np.concatenate([output.vectors[output.is_scored] for output in outputs])
        encodings = tokenizer(
            [prefix + text for text in texts],
            return_offsets_mapping=True,
            truncation=True,
            max_length=limit,
        )
        words = np.concatenate(
            [
                self._words_of(page, part, len(prefix), encodings[n], output.tokens)[
                    output.is_scored
                ]
                for n, (part, output) in enumerate(zip(parts, outputs, strict=True))
            ]
        )
        # The last box, at index -1, is for special tokens, which have no position.
        boxes = np.array([*(word.box for word in page.words), (0, 0, 0, 0)], np.float32)
        return embed_page(vectors, boxes[words], words)

    def _words_of(
        self,
        page: Page,
        part: Sequence[int],
        first: int,
        encoding: Any,
        tokens: NDArray[np.int64],
    ) -> NDArray[np.int32]:
        """Return the word index of each token, -1 for special tokens and padding.

        ``encoding`` has the tokens of the part's text with their offsets; the first word starts at
        the character ``first``.
        """
        count = len(encoding.ids)
        if tokens[:count].tolist() != encoding.ids:
            raise CheckpointError(
                f"{self.name} and its tokenizer disagree on the tokens of page {page.number}, so "
                "its vectors can't be positioned on the page: use another checkpoint."
            )
        lengths = (len(page.words[word].text) + 1 for word in part)
        starts = list(accumulate(lengths, initial=first))[:-1]
        # Use each token's last character, because the first may be the space before the word.
        last = np.array([end - 1 for _, end in encoding.offsets])
        owners = np.searchsorted(starts, last, side="right") - 1
        words = np.full(len(tokens), -1, np.int32)
        words[:count] = np.where(owners >= 0, np.take(part, owners), -1)
        return words


def _is_stanford(config: dict[str, Any]) -> bool:
    return "HF_ColBERT" in (config.get("architectures") or ())


@contextmanager
def _one_layout(folder: Path, config: dict[str, Any]) -> Iterator[Path]:
    """Yield a folder to load a checkpoint from.

    answerai-colbert-small-v1 is published in Stanford's layout and in PyLate's.
    sentence-transformers prefers PyLate's, but can't load it without PyLate, so this hides it.
    """
    if not (_is_stanford(config) and (folder / _MODULES).exists()):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="visar-") as scratch:
        for file in folder.iterdir():
            if file.is_file() and file.name not in (_MODULES, _MODEL_CONFIG):
                try:
                    Path(scratch, file.name).symlink_to(file.resolve())
                except OSError:  # symbolic links aren't allowed
                    shutil.copy(file, scratch)
        yield Path(scratch)


def _dimension(folder: Path, config: dict[str, Any]) -> int:
    """Return the number of components of a checkpoint's vectors, without loading the model.

    Stanford's layout stores it as ``dim``, transformers' as ``embedding_dim``. Otherwise it is the
    width of the last projection, or of the model if there is no projection.
    """
    modules = folder / _MODULES
    try:
        if _is_stanford(config) or not modules.exists():
            if "embedding_dim" in config:
                return int(config["embedding_dim"])
            metadata = folder / "artifact.metadata"
            return int(json.loads(metadata.read_text(encoding="utf-8"))["dim"])
        parts = json.loads(modules.read_text(encoding="utf-8"))
        projections = [part["path"] for part in parts if str(part["type"]).endswith(".Dense")]
        if not projections:
            width = config.get("embedding_dim") or config.get("hidden_size")
            return int(width or config["text_config"]["hidden_size"])
        projection = folder / projections[-1] / "config.json"
        return int(json.loads(projection.read_text(encoding="utf-8"))["out_features"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise CheckpointError(
            f"Can't find the dimension of the vectors of {folder}: it has neither an "
            "artifact.metadata with a dim nor a modules.json with a projection."
        ) from error


def _token_counts(tokenizer: Any, page: Page, max_tokens: int) -> list[int]:
    """Return the maximum number of tokens of each word, limited to ``max_tokens``."""
    if not page.words:
        return []
    # Some tokenizers tokenize a word differently after a space than at the start of the text.
    counts = (
        map(
            len,
            tokenizer([space + word.text for word in page.words], **_NO_SPECIAL_TOKENS)[
                "input_ids"
            ],
        )
        for space in ("", " ")
    )
    return [min(max_tokens, max(both)) for both in zip(*counts, strict=True)]


def _split(counts: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Split words, given by their token counts, into parts that fit into the model.

    >>> list(_split([2, 1, 0, 2], max_tokens=3))
    [[0, 1], [3]]
    """
    part: list[int] = []
    length = 0
    for word, tokens in enumerate(counts):
        if length + tokens > max_tokens:
            yield part
            part, length = [], 0
        if tokens:
            part.append(word)
            length += tokens
    if part:
        yield part
