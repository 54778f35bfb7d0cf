"""VisRAG-Ret: one vector per page and question, computed by its checkpoint's own code.

That code requires transformers 4.40, so it runs in a separate environment behind the encoder
service, and only with the user's explicit trust.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from visar.encoders.checkpoint_encoder import LoadedModel, PageImageEncoder
from visar.encoders.encoder import PageEmbedding, embed_page
from visar.errors import CheckpointError, EncoderUnavailable
from visar.models.checkpoints import Checkpoint, refuse_other_kinds
from visar.models.devices import choose_device, choose_dtype
from visar.models.loading import import_torchvision, loading, refuse_incomplete
from visar.network import DEFAULT_PORT

if TYPE_CHECKING:
    from PIL.Image import Image

ARCHITECTURE = "VisRAG_Ret"
# The prefix of questions in its training.
_INSTRUCTION = "Represent this query for retrieving relevant documents: "


class VisRagEncoder(PageImageEncoder):
    """A VisRAG-Ret checkpoint, whose code runs on first use.

    Raises EncoderUnavailable unless ``trust_remote_code`` is set, because that code runs with the
    user's permissions. The other options are CheckpointEncoder's.
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
                f"{name} runs code from its checkpoint with your permissions. If you trust its "
                f"publisher, run `visar encoders serve {name} --trust-remote-code` and use "
                f"--encoder http://127.0.0.1:{DEFAULT_PORT}"
            )
        super().__init__(name, source, **options)

    def _read_dimension(self) -> int:
        size = self._checkpoint.get().config.get("hidden_size")
        if not isinstance(size, int):
            raise CheckpointError(f"The config.json of {self.name} has no hidden_size: add it.")
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
        whole_page = np.array([[0, 0, 1, 1]], np.float32)
        return [embed_page(vector[None], whole_page) for vector in vectors]

    def _pooled(
        self, loaded: LoadedModel, texts: Sequence[str], images: Sequence[Image | None]
    ) -> NDArray[np.float32]:
        """Return the weighted mean over tokens, with weight n for the n-th token: (texts, D)."""
        import torch

        with torch.inference_mode():
            output = loaded.model(text=list(texts), image=list(images), tokenizer=loaded.processor)
            mask = output.attention_mask
            weights = (mask * mask.cumsum(dim=1)).float()
            sums = torch.einsum("btd,bt->bd", output.last_hidden_state.float(), weights)
            pooled = (sums / weights.sum(dim=1, keepdim=True)).cpu().numpy()
        if pooled.shape != (len(texts), self.dimension):
            raise CheckpointError(
                f"{self.name} returned vectors of shape {pooled.shape}, not "
                f"{(len(texts), self.dimension)}: its code isn't VisRAG-Ret's."
            )
        return np.asarray(pooled, np.float32)
