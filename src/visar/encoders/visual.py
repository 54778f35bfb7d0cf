"""Visual encoders: a page's image in, a vector for each patch of it out.

ColPali, ColQwen2.5 and ColModernVBERT through colpali-engine, from the hub or a local folder.
``docs/visual-encoders.md`` says what they need and how far they were tried.
"""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from visar.documents.page import Page
from visar.encoders.families import Family, family_of
from visar.encoders.loading import LoadedModel, load
from visar.encoders.protocol import PageEmbedding
from visar.encoders.vectors import NO_MEMORY, NO_NUMBERS, page_without_vectors, unit_vectors
from visar.errors import CheckpointError, EmptyQuestion, InvalidVectors
from visar.models.checkpoints import Checkpoint, find_checkpoint
from visar.models.devices import Batches, check_device, first_batch, is_out_of_memory

if TYPE_CHECKING:
    from PIL.Image import Image

_logger = logging.getLogger(__name__)

DIMENSION = 128
# Changes with the way vectors are made from a checkpoint.
_RECIPE = "1"


class VisualEncoder:
    """One checkpoint of a visual encoder; its model is loaded when it is first used."""

    reads: Literal["words", "image"] = "image"
    dimension = DIMENSION
    # How well a question and a page without an answer match differs between checkpoints, and was
    # measured for none: every question counts as answered.
    weak_match = 0.0

    def __init__(
        self,
        name: str,
        source: str | Checkpoint | None = None,
        *,
        expected: str | None = None,
        revision: str | None = None,
        device: str = "auto",
        instruction_tokens: bool = True,
        batch_size: int | None = None,
    ) -> None:
        """Name what to use; ``source`` says where it is, if that is not a folder or hub name.

        ``expected`` is the class the checkpoint must be of. ``instruction_tokens=False`` keeps
        the vectors of image patches alone. ``batch_size`` is how many pages are tried at a time.
        """
        check_device(device)
        self.name = name
        self._source = source or name
        self._expected = expected
        self._revision = revision
        self._device = device
        self._instruction_tokens = instruction_tokens
        self._batch_size = batch_size
        if isinstance(source, Checkpoint):
            family_of(source)

    @functools.cached_property
    def version(self) -> str:
        """The checkpoint and the way it is used; not the device, whose vectors differ little."""
        kept = "" if self._instruction_tokens else "-patches"
        return f"{self._checkpoint.fingerprint}-{_RECIPE}{kept}"

    def fetch(self) -> None:
        """Download the checkpoint, if it is not on this machine."""
        self._checkpoint.folder()

    def encode_pages(
        self,
        pages: Sequence[Page],
        images: Sequence[Image],
    ) -> list[PageEmbedding]:
        """Encode the image of each page. One that gives no numbers is marked invalid."""
        if len(images) != len(pages):
            raise InvalidVectors(f"{len(pages)} pages came with {len(images)} images.")
        found = self._batches.run(images, self._encode)
        for index, (page, embedding) in enumerate(zip(pages, found, strict=True)):
            if embedding.invalid is not None:
                _logger.info("page %d: encoding again alone in float32", page.number)
                found[index] = self._encode_again(images[index])
        return found

    def encode_query(self, question: str) -> NDArray[np.float32]:
        """Encode a question, with the marks its model was trained to see after it."""
        if not question.strip():
            raise EmptyQuestion("The question is empty. Ask with at least one word.")
        batch = _without_second_beginning(
            self._loaded.processor, self._loaded.processor.process_queries([question])
        )
        vectors = self._query_vectors(batch)
        if not np.isfinite(vectors).all():
            with self._loaded.in_float32():
                vectors = self._query_vectors(batch)
        if not np.isfinite(vectors).all():
            raise InvalidVectors(
                f"The encoder {self.name} makes no numbers of the question {question[:80]!r}: "
                "put it in other words, or choose another encoder."
            )
        return unit_vectors(vectors)

    def _query_vectors(self, batch: Mapping[str, Any]) -> NDArray[np.float32]:
        output = self._loaded.run(batch, {})
        return np.asarray(output[0][batch["attention_mask"][0].bool()].numpy(), np.float32)

    def _encode(self, images: Sequence[Image]) -> list[PageEmbedding]:
        processor = self._loaded.processor
        with warnings.catch_warnings():
            # The processor of PaliGemma makes numpy arrays of tensors in an outdated way.
            warnings.filterwarnings("ignore", "__array__ implementation", DeprecationWarning)
            batch = processor.process_images(list(images))
        output = self._loaded.run(batch, self._family.forward)
        is_patch = processor.get_image_mask(batch)
        return [
            self._embedding(
                output[page].numpy(),
                batch["attention_mask"][page].bool().numpy(),
                is_patch[page].numpy(),
                self._family.patch_boxes(processor, batch, page),
            )
            for page in range(len(images))
        ]

    def _embedding(
        self,
        vectors: NDArray[np.float32],
        is_token: NDArray[np.bool_],
        is_patch: NDArray[np.bool_],
        patch_boxes: NDArray[np.float32],
    ) -> PageEmbedding:
        """One page without its padding."""
        boxes = np.zeros((len(vectors), 4), np.float32)
        boxes[is_patch] = patch_boxes
        kept = is_token if self._instruction_tokens else is_patch
        if not np.isfinite(vectors[kept]).all():
            return page_without_vectors(DIMENSION, NO_NUMBERS)
        return PageEmbedding(
            unit_vectors(vectors[kept]).astype(np.float16),
            boxes[kept],
            np.full(int(kept.sum()), -1, np.int32),
        )

    def _encode_again(self, image: Image) -> PageEmbedding:
        """A page alone, without padding, in full precision."""
        try:
            with self._loaded.in_float32():
                return self._encode([image])[0]
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            return page_without_vectors(DIMENSION, NO_MEMORY)

    @functools.cached_property
    def _checkpoint(self) -> Checkpoint:
        return find_checkpoint(self._source, self._revision)

    @functools.cached_property
    def _family(self) -> Family:
        found = family_of(self._checkpoint)
        if self._expected not in (None, found.model_class):
            raise CheckpointError(
                f"{self._checkpoint.name} is {found.model_class} where {self._expected} was "
                "expected: the repository has changed. Give the revision you want."
            )
        return found

    @functools.cached_property
    def _loaded(self) -> LoadedModel:
        loaded = load(self._checkpoint, self._family, self._device)
        if loaded.model.dim != DIMENSION:
            raise CheckpointError(
                f"{self.name} makes vectors of {loaded.model.dim} dimensions, not {DIMENSION}."
            )
        return loaded

    @functools.cached_property
    def _batches(self) -> Batches:
        return Batches(self._batch_size or first_batch(self._loaded.device))


def _without_second_beginning(processor: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
    """Drop a mark for the beginning of text that two hands have set."""
    first = getattr(processor.tokenizer, "bos_token_id", None)
    ids = batch["input_ids"][0]
    doubled = first is not None and len(ids) > 1 and bool(ids[0] == ids[1] == first)
    return {key: value[:, 1:] if doubled else value for key, value in batch.items()}
