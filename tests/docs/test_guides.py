"""Run the examples of the guides to questions, documents and libraries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pikepdf
import pytest
import typer
from PIL import Image

from tests.docs.shown import assert_shown, blocks, commands, read
from tests.generation.smollm import SmolLM
from tests.programs import run_shown
from visar.cli.reference import app
from visar.encoders.embedded import EmbeddedEncoder
from visar.index import Index
from visar.results import EncoderRef
from visar.retrieval.calibration import LIKELY, POSSIBLE, find_calibration

ANSWERS, DOCUMENTS = read("answers.md"), read("documents.md")
EXPLAIN = re.search(r"^## See why these pages$.*?(?=^## )", ANSWERS, flags=re.M | re.S)[0]  # type: ignore[index]
LIBRARY = DOCUMENTS[DOCUMENTS.index("## Organize a library") :]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, report: Path) -> Path:
    """A folder with the files that the pages name."""
    folder = tmp_path_factory.mktemp("guides")
    with pikepdf.open(report) as pdf:
        # The pages that the questions are about; none of them needs OCR.
        del pdf.pages[12:]
        pdf.docinfo["/Author"] = "Harbour Light"
        pdf.save(folder / "annual-report.pdf")
        del pdf.pages[2:]
        pdf.save(folder / "secret.pdf", encryption=pikepdf.Encryption("open-sesame", "open-sesame"))
        (folder / "letters").mkdir()
        del pdf.pages[1:]
        pdf.save(folder / "letters" / "first.pdf")
    Image.new("RGB", (200, 100), "white").save(folder / "scan.png")
    return folder


@pytest.mark.parametrize("page", ["documents", "answers"])
def test_the_commands_run(page: str, folder: Path, smollm: SmolLM) -> None:
    found = commands(read(f"{page}.md"))
    assert len(found) > 3
    for command, shown in found:
        ran = run_shown(command, folder, OPENAI_BASE_URL=smollm.base_url, COLUMNS="100")
        assert ran.returncode == 0, (command, ran.stderr)
        assert_shown(shown, ran.stdout + ran.stderr)


def test_a_library_is_organized_as_shown(folder: Path) -> None:
    for command, _ in commands(LIBRARY)[:2]:
        assert run_shown(command, folder, VISAR_INDEX=str(folder / "organized")).returncode == 0
    with Index.open(folder / "organized", create=False) as index:
        stored = index.get("annual-report.pdf")
        known = {"kind": "report", "year": 2024, "author": "Harbour Light"}
        assert {**stored.metadata, **known} == stored.metadata
        assert stored.collections == ("finance",)
        chosen = index.documents(where='kind = "letter" or author is not null')
        assert {document.name for document in chosen} == {"annual-report.pdf", "first.pdf"}


def test_pictures_and_reports_are_written(folder: Path) -> None:
    *_, (opened, _) = [one for one in commands(ANSWERS) if "--open" in one[0]]
    for command in (opened, *(one for one, _ in commands(EXPLAIN))):
        assert run_shown(command, folder).returncode == 0
    assert list((folder / "pages").glob("*.png"))
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    pictures = {path.name for path in (folder / "pictures").iterdir()}
    assert {f"{name}.png" for name in re.findall(r"`(\w+)\.png`", EXPLAIN)} < pictures


@pytest.mark.parametrize(
    ("page", "number", "printed"),
    [
        ("answers", 0, "annual-report.pdf"),
        ("documents", 0, "annual-report.pdf"),
    ],
)
def test_the_python_examples_run(
    page: str,
    number: int,
    printed: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("VISAR_INDEX", str(folder / "examples"))
    with Index.open() as index:
        index.add("annual-report.pdf")
    exec(blocks(read(f"{page}.md"), "python")[number], {})  # noqa: S102
    assert printed in capsys.readouterr().out


def test_the_probabilities_are_those_of_the_program() -> None:
    assert re.findall(r"(?<!un)likely\W+(\d+%)", ANSWERS) == [f"{LIKELY:.0%}"]
    assert re.findall(r"possible\W+(\d+%)", ANSWERS) == [f"{POSSIBLE:.0%}"]
    shipped = find_calibration(EncoderRef.of(EmbeddedEncoder()))
    assert shipped is not None
    questions, evidence, documents = re.findall(r"\d+", shipped.made_from)
    for page in (ANSWERS, read("benchmarks.md")):
        assert re.search(rf"\b{questions} questions\s+about {documents}\s+documents", page)
    assert re.search(rf"\b{evidence} of them have evidence", read("benchmarks.md"))


def all_commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Every command with its full name; a group of commands is one too."""
    for name, command in group.commands.items():
        yield before + name, command
        if hasattr(command, "commands"):
            yield from all_commands(command, f"{before}{name} ")


def test_every_command_and_option_is_in_the_reference() -> None:
    text = read("command-line.md")
    listed = dict(re.findall(r"^##+ `visar ([\w ]+)`\n(.*?)(?=^##|\Z)", text, flags=re.M | re.S))
    known = dict(all_commands(typer.main.get_command(app)))
    assert listed.keys() == known.keys()
    for name, command in known.items():
        options = {option for parameter in command.params for option in parameter.opts}
        options = {option for option in options if option.startswith("--")}
        shown = set(re.findall(r"^\* (?:`-h, )?`?(--[\w-]+)", listed[name], flags=re.M))
        assert shown - {"--help"} == options - {"--help"}, name
