"""Images as questions, for encoders that read page images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.encoders.samples import PixelEncoder, picture
from tests.encoders.servers import serving
from visar.documents.page import Page
from visar.encoders.encoder import PageEmbedding, encode_image_query, page_without_vectors
from visar.encoders.reduced import ReducedEncoder
from visar.encoders.remote import RemoteEncoder
from visar.encoders.visual import VisualEncoder
from visar.errors import InvalidOption, InvalidVectors
from visar.explain.pictures import pages_with_heat
from visar.index import Index


def test_a_crop_finds_its_page(
    pixel_encoder: Callable[[str], VisualEncoder], tmp_path: Path
) -> None:
    """The family encodes pages in their own size; the crop follows the edges of patches."""
    encoder = pixel_encoder("colqwen2.5")
    folder = tmp_path / "pages"
    folder.mkdir()
    for number in range(1, 4):
        picture(number, 140, 168).save(folder / f"{number}.png")
    index = Index.open(tmp_path / "index")
    index.add(folder, encoder=encoder)
    crop = picture(3, 140, 168).crop((28, 28, 84, 112))
    found = index.search(image=crop, encoder=encoder, method="top-k", k=1)
    assert found.pages[0].page == 3
    assert found.trace is not None
    assert found.trace.question.shape == (2 * 3, encoder.dimension)
    assert found.match == pytest.approx(1, abs=1e-3)
    # The heat map shows where the crop was taken from.
    patches = index.patches(found, found.documents[0].id, 3)
    boxes = np.array(patches.boxes)
    exact = np.flatnonzero(np.max(patches.cosines, axis=0) > 1 - 1e-3)
    np.testing.assert_allclose(boxes[exact].min(axis=0)[:2], [28 / 140, 28 / 168], atol=1e-3)
    np.testing.assert_allclose(boxes[exact].max(axis=0)[2:], [84 / 140, 112 / 168], atol=1e-3)
    assert len(list(pages_with_heat(index, found, dpi=36))) == 1


def test_image_and_symbol_questions_find_pages_without_quotes(
    tmp_path: Path, make_pdf: Callable[..., Path]
) -> None:
    """Neither question has a word that a quote could contain."""
    index = Index.open(tmp_path / "index")
    encoder = PixelEncoder()
    path = make_pdf("a.pdf", "The warranty lasts seven years.\nFive on the battery.", "Cats sleep.")
    document = index.add(path, encoder=encoder)
    page = index.image(document.id, 2)
    found = index.search(image=page, encoder=encoder)
    assert found.pages[0].page == 2
    assert found.pages[0].snippet == "Cats sleep."
    assert index.search("???", encoder=encoder).pages


def test_pooled_and_remote_encoders_encode_images() -> None:
    image = picture(1)
    expected = encode_image_query(PixelEncoder(), image)
    assert expected.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(expected, axis=1), 1, atol=2e-3)
    assert (
        len(encode_image_query(ReducedEncoder(PixelEncoder(), pool=2), image)) == len(expected) // 2
    )
    with serving(PixelEncoder()) as url:
        np.testing.assert_array_equal(encode_image_query(RemoteEncoder(url), image), expected)


class Failing(PixelEncoder):
    def encode_pages(self, pages: Sequence[Page], images: Sequence[Any]) -> list[PageEmbedding]:
        assert images
        return [page_without_vectors(self.dimension, "no numbers") for _ in pages]


def test_invalid_image_questions_are_errors(tmp_path: Path) -> None:
    index = Index.open(tmp_path / "index")
    encoder = PixelEncoder()
    picture(1).save(tmp_path / "page.png")
    index.add(tmp_path / "page.png", encoder=encoder)
    with pytest.raises(InvalidOption, match="a question or an image, not both"):
        index.search("what?", image=picture(1), encoder=encoder)
    with pytest.raises(InvalidVectors, match=r"image: no numbers"):
        encode_image_query(Failing(), picture(1))
