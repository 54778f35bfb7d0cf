"""Base classes for encoders that load a checkpoint."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from visar.documents.page import Page
from visar.encoders.encoder import (
    NOT_FINITE,
    PageEmbedding,
    Reads,
    embed_question,
    page_without_vectors,
    refuse_blank,
)
from visar.errors import CheckpointError, InvalidVectors
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

_FAILED_AGAIN = f"{NOT_FINITE}, in float32 too"
_NO_MEMORY = f"{NOT_FINITE}, and float32 needs too much memory"


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model on its device, and the processor of its inputs."""

    model: Any
    processor: Any = None
    attention: str | None = None
    """The attention implementation; None for the model's default."""


class CheckpointEncoder(ABC):
    """An encoder whose model is loaded from a checkpoint on first use.

    One thread at a time uses the model. Other threads wait for a batch, not for a whole call.

    Parameters
    ----------
    name
        Name its vectors are stored under.
    source
        Checkpoint, or its folder or hub name; None if ``name`` is one of these.
    expected
        Class that the checkpoint must have.
    revision, base_revision
        Revisions of the checkpoint and of its base model.
    dimension
        Number of components that the vectors must have; None to read it from the checkpoint.
    device
        "auto", "cpu", "cuda" or "mps".
    batch_size
        Number of pages to try at a time; None to choose it by device.
    """

    reads: Reads
    # Not measured, so no match counts as weak.
    weak_match = 0.0
    # Changes whenever the way vectors are computed changes.
    _recipe = "1"
    # Model inputs that use about as much memory as one page image.
    _batch_factor = 1

    def __init__(
        self,
        name: str,
        source: str | Checkpoint | None = None,
        *,
        expected: str | None = None,
        revision: str | None = None,
        base_revision: str | None = None,
        dimension: int | None = None,
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
        self._dimension = Lazy(lambda: dimension or self._read_dimension())
        self._batches = Lazy(
            lambda: Batches(batch_size or self._batch_factor * first_batch(choose_device(device)))
        )
        self._loaded = Lazy(self._load)
        self._lock = threading.RLock()
        if isinstance(source, Checkpoint):
            self._checkpoint.get()  # report an unsuitable checkpoint now

    @property
    def dimension(self) -> int:
        """The number of components of each vector."""
        return self._dimension.get()

    @property
    def version(self) -> str:
        """The checkpoint's fingerprint and options, without the device, which matters little."""
        return f"{self._checkpoint.get().fingerprint}-{self._recipe}"

    @property
    def identity(self) -> str:
        """The checkpoint's name with its commit, or a hash of its folder."""
        return self._checkpoint.get().identity

    def fetch(self) -> None:
        """Download the checkpoint unless it is on this machine."""
        self._checkpoint.get().folder()

    def release(self) -> None:
        """Free the memory of the weights. They are reloaded on next use."""
        with self._lock:
            was_loaded = self._loaded.drop()
        if was_loaded:
            free_memory()

    def encode_query(self, question: str) -> NDArray[np.float32]:
        """Encode a question in the format the model was trained on.

        Raises
        ------
        EmptyQuestion
            If the question is blank.
        InvalidVectors
            If the model returns NaN or infinity, even in float32.
        """
        refuse_blank(question)
        with self._use() as loaded:
            vectors = self._query_vectors(loaded, question)
            if not np.isfinite(vectors).all():
                with in_float32(loaded.model, loaded.attention):
                    vectors = self._query_vectors(loaded, question)
        return embed_question(self.name, question, vectors)

    @contextmanager
    def _use(self) -> Iterator[LoadedModel]:
        """Hold the lock and yield the loaded model."""
        with self._lock:
            yield self._loaded.get()

    @abstractmethod
    def _check(self, found: Checkpoint) -> Checkpoint:
        """Return the checkpoint; raise CheckpointError if it isn't suitable."""

    @abstractmethod
    def _read_dimension(self) -> int:
        """Return the number of components of the vectors, without loading the model."""

    def _check_dimension(self, found: int) -> None:
        if found != self.dimension:
            raise CheckpointError(
                f"{self._checkpoint.get().name} has vectors of {found} dimensions, not "
                f"{self.dimension}: the repository has changed. Specify a revision."
            )

    @abstractmethod
    def _load(self) -> LoadedModel:
        """Load the checkpoint."""

    @abstractmethod
    def _query_vectors(self, loaded: LoadedModel, question: str) -> NDArray[np.float32]:
        """Return the vectors of a question, which may not be normalized or finite."""


class PageImageEncoder(CheckpointEncoder):
    """An encoder of page images."""

    reads = "image"

    def encode_pages(self, pages: Sequence[Page], images: Sequence[Image]) -> list[PageEmbedding]:
        """Encode the image of each page.

        A page with NaN or infinite vectors is encoded again, alone and in float32. If that fails
        too, it is returned as invalid.
        """
        if len(images) != len(pages):
            raise InvalidVectors(
                f"Got {len(images)} images for {len(pages)} pages: pass one for each page."
            )
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
                (found,) = self._encode(loaded, [image])
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            return page_without_vectors(self.dimension, _NO_MEMORY)
        return replace(found, invalid=_FAILED_AGAIN) if found.invalid == NOT_FINITE else found

    @abstractmethod
    def _encode(self, loaded: LoadedModel, images: Sequence[Image]) -> list[PageEmbedding]:
        """Encode a batch; a page with values that aren't finite is invalid (`NOT_FINITE`)."""
