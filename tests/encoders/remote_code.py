"""Tiny version of VisRAG-Ret's remote code, copied into a test checkpoint.

It has the interface of the published code: texts, images and a tokenizer in, hidden states and an
attention mask out. As in the published model, each token sees the tokens before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import PretrainedConfig, PreTrainedModel
from transformers.utils.generic import ModelOutput


class TinyConfig(PretrainedConfig):
    model_type = "minicpmv"

    def __init__(self, hidden_size: int = 16, vocab_size: int = 8, **rest: Any) -> None:
        self.hidden_size = hidden_size
        self.vocab_size = vocab_size
        super().__init__(**rest)


@dataclass
class HiddenStates(ModelOutput):
    last_hidden_state: torch.Tensor | None = None
    attention_mask: torch.Tensor | None = None


class VisRAG_Ret(PreTrainedModel):  # noqa: N801
    config_class = TinyConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.words = torch.nn.Embedding(config.vocab_size, config.hidden_size)
        self.patches = torch.nn.Linear(3 * 8 * 8, config.hidden_size)
        self.mix = torch.nn.Linear(config.hidden_size, config.hidden_size)
        self.post_init()  # type: ignore[no-untyped-call]

    def forward(self, text: list[str], image: list[Any], tokenizer: Any) -> HiddenStates:
        sequences = [self._sequence(*each, tokenizer) for each in zip(text, image, strict=True)]
        longest = max(len(each) for each in sequences)
        hidden = sequences[0].new_zeros(len(sequences), longest, self.config.hidden_size)
        # An 8-bit mask, padded on the right, as in the published code.
        mask = torch.zeros(len(sequences), longest, dtype=torch.int8, device=hidden.device)
        for row, each in enumerate(sequences):
            hidden[row, : len(each)] = each
            mask[row, : len(each)] = 1
        seen = torch.arange(1, longest + 1, device=hidden.device)[:, None]
        mixed = self.mix(hidden.cumsum(dim=1) / seen.to(hidden.dtype)).tanh()
        return HiddenStates(last_hidden_state=mixed, attention_mask=mask)

    def _sequence(self, text: str, image: Any, tokenizer: Any) -> torch.Tensor:
        ids = [tokenizer.bos_token_id, *tokenizer.encode(text, add_special_tokens=False)]
        parts = [self.words(torch.tensor(ids, device=self.device))]
        if image is not None:
            # The number of tokens depends on the image's height.
            rows = max(1, image.height // 100)
            pixels = np.asarray(image.resize((8, 8 * rows)), np.float32) / 255
            flat = torch.from_numpy(pixels.reshape(rows, -1)).to(self.device, self.dtype)
            parts.append(self.patches(flat))
        return torch.cat(parts)
