"""Exported encoders, compared with the same tiny random checkpoints in torch."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.encoders.test_visual import MIXED, encode, noise
from visar.encoders.onnx_export import export_encoder
from visar.encoders.onnx_visual import MANIFEST, TEXT, VISION, OnnxVisualEncoder, Precision, Tiling
from visar.encoders.registry import get_encoder
from visar.encoders.visual import VisualEncoder
from visar.errors import CheckpointError, DamagedModel, EmptyQuestion, InvalidOption
from visar.index import Index
from visar.results import EncoderRef

FAMILIES = ("colmodernvbert", "colsmol")
PAGES = (*MIXED, noise(60, 60, 4), noise(595, 842, 5))
QUESTION = "what is the total revenue?"

Make = Callable[[str], Path]
Exported = Callable[..., OnnxVisualEncoder]
InTorch = Callable[[str], VisualEncoder]


@pytest.fixture(scope="module")
def exported(checkpoint: Make, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """A function that exports a family's checkpoint, once for each precision."""
    folder = tmp_path_factory.mktemp("exported")

    @cache
    def make(family: str, precision: Precision) -> OnnxVisualEncoder:
        path = folder / f"{family}-{precision}"
        export_encoder(str(checkpoint(family)), path, precision)
        encoder = get_encoder(str(path))
        assert isinstance(encoder, OnnxVisualEncoder)
        return encoder

    return lambda family, precision="int8": make(family, precision)


@pytest.fixture(scope="module")
def in_torch(checkpoint: Make) -> InTorch:
    """A function that loads the same checkpoint in torch, with pages resized by Pillow.

    torchvision's resized pixels differ slightly, mostly by 1 or 2 of 255.
    """

    @cache
    def load(family: str) -> VisualEncoder:
        encoder = VisualEncoder(str(checkpoint(family)), device="cpu")
        processor = encoder._loaded.get().processor
        processor.image_processor = resize_with_pillow(processor.image_processor)
        return encoder

    return load


def resize_with_pillow(images: Any) -> Any:
    from transformers.models.idefics3.image_processing_pil_idefics3 import (
        Idefics3ImageProcessorPil,
    )

    options = ("size", "max_image_size", "image_mean", "image_std", "resample")
    return Idefics3ImageProcessorPil(**{name: getattr(images, name) for name in options})


def cosines(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.float32]:
    a, b = one.astype(np.float32), other.astype(np.float32)
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return np.asarray((a * b).sum(1) / lengths, np.float32)


@pytest.mark.parametrize(("precision", "least"), [("float32", 0.9999), ("int8", 0.99)])
@pytest.mark.parametrize("family", FAMILIES)
def test_vectors_are_the_same_as_in_torch(
    exported: Exported, in_torch: InTorch, family: str, precision: str, least: float
) -> None:
    encoder = exported(family, precision)
    assert encoder.dimension == 128
    assert encoder.reads == "image"
    ours, theirs = encode(encoder, *PAGES), encode(in_torch(family), *PAGES)
    for one, other in zip(ours, theirs, strict=True):
        assert one.vectors.dtype == np.float16
        assert one.vectors.shape == other.vectors.shape
        np.testing.assert_array_equal(one.boxes, other.boxes)
        np.testing.assert_array_equal(one.words, other.words)
        assert cosines(one.vectors, other.vectors).min() > least
    # Longer than the window of ModernBERT's attention.
    assert max(len(page.vectors) for page in ours) > 130
    for question in (QUESTION, "Wie hoch war der Umsatz? 42 €", "x" * 300):
        vectors = encoder.encode_query(question)
        expected = in_torch(family).encode_query(question)
        assert vectors.shape == expected.shape
        assert cosines(vectors, expected).min() > least


@pytest.mark.parametrize("family", FAMILIES)
def test_vectors_do_not_depend_on_the_batch(exported: Exported, family: str) -> None:
    encoder = exported(family)
    together = encode(encoder, *MIXED)
    for page, image in zip(together, MIXED, strict=True):
        (alone,) = encode(encoder, image)
        np.testing.assert_array_equal(page.vectors, alone.vectors)
        np.testing.assert_array_equal(page.boxes, alone.boxes)


