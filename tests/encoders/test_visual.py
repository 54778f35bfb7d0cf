"""Visual encoders, each with a tiny random checkpoint loaded from disk like a real one."""

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
from visar.encoders.encoder import Encoder, PageEmbedding
from visar.encoders.registry import get_encoder
from visar.encoders.visual import FAMILIES as CLASSES
from visar.encoders.visual import VisualEncoder, family_of, grid_boxes
from visar.errors import (
    CheckpointError,
    DamagedModel,
    EmptyQuestion,
    InvalidOption,
    InvalidVectors,
)
from visar.models.checkpoints import find_checkpoint

FAMILIES = tuple(tiny.MAKERS)
SQUARE = ("colpali", "colgemma3")
OBLONG = ("colqwen2", "colqwen2.5", "colqwen3", "colqwen3.5")
PROJECTIONS = ("custom_text_proj.weight", "linear.weight")
# Tolerance between pages in a batch and alone: padding changes the order of sums, and with it the
# last bit of float16.
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
def test_a_page_has_unit_vectors_with_boxes(encoder: Load, family: str) -> None:
    (page,) = encode(encoder(family), noise(210, 297))
    lengths = np.linalg.norm(page.vectors.astype(np.float32), axis=1)
    assert page.vectors.dtype == np.float16
    assert page.vectors.shape[1] == encoder(family).dimension == tiny.DIMENSIONS.get(family, 128)
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
def test_vectors_do_not_depend_on_the_batch(encoder: Load, family: str) -> None:
    together = encode(encoder(family), *MIXED)
    alone = [encode(encoder(family), image)[0] for image in MIXED]
    if family not in SQUARE:  # square grids have the same number of patches for all pages
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
    """The vectors equal those of the saved model, so both parts were loaded."""
    base = VisualEncoder(str(checkpoint(family)) + "-base", device="cpu")
    again = VisualEncoder(str(checkpoint(family)), device="cpu")
    (adapted,), (plain,) = encode(encoder(family), MIXED[0]), encode(base, MIXED[0])
    (loaded_again,) = encode(again, MIXED[0])
    np.testing.assert_allclose(loaded_again.vectors, adapted.vectors, atol=TOLERANCE)
    assert np.abs(adapted.vectors - plain.vectors).max() > 0.05
    assert again.version == encoder(family).version != base.version


