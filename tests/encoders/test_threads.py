"""Encoders are thread-safe, load once, and free their memory."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import torch

from tests.encoders import tiny_published
from tests.encoders.samples import page_with, picture
from visar.encoders import embedded
from visar.encoders.checkpoint_encoder import CheckpointEncoder, LoadedModel
from visar.encoders.embedded import EmbeddedEncoder
from visar.encoders.encoder import Encoder
from visar.encoders.minilm import MiniLM
from visar.encoders.multi_vector import TextEncoder
from visar.encoders.reduced import ReducedEncoder
from visar.encoders.visrag import VisRagEncoder
from visar.encoders.visual import VisualEncoder
from visar.models.loading import import_torchvision
from visar.models.protocols import Releasable

Made = TypeVar("Made")
KINDS = ("embedded", "colpali", "colqwen2.5", "colbert", "visrag")
TEXTS = ("The total revenue was 42.", "Cats sleep all day " * 40, "What is the page?")
PAGES = [page_with(text, number) for number, text in enumerate(TEXTS, start=1)]
IMAGES = [picture(seed, 120, 90 + 40 * seed) for seed in range(len(TEXTS))]
QUESTIONS = ("what is the total revenue?", "cats", "a chart on the page, or a table")


@pytest.fixture
def new_encoder(
    checkpoint: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Encoder]:
    """A function that creates an encoder that isn't shared with other tests."""

    def make(kind: str) -> Encoder:
        if kind == "embedded":
            EmbeddedEncoder().release()
            return EmbeddedEncoder()
        import_torchvision()
        if kind == "colbert":
            return TextEncoder(str(tiny_published.save_colbert(tmp_path / "colbert")), device="cpu")
        if kind == "visrag":
            cache = "transformers.dynamic_module_utils.HF_MODULES_CACHE"
            monkeypatch.setattr(cache, str(tmp_path / "modules"))
            folder = tiny_published.save_visrag(tmp_path / "visrag")
            return VisRagEncoder(str(folder), device="cpu", trust_remote_code=True)
        return VisualEncoder(str(checkpoint(kind)), device="cpu", batch_size=2)

    return make


def concurrently(work: Callable[[int], Made], threads: int = 4) -> list[Made]:
    """Do the work in threads that start at the same time."""
    ready = threading.Barrier(threads)

    def begin(number: int) -> Made:
        ready.wait()
        return work(number)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(begin, range(threads)))


def vectors_of(encoder: Encoder, number: int) -> list[np.ndarray[Any, Any]]:
    """Return the vectors of all pages in one call, or of all questions."""
    if number % 2:
        return [encoder.encode_query(question) for question in QUESTIONS]
    images = IMAGES if encoder.reads == "image" else ()
    return [page.vectors for page in encoder.encode_pages(PAGES, images)]


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_do_not_depend_on_the_number_of_threads(
    new_encoder: Callable[[str], Encoder], kind: str
) -> None:
    encoder = new_encoder(kind)
    found = concurrently(lambda number: [vectors_of(encoder, number) for _ in range(3)])
    expected = [vectors_of(encoder, number) for number in (0, 1)]
    for number, rounds in enumerate(found):
        for vectors in rounds:
            for one, other in zip(vectors, expected[number % 2], strict=True):
                np.testing.assert_array_equal(one, other)


def test_a_float32_retry_does_not_affect_other_threads(
    new_encoder: Callable[[str], Encoder],
) -> None:
    """Uses float16 in place of the format used on graphics cards."""
    encoder = new_encoder("colpali")
    assert isinstance(encoder, VisualEncoder)
    model = encoder._loaded.get().model.half()
    questions = [encoder.encode_query(question) for question in QUESTIONS]

    def fail(_model: Any, _args: Any, inputs: dict[str, Any], output: Any) -> Any:
        return output * torch.nan if "pixel_values" in inputs else output

    model.register_forward_hook(fail, with_kwargs=True)

    def work(number: int) -> None:
        if number % 2:
            for _ in range(5):
                for vectors, expected in zip(vectors_of(encoder, 1), questions, strict=True):
                    np.testing.assert_array_equal(vectors, expected)
        else:
            pages = encoder.encode_pages(PAGES, IMAGES)
            assert all("in float32 too" in str(page.invalid) for page in pages)

    concurrently(work)
    assert model.dtype == torch.float16


def test_concurrent_threads_load_the_model_once(
    new_encoder: Callable[[str], Encoder],
    checkpoint: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded: list[str] = []

    class CountedVisual(VisualEncoder):
        def _load(self) -> LoadedModel:
            loaded.append("visual")
            return super()._load()

    class CountedModel(MiniLM):
        def __init__(self, model: bytes) -> None:
            loaded.append("embedded")
            super().__init__(model)

    monkeypatch.setattr(embedded, "MiniLM", CountedModel)
    encoders: list[Encoder] = [
        new_encoder("embedded"),
        CountedVisual(str(checkpoint("colqwen2.5")), device="cpu"),
    ]
    concurrently(lambda number: encoders[number % 2].encode_query("revenue"))
    assert sorted(loaded) == ["embedded", "visual"]


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_released_model_is_freed_and_reloaded(
    new_encoder: Callable[[str], Encoder], kind: str, *, pooled: bool
) -> None:
    encoder = inner = new_encoder(kind)
    if pooled:
        encoder = ReducedEncoder(inner, pool=2)
    before = [vectors_of(encoder, number) for number in (0, 1)]
    held = weakref.ref(model_of(inner))
    assert isinstance(encoder, Releasable)
    encoder.release()
    assert held() is None
    encoder.release()
    for number in (0, 1):
        for vectors, expected in zip(vectors_of(encoder, number), before[number], strict=True):
            np.testing.assert_array_equal(vectors, expected)


def model_of(encoder: Encoder) -> Any:
    if isinstance(encoder, EmbeddedEncoder):
        return embedded._model.get()
    assert isinstance(encoder, CheckpointEncoder)
    return encoder._loaded.get().model


def test_a_busy_encoder_can_be_released(new_encoder: Callable[[str], Encoder]) -> None:
    encoder = new_encoder("colqwen2.5")
    expected = vectors_of(encoder, 0)
    assert isinstance(encoder, VisualEncoder)

    def work(number: int) -> list[np.ndarray[Any, Any]]:
        if number:
            encoder.release()
        return vectors_of(encoder, 0)

    for found in concurrently(work, threads=3):
        for vectors, wanted in zip(found, expected, strict=True):
            np.testing.assert_array_equal(vectors, wanted)
