"""Pages with NaN or infinite vectors are tried again, then marked invalid and never found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.encoders.test_visual import encode, noise
from visar.encoders.encoder import NOT_FINITE, page_without_vectors
from visar.encoders.visual import VisualEncoder
from visar.errors import InvalidVectors
from visar.index import Index
from visar.retrieval.wording import why_so_many

Make = Callable[[str], Path]


class Failing:
    """Make a model return NaN for dark pages, a given number of times."""

    def __init__(self, encoder: VisualEncoder, times: int, value: float = float("nan")) -> None:
        self.dtypes: list[torch.dtype] = []
        self._left = times
        self._value = value
        encoder._loaded.get().model.register_forward_hook(self._fail, with_kwargs=True)

    def _fail(self, model: Any, _args: Any, inputs: dict[str, Any], output: Any) -> Any:
        pixels = inputs.get("pixel_values")
        dark = torch.ones(1, dtype=torch.bool)
        if pixels is not None:
            dark = pixels.flatten(1).mean(dim=1) < -0.5
        if dark.any() and self._left > 0:
            self._left -= 1
            self.dtypes.append(model.dtype)
            output = output.clone()
            output[dark, -1, 0] = self._value
        return output


@pytest.fixture
def colpali(checkpoint: Make) -> VisualEncoder:
    return VisualEncoder(str(checkpoint("colpali")), device="cpu", batch_size=4)


DARK = noise(200, 300).point(lambda value: value // 16)
PAGES = (noise(200, 300, 1), DARK, noise(200, 300, 2))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_page_that_fails_once_is_encoded_again_alone(
    colpali: VisualEncoder, value: float
) -> None:
    expected = encode(colpali, *PAGES)
    Failing(colpali, 1, value)
    found = encode(colpali, *PAGES)
    for page, wanted in zip(found, expected, strict=True):
        assert page.invalid is None
        np.testing.assert_allclose(page.vectors, wanted.vectors, atol=5e-4)


def test_a_page_that_fails_twice_is_invalid_but_others_are_not(
    colpali: VisualEncoder,
) -> None:
    expected = encode(colpali, *PAGES)
    Failing(colpali, 2)
    first, second, third = encode(colpali, *PAGES)
    assert second.invalid == f"{NOT_FINITE}, in float32 too"
    assert second.vectors.shape == (0, 128)
    assert second.boxes.shape == (0, 4)
    for page, wanted in ((first, expected[0]), (third, expected[2])):
        assert page.invalid is None
        np.testing.assert_array_equal(page.vectors, wanted.vectors)


def test_the_retry_uses_float32_and_then_restores_the_model(
    colpali: VisualEncoder,
) -> None:
    """Uses float16 in place of the format used on graphics cards."""
    model = colpali._loaded.get().model.half()
    before = {name: weights.clone() for name, weights in model.named_parameters()}
    failing = Failing(colpali, 2)
    assert encode(colpali, DARK)[0].invalid is not None
    assert failing.dtypes == [torch.float16, torch.float32]
    for name, weights in model.named_parameters():
        assert weights.dtype == torch.float16
        assert torch.equal(weights, before[name])


def test_a_question_with_nan_is_an_error(colpali: VisualEncoder) -> None:
    Failing(colpali, 1)
    assert np.isfinite(colpali.encode_query("revenue")).all()
    Failing(colpali, 2)
    with pytest.raises(InvalidVectors, match="'revenue'"):
        colpali.encode_query("revenue")


def test_invalid_pages_are_stored_with_the_reason_and_never_found(
    checkpoint: Make, tmp_path: Path, make_pdf: Callable[..., Path]
) -> None:
    name = str(checkpoint("colpali"))
    index = Index.open(tmp_path / "index", device="cpu")
    encoder = index.encoder(name)
    assert isinstance(encoder, VisualEncoder)
    good = encoder._encode

    def broken(loaded: Any, images: Any) -> Any:
        return [
            page if np.asarray(image).mean() > 250 else page_without_vectors(128, "no numbers")
            for image, page in zip(images, good(loaded, images), strict=True)
        ]

    encoder._encode = broken  # type: ignore[method-assign]
    many_words = "\n".join("MMMMMMMMMMMMMMMMMMMMMMMMMMMMMM" for _ in range(25))
    path = make_pdf("mixed.pdf", "Cats sleep.", many_words, "Dogs bark.")
    added = index.add(path, encoder=name)
    assert [(p.encoder, p.number, p.reason) for p in added.invalid] == [(name, 2, "no numbers")]
    assert len(added.failed_pages(name)) == len(added.failed_pages()) == 1
    assert added.failed_pages("embedded") == ()
    found = Index.open(tmp_path / "index").search("cats", encoder=name, method="top-k", k=3)
    assert found.pages_invalid == 1
    assert {hit.page for hit in found.pages[:2]} == {1, 3}
    assert f"page 2 of {added.name}" in why_so_many(found)
    assert not index.verify()
