"""VisRAG-Ret: one vector a page, by code that its checkpoint brings and that is run if asked."""

from __future__ import annotations

import dataclasses
import importlib.metadata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.encoders import tiny
from tests.encoders.samples import page_with, picture
from tests.encoders.servers import serving
from visar.cli import main
from visar.encoders import registry
from visar.encoders.visrag import VisRagEncoder
from visar.errors import CheckpointError, DamagedModel, EmptyQuestion, EncoderUnavailable
from visar.index import Index
from visar.models.loading import import_torchvision

DIMENSION = 16
# Of different heights, so that their tokens differ in number and are padded.
IMAGES = [picture(1, 60, 110), picture(2, 60, 420), picture(3, 60, 230)]
PAGES = [page_with("a", number) for number in (1, 2, 3)]


@pytest.fixture(autouse=True)
def _code_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers copies a checkpoint's code before it runs it: not to the user's home here."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "m"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    import_torchvision()
    return tiny.save_visrag(tmp_path / "visrag")


@pytest.fixture
def visrag(folder: Path) -> VisRagEncoder:
    return VisRagEncoder(str(folder), device="cpu", batch_size=3, trust_remote_code=True)


def by_hand(encoder: VisRagEncoder, text: str, image: Any) -> np.ndarray[Any, Any]:
    """What its authors describe: the n-th token counts n times, then length 1."""
    loaded = encoder._loaded.get()
    with torch.no_grad():
        output = loaded.model(text=[text], image=[image], tokenizer=loaded.processor)
    hidden = output.last_hidden_state[0].double().numpy()
    total = sum(number * vector for number, vector in enumerate(hidden, start=1))
    return np.asarray(total / np.linalg.norm(total))


def test_a_page_is_one_vector_that_stands_for_all_of_it(visrag: VisRagEncoder) -> None:
    found = visrag.encode_pages(PAGES, IMAGES)
    assert visrag.dimension == DIMENSION
    for image, page in zip(IMAGES, found, strict=True):
        assert page.vectors.shape == (1, DIMENSION)
        assert page.vectors.dtype == np.float16
        assert page.boxes.tolist() == [[0, 0, 1, 1]]
        assert page.words.tolist() == [-1]
        np.testing.assert_allclose(page.vectors[0], by_hand(visrag, "", image), atol=1e-3)
    assert not np.allclose(found[0].vectors, found[1].vectors, atol=0.01)


def test_a_question_is_one_vector_of_the_instruction_and_its_words(visrag: VisRagEncoder) -> None:
    vectors = visrag.encode_query("what is the total revenue?")
    assert vectors.shape == (1, DIMENSION)
    asked = "Represent this query for retrieving relevant documents: what is the total revenue?"
    np.testing.assert_allclose(vectors[0], by_hand(visrag, asked, None), atol=1e-5)
    with pytest.raises(EmptyQuestion):
        visrag.encode_query("  ")


def test_pages_alone_and_together_are_the_same(visrag: VisRagEncoder) -> None:
    together = visrag.encode_pages(PAGES, IMAGES)
    for page, image, found in zip(PAGES, IMAGES, together, strict=True):
        (alone,) = visrag.encode_pages([page], [image])
        np.testing.assert_allclose(found.vectors, alone.vectors, atol=5e-4)


def test_a_page_without_numbers_is_tried_again_then_marked(visrag: VisRagEncoder) -> None:
    expected = visrag.encode_pages(PAGES, IMAGES)
    left = [1]

    def fail(_model: Any, _inputs: Any, output: Any) -> None:
        if left[0] and output.last_hidden_state.shape[1] == 5:
            left[0] -= 1
            output.last_hidden_state[-2, 0, 0] = torch.nan

    visrag._loaded.get().model.register_forward_hook(fail)
    for page, wanted in zip(visrag.encode_pages(PAGES, IMAGES), expected, strict=True):
        np.testing.assert_allclose(page.vectors, wanted.vectors, atol=5e-4)

    def fail_tall(_model: Any, _inputs: Any, output: Any) -> None:
        tall = output.attention_mask.sum(dim=1) == 5
        output.last_hidden_state[tall] = torch.nan

    visrag._loaded.get().model.register_forward_hook(fail_tall)
    first, second, third = visrag.encode_pages(PAGES, IMAGES)
    assert second.invalid == "the encoder gave values that are no numbers, in float32 too"
    assert second.vectors.shape == (0, DIMENSION)
    assert (first.invalid, third.invalid) == (None, None)