def test_older_weight_names_of_adapters_are_supported(
    encoder: Load, checkpoint: Any, tmp_path: Path
) -> None:
    """In transformers 4, when v1.2 was published, ColPali's language model had another name."""
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
def test_missing_weights_are_an_error(checkpoint: Any, family: str, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    broken = tmp_path / "broken"
    shutil.copytree(str(checkpoint(family)) + "-base", broken)
    weights = load_file(broken / "model.safetensors")
    lost = next(name for name in weights if name.endswith(PROJECTIONS))
    del weights[lost]
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    name = re.escape(".".join(lost.split(".")[-2:]))
    with pytest.raises(DamagedModel, match=rf"1 weights.*\b{name}"):
        encode(VisualEncoder(str(broken), device="cpu"), MIXED[0])


def test_a_changed_adapter_changes_the_version(checkpoint: Any, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(checkpoint("colqwen2.5"), copy)
    before = VisualEncoder(str(copy)).version
    assert before == VisualEncoder(str(checkpoint("colqwen2.5"))).version
    weights = bytearray((copy / "adapter_model.safetensors").read_bytes())
    weights[-1] ^= 1
    (copy / "adapter_model.safetensors").write_bytes(weights)
    assert VisualEncoder(str(copy)).version != before


def test_colpali_inputs_have_one_beginning_of_text_token(encoder: Load) -> None:
    """The tokenizer, the processor and colpali-engine's prompt would each add one."""
    loaded = encoder("colpali")._loaded.get()
    with _inputs_of(loaded) as seen:
        encode(encoder("colpali"), MIXED[0])
        encoder("colpali").encode_query("what is the total revenue?")
    page, question = (call["input_ids"][0].tolist() for call in seen)
    beginning = loaded.processor.tokenizer.bos_token_id
    assert page.count(beginning) == 1
    assert question.count(beginning) == 1
    assert question[0] == beginning


@pytest.mark.parametrize("family", OBLONG)
def test_colqwen_computes_positions_from_the_whole_batch(encoder: Load, family: str) -> None:
    """Without the image's grid, patches would get the positions of words."""
    loaded = encoder(family)._loaded.get()
    with _inputs_of(loaded) as seen:
        (page,) = encode(encoder(family), MIXED[0])
    (inputs,) = seen
    assert {"image_grid_thw", "attention_mask", "mm_token_type_ids"} <= set(inputs)
    as_words = torch.arange(inputs["input_ids"].shape[1]).expand(3, 1, -1)
    with torch.inference_mode():
        wrong = loaded.model(**inputs, position_ids=as_words)[0].numpy()
    assert np.abs(wrong - page.vectors.astype(np.float32)).max() > 10 * TOLERANCE


@contextmanager
def _inputs_of(loaded: LoadedModel) -> Iterator[list[dict[str, Any]]]:
    """Record the arguments of the model's calls."""
    calls: list[dict[str, Any]] = []

    def note(_module: Any, _args: Any, kwargs: dict[str, Any]) -> None:
        calls.append(dict(kwargs))

    hook = loaded.model.register_forward_pre_hook(note, with_kwargs=True)
    yield calls
    hook.remove()


@pytest.mark.parametrize(
    # Shrunk to at most 40 patches of 28 or 32 pixels: 560/140 = 4 = 12/3, which gives 36 patches.
    ("size", "rows", "columns"),
    [((640, 160), 3, 12), ((160, 640), 12, 3), ((300, 300), 6, 6)],
)
@pytest.mark.parametrize("family", OBLONG)
def test_colqwen_grids_have_the_shape_of_the_page(
    encoder: Load, family: str, size: tuple[int, int], rows: int, columns: int
) -> None:
    """The grid's height comes first, so a wide page has few rows."""
    (page,) = encode(encoder(family), noise(*size))
    boxes = page.boxes[page.boxes.any(axis=1)]
    assert len(np.unique(boxes[:, 1])) == rows
    assert len(np.unique(boxes[:, 0])) == columns
    assert boxes[1, 1] == 0, "the second patch is to the right of the first"


@pytest.mark.parametrize("family", [*SQUARE, *OBLONG])
def test_the_patches_tile_the_page_row_by_row(encoder: Load, family: str) -> None:
    (page,) = encode(encoder(family), noise(210, 297))
    boxes = page.boxes[page.boxes.any(axis=1)]
    rows, columns = len(np.unique(boxes[:, 1])), len(np.unique(boxes[:, 0]))
    np.testing.assert_array_equal(boxes, grid_boxes(rows, columns))


def test_colmodernvbert_encodes_tiles_and_then_the_whole_page(encoder: Load) -> None:
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
def test_the_hottest_box_covers_the_mark(
    pixel_encoder: Load, family: str, size: tuple[int, int]
) -> None:
    marks = [np.array([x, y, x + MARK, y + MARK]) for x, y in CORNERS.values()]
    images = [with_mark(size, mark) for mark in marks]
    *found, white = encode(pixel_encoder(family), *images, Image.new("RGB", size, "white"))
    for corner, mark, page in zip(CORNERS, marks, found, strict=True):
        heat, boxes = _heat(page, white), page.boxes[page.boxes.any(axis=1)]
        hottest = boxes[int(heat.argmax())]
        center = (hottest[:2] + hottest[2:]) / 2
        assert ((mark[:2] < center) & (center < mark[2:])).all(), corner
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
    """Return how similar each patch of a page is to a white patch."""
    patches = page.vectors[page.boxes.any(axis=1)].astype(np.float32)
    return patches @ white.vectors[white.boxes.any(axis=1)][0].astype(np.float32)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_question_has_unit_vectors(encoder: Load, family: str) -> None:
    short = encoder(family).encode_query("revenue?")
    long = encoder(family).encode_query("what is the total revenue of the table on the page?")
    assert short.dtype == np.float32
    assert short.shape[1] == encoder(family).dimension
    assert len(short) < len(long)
    np.testing.assert_allclose(np.linalg.norm(long, axis=1), 1, atol=1e-5)
    with pytest.raises(EmptyQuestion, match="at least one word"):
        encoder(family).encode_query("  ")


def test_colmodernvbert_as_the_authors_ran_it(encoder: Load, checkpoint: Any) -> None:
    """Questions are plain text without augmentation; pages are the same, in float32."""
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
    assert torch.get_float32_matmul_precision() == "highest", "the global setting is restored"
    assert {weights.dtype for weights in loaded.model.parameters()} == {torch.float32}


def test_other_families_have_no_authors_mode(checkpoint: Any) -> None:
    with pytest.raises(InvalidOption, match=r"\+authors"):
        get_encoder(f"{checkpoint('colpali')}+authors", device="cpu")


def test_the_cpu_never_uses_bfloat16(encoder: Load) -> None:
    """On some CPUs a product of bfloat16 matrices crashes the process."""
    for family in FAMILIES:
        model = encoder(family)._loaded.get().model
        assert {weights.dtype for weights in model.parameters()} == {torch.float32}


def test_every_page_needs_its_image(encoder: Load) -> None:
    with pytest.raises(InvalidVectors, match="1 images for 2 pages"):
        encoder("colpali").encode_pages(pages(2), [noise(30, 30)])


def test_tiny_checkpoints_have_the_published_layout(checkpoint: Any) -> None:
    """An adapter without weights of its base model, which its configuration names."""
    for family in FAMILIES:
        folder = checkpoint(family)
        assert (folder / "config.json").exists() == (family == "colsmol")
        assert not (folder / "model.safetensors").exists()
        adapter = json.loads((folder / "adapter_config.json").read_text())
        assert adapter["base_model_name_or_path"] == f"{folder}-base"
        assert "custom_text_proj" in adapter["target_modules"]


def test_the_classes_exist_in_colpali_engine() -> None:
    from visar.models.loading import import_torchvision

    import_torchvision()
    from colpali_engine import models

    for family in CLASSES.values():
        assert hasattr(models, family.model_class)
        assert hasattr(models, family.processor_class)


@pytest.mark.parametrize("family", CLASSES)
def test_the_family_is_read_from_the_configuration(checkpoint: Any, family: str) -> None:
    """The folder's name doesn't matter."""
    assert family_of(find_checkpoint(str(checkpoint(family)))) is CLASSES[family]
    encoder = get_encoder(str(checkpoint(family)), device="cpu")
    assert isinstance(encoder, VisualEncoder)
    assert encoder.name == str(checkpoint(family))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "llama"}, r"type 'llama'.*paligemma"),
        ({"model_type": "colqwen2"}, r"vidore/colqwen2-v1\.0"),
        ({"model_type": "colpali"}, r"type 'colpali'"),
        (
            {"model_type": "paligemma", "architectures": ["PaliGemmaForConditionalGeneration"]},
            "use a checkpoint of ColPali",
        ),
        ({"model_type": "qwen2_5_vl", "architectures": ["BiQwen2_5"]}, r"BiQwen2_5.*ColQwen2_5"),
    ],
)
def test_an_unsupported_checkpoint_is_an_error(
    tmp_path: Path, config: dict[str, Any], message: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=message):
        get_encoder(str(tmp_path))
