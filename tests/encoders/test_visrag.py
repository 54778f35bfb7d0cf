"""VisRAG-Ret: one vector per page, computed by its checkpoint's code if the user trusts it."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.encoders import tiny_published
from tests.encoders.samples import page_with, picture
from tests.encoders.servers import serving
from visar.cli import main
from visar.encoders import records, registry
from visar.encoders.visrag import VisRagEncoder
from visar.errors import CheckpointError, DamagedModel, EmptyQuestion, EncoderUnavailable
from visar.index import Index
from visar.models.loading import import_torchvision

DIMENSION = 16
# Different heights, so that the numbers of tokens differ and need padding.
IMAGES = [picture(1, 60, 110), picture(2, 60, 420), picture(3, 60, 230)]
PAGES = [page_with("a", number) for number in (1, 2, 3)]


@pytest.fixture(autouse=True)
def _code_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep transformers from copying the checkpoint's code to the user's home."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "m"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    import_torchvision()
    return tiny_published.save_visrag(tmp_path / "visrag")


@pytest.fixture
def visrag(folder: Path) -> VisRagEncoder:
    return VisRagEncoder(str(folder), device="cpu", batch_size=3, trust_remote_code=True)


def expected_vector(encoder: VisRagEncoder, text: str, image: Any) -> np.ndarray[Any, Any]:
    """Compute the vector as its authors describe: the n-th token has weight n, then normalize."""
    loaded = encoder._loaded.get()
    with torch.no_grad():
        output = loaded.model(text=[text], image=[image], tokenizer=loaded.processor)
    hidden = output.last_hidden_state[0].double().numpy()
    total = sum(number * vector for number, vector in enumerate(hidden, start=1))
    return np.asarray(total / np.linalg.norm(total))


def test_a_page_has_one_vector_for_the_whole_page(visrag: VisRagEncoder) -> None:
    found = visrag.encode_pages(PAGES, IMAGES)
    assert visrag.dimension == DIMENSION
    for image, page in zip(IMAGES, found, strict=True):
        assert page.vectors.shape == (1, DIMENSION)
        assert page.vectors.dtype == np.float16
        assert page.boxes.tolist() == [[0, 0, 1, 1]]
        assert page.words.tolist() == [-1]
        np.testing.assert_allclose(page.vectors[0], expected_vector(visrag, "", image), atol=1e-3)
    assert not np.allclose(found[0].vectors, found[1].vectors, atol=0.01)


def test_a_question_has_one_vector_including_the_instruction(visrag: VisRagEncoder) -> None:
    vectors = visrag.encode_query("what is the total revenue?")
    assert vectors.shape == (1, DIMENSION)
    prompt = "Represent this query for retrieving relevant documents: what is the total revenue?"
    np.testing.assert_allclose(vectors[0], expected_vector(visrag, prompt, None), atol=1e-5)
    with pytest.raises(EmptyQuestion):
        visrag.encode_query("  ")


def test_vectors_do_not_depend_on_the_batch(visrag: VisRagEncoder) -> None:
    together = visrag.encode_pages(PAGES, IMAGES)
    for page, image, found in zip(PAGES, IMAGES, together, strict=True):
        (alone,) = visrag.encode_pages([page], [image])
        np.testing.assert_allclose(found.vectors, alone.vectors, atol=5e-4)


def test_a_page_with_nan_is_tried_again_then_invalid(visrag: VisRagEncoder) -> None:
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
    assert second.invalid == "the encoder returned values that aren't finite, in float32 too"
    assert second.vectors.shape == (0, DIMENSION)
    assert (first.invalid, third.invalid) == (None, None)


def test_checkpoint_code_is_not_run_without_trust(folder: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    code = folder / "modeling_visrag_ret.py"
    code.write_text(f"open({str(ran)!r}, 'w').close()\n" + code.read_text().split("\n", 8)[8])
    with pytest.raises(EncoderUnavailable, match=r"code from its checkpoint.*--trust-remote-code"):
        VisRagEncoder(str(folder))
    with pytest.raises(EncoderUnavailable):
        registry.get_encoder(str(folder))
    assert not ran.exists()
    VisRagEncoder(str(folder), trust_remote_code=True).encode_query("revenue")
    assert ran.exists()


@pytest.mark.parametrize("trust", [False, True])
def test_transformers_5_gets_instructions_for_a_separate_environment(
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


def test_trusted_code_runs_with_a_matching_transformers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pretends that the installed transformers has the required version."""
    installed = importlib.metadata.version("transformers").rpartition(".")[0]
    monkeypatch.setattr(records, "_VISRAG_TRANSFORMERS", installed)
    monkeypatch.setitem(records._NEEDS, records.VISRAG, ("visrag", ("torch", "transformers")))
    for name in ("visrag-ret", str(folder)):
        encoder = registry.get_encoder(name, device="cpu", trust_remote_code=True)
        assert (encoder.name, type(encoder)) == (name, VisRagEncoder)
        with pytest.raises(EncoderUnavailable, match="--trust-remote-code"):
            registry.get_encoder(name)


def test_the_command_line_explains_the_separate_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["visar", "encoders", "serve", "visrag-ret", "--trust-remote-code"]
    monkeypatch.setattr("sys.argv", arguments)
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "visrag/bin/visar encoders serve visrag-ret" in capsys.readouterr().err


def test_a_different_architecture_is_an_error(folder: Path) -> None:
    config = folder / "config.json"
    config.write_text(config.read_text().replace('["VisRAG_Ret"]', '["MiniCPMV"]'))
    with pytest.raises(CheckpointError, match="MiniCPMV, not VisRAG_Ret"):
        _ = VisRagEncoder(str(folder), trust_remote_code=True).version


def test_missing_weights_are_an_error(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    del weights["mix.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(DamagedModel, match=r"1 weights.*mix\.weight"):
        VisRagEncoder(str(folder), device="cpu", trust_remote_code=True).encode_query("revenue")


def test_the_version_includes_the_code(folder: Path) -> None:
    before = VisRagEncoder(str(folder), trust_remote_code=True).version
    code = folder / "modeling_visrag_ret.py"
    code.write_text(code.read_text().replace(".tanh()", ".sigmoid()"))
    assert VisRagEncoder(str(folder), trust_remote_code=True).version != before


def test_a_pdf_is_searched_through_a_service(
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