def test_code_of_a_checkpoint_is_not_run_unasked(folder: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    code = folder / "modeling_visrag_ret.py"
    code.write_text(f"open({str(ran)!r}, 'w').close()\n" + code.read_text().split("\n", 8)[8])
    with pytest.raises(EncoderUnavailable, match=r"comes with its checkpoint.*--trust-remote-code"):
        VisRagEncoder(str(folder))
    with pytest.raises(EncoderUnavailable):
        registry.get_encoder(str(folder))
    assert not ran.exists()
    VisRagEncoder(str(folder), trust_remote_code=True).encode_query("revenue")
    assert ran.exists()


@pytest.mark.parametrize("trust", [False, True])
def test_beside_transformers_5_the_commands_for_an_environment_are_given(
    folder: Path, *, trust: bool
) -> None:
    for name in ("visrag-ret", str(folder)):
        with pytest.raises(EncoderUnavailable) as told:
            registry.get_encoder(name, trust_remote_code=trust)
        message = str(told.value)
        installed = importlib.metadata.version("transformers")
        assert f"transformers 4.40 ({installed} is installed)" in message
        assert " -m venv visrag && visrag/bin/pip install 'visar-rag[visrag]' && " in message
        assert f"visrag/bin/visar encoders serve {name} --trust-remote-code" in message
        assert "--encoder http://127.0.0.1:8765" in message


def test_where_its_transformers_is_installed_it_is_made_for_who_trusts_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another transformers stands in for the one it needs, and none of the packages lack."""
    entry = dataclasses.replace(
        registry._ENCODERS["visrag-ret"],
        packages=("torch", "transformers"),
        transformers=importlib.metadata.version("transformers").rpartition(".")[0],
    )
    monkeypatch.setitem(registry._ENCODERS, "visrag-ret", entry)
    for name in ("visrag-ret", str(folder)):
        encoder = registry.get_encoder(name, device="cpu", trust_remote_code=True)
        assert (encoder.name, type(encoder)) == (name, VisRagEncoder)
        with pytest.raises(EncoderUnavailable, match="If you trust those who published it"):
            registry.get_encoder(name)


def test_the_command_line_refuses_it_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["visar", "encoders", "serve", "visrag-ret", "--trust-remote-code"]
    monkeypatch.setattr("sys.argv", arguments)
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "visrag/bin/visar encoders serve visrag-ret" in capsys.readouterr().err


def test_another_checkpoint_is_refused(folder: Path) -> None:
    config = folder / "config.json"
    config.write_text(config.read_text().replace('["VisRAG_Ret"]', '["MiniCPMV"]'))
    with pytest.raises(CheckpointError, match="is MiniCPMV where VisRAG_Ret was expected"):
        _ = VisRagEncoder(str(folder), trust_remote_code=True).version


def test_weights_that_are_not_all_there_are_refused(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    del weights["mix.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(DamagedModel, match=r"lacks 1 weights.*mix\.weight"):
        VisRagEncoder(str(folder), device="cpu", trust_remote_code=True).encode_query("revenue")


def test_its_code_is_part_of_its_version(folder: Path) -> None:
    before = VisRagEncoder(str(folder), trust_remote_code=True).version
    code = folder / "modeling_visrag_ret.py"
    code.write_text(code.read_text().replace(".tanh()", ".sigmoid()"))
    assert VisRagEncoder(str(folder), trust_remote_code=True).version != before


def test_a_pdf_is_searched_through_its_service(
    visrag: VisRagEncoder, tmp_path: Path, make_pdf: Callable[..., Path]
) -> None:
    path = make_pdf("a.pdf", "Revenue was 42.", "Cats sleep.\nAll day.", "A chart.\n\nOf growth.")
    index = Index.open(tmp_path / "index", reader="none")
    with serving(visrag) as address:
        added = index.add(path, encoder=address)
        found = index.search("total revenue?", encoder=address, method="top-k", k=2)
        adaptive = index.search("total revenue?", encoder=address)
    assert [(ref.name, ref.dimension) for ref in added.encoders] == [(visrag.name, DIMENSION)]
    assert len(found.pages) == 2
    assert 1 <= adaptive.k <= 3
    assert [hit.page for hit in found.pages][:1] == [hit.page for hit in adaptive.pages][:1]
