"""ColBERTv2 on a tiny checkpoint in the layout of the published one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.encoders import tiny
from visar.documents.page import Page, Word
from visar.encoders import registry
from visar.encoders.colbert import ColbertEncoder
from visar.errors import CheckpointError, EmptyQuestion
from visar.index import Index
from visar.models.loading import import_torchvision

LONGEST = 24 - 3


@pytest.fixture(scope="session")
def colbert(tmp_path_factory: pytest.TempPathFactory) -> ColbertEncoder:
    import_torchvision()
    path = tiny.save_colbert(tmp_path_factory.mktemp("colbert") / "colbertv2.0")
    encoder = registry.get_encoder(str(path), device="cpu")
    assert isinstance(encoder, ColbertEncoder)
    return encoder


def page(text: str, number: int = 1) -> Page:
    words = text.split()
    width = 1 / max(1, len(words))
    placed = (Word(word, (i * width, 0.1, (i + 1) * width, 0.2), 0) for i, word in enumerate(words))
    return Page(number, 595, 842, 0, tuple(placed), "text layer")


def test_every_token_stands_where_its_word_does(colbert: ColbertEncoder) -> None:
    text = page("the (revenue) zebra ? was")
    (found,) = colbert.encode_pages([text])
    # Two marks, the word, the bracketed word without its brackets, five letters, no question
    # mark (ColBERT leaves punctuation out), the last word, the mark at the end.
    assert found.words.tolist() == [-1, -1, 0, 1, 2, 2, 2, 2, 2, 4, -1]
    for box, word in zip(found.boxes, found.words, strict=True):
        expected = (0, 0, 0, 0) if word < 0 else text.words[word].box
        np.testing.assert_allclose(box, expected, atol=1e-6)
    lengths = np.linalg.norm(found.vectors.astype(np.float32), axis=1)
    np.testing.assert_allclose(lengths, 1, atol=2e-3)
    assert found.vectors.dtype == np.float16
    assert found.vectors.shape == (11, colbert.dimension)


def test_the_vectors_are_those_of_sentence_transformers(colbert: ColbertEncoder) -> None:
    (found,) = colbert.encode_pages([page("what is the total revenue")])
    (expected,) = colbert._loaded.get().model.encode_document(["what is the total revenue"])
    np.testing.assert_allclose(found.vectors, expected.cpu().numpy(), atol=1e-3)


def test_a_long_page_is_read_in_parts_and_loses_nothing(colbert: ColbertEncoder) -> None:
    words = ["revenue", "zebra", "cats"] * 20
    (found,) = colbert.encode_pages([page(" ".join(words))])
    assert set(found.words.tolist()) == {-1, *range(60)}
    counts = np.bincount(found.words[found.words >= 0])
    assert counts.tolist() == [1, 5, 1] * 20
    assert (found.words == -1).sum() >= 3 * (140 / LONGEST)


def test_pages_do_not_depend_on_their_neighbours(colbert: ColbertEncoder) -> None:
    pages = [page("cats sleep"), page(""), page("the total revenue was 42 " * 9)]
    together = colbert.encode_pages(pages)
    assert together[1].vectors.shape == (0, 128)
    assert together[1].invalid is None
    for one, text in zip(together, pages, strict=True):
        (alone,) = colbert.encode_pages([text])
        np.testing.assert_allclose(one.vectors, alone.vectors, atol=5e-4)


def test_a_question_is_filled_up_with_masks(colbert: ColbertEncoder) -> None:
    found = colbert.encode_query("what is the revenue?")
    assert found.shape == (16, 128)
    assert found.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    with pytest.raises(EmptyQuestion):
        colbert.encode_query(" ")


def test_a_word_longer_than_the_model_reads_is_cut(colbert: ColbertEncoder) -> None:
    (found,) = colbert.encode_pages([page("cats " + "z" * 60 + " sleep")])
    counts = np.bincount(found.words[found.words >= 0])
    assert counts.tolist() == [1, LONGEST, 1]


@pytest.fixture(scope="session")
def edge(tmp_path_factory: pytest.TempPathFactory) -> ColbertEncoder:
    import_torchvision()
    path = tiny.save_edge_colbert(tmp_path_factory.mktemp("edge") / "edge-colbert")
    encoder = registry.get_encoder(str(path), device="cpu")
    assert isinstance(encoder, ColbertEncoder)
    return encoder


def test_a_colbert_of_pylate_stands_where_its_words_do(edge: ColbertEncoder) -> None:
    """Its tokenizer joins the space before a word to the word's first token."""
    text = page("the (revenue) zebra , was")
    (found,) = edge.encode_pages([text])
    assert edge.dimension == 48
    assert found.vectors.shape == (len(found.words), 48)
    assert sorted(set(found.words.tolist())) == [-1, 0, 1, 2, 3, 4]
    assert found.words.tolist() == [-1, -1, *sorted(found.words[2:-1].tolist()), -1]
    joined = " ".join(word.text for word in text.words)
    (expected,) = edge._loaded.get().model.encode_document([joined])
    np.testing.assert_allclose(found.vectors, expected.cpu().numpy(), atol=1e-3)
    assert edge.encode_query("what is the revenue?").shape == (16, 48)


def test_a_long_page_loses_nothing_to_a_tokenizer_with_spaces(edge: ColbertEncoder) -> None:
    (found,) = edge.encode_pages([page(" ".join(["revenue", "zebra", "cats"] * 20))])
    assert set(found.words.tolist()) == {-1, *range(60)}


def test_other_projections_are_another_version(edge: ColbertEncoder, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(edge.name, copy)
    assert ColbertEncoder(str(copy)).version == edge.version
    weights = bytearray((copy / "2_Dense" / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (copy / "2_Dense" / "model.safetensors").write_bytes(weights)
    assert ColbertEncoder(str(copy)).version != edge.version


def test_another_length_of_vectors_than_the_name_stands_for_is_refused(
    edge: ColbertEncoder,
) -> None:
    with pytest.raises(CheckpointError, match="makes vectors of 48 dimensions, not 64"):
        ColbertEncoder(edge.name, dimension=64, device="cpu").encode_query("revenue")


def test_another_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "bert", "architectures": ["BertModel"]})
    )
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="is BertModel where ColBERT was expected"):
        _ = ColbertEncoder(str(tmp_path)).version


def test_a_pdf_is_asked(
    colbert: ColbertEncoder, tmp_path: Path, make_pdf: Callable[..., Path]
) -> None:
    index = Index.open(tmp_path / "index", device="cpu")
    index.add(make_pdf("a.pdf", "The total revenue was 42.", "Cats sleep."), encoder=colbert.name)
    answer = index.ask("what is the total revenue?", encoder=colbert.name)
    assert answer.search.pages_searched == 2
    assert answer.passages
    assert answer.search.pages[0].snippet
