"""Data sets from other packages: by entry point, ``module:function``, or as objects."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.evaluation.datasets.layouts import missing_documents
from visar import plugins
from visar.errors import DatasetError, InvalidOption
from visar.evaluation.datasets import dataset_names, open_dataset
from visar.evaluation.datasets.converters import convert, converter_names
from visar.evaluation.questions import Dataset, Question

MODULE = """
from visar.evaluation.questions import Question

class Ports:
    name = "ports"

    def __init__(self, data):
        self.data = data

    def questions(self):
        return [Question("q1", "a.pdf", "How many?", (1,), ("4",))]

    def path(self, document):
        return self.data / document if self.data else None

def tides(source):
    for line in source.read_text().splitlines():
        yield Question(line, "ports.pdf", f"When is {line} tide?", (1,), ("noon",))

def texts(source):
    return [source.stem]

def broken(data):
    raise KeyError("ports")

def number(data):
    return 5
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package with a data set."""
    (tmp_path / "visar_ports.py").write_text(MODULE)
    installed = tmp_path / "visar_ports-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: visar-ports\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(
        "[visar.datasets]\nports = visar_ports:Ports\nLongDocURL = visar_ports:broken\n"
        "[visar.converters]\ntides = visar_ports:tides\nMMDocIR = visar_ports:broken\n"
        "sunk = visar_ports:broken\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    plugins.entry_points.cache_clear()
    yield
    plugins.entry_points.cache_clear()
    sys.modules.pop("visar_ports", None)


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("name", ["ports", "visar_ports:Ports"])
def test_a_data_set_of_another_package_is_opened_by_name(tmp_path: Path, name: str) -> None:
    dataset = open_dataset(name)
    assert (dataset.name, dataset.questions()[0].id) == ("ports", "q1")
    assert missing_documents(dataset) == ["a.pdf"]
    assert open_dataset(name, data=tmp_path).path("a.pdf") == tmp_path / "a.pdf"


@pytest.mark.usefixtures("package")
def test_known_names_include_plugins() -> None:
    assert {"ports", "MMLongBench", "dengchao/LongDocURL"} <= set(dataset_names())
    with pytest.raises(DatasetError, match="ports"):
        open_dataset("harbours")


def test_a_data_set_can_be_a_function_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_ports.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert open_dataset("own_ports:Ports").name == "ports"
    sys.modules.pop("own_ports")


@pytest.mark.usefixtures("package")
def test_plugins_cannot_replace_built_in_names() -> None:
    with pytest.raises(DatasetError, match="LongDocURL=FOLDER"):
        open_dataset("LongDocURL")


@pytest.mark.usefixtures("package")
def test_errors_of_plugins_are_reported() -> None:
    with pytest.raises(DatasetError, match=r"visar_ports:broken.*KeyError"):
        open_dataset("visar_ports:broken")
    with pytest.raises(DatasetError, match=r"int.* name, questions\(\)"):
        open_dataset("visar_ports:number")
    with pytest.raises(InvalidOption, match="import"):
        open_dataset("visar_ports:nothing")


@pytest.mark.usefixtures("package")
def test_a_converter_of_another_package_is_found_by_name(tmp_path: Path) -> None:
    assert converter_names()[-2:] == ["tides", "sunk"]
    source = tmp_path / "tides.txt"
    source.write_text("high\nlow\n")
    for name in ("tides", "visar_ports:tides"):
        assert convert(name, source, tmp_path / "questions.jsonl").questions == 2
    questions = open_dataset(tmp_path / "questions.jsonl").questions()
    assert [question.text for question in questions] == ["When is high tide?", "When is low tide?"]


@pytest.mark.usefixtures("package")
def test_a_plugin_converter_cannot_replace_ours_and_its_errors_are_reported(
    tmp_path: Path,
) -> None:
    source = tmp_path / "tides.txt"
    source.write_text("high\n")
    assert converter_names().count("MMDocIR") == 1
    with pytest.raises(DatasetError) as ours:
        convert("MMDocIR", source, tmp_path / "questions.jsonl")
    assert "KeyError" not in str(ours.value)
    with pytest.raises(DatasetError, match="The converter sunk failed: KeyError: 'ports'"):
        convert("sunk", source, tmp_path / "questions.jsonl")
    with pytest.raises(DatasetError, match=r"'tides'.*Question"):
        convert("visar_ports:texts", source, tmp_path / "questions.jsonl")


class CustomDataset:
    """A data set created in a program."""

    name = "mine"

    def questions(self) -> list[Question]:
        return []

    def path(self, document: str) -> Path | None:
        return Path(document)


def test_a_dataset_object_can_replace_a_name() -> None:
    mine: Dataset = CustomDataset()
    assert open_dataset(mine) is mine
