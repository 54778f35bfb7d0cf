"""Multi-vector models of sentence-transformers, with tiny checkpoints in published layouts."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.encoders import tiny, tiny_published
from tests.encoders.servers import answering, like_the_hub
from tests.encoders.test_visual import MIXED, encode
from tests.models.test_hub import COMMIT, ENCODE_NAMES, run_child
from visar.documents.page import Page, Word
from visar.encoders import registry
from visar.encoders.multi_vector import ImageEncoder, TextEncoder
from visar.encoders.visual import VisualEncoder, grid_boxes
from visar.errors import CheckpointError
from visar.index import Index
from visar.models.loading import import_torchvision

LONGEST = 24 - 3


@pytest.fixture(scope="session")
def colbert(tmp_path_factory: pytest.TempPathFactory) -> TextEncoder:
    import_torchvision()
    path = tiny_published.save_colbert(tmp_path_factory.mktemp("colbert") / "colbertv2.0")
    encoder = registry.get_encoder(str(path), device="cpu")
    assert isinstance(encoder, TextEncoder)
    return encoder


def page(text: str, number: int = 1) -> Page:
    words = text.split()
    width = 1 / max(1, len(words))
    placed = (Word(word, (i * width, 0.1, (i + 1) * width, 0.2), 0) for i, word in enumerate(words))
    return Page(number, 595, 842, 0, tuple(placed), "text layer")


def test_pages_do_not_depend_on_their_neighbors(colbert: TextEncoder) -> None:
    pages = [page("cats sleep"), page(""), page("the total revenue was 42 " * 9)]
    together = colbert.encode_pages(pages)
    assert together[1].vectors.shape == (0, 128)
    assert together[1].invalid is None
    for one, text in zip(together, pages, strict=True):
        (alone,) = colbert.encode_pages([text])
        np.testing.assert_allclose(one.vectors, alone.vectors, atol=5e-4)


def test_a_word_longer_than_the_limit_is_truncated(colbert: TextEncoder) -> None:
    (found,) = colbert.encode_pages([page("cats " + "z" * 60 + " sleep")])
    counts = np.bincount(found.words[found.words >= 0])
    assert counts.tolist() == [1, LONGEST, 1]


@pytest.fixture(scope="session")
def edge(tmp_path_factory: pytest.TempPathFactory) -> TextEncoder:
    import_torchvision()
    path = tiny_published.save_edge_colbert(tmp_path_factory.mktemp("edge") / "edge-colbert")
    encoder = registry.get_encoder(str(path), device="cpu")
    assert isinstance(encoder, TextEncoder)
    return encoder


def test_tokens_of_a_pylate_colbert_have_the_boxes_of_their_words(edge: TextEncoder) -> None:
    """Its tokenizer includes the space before a word in the word's first token."""
    text = page("the (revenue) zebra , was")
    (found,) = edge.encode_pages([text])
    assert edge.dimension == 48
    assert found.vectors.shape == (len(found.words), 48)
    assert sorted(set(found.words.tolist())) == [-1, 0, 1, 2, 3, 4]
    assert found.words.tolist() == [-1, -1, *sorted(found.words[2:-1].tolist()), -1]
    joined = " ".join(word.text for word in text.words)
    (expected,) = edge._loaded.get().model.encode_document([joined])
    np.testing.assert_allclose(found.vectors, expected.cpu().numpy(), atol=1e-3)


def test_a_long_page_is_encoded_completely_by_a_tokenizer_with_spaces(edge: TextEncoder) -> None:
    (found,) = edge.encode_pages([page(" ".join(["revenue", "zebra", "cats"] * 20))])
    assert set(found.words.tolist()) == {-1, *range(60)}


def test_a_different_projection_changes_the_version(edge: TextEncoder, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(edge.name, copy)
    assert TextEncoder(str(copy)).version == edge.version
    weights = bytearray((copy / "2_Dense" / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (copy / "2_Dense" / "model.safetensors").write_bytes(weights)
    assert TextEncoder(str(copy)).version != edge.version


def test_an_unexpected_dimension_is_an_error(
    edge: TextEncoder,
) -> None:
    with pytest.raises(CheckpointError, match="48 dimensions, not 64"):
        TextEncoder(edge.name, dimension=64, device="cpu").encode_query("revenue")


def test_a_different_architecture_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "bert", "architectures": ["BertModel"]})
    )
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="BertModel, not ColBERT"):
        _ = TextEncoder(str(tmp_path)).version


def test_a_pdf_is_searched_and_asked(
    colbert: TextEncoder, tmp_path: Path, make_pdf: Callable[..., Path]
) -> None:
    index = Index.open(tmp_path / "index", device="cpu")
    index.add(make_pdf("a.pdf", "The total revenue was 42.", "Cats sleep."), encoder=colbert.name)
    answer = index.ask("what is the total revenue?", encoder=colbert.name)
    assert answer.search.pages_searched == 2
    assert answer.passages
    assert answer.search.pages[0].snippet


