"""What docs/how-to.md shows works as shown, and docs/command-line.md tells of every option."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pikepdf
import pytest
import typer
from PIL import Image

from tests.generation.smollm import SmolLM
from tests.programs import run_shown
from visar.cli.reference import app

DOCS = Path(__file__).parents[2] / "docs"
HOW_TO = (DOCS / "how-to.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, report: Path) -> Path:
    """The files the page speaks of."""
    folder = tmp_path_factory.mktemp("how-to")
    with pikepdf.open(report) as pdf:
        # Few pages, so that the commands take a moment: those asked about, and none to be read
        # by OCR.
        del pdf.pages[12:]
        pdf.save(folder / "annual-report.pdf")
        del pdf.pages[2:]
        pdf.save(folder / "secret.pdf", encryption=pikepdf.Encryption("open-sesame", "open-sesame"))
        (folder / "letters").mkdir()
        del pdf.pages[1:]
        pdf.save(folder / "letters" / "first.pdf")
    question = {"question": "How long is the warranty?", "document": "annual-report.pdf"}
    right = {"evidence_pages": [10], "answers": ["seven years"]}
    (folder / "questions.jsonl").write_text(json.dumps(question | right) + "\n")
    Image.new("RGB", (200, 100), "white").save(folder / "scan.png")
    return folder


def test_the_commands_run(folder: Path, smollm: SmolLM) -> None:
    commands = re.findall(r"^\$ (.*)\n((?:  .*\n)*)", HOW_TO, flags=re.M)
    assert len(commands) > 12
    for command, shown in commands:
        ran = run_shown(command, folder, OPENAI_BASE_URL=smollm.base_url, COLUMNS="100")
        assert ran.returncode == 0, (command, ran.stderr)
        for line in shown.splitlines():
            # All but what was left out and how long it took.
            told = re.sub(r"…| · [\d.]+ s .*$", "", line).strip()
            assert told in ran.stdout + ran.stderr, command
    assert list((folder / "pages").glob("*.png"))
    assert (folder / "results" / "report.html").exists()


def test_the_python_example_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    (example,) = re.findall(r"```python\n(.*?)```", HOW_TO, flags=re.S)
    exec(example, {})  # noqa: S102
    assert "annual-report.pdf" in capsys.readouterr().out


def commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Every command with its full name; a group of commands is one too."""
    for name, command in group.commands.items():
        yield before + name, command
        if hasattr(command, "commands"):
            yield from commands(command, f"{before}{name} ")


def test_every_command_and_option_is_told() -> None:
    text = (DOCS / "command-line.md").read_text(encoding="utf-8")
    told = dict(re.findall(r"^##+ `visar ([\w ]+)`\n(.*?)(?=^##|\Z)", text, flags=re.M | re.S))
    known = dict(commands(typer.main.get_command(app)))
    assert told.keys() == known.keys()
    for name, command in known.items():
        options = {option for parameter in command.params for option in parameter.opts}
        options = {option for option in options if option.startswith("--")}
        shown = set(re.findall(r"^\* (?:`-h, )?`?(--[\w-]+)", told[name], flags=re.M))
        assert shown - {"--help"} == options - {"--help"}, name
