"""Encoders from other packages, custom classes and objects."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.encoders.samples import PixelEncoder, page_with, picture
from visar.encoders.registry import get_encoder
from visar.errors import EncoderUnavailable, InvalidOption
from visar.index import Index

CODE = """
import numpy as np
from visar.encoders.encoder import PageEmbedding

class LetterEncoder:
    name, version, dimension, reads, weak_match = "letters", "1", 26, "words", 0.0

    def encode_pages(self, pages, images):
        return [
            PageEmbedding(
                np.stack([_letters(word.text) for word in page.words]).astype(np.float16),
                np.array([word.box for word in page.words], np.float32),
                np.arange(len(page.words), dtype=np.int32),
            )
            for page in pages
        ]

    def encode_query(self, question):
        return np.stack([_letters(word) for word in question.split()])

def _letters(word):
    counts = np.array([word.lower().count(letter) for letter in map(chr, range(97, 123))])
    return (counts + 0.01).astype(np.float32) / np.linalg.norm(counts + 0.01)

class Placed(LetterEncoder):
    def __init__(self, device):
        self.name = f"letters-on-{device}"

def any_options(**options):
    return Placed(options["device"])

def broken():
    raise KeyError("LETTERS_KEY")

nothing = 5

def no_encoder():
    return 5
"""
ENTRY_POINTS = """
[visar.encoders]
letters = letter_vectors:LetterEncoder
placed = letter_vectors:Placed
gone = letter_vectors_gone:LetterEncoder
colpali = letter_vectors:LetterEncoder
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder with an installed package and its metadata."""
    folder = tmp_path / "site"
    described = folder / "letter_vectors-1.2.dist-info"
    described.mkdir(parents=True)
    (folder / "letter_vectors.py").write_text(CODE)
    (described / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: letter-vectors\nVersion: 1.2\n"
    )
    (described / "entry_points.txt").write_text(ENTRY_POINTS)
    return folder


@pytest.fixture
def visar(package: Path, tmp_path: Path) -> Callable[..., str]:
    """A function that runs visar in a process that finds the package, and returns its output."""
    paths = [str(package), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "VISAR_INDEX": str(tmp_path / "index"),
        "COLUMNS": "200",
    }

    def run(*arguments: str | Path, code: int = 0) -> str:
        command = [sys.executable, "-m", "visar", *map(str, arguments)]
        process = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False
        )
        assert process.returncode == code, process.stderr
        assert "Traceback" not in process.stderr
        return process.stderr if code else process.stdout

    return run


def test_an_encoder_of_an_installed_package_is_listed_and_used(
    visar: Callable[..., str], make_pdf: Callable[..., Path]
) -> None:
    listed = {entry["name"]: entry for entry in json.loads(visar("encoders", "--json"))}
    assert next(iter(listed)) == "embedded"
    assert (
        listed["letters"]["description"] == "letter_vectors:LetterEncoder, from letter-vectors 1.2"
    )
    assert listed["letters"]["dimension"] is None
    assert listed["colpali"]["dimension"] == 128, "plugins don't replace built-in encoders"
    assert "gone" in listed, "plugins are listed without importing them"
    assert re.search(r"^letters +ready +letter_vectors:LetterEncoder", visar("encoders"), re.M)
    assert "letters" in visar("doctor")
    path = make_pdf("notes.pdf", "Boats need wind.", "Jazz quiz.")
    for name in ("letters", "letters+pool2"):
        visar("add", path, "--encoder", name)
        found = json.loads(visar("search", "jazz", "--encoder", name, "--json"))
        assert found["encoder"]["name"] == name
        assert found["pages"][0]["page"] == 2
    assert "did you mean letters?" in visar("search", "jazz", "--encoder", "leters", code=2)
    assert "import" in visar("search", "jazz", "--encoder", "gone", code=2)


@pytest.fixture
def importable(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(package)


@pytest.mark.usefixtures("importable")
def test_an_encoder_can_be_a_class_or_function_of_a_module(
    tmp_path: Path, make_pdf: Callable[..., Path]
) -> None:
    assert get_encoder("letter_vectors:LetterEncoder").name == "letters"
    assert get_encoder("letter_vectors:Placed", device="cpu").name == "letters-on-cpu"
    assert get_encoder("letter_vectors:any_options").name == "letters-on-auto"
    pooled = get_encoder("letter_vectors:LetterEncoder+pool2")
    assert (pooled.name, pooled.version) == ("letters+pool2", "1-pool2")
    index = Index.open(tmp_path / "index")
    path = make_pdf("notes.pdf", "Boats need wind.", "Jazz quiz.")
    added = index.add(path, encoder="letter_vectors:LetterEncoder")
    assert [known.name for known in added.encoders] == ["letters"]
    found = index.search("jazz", encoder="letter_vectors:LetterEncoder")
    assert found.pages[0].page == 2


@pytest.mark.usefixtures("importable")
@pytest.mark.parametrize(
    ("name", "device", "error", "message"),
    [
        (
            "letter_vectors:Nothing",
            "auto",
            InvalidOption,
            "letter_vectors:Nothing",
        ),
        ("no_such_module:Encoder", "auto", InvalidOption, "No module named 'no_such_module'"),
        ("letter_vectors:no_encoder", "auto", InvalidOption, "returned a int"),
        ("letter_vectors:nothing", "auto", EncoderUnavailable, "'int' object is not callable"),
        ("letter_vectors:broken", "auto", EncoderUnavailable, "KeyError: 'LETTERS_KEY'"),
        ("letter_vectors:LetterEncoder@main", "auto", InvalidOption, "remove @main"),
        ("letter_vectors:LetterEncoder+patches", "auto", InvalidOption, "+patches"),
        ("letter_vectors:LetterEncoder", "cuda", InvalidOption, "cuda"),
    ],
)
def test_errors_of_plugins_have_one_line(
    name: str, device: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        get_encoder(name, device=device)


def test_an_encoder_object_can_replace_a_name() -> None:
    mine = PixelEncoder()
    assert get_encoder(mine) is mine
    (page,) = get_encoder(mine).encode_pages([page_with("a page")], [picture(1)])
    assert page.vectors.dtype == np.float16