@pytest.mark.parametrize(
    "size", [(1190, 1684), (1684, 1190), (300, 100), (120, 330), (64, 64), (190, 192), (13, 700)]
)
@pytest.mark.parametrize(("side", "longest_edge"), [(64, 192), (64, 64), (128, 512)])
def test_tiles_are_the_same_as_in_transformers(
    size: tuple[int, int], side: int, longest_edge: int
) -> None:
    from transformers.models.idefics3.image_processing_pil_idefics3 import (
        Idefics3ImageProcessorPil,
    )

    mean, std = (0.48, 0.45, 0.4), (0.26, 0.5, 0.27)
    theirs: Any = Idefics3ImageProcessorPil(
        size={"longest_edge": longest_edge},
        max_image_size={"longest_edge": side},
        image_mean=list(mean),
        image_std=list(std),
    )
    image = noise(*size)
    expected = theirs([image], return_tensors="np", return_row_col_info=True)
    tiling = Tiling(side, longest_edge, int(theirs.resample), mean, std)
    tiles, rows, columns = tiling.cut(image)
    assert (rows, columns) == (expected["rows"][0][0], expected["cols"][0][0])
    ours = np.concatenate([tiling.normalize(tile) for tile in tiles])
    np.testing.assert_allclose(ours, expected["pixel_values"][0], atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("rows", "columns"), [(0, 0), (1, 3), (3, 2)])
def test_page_prompts_are_the_same_as_in_colpali_engine(
    exported: Exported, in_torch: InTorch, family: str, rows: int, columns: int
) -> None:
    processor = in_torch(family)._loaded.get().processor
    text = exported(family)._manifest.page_text(rows, columns)
    expected = processor.replace_image_token({"rows": [[rows]], "cols": [[columns]]}, 0)
    assert text == processor.visual_prompt_prefix.replace("<image>", expected)
    assert (
        exported(family)._model.get().tokenizer.encode(text).ids
        == processor.tokenizer(text)["input_ids"]
    )


def test_instruction_tokens_can_be_left_out(exported: Exported) -> None:
    encoder = exported("colmodernvbert")
    bare = get_encoder(f"{encoder.name}+patches")
    (whole,), (patches,) = encode(encoder, MIXED[1]), encode(bare, MIXED[1])
    placed = whole.boxes.any(axis=1)
    np.testing.assert_array_equal(patches.boxes, whole.boxes[placed])
    np.testing.assert_array_equal(patches.vectors, whole.vectors[placed])
    assert bare.version != encoder.version


def test_the_version_contains_the_original_checkpoint(
    exported: Exported, in_torch: InTorch
) -> None:
    source = in_torch("colsmol")._checkpoint.get()
    small, whole = exported("colsmol"), exported("colsmol", "float32")
    for encoder in (small, whole):
        assert encoder.version.startswith(source.fingerprint)
        assert encoder.identity.startswith(source.identity)
    assert small.version != whole.version
    assert get_encoder(small.name).version == small.version


@pytest.mark.parametrize("family", FAMILIES)
def test_a_page_with_nan_is_invalid(exported: Exported, tmp_path: Path, family: str) -> None:
    """8-bit activations must not turn NaN into finite values."""
    encoder = with_tiling(exported(family), tmp_path, std=[float("nan")] * 3)
    (page,) = encode(encoder, MIXED[0])
    assert page.vectors.shape == (0, 128)
    assert page.invalid is not None


def test_an_index_is_built_and_searched(
    exported: Exported, tmp_path: Path, make_pdf: Callable[..., Path]
) -> None:
    encoder = exported("colmodernvbert")
    path = make_pdf("report.pdf", "Revenue was 42.", "Cats sleep all day.", "A chart.")
    index = Index.open(tmp_path / "index")
    added = index.add(path, encoder=encoder.name)
    assert added.encoders == (EncoderRef.of(encoder),)
    assert added.invalid == ()
    found = Index.open(tmp_path / "index").search(QUESTION, encoder=encoder.name)
    assert found.pages_searched == 3
    assert found.pages


WITHOUT_TORCH = """
import sys
for name in ("torch", "torchvision", "transformers", "colpali_engine", "peft"):
    sys.modules[name] = None  # as if it were not installed
from PIL import Image
from visar.documents.page import Page
from visar.encoders.registry import get_encoder
encoder = get_encoder(sys.argv[1])
(page,) = encoder.encode_pages([Page(1, 60, 80, 0, (), "none")], [Image.new("RGB", (60, 80))])
print(len(page.vectors), len(encoder.encode_query("revenue")))
"""


