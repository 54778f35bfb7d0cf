"""The visual encoders, each on a tiny random checkpoint loaded from disk as a real one is."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.encoders import tiny
from visar.documents.page import Page
from visar.encoders.checkpoint_encoder import LoadedModel
from visar.encoders.protocol import Encoder, PageEmbedding
from visar.encoders.registry import get_encoder
from visar.encoders.visual import FAMILIES as CLASSES
from visar.encoders.visual import VisualEncoder, family_of
from visar.errors import (
    CheckpointError,
    DamagedModel,
    EmptyQuestion,
    InvalidOption,
    InvalidVectors,
)
from visar.models.checkpoints import find_checkpoint

FAMILIES = tuple(tiny.MAKERS)
PROJECTIONS = ("custom_text_proj.weight", "linear.weight")
# What an adapter's file has before the names of its model.
PREFIX = re.compile(r"^base_model\.model\.")
# Pages of one batch against the same pages alone, in float16 of vectors of length 1: padding
# changes the order of sums, which is seen in the last bit of float16.
TOLERANCE = 5e-4

Load = Callable[[str], VisualEncoder]


def pages(count: int) -> list[Page]:
    return [Page(number, 600, 800, 0, (), "none") for number in range(1, count + 1)]


def noise(width: int, height: int, seed: int = 0) -> Image.Image:
    values = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    return Image.fromarray(values)


def encode(encoder: Encoder, *images: Image.Image) -> list[PageEmbedding]:
    return encoder.encode_pages(pages(len(images)), images)


MIXED = (noise(300, 100, 1), noise(120, 330, 2), noise(200, 220, 3))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_page_has_unit_vectors_with_places(encoder: Load, family: str) -> None:
    (page,) = encode(encoder(family), noise(210, 297))
    lengths = np.linalg.norm(page.vectors.astype(np.float32), axis=1)
    assert page.vectors.dtype == np.float16
    assert page.vectors.shape[1] == encoder(family).dimension == 128
    np.testing.assert_allclose(lengths, 1, atol=2e-3)
    assert (page.words == -1).all()
    placed = page.boxes.any(axis=1)
    assert 0 < (~placed).sum() < placed.sum() + 60
    assert page.boxes.min() == 0
    assert page.boxes.max() == 1
    width, height = (page.boxes[placed, 2:] - page.boxes[placed, :2]).T
    assert (width > 0).all()
    assert (height > 0).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_pages_of_a_batch_are_the_pages_alone_without_padding(encoder: Load, family: str) -> None:
    together = encode(encoder(family), *MIXED)
    alone = [encode(encoder(family), image)[0] for image in MIXED]
    if family != "colpali":  # whose pages all have the same number of patches
        assert len({len(page.vectors) for page in together}) > 1
    for one, other in zip(together, alone, strict=True):
        assert one.vectors.shape == other.vectors.shape
        np.testing.assert_array_equal(one.boxes, other.boxes)
        np.testing.assert_allclose(
            one.vectors.astype(np.float32), other.vectors.astype(np.float32), atol=TOLERANCE
        )


@pytest.mark.parametrize("family", FAMILIES)
def test_instruction_tokens_can_be_left_out(encoder: Load, checkpoint: Any, family: str) -> None:
    bare = get_encoder(f"{checkpoint(family)}+patches", device="cpu")
    (whole,), (patches,) = encode(encoder(family), MIXED[1]), encode(bare, MIXED[1])
    placed = whole.boxes.any(axis=1)
    np.testing.assert_array_equal(patches.boxes, whole.boxes[placed])
    np.testing.assert_array_equal(patches.vectors, whole.vectors[placed])
    assert bare.version != encoder(family).version


@pytest.mark.parametrize("family", FAMILIES)
def test_the_adapter_is_applied_to_its_base(encoder: Load, checkpoint: Any, family: str) -> None:
    """The vectors are those of the model that was saved: both parts of it are there."""
    base = VisualEncoder(str(checkpoint(family)) + "-base", device="cpu")
    again = VisualEncoder(str(checkpoint(family)), device="cpu")
    (adapted,), (plain,) = encode(encoder(family), MIXED[0]), encode(base, MIXED[0])
    (loaded_again,) = encode(again, MIXED[0])
    np.testing.assert_allclose(loaded_again.vectors, adapted.vectors, atol=TOLERANCE)
    assert np.abs(adapted.vectors - plain.vectors).max() > 0.05
    assert again.version == encoder(family).version != base.version


def test_an_adapter_with_the_older_names_of_weights_is_the_same(
    encoder: Load, checkpoint: Any, tmp_path: Path
) -> None:
    """ColPali's language model had another place in transformers 4, when v1.2 was published."""
    from safetensors.torch import load_file, save_file

    older = tmp_path / "older"
    shutil.copytree(checkpoint("colpali"), older)
    weights = load_file(older / "adapter_model.safetensors")
    now, then = ".model.model.language_model.", ".model.language_model.model."
    renamed = {name.replace(now, then): value for name, value in weights.items()}
    assert set(renamed) != set(weights)
    save_file(renamed, older / "adapter_model.safetensors", metadata={"format": "pt"})
    (page,) = encode(VisualEncoder(str(older), device="cpu"), MIXED[0])
    (expected,) = encode(encoder("colpali"), MIXED[0])
    np.testing.assert_allclose(page.vectors, expected.vectors, atol=TOLERANCE)


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_that_are_missing_are_not_replaced_by_random_ones(
    checkpoint: Any, family: str, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    broken = tmp_path / "broken"
    shutil.copytree(str(checkpoint(family)) + "-base", broken)
    weights = load_file(broken / "model.safetensors")
    lost = next(name for name in weights if name.endswith(PROJECTIONS))
    del weights[lost]
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(DamagedModel, match=rf"lacks 1 weights.*{re.escape(PREFIX.sub('', lost))}"):
        encode(VisualEncoder(str(broken), device="cpu"), MIXED[0])


def test_a_changed_adapter_has_another_version(checkpoint: Any, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(checkpoint("colqwen2.5"), copy)
    before = VisualEncoder(str(copy)).version
    assert before == VisualEncoder(str(checkpoint("colqwen2.5"))).version
    weights = bytearray((copy / "adapter_model.safetensors").read_bytes())
    weights[-1] ^= 1
    (copy / "adapter_model.safetensors").write_bytes(weights)
    assert VisualEncoder(str(copy)).version != before


def test_a_colpali_page_and_question_have_one_beginning(encoder: Load) -> None:
    """The tokenizer, the processor and colpali-engine's prompt each set one if left alone."""
    loaded = encoder("colpali")._loaded.get()
    with _inputs_of(loaded) as seen:
        encode(encoder("colpali"), MIXED[0])
        encoder("colpali").encode_query("what is the total revenue?")
    page, question = (call["input_ids"][0].tolist() for call in seen)
    beginning = loaded.processor.tokenizer.bos_token_id
    assert page.count(beginning) == 1
    assert question.count(beginning) == 1
    assert question[0] == beginning


def test_colqwen_finds_positions_from_the_whole_batch(encoder: Load) -> None:
    """Without the image's grid, patches would be numbered as if they were words."""
    loaded = encoder("colqwen2.5")._loaded.get()
    with _inputs_of(loaded) as seen:
        (page,) = encode(encoder("colqwen2.5"), MIXED[0])
    (inputs,) = seen
    assert {"image_grid_thw", "attention_mask", "mm_token_type_ids"} <= set(inputs)
    as_words = torch.arange(inputs["input_ids"].shape[1]).expand(3, 1, -1)
    with torch.inference_mode():
        wrong = loaded.model(**inputs, position_ids=as_words)[0].numpy()
    assert np.abs(wrong - page.vectors.astype(np.float32)).max() > 10 * TOLERANCE


@contextmanager
def _inputs_of(loaded: LoadedModel) -> Iterator[list[dict[str, Any]]]:
    """What the model is called with."""
    calls: list[dict[str, Any]] = []

    def note(_module: Any, _args: Any, kwargs: dict[str, Any]) -> None:
        calls.append(dict(kwargs))

    hook = loaded.model.register_forward_pre_hook(note, with_kwargs=True)
    yield calls
    hook.remove()


@pytest.mark.parametrize(
    # Shrunk to 40 patches of 28 pixels: 560/140 = 4 is the ratio of 12 to 3, which are 36.
    ("size", "rows", "columns"),
    [((560, 140), 3, 12), ((140, 560), 12, 3), ((300, 300), 6, 6)],
)
def test_colqwen_grids_have_the_page_s_shape(
    encoder: Load, size: tuple[int, int], rows: int, columns: int
) -> None:
    """The grid comes height first: a wide page has few rows."""
    (page,) = encode(encoder("colqwen2.5"), noise(*size))
    boxes = page.boxes[page.boxes.any(axis=1)]
    assert len(np.unique(boxes[:, 1])) == rows
    assert len(np.unique(boxes[:, 0])) == columns
    assert boxes[1, 1] == 0, "the second patch stands right of the first"


def test_colmodernvbert_shows_tiles_and_then_the_whole_page(encoder: Load) -> None:
    (page,) = encode(encoder("colmodernvbert"), noise(300, 100))
    boxes = page.boxes[page.boxes.any(axis=1)]
    side = tiny.TILE // tiny.TILE_PATCH // tiny.SHUFFLE
    tiles, whole = boxes[: -(side**2)], boxes[-(side**2) :]
    assert len(tiles) == 3 * side**2
    assert np.unique(tiles[: side**2, 2]).max() == pytest.approx(1 / 3), "the first tile is left"
    assert np.unique(whole[:, 0]).tolist() == [0, 0.25, 0.5, 0.75]
    areas = (tiles[:, 2] - tiles[:, 0]) * (tiles[:, 3] - tiles[:, 1])
    assert areas.sum() == pytest.approx(1), "the tiles cover the page once"


CORNERS = {
    "top left": (0.0, 0.0),
    "top right": (0.65, 0.0),
    "bottom left": (0.0, 0.65),
    "bottom right": (0.65, 0.65),
}
MARK = 0.35


@pytest.mark.parametrize("size", [(300, 300), (420, 180), (180, 420)])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_hottest_box_covers_the_bright_mark(
    pixel_encoder: Load, family: str, size: tuple[int, int]
) -> None:
    marks = [np.array([x, y, x + MARK, y + MARK]) for x, y in CORNERS.values()]
    images = [with_mark(size, mark) for mark in marks]
    *found, white = encode(pixel_encoder(family), *images, Image.new("RGB", size, "white"))
    for corner, mark, page in zip(CORNERS, marks, found, strict=True):
        heat, boxes = _heat(page, white), page.boxes[page.boxes.any(axis=1)]
        hottest = boxes[int(heat.argmax())]
        centre = (hottest[:2] + hottest[2:]) / 2
        assert ((mark[:2] < centre) & (centre < mark[2:])).all(), corner
        inside = (boxes[:, :2] >= mark[:2] - 1e-6).all(1) & (boxes[:, 2:] <= mark[2:] + 1e-6).all(1)
        apart = (boxes[:, :2] > mark[2:]).any(1) | (boxes[:, 2:] < mark[:2]).any(1)
        assert inside.any(), corner
        assert heat[inside].min() > heat[apart].max(), corner


def with_mark(size: tuple[int, int], mark: Any) -> Image.Image:
    page = Image.new("RGB", size, "black")
    left, top, right, bottom = (mark * np.tile(size, 2)).round().astype(int).tolist()
    page.paste((255, 255, 255), (left, top, right, bottom))
    return page


def _heat(page: PageEmbedding, white: PageEmbedding) -> Any:
    """How near each patch of a page is to one that is white."""
    patches = page.vectors[page.boxes.any(axis=1)].astype(np.float32)
    return patches @ white.vectors[white.boxes.any(axis=1)][0].astype(np.float32)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_question_has_unit_vectors(encoder: Load, family: str) -> None:
    short = encoder(family).encode_query("revenue?")
    long = encoder(family).encode_query("what is the total revenue of the table on the page?")
    assert short.dtype == np.float32
    assert short.shape[1] == 128
    assert len(short) < len(long)
    np.testing.assert_allclose(np.linalg.norm(long, axis=1), 1, atol=1e-5)
    with pytest.raises(EmptyQuestion, match="at least one word"):
        encoder(family).encode_query("  ")


def test_colmodernvbert_as_the_authors_ran_it(encoder: Load, checkpoint: Any) -> None:
    """Questions as plain texts, without augmentation; pages as ever here, where all is float32."""
    folder = checkpoint("colmodernvbert")
    ours, theirs = encoder("colmodernvbert"), get_encoder(f"{folder}+authors", device="cpu")
    assert isinstance(theirs, VisualEncoder)
    assert theirs.version == f"{ours.version}-authors"
    loaded = theirs._loaded.get()
    precision = []
    loaded.model.register_forward_pre_hook(
        lambda *_: precision.append(torch.get_float32_matmul_precision())
    )
    question = "what is the total revenue?"
    tokens = loaded.processor.tokenizer(question)["input_ids"]
    augmentation = loaded.processor.query_augmentation_token
    assert len(theirs.encode_query(question)) == len(tokens)
    longer = loaded.processor.tokenizer(question + 10 * augmentation)["input_ids"]
    assert len(ours.encode_query(question)) == len(longer)
    (page,), (same,) = encode(theirs, MIXED[0]), encode(ours, MIXED[0])
    np.testing.assert_allclose(page.vectors, same.vectors, atol=TOLERANCE)
    assert precision == ["high", "high"]
    assert torch.get_float32_matmul_precision() == "highest", "others keep theirs"
    assert {weights.dtype for weights in loaded.model.parameters()} == {torch.float32}


def test_the_other_families_have_no_mode_of_the_authors(checkpoint: Any) -> None:
    with pytest.raises(InvalidOption, match="has no such mode"):
        get_encoder(f"{checkpoint('colpali')}+authors", device="cpu")


def test_the_cpu_never_sees_bfloat16(encoder: Load) -> None:
    """Some CPUs end the process at a product of bfloat16 matrices."""
    for family in FAMILIES:
        model = encoder(family)._loaded.get().model
        assert {weights.dtype for weights in model.parameters()} == {torch.float32}


def test_every_page_needs_its_image(encoder: Load) -> None:
    with pytest.raises(InvalidVectors, match="2 pages came with 1 images"):
        encoder("colpali").encode_pages(pages(2), [noise(30, 30)])


def test_the_layout_is_the_published_one(checkpoint: Any) -> None:
    """An adapter beside no model of its own, its base named in its configuration."""
    for family in FAMILIES:
        folder = checkpoint(family)
        assert (folder / "config.json").exists() == (family == "colsmol")
        assert not (folder / "model.safetensors").exists()
        adapter = json.loads((folder / "adapter_config.json").read_text())
        assert adapter["base_model_name_or_path"] == f"{folder}-base"
        assert "custom_text_proj" in adapter["target_modules"]


def test_the_classes_are_colpali_engine_s() -> None:
    from visar.models.loading import import_torchvision

    import_torchvision()
    from colpali_engine import models

    for family in CLASSES.values():
        assert hasattr(models, family.model_class)
        assert hasattr(models, family.processor_class)


@pytest.mark.parametrize("family", CLASSES)
def test_the_family_is_read_from_the_configuration(checkpoint: Any, family: str) -> None:
    """The folder's name says nothing."""
    assert family_of(find_checkpoint(str(checkpoint(family)))) is CLASSES[family]
    encoder = get_encoder(str(checkpoint(family)), device="cpu")
    assert isinstance(encoder, VisualEncoder)
    assert encoder.name == str(checkpoint(family))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "llama"}, r"type 'llama'; ViSAR knows visual encoders of the types pali"),
        ({"model_type": "colpali"}, r"transformers' own classes"),
        (
            {"model_type": "paligemma", "architectures": ["PaliGemmaForConditionalGeneration"]},
            r"no projection to multi-vector embeddings\. Take a checkpoint of ColPali",
        ),
        ({"model_type": "qwen2_5_vl", "architectures": ["BiQwen2_5"]}, r"is BiQwen2_5, not Col"),
    ],
)
def test_a_checkpoint_of_another_kind_is_refused(
    tmp_path: Path, config: dict[str, Any], message: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=message):
        get_encoder(str(tmp_path))