@pytest.fixture(scope="session")
def native_colpali(
    checkpoint: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The base of a tiny ColPali, saved by transformers' own class."""
    import_torchvision()
    from transformers import ColPaliConfig, ColPaliForRetrieval, ColPaliProcessor

    loaded = VisualEncoder(f"{checkpoint('colpali')}-base", device="cpu")._loaded.get()
    model = ColPaliForRetrieval(ColPaliConfig(vlm_config=loaded.model.config.to_dict()))
    weights = loaded.model.state_dict()
    vlm = {k.removeprefix("model.model."): v for k, v in weights.items() if "lm_head" not in k}
    model.vlm.load_state_dict({k: v for k, v in vlm.items() if "custom_text_proj" not in k})
    projection = {k: weights[f"custom_text_proj.{k}"] for k in ("weight", "bias")}
    model.embedding_proj_layer.load_state_dict(projection)
    return _save_sentence_transformer(
        tmp_path_factory.mktemp("native") / "colpali",
        model,
        ColPaliProcessor(loaded.processor.image_processor, loaded.processor.tokenizer),
    )


def _save_sentence_transformer(folder: Path, *parts: Any) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the libraries warn about how checkpoints are saved
        for part in parts:
            part.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def image_encoder(
    checkpoint: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], ImageEncoder]:
    """An image model saved by sentence-transformers, with a projection to 48 dimensions."""
    import_torchvision()
    import transformers
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    def make(family: str, kind: str) -> ImageEncoder:
        folder = tmp_path_factory.mktemp("image_encoder")
        loaded = VisualEncoder(f"{checkpoint(family)}-base", device="cpu")._loaded.get()
        bare = getattr(transformers, f"{kind}Model")(loaded.model.config)
        marks = "<|vision_start|><|image_pad|><|vision_end|>"
        named = {"chat_template": tiny.CHAT.replace(marks, loaded.processor.image_token)}
        parts = "image_processor tokenizer video_processor image_seq_len image_seq_length"
        for part in parts.split():
            if hasattr(loaded.processor, part):
                named[part] = getattr(loaded.processor, part)
        processor = getattr(transformers, f"{kind}Processor")(**named)
        torch.manual_seed(7)
        model = MultiVectorEncoder(
            modules=[
                Transformer(str(_save_sentence_transformer(folder / "bare", bare, processor))),
                Dense(64, 48, bias=False, module_input_name="token_embeddings"),
                MultiVectorMask(),
                Normalize(module_input_name="token_embeddings"),
            ],
            device="cpu",
        )
        encoder = registry.get_encoder(
            str(_save_sentence_transformer(folder / "saved", model)), device="cpu"
        )
        assert isinstance(encoder, ImageEncoder)
        assert encoder.dimension == 48
        return encoder

    return make


def test_transformers_colpali_has_the_vectors_of_colpali_engine(
    native_colpali: Path, checkpoint: Callable[[str], Path]
) -> None:
    native = registry.get_encoder(str(native_colpali), device="cpu")
    assert isinstance(native, ImageEncoder)
    assert (native.dimension, native.reads) == (128, "image")
    for image in MIXED:
        (found,) = encode(native, image)
        (expected,) = encode(VisualEncoder(f"{checkpoint('colpali')}-base", device="cpu"), image)
        np.testing.assert_array_equal(found.boxes, expected.boxes)
        np.testing.assert_allclose(found.vectors, expected.vectors, atol=1e-3)
    assert native.encode_query("what is the revenue?").shape[1] == 128


def test_an_image_model_is_downloaded_by_name(native_colpali: Path, tmp_path: Path) -> None:
    hub = like_the_hub({"someone/colpali-hf": (COMMIT, native_colpali)})
    with answering(hub) as (endpoint, _):
        process = run_child(
            ENCODE_NAMES.format(["someone/colpali-hf"]), endpoint, tmp_path / "cache"
        )
    assert process.stdout == f"someone/colpali-hf {COMMIT}-1 128\n", process.stderr


@pytest.mark.parametrize(("family", "kind"), [("colqwen2", "Qwen2VL"), ("colgemma3", "Gemma3")])
def test_patches_of_a_sentence_transformers_model_have_boxes(
    image_encoder: Callable[[str, str], ImageEncoder], family: str, kind: str
) -> None:
    """The grid has the page's shape, or is square."""
    encoder = image_encoder(family, kind)
    together = encode(encoder, *MIXED)
    for image, page in zip(MIXED, together, strict=True):
        boxes = page.boxes[page.boxes.any(axis=1)]
        rows, columns = len(np.unique(boxes[:, 1])), len(np.unique(boxes[:, 0]))
        assert (rows < columns) == (image.height < image.width and family == "colqwen2")
        np.testing.assert_array_equal(boxes, grid_boxes(rows, columns))
        (alone,) = encode(encoder, image)
        np.testing.assert_array_equal(alone.boxes, page.boxes)
        np.testing.assert_allclose(alone.vectors, page.vectors, atol=1e-3)
    question = encoder.encode_query("what is the revenue?")
    np.testing.assert_allclose(np.linalg.norm(question, axis=1), 1, atol=1e-5)


def test_vectors_have_no_boxes_if_the_grid_is_unknown(
    image_encoder: Callable[[str, str], ImageEncoder],
) -> None:
    """sentence-transformers doesn't expose the order of Idefics3's tiles."""
    page, other = encode(image_encoder("colsmol", "Idefics3"), MIXED[0], MIXED[1])
    assert len(page.vectors) > 4 * 16
    assert len(other.vectors) > 4 * 16
    assert not page.boxes.any()


def test_a_model_that_loses_patch_positions_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "colqwen2", "architectures": ["ColQwen2ForRetrieval"]})
    )
    (tmp_path / "config_sentence_transformers.json").write_text(
        json.dumps({"model_type": "MultiVectorEncoder"})
    )
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"vidore/colqwen2-v1\.0"):
        registry.get_encoder(str(tmp_path))