def test_it_runs_without_torch(exported: Exported) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, exported("colsmol").name],
        capture_output=True,
        text=True,
        check=True,
    )
    page, question = map(int, ran.stdout.split())
    assert page > question > 0


@pytest.mark.parametrize("file", [VISION, TEXT, "tokenizer.json"])
def test_a_damaged_file_is_an_error(exported: Exported, tmp_path: Path, file: str) -> None:
    encoder = with_tiling(exported("colsmol"), tmp_path)
    path = tmp_path / "copy" / file
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedModel, match=file):
        encoder.encode_query(QUESTION)
    path.unlink()
    with pytest.raises(CheckpointError, match=file):
        encoder.encode_query(QUESTION)


@pytest.mark.parametrize("content", ["", "[]", "{}", "[" * 100_000, '{"tiling": 3}'])
def test_a_damaged_manifest_is_an_error(exported: Exported, tmp_path: Path, content: str) -> None:
    with_tiling(exported("colsmol"), tmp_path)
    (tmp_path / "copy" / MANIFEST).write_text(content)
    with pytest.raises(CheckpointError, match=MANIFEST):
        get_encoder(str(tmp_path / "copy"))


def with_tiling(encoder: OnnxVisualEncoder, folder: Path, **tiling: Any) -> OnnxVisualEncoder:
    """Copy an encoder and change the tiling in its manifest."""
    copy = folder / "copy"
    shutil.copytree(encoder.name, copy)
    manifest = json.loads((copy / MANIFEST).read_text())
    manifest["tiling"] |= tiling
    (copy / MANIFEST).write_text(json.dumps(manifest))
    return OnnxVisualEncoder(str(copy), copy)


def test_unsupported_options_are_errors(exported: Exported) -> None:
    folder = exported("colmodernvbert").name
    # With 8 bits it isn't the published encoder.
    with pytest.raises(CheckpointError, match=r"config\.json"):
        get_encoder(f"colmodernvbert={folder}")
    with pytest.raises(InvalidOption, match="revision"):
        get_encoder(f"{folder}@main")
    with pytest.raises(InvalidOption, match="authors"):
        get_encoder(f"{folder}+authors")
    with pytest.raises(InvalidOption, match="cuda"):
        get_encoder(folder, device="cuda")
    with pytest.raises(EmptyQuestion):
        get_encoder(folder).encode_query(" ")


def test_unsupported_encoders_are_not_exported(checkpoint: Make, tmp_path: Path) -> None:
    for name in (str(checkpoint("colpali")), "embedded"):
        with pytest.raises(InvalidOption, match="ColModernVBERT"):
            export_encoder(name, tmp_path / "out")
    for part in ("+patches", "+authors", "+pool2", "+int8"):
        with pytest.raises(InvalidOption, match=r"\+ suffixes"):
            export_encoder(f"{checkpoint('colmodernvbert')}{part}", tmp_path / "out")
    with pytest.raises(InvalidOption, match="exists"):
        export_encoder(str(checkpoint("colmodernvbert")), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_unsupported_preprocessing_is_an_error(checkpoint: Make, tmp_path: Path) -> None:
    base = tmp_path / "base"
    shutil.copytree(f"{checkpoint('colsmol')}-base", base)
    path = next(p for p in base.glob("*processor_config.json") if "splitting" in p.read_text())
    text = path.read_text().replace('"do_image_splitting": true', '"do_image_splitting": false')
    path.write_text(text)
    with pytest.raises(CheckpointError, match="preprocessing"):
        export_encoder(str(base), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_failed_export_leaves_nothing(
    exported: Exported, checkpoint: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full after the first graph."""
    folder = Path(exported("colsmol").name)
    first, second = ((folder / file).stat().st_size for file in (VISION, TEXT))
    out, scratch = tmp_path / "out", tmp_path / "scratch"
    out.mkdir()
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    limit, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((first + second) // 2, most))
    try:
        with pytest.raises(OSError, match="File too large"):
            export_encoder(str(checkpoint("colsmol")), out / "made")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
    assert list(out.iterdir()) == list(scratch.iterdir()) == []
