"""The checkpoints of the paper: where they are published and which classes load them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Published:
    """A checkpoint at the Hugging Face hub."""

    repository: str
    revision: str
    model_class: str
    """What it must turn out to be when it is loaded."""


PUBLISHED = {
    "colpali": Published("vidore/colpali-v1.2", "main", "ColPali"),
    "colqwen2.5": Published("vidore/colqwen2.5-v0.1", "main", "ColQwen2_5"),
    "colmodernvbert": Published("ModernVBERT/colmodernvbert", "main", "ColModernVBert"),
    "colbertv2": Published("colbert-ir/colbertv2.0", "main", "HF_ColBERT"),
    "visrag-ret": Published(
        # It brings program code: this commit's, not what may come after it.
        "openbmb/VisRAG-Ret",
        "95ef596df871b606167cb7e4b7215caf1bfdf761",
        "VisRAG_Ret",
    ),
}
