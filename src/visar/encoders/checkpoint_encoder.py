"""What the encoders that load a checkpoint share: finding, loading, locking, releasing it."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from visar.documents.page import Page
from visar.encoders.protocol import PageEmbedding, Reads, page_without_vectors, unit_vectors
from visar.errors import EmptyQuestion, InvalidVectors
from visar.models.checkpoints import Checkpoint, find_checkpoint
from visar.models.devices import (
    Batches,
    check_device,
    choose_device,
    first_batch,
    free_memory,
    is_out_of_memory,
)
from visar.models.loading import Lazy, in_float32

if TYPE_CHECKING:
    from PIL.Image import Image

_logger = logging.getLogger(__name__)

NO_NUMBERS = "the encoder gave values that are no numbers, in float32 too"
NO_MEMORY = "the encoder gave values that are no numbers, and memory does not suffice for float32"
"""Why a page has no vectors."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model on its device, with what prepares its inputs."""

    model: Any
    processor: Any = None
    attention: str | None = None
    """The attention implementation that was chosen for it."""


class CheckpointEncoder(ABC):
    """An encoder whose model is loaded from a checkpoint when it is first used.

    One thread at a time uses the model, for one batch; others wait for the batch, not for all
    pages of a call. ``source`` is the checkpoint, its folder or its hub name, None if ``name`` is
    one of these; ``expected`` the class that it must be of; ``batch_size`` how many pages are
    tried at a time, None for what suits the device.
    """

    reads: Reads
    # Not measured for any checkpoint: no match is called weak.
    weak_match = 0.0
    # Changes with the way vectors are made from a checkpoint.
    _recipe = "1"
    # Inputs of the model in the place of one page image.
    _batch_factor = 1

    def __init__(
        self,
        name: str,
        source: str | Checkpoint | None = None,
        *,
        expected: str | None = None,
        revision: str | None = None,
        base_revision: str | None = None,
        device: str = "auto",
        batch_size: int | None = None,
    ) -> None:
        check_device(device)
        self.name = name
        self._device = device
        self._expected = expected
        self._checkpoint = Lazy(
            lambda: self._check(find_checkpoint(source or name, revision, base_revision))
        )
        self._batches = Lazy(lambda: Batches(batch_size or self._first_batch()))
        self._loaded = Lazy(self._load)
        self._lock = threading.RLock()
        if isinstance(source, Checkpoint):
            self._checkpoint.get()  # what is wrong with it is known now

    @property
    @abstractmethod
    def dimension(self) -> int:
        """The number of components of each vector."""

    @property
    def version(self) -> str:
        """The checkpoint and the way it is used; not the device, whose vectors differ little."""
        return f"{self._checkpoint.get().fingerprint}-{self._recipe}"

    @property
    def identity(self) -> str:
        """The checkpoint, with the commit of the hub's repository or a hash of the folder."""
        return self._checkpoint.get().identity

    def fetch(self) -> None:
        """Download the checkpoint, if it is not on this machine."""
        self._checkpoint.get().folder()

    def release(self) -> None:
        """Free the memory of the weights; the next use loads them again."""
        with self._lock:
            was_loaded = self._loaded.drop()
        if was_loaded:
            free_memory()

    def encode_query(self, question: str) -> NDArray[np.float32]:
        """Encode a question as its model was trained to read it.

        Raises
        ------
        EmptyQuestion
            If it is blank.
        InvalidVectors
            If the model gives NaN or infinity, in float32 too.
        """
        if not question.strip():
            raise EmptyQuestion("The question is empty. Ask with at least one word.")
        with self._use() as loaded:
            vectors = self._query_vectors(loaded, question)
            if not np.isfinite(vectors).all():
                with in_float32(loaded.model, loaded.attention):
                    vectors = self._query_vectors(loaded, question)
        if not np.isfinite(vectors).all():
            raise InvalidVectors(
                f"The encoder {self.name} makes no numbers of the question {question[:80]!r}: "
                "put it in other words, or choose another encoder."
            )
        return unit_vectors(vectors)

    def _first_batch(self) -> int:
        return self._batch_factor * first_batch(choose_device(self._device))

    @contextmanager
    def _use(self) -> Iterator[LoadedModel]:
        """Hold the lock and give the loaded model."""
        with self._lock:
            yield self._loaded.get()

    @abstractmethod
    def _check(self, found: Checkpoint) -> Checkpoint:
        """Return the checkpoint; raise CheckpointError if it is of another kind."""

    @abstractmethod
    def _load(self) -> LoadedModel:
        """Load the checkpoint."""

    @abstractmethod
    def _query_vectors(self, loaded: LoadedModel, question: str) -> NDArray[np.float32]:
        """Return the vectors of a question, of any length and perhaps no numbers."""


class PageImageEncoder(CheckpointEncoder):
    """An encoder of page images."""

    reads = "image"

    def encode_pages(self, pages: Sequence[Page], images: Sequence[Image]) -> list[PageEmbedding]:
        """Encode the image of each page.

        A page whose vectors are NaN or infinite is encoded again, alone and in float32, and
        returned as invalid if that fails too.
        """
        if len(images) != len(pages):
            raise InvalidVectors(f"{len(pages)} pages came with {len(images)} images.")
        found = self._batches.get().run(images, self._encode_batch)
        for index, (page, embedding) in enumerate(zip(pages, found, strict=True)):
            if embedding.invalid is not None:
                _logger.info("page %d: encoding again alone in float32", page.number)
                found[index] = self._encode_in_float32(images[index])
        return found

    def _encode_batch(self, images: Sequence[Image]) -> list[PageEmbedding]:
        with self._use() as loaded:
            return self._encode(loaded, images)

    def _encode_in_float32(self, image: Image) -> PageEmbedding:
        try:
            with self._use() as loaded, in_float32(loaded.model, loaded.attention):
                return self._encode(loaded, [image])[0]
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            return page_without_vectors(self.dimension, NO_MEMORY)

    @abstractmethod
    def _encode(self, loaded: LoadedModel, images: Sequence[Image]) -> list[PageEmbedding]:
        """Encode a batch; a page without numbers is invalid because of NO_NUMBERS."""
