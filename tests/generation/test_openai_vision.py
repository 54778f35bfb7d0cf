"""Tests of page images with a real endpoint: transformers' server with a tiny Qwen2.5-VL."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.encoders.tiny import colqwen2_5
from tests.generation.openai_samples import alone as alone
from visar.errors import GenerationError
from visar.generation.generator import Prompt
from visar.generation.openai_server import OpenAIGenerator
from visar.models.loading import import_torchvision

pytestmark = pytest.mark.usefixtures("alone")
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}"
    "{% if c.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif c.type == 'text' %}{{ c.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class Served:
    """A model and the address of its server."""

    folder: Path
    url: str
    model: Any
    processor: Any

    def generator(self) -> OpenAIGenerator:
        return OpenAIGenerator(str(self.folder), base_url=self.url)

    def write_here(self, prompt: Prompt, tokens: int) -> str:
        """Return the reply of the same model without a server."""
        content = [
            {"type": "text", "text": part}
            if isinstance(part, str)
            else {"type": "image", "image": part}
            for part in prompt.parts
        ]
        messages = [
            {"role": "system", "content": prompt.system},
            {"role": "user", "content": content},
        ]
        inputs = self.processor.apply_chat_template(
            messages,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
        )
        with torch.no_grad():
            written = self.model.generate(**inputs, max_new_tokens=tokens, do_sample=False)
        return str(
            self.processor.decode(
                written[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True
            )
        )


def _make_attentive(model: Any) -> None:
    """Enlarge the weights, so that images influence the reply."""
    with torch.no_grad():
        for weights in model.model.visual.merger.parameters():
            weights.normal_(std=1.0)
        for weights in model.model.language_model.layers.parameters():
            if weights.ndim == 2:
                weights.normal_(std=0.2)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    import_torchvision()
    from transformers import (
        Qwen2_5_VLForConditionalGeneration,
        Qwen2_5_VLProcessor,
        image_processing_backends,
        image_utils,
    )
    from transformers.cli.serve import Serve

    class Closing(Serve):
        """Run the server without leaving an event loop open."""

        def start_server(self) -> None:
            self._thread = threading.Thread(target=self.server.run)
            self._thread.start()

    def by_pillow(image: Any) -> torch.Tensor:
        return torch.from_numpy(np.array(image_utils.load_image(image))).permute(2, 0, 1)

    folder = tmp_path_factory.mktemp("tiny") / "qwen"
    torch.manual_seed(0)
    encoder, parts = colqwen2_5()
    model = Qwen2_5_VLForConditionalGeneration(encoder.config).eval()
    _make_attentive(model)
    processor = Qwen2_5_VLProcessor(
        parts.image_processor, parts.tokenizer, parts.video_processor, chat_template=CHAT
    )
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.MonkeyPatch.context() as patch:
        # torchvision decodes images with a compiled part that does not go with a CPU torch here.
        patch.setattr(image_processing_backends, "load_image_as_tensor", by_pillow)
        server: Serve = Closing(
            str(folder),
            device="cpu",
            dtype="float32",
            host="127.0.0.1",
            port=port,
            non_blocking=True,
        )
        try:
            while not server.server.started:
                time.sleep(0.01)
            yield Served(folder, f"http://127.0.0.1:{port}/v1", model, processor)
        finally:
            server.kill_server()


def drawing(seed: int, width: int, height: int) -> Image.Image:
    """Return a black and white image, which is sent losslessly as PNG."""
    dots = np.random.default_rng(seed).integers(0, 2, (height // 10, width // 10), np.uint8) * 255
    return Image.fromarray(np.kron(dots, np.ones((10, 10), np.uint8))).convert("RGB")


def test_pages_and_texts_arrive_unchanged_and_in_order(served: Served) -> None:
    """The reply matches that of the local model, and depends on the pages."""
    first, second = drawing(1, 170, 220), drawing(2, 220, 120)
    prompt = Prompt("You read pages.", ("Page 1:", first, "Page 2:", second, "What is it?"))
    swapped = Prompt("You read pages.", ("Page 1:", second, "Page 2:", first, "What is it?"))
    pieces: list[str] = []
    reply = served.generator().generate(prompt, max_tokens=12, on_text=pieces.append)
    assert reply.text == "".join(pieces)
    # The server only streams whole characters: an incomplete last one is missing.
    assert reply.text == served.write_here(prompt, 12).rstrip("\N{REPLACEMENT CHARACTER}")
    assert served.generator().generate(swapped, max_tokens=12).text != reply.text
    assert reply.model.startswith(str(served.folder))
    assert reply.input_tokens is not None
    assert reply.input_tokens > 50
    assert reply.output_tokens is not None
    assert 0 < reply.output_tokens <= 12


def test_photographs_can_be_sent(served: Served) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (220, 170, 3), np.uint8)
    prompt = Prompt("s", (Image.fromarray(noise), "What is it?"))
    assert served.generator().generate(prompt, max_tokens=4).text


def test_a_server_that_ignores_the_schema_is_detected(served: Served) -> None:
    """This server silently ignores ``response_format``, and a random model makes no choice."""
    prompt = Prompt("s", (drawing(1, 60, 60), "Right?"))
    with pytest.raises(GenerationError, match="yes, no"):
        served.generator().generate(prompt, max_tokens=4, choices=("yes", "no"))
