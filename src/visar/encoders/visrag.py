"""VisRAG-Ret: one vector for a page and one for a question, by the code its checkpoint brings.

That code was written for transformers 4.40, so it runs in an environment of its own, behind the
encoder's service. It is run only for who says so.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from visar.documents.page import Page
from visar.encoders.patches import WHOLE_PAGE
from visar.encoders.protocol import PageEmbedding
from visar.encoders.vectors import NO_MEMORY, NO_NUMBERS, page_without_vectors, unit_vectors
from visar.errors import CheckpointError, EmptyQuestion, EncoderUnavailable, InvalidVectors
from visar.models.checkpoints import Checkpoint, find_checkpoint, refuse_other_kinds
from visar.models.devices import (
    Batches,
    check_device,
    choose_device,
    choose_dtype,
    first_batch,
    is_out_of_memory,
)
from visar.models.loading import (
    explained,
    import_torchvision,
    in_float32,
    quietly,
    refuse_incomplete,
)
from visar.network import DEFAULT_PORT

if TYPE_CHECKING:
    from PIL.Image import Image

ARCHITECTURE = "VisRAG_Ret"
TRANSFORMERS = "4.40"
"""The version the checkpoint's code was written for."""
ADDRESS = f"http://127.0.0.1:{DEFAULT_PORT}"
SERVE = "visar encoders serve {name} --trust-remote-code"
# There is no tokenizers for that transformers and a newer Python.
_PYTHON = f"python3.{min(sys.version_info.minor, 12)}"
INSTALL = (
    f"`{_PYTHON} -m venv visrag && visrag/bin/pip install 'visar[visrag]' && "
    f"visrag/bin/{SERVE}` runs it in an environment of its own; then use --encoder {ADDRESS} here"
)
# What questions began with in its training.
_INSTRUCTION = "Represent this query for retrieving relevant documents: "
_RECIPE = "1"


def is_visrag(checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint is one of VisRAG-Ret, as its authors publish it."""
    return ARCHITECTURE in checkpoint.architectures


class VisRagEncoder:
    """A checkpoint of VisRAG-Ret; its model is loaded, and its code run, when it is first used."""

    reads: Literal["words", "image"] = "image"
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
        batch_size: int | None = None,
        trust_remote_code: bool = False,
    ) -> None:
        """Name what to use; ``source`` says where it is, if that is not a folder or hub name."""
        check_device(device)
        if not trust_remote_code:
            raise EncoderUnavailable(
                f"{name} runs program code that comes with its checkpoint, and that code may do "
                f"whatever you may do. If you trust those who published it: "
                f"{SERVE.format(name=name)}, then use --encoder {ADDRESS}"
            )
        self.name = name
        self._source = source or name
        self._expected = expected
        self._revision = revision
        self._device = device
        self._batch_size = batch_size

    @functools.cached_property
    def version(self) -> str:
        """The checkpoint and the way it is used; not the device, whose vectors differ little."""
        return f"{self._checkpoint.fingerprint}-{_RECIPE}"

    @functools.cached_property
    def dimension(self) -> int:
        size = self._checkpoint.config.get("hidden_size")
        if not isinstance(size, int):
            raise CheckpointError(f"The config.json of {self.name} gives no hidden_size.")
        return size

    def fetch(self) -> None:
        """Download the checkpoint, if it is not on this machine."""
        self._checkpoint.folder()

    def encode_pages(self, pages: Sequence[Page], images: Sequence[Image]) -> list[PageEmbedding]:
        """Encode the image of each page. One that gives no numbers is marked invalid."""
        if len(images) != len(pages):
            raise InvalidVectors(f"{len(pages)} pages came with {len(images)} images.")
        found = self._batches.run(images, self._encode)
        return [
            self._encode_again(image) if page.invalid else page
            for image, page in zip(images, found, strict=True)
        ]

    def encode_query(self, question: str) -> NDArray[np.float32]:
        """Encode a question as one vector."""
        if not question.strip():
            raise EmptyQuestion("The question is empty. Ask with at least one word.")
        texts = [_INSTRUCTION + question]
        vectors = self._pooled(texts, [None])
        if not np.isfinite(vectors).all():
            with in_float32(self._model):
                vectors = self._pooled(texts, [None])
        if not np.isfinite(vectors).all():
            raise InvalidVectors(
                f"The encoder {self.name} makes no numbers of the question {question[:80]!r}: "
                "put it in other words, or choose another encoder."
            )
        return unit_vectors(vectors)

    def _encode(self, images: Sequence[Image]) -> list[PageEmbedding]:
        vectors = self._pooled([""] * len(images), [image.convert("RGB") for image in images])
        return [self._embedding(vector[None]) for vector in vectors]

    def _embedding(self, vector: NDArray[np.float32]) -> PageEmbedding:
        if not np.isfinite(vector).all():
            return page_without_vectors(self.dimension, NO_NUMBERS)
        return PageEmbedding(
            unit_vectors(vector).astype(np.float16),
            np.array([WHOLE_PAGE], np.float32),
            np.array([-1], np.int32),
        )

    def _encode_again(self, image: Image) -> PageEmbedding:
        """A page alone, without padding, in full precision."""
        try:
            with in_float32(self._model):
                return self._encode([image])[0]
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            return page_without_vectors(self.dimension, NO_MEMORY)

    def _pooled(self, texts: Sequence[str], images: Sequence[Image | None]) -> NDArray[np.float32]:
        """The mean over the tokens of each, the n-th token counting n times: (texts, D)."""
        import torch

        with torch.inference_mode():
            output = self._model(text=list(texts), image=list(images), tokenizer=self._tokenizer)
            mask = output.attention_mask
            weights = (mask * mask.cumsum(dim=1)).float()
            sums = torch.einsum("btd,bt->bd", output.last_hidden_state.float(), weights)
            pooled = (sums / weights.sum(dim=1, keepdim=True)).cpu().numpy()
        if pooled.shape != (len(texts), self.dimension):
            raise CheckpointError(
                f"{self.name} made vectors of the shape {pooled.shape} and not "
                f"{(len(texts), self.dimension)}: its code is not VisRAG-Ret's."
            )
        return np.asarray(pooled, np.float32)

    @functools.cached_property
    def _checkpoint(self) -> Checkpoint:
        found = find_checkpoint(self._source, self._revision)
        refuse_other_kinds(found, self._expected, "openbmb/VisRAG-Ret")
        return found

    @functools.cached_property
    def _model(self) -> Any:
        import_torchvision()
        from transformers import AutoModel

        place, folder = choose_device(self._device), self._folder
        with quietly(), explained(self._checkpoint):
            model, report = AutoModel.from_pretrained(
                folder,
                torch_dtype=choose_dtype(place),
                use_safetensors=True,
                output_loading_info=True,
                local_files_only=True,
                trust_remote_code=True,
            )
        refuse_incomplete(self._checkpoint, model, report)
        return model.to(place).eval()

    @functools.cached_property
    def _tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        folder = self._folder
        with quietly(), explained(self._checkpoint):
            return AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=True
            )

    @functools.cached_property
    def _folder(self) -> str:
        return self._checkpoint.folder()

    @functools.cached_property
    def _batches(self) -> Batches:
        return Batches(self._batch_size or first_batch(choose_device(self._device)))
