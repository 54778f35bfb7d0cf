"""Sample prompts for the tests of local generators."""

from __future__ import annotations

import numpy as np
from PIL import Image

from visar.generation.generator import Prompt

VISION = ("qwen2.5-vl", "qwen3-vl", "internvl3.5", "idefics3", "llava-onevision")
ALL = (*VISION, "qwen2.5-7b")
SYSTEM = "You answer from the pages you are given."


def noise(width: int, height: int, seed: int) -> Image.Image:
    values = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    return Image.fromarray(values)


PAGES = (noise(170, 220, 1), noise(220, 120, 2), noise(200, 200, 3))


def about(name: str, text: str = "What is the total revenue?", system: str = SYSTEM) -> Prompt:
    """Return a question with three labeled pages: as images, or as text for the text model."""
    parts: list[str | Image.Image] = [text]
    for number, page in enumerate(PAGES, 1):
        parts += [f"Page {number}:\n", page if name in VISION else f"Revenue was {number} million."]
    return Prompt(system, (*parts, f"Now answer. {text}"))
