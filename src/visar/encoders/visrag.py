"""VisRAG-Ret: one vector for a page and one for a question, by the code of its checkpoint.

That code was written for transformers 4.40, so it runs in an environment of its own, behind the
encoder's service, and only if the user trusts it explicitly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from visar.encoders.checkpoint_encoder import NO_NUMBERS, LoadedModel, PageImageEncoder
from visar.encoders.protocol import PageEmbedding, page_without_vectors, unit_vectors
from visar.errors import CheckpointError, EncoderUnavailable
from visar.models.checkpoints import Checkpoint, refuse_other_kinds
from visar.models.devices import choose_device, choose_dtype
from visar.models.loading import import_torchvision, loading, refuse_incomplete
from visar.network import DEFAULT_PORT

if TYPE_CHECKING:
    from PIL.Image import Image

ARCHITECTURE = "VisRAG_Ret"
# The beginning of questions in its training.
_INSTRUCTION = "Represent this query for retrieving relevant documents: "


class VisRagEncoder(PageImageEncoder):
    """A checkpoint of VisRAG-Ret; its code runs when the model is first used.

    Raises EncoderUnavailable unless ``trust_remote_code``: the checkpoint's program code may do
    whatever the user may do. The other options are CheckpointEncoder's.
    """

    def __init__(
        self,
        name: str,
        source: str | Checkpoint | None = None,
        *,
        trust_remote_code: bool = False,
        **options: Any,
    ) -> None:
        if not trust_remote_code:
            raise EncoderUnavailable(
                f"{name} runs program code that comes with its checkpoint, and that code may do "
                f"whatever you may do. If you trust those who published it: "
                f"visar encoders serve {name} --trust-remote-code, then use --encoder "
                f"http://127.0.0.1:{DEFAULT_PORT}"
            )
        super().__init__(name, source, **options)

    @property
    def dimension(self) -> int:
        """The number of components of each vector, from the checkpoint's configuration."""
        size = self._checkpoint.get().config.get("hidden_size")
        if not isinstance(size, int):
            raise CheckpointError(f"The config.json of {self.name} gives no hidden_size.")
        return size

    def _check(self, found: Checkpoint) -> Checkpoint:
        refuse_other_kinds(found, self._expected or ARCHITECTURE, "openbmb/VisRAG-Ret")
        return found

    def _load(self) -> LoadedModel:
        checkpoint = self._checkpoint.get()
        import_torchvision()
        from transformers import AutoModel, AutoTokenizer

        device, folder = choose_device(self._device), checkpoint.folder()
        source = {"local_files_only": True, "trust_remote_code": True}
        with loading(checkpoint):
            model, report = AutoModel.from_pretrained(
                folder,
                torch_dtype=choose_dtype(device),
                use_safetensors=True,
                output_loading_info=True,
                **source,
            )
            tokenizer = AutoTokenizer.from_pretrained(folder, **source)
        refuse_incomplete(checkpoint, model, report)
        return LoadedModel(model.to(device).eval(), tokenizer)

    def _query_vectors(self, loaded: LoadedModel, question: str) -> NDArray[np.float32]:
        return self._pooled(loaded, [_INSTRUCTION + question], [None])

    def _encode(self, loaded: LoadedModel, images: Sequence[Image]) -> list[PageEmbedding]:
        pictures = [image.convert("RGB") for image in images]
        vectors = self._pooled(loaded, [""] * len(images), pictures)
        return [self._embedding(vector[None]) for vector in vectors]

    def _embedding(self, vector: NDArray[np.float32]) -> PageEmbedding:
        """Return a page with one vector, whose box is the whole page."""
        if not np.isfinite(vector).all():
            return page_without_vectors(self.dimension, NO_NUMBERS)
        return PageEmbedding(
            unit_vectors(vector).astype(np.float16),
            np.array([[0, 0, 1, 1]], np.float32),
            np.array([-1], np.int32),
        )

    def _pooled(
        self, loaded: LoadedModel, texts: Sequence[str], images: Sequence[Image | None]
    ) -> NDArray[np.float32]:
        """Return the mean over the tokens of each, the n-th token counting n times: (texts, D)."""
        import torch

        with torch.inference_mode():
            output = loaded.model(text=list(texts), image=list(images), tokenizer=loaded.processor)
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
