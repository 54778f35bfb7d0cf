"""End-to-end tests from a PDF to an answer with a visual encoder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from reportlab.pdfgen.canvas import Canvas

from tests.encoders import tiny
from visar.encoders.visual import VisualEncoder
from visar.explain.pictures import pages_with_heat
from visar.index import Index
from visar.results import EncoderRef

Make = Callable[[str], Path]
QUESTION = "what is the total revenue?"


@pytest.mark.parametrize("family", tiny.MAKERS)
def test_a_pdf_is_added_and_asked(
    checkpoint: Make, family: str, tmp_path: Path, make_pdf: Callable[..., Path]
) -> None:
    name = str(checkpoint(family))
    path = make_pdf("report.pdf", "Revenue was 42.", "Cats sleep all day.", "A chart of growth.")
    index = Index.open(tmp_path / "index", device="cpu")
    added = index.add(path, encoder=name)
    (encoder,) = added.encoders
    assert (encoder.name, encoder.dimension) == (name, tiny.DIMENSIONS.get(family, 128))
    assert added.invalid == ()
    # Another process finds the same vectors under the same name and version.
    again = Index.open(tmp_path / "index", device="cpu")
    answer = again.ask(QUESTION, encoder=name)
    assert answer.search.pages_searched == 3
    assert 1 <= answer.search.k <= 3
    assert answer.search.pages_invalid == 0
    pictures = list(pages_with_heat(again, answer.search, dpi=36))
    assert len(pictures) == answer.search.k


@pytest.mark.parametrize("rotation", [0, 90])
@pytest.mark.parametrize("family", tiny.MAKERS)
def test_heat_follows_page_rotation(
    pixel_encoder: Callable[[str], VisualEncoder],
    family: str,
    rotation: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The mark is drawn at the top left and displayed at the top right if rotated by 90°."""
    path = tmp_path / "mark.pdf"
    sheet = Canvas(str(path), pagesize=(300, 420), invariant=True)
    for mark in (True, False):
        sheet.setPageRotation(rotation)
        if mark:
            sheet.setFillGray(0)
            sheet.rect(0, 270, 105, 150, stroke=0, fill=1)
        sheet.showPage()
    sheet.setFillGray(0)
    sheet.rect(0, 0, 300, 420, stroke=0, fill=1)
    sheet.showPage()
    sheet.save()
    encoder = pixel_encoder(family)
    name = encoder.name
    index = Index.open(tmp_path / "index", device="cpu")
    index._models.get(("encoder", name), lambda: encoder)
    document = index.add(path, encoder=name)
    held = index._store.vectors(document.id, EncoderRef.of(encoder))
    dark = held.vectors[held.offsets[2] :][held.boxes[held.offsets[2] :].any(axis=1)][:1]
    monkeypatch.setattr(encoder, "encode_query", lambda _question: dark.astype(np.float32))
    found = index.search("dark", encoder=name, method="top-k", k=3)
    hit = next(hit for hit in found.pages if hit.page == 1)
    first = held.offsets[1]
    heat = held.vectors[:first].astype(np.float32) @ dark[0].astype(np.float32)
    heat[~held.boxes[:first].any(axis=1)] = -1
    left, top, right, bottom = held.boxes[:first][int(heat.argmax())]
    across, down = (left + right) / 2, (top + bottom) / 2
    assert down < 0.36
    assert across > 0.64 if rotation else across < 0.36
    corpus = index.searcher(None, name)._corpus
    boxes, _ = corpus.page(hit.document, hit.page).patches(0)
    np.testing.assert_array_equal(boxes, held.boxes[:first])
