"""One encoder serves many threads, loads once, and gives its memory back."""

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

from tests.encoders import tiny
from tests.encoders.samples import page_with, picture
from visar.encoders import embedded
from visar.encoders.checkpoint_encoder import CheckpointEncoder, LoadedModel
from visar.encoders.colbert import ColbertEncoder
from visar.encoders.embedded import EmbeddedEncoder
from visar.encoders.minilm import MiniLM
from visar.encoders.pooling import PooledEncoder
from visar.encoders.protocol import Encoder
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
def new(
    checkpoint: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Encoder]:
    """Make an encoder of a kind that nothing else has used."""

    def make(kind: str) -> Encoder:
        if kind == "embedded":
            EmbeddedEncoder().release()
            return EmbeddedEncoder()
        import_torchvision()
        if kind == "colbert":
            return ColbertEncoder(str(tiny.save_colbert(tmp_path / "colbert")), device="cpu")
        if kind == "visrag":
            cache = "transformers.dynamic_module_utils.HF_MODULES_CACHE"
            monkeypatch.setattr(cache, str(tmp_path / "modules"))
            folder = tiny.save_visrag(tmp_path / "visrag")
            return VisRagEncoder(str(folder), device="cpu", trust_remote_code=True)
        return VisualEncoder(str(checkpoint(kind)), device="cpu", batch_size=2)

    return make


def at_once(work: Callable[[int], Made], threads: int = 4) -> list[Made]:
    """Do the work in threads that begin together."""
    ready = threading.Barrier(threads)

    def begin(number: int) -> Made:
        ready.wait()
        return work(number)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(begin, range(threads)))


def vectors_of(encoder: Encoder, number: int) -> list[np.ndarray[Any, Any]]:
    """The vectors of all pages in one call, or of all questions."""
    if number % 2:
        return [encoder.encode_query(question) for question in QUESTIONS]
    images = IMAGES if encoder.reads == "image" else ()
    return [page.vectors for page in encoder.encode_pages(PAGES, images)]


@pytest.mark.parametrize("kind", KINDS)
def test_threads_get_the_vectors_of_a_single_thread(
    new: Callable[[str], Encoder], kind: str
) -> None:
    encoder = new(kind)
    found = at_once(lambda number: [vectors_of(encoder, number) for _ in range(3)])
    expected = [vectors_of(encoder, number) for number in (0, 1)]
    for number, rounds in enumerate(found):
        for vectors in rounds:
            for one, other in zip(vectors, expected[number % 2], strict=True):
                np.testing.assert_array_equal(one, other)


def test_a_page_tried_again_in_float32_does_not_disturb_other_threads(
    new: Callable[[str], Encoder],
) -> None:
    """float16 stands in for what runs on graphics cards."""
    encoder = new("colpali")
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

    at_once(work)
    assert model.dtype == torch.float16


def test_threads_that_begin_at_once_load_once(
    new: Callable[[str], Encoder],
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
        new("embedded"),
        CountedVisual(str(checkpoint("colqwen2.5")), device="cpu"),
    ]
    at_once(lambda number: encoders[number % 2].encode_query("revenue"))
    assert sorted(loaded) == ["embedded", "visual"]


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_released_is_gone_and_comes_back(
    new: Callable[[str], Encoder], kind: str, *, pooled: bool
) -> None:
    encoder = inner = new(kind)
    if pooled:
        encoder = PooledEncoder(inner, 2)
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


def test_an_encoder_released_while_it_works_goes_on(new: Callable[[str], Encoder]) -> None:
    encoder = new("colqwen2.5")
    expected = vectors_of(encoder, 0)
    assert isinstance(encoder, VisualEncoder)

    def work(number: int) -> list[np.ndarray[Any, Any]]:
        if number:
            encoder.release()
        return vectors_of(encoder, 0)

    for found in at_once(work, threads=3):
        for vectors, wanted in zip(found, expected, strict=True):
            np.testing.assert_array_equal(vectors, wanted)
