"""Run the examples of the README."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.docs.shown import assert_shown, blocks
from tests.repository import ROOT, tracked_files, uv_program
from visar.cli.reference import app
from visar.errors import install_hint

README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path, report: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the document the README speaks of."""
    (tmp_path / "annual-report.pdf").write_bytes(report.read_bytes())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VISAR_INDEX", str(tmp_path / "index"))
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_the_python_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    index_example, method_example = blocks(README, "python")
    exec(index_example, {})  # noqa: S102
    assert "47.5" in capsys.readouterr().out
    names: dict[str, object] = {}
    exec(method_example, names)  # noqa: S102
    assert getattr(names["selection"], "pages")[0] == 7  # noqa: B009


def test_the_shown_command_answers(folder: Path) -> None:
    (shown,) = re.findall(r"^\$ uvx --from \S+ (visar ask .*)$", README, flags=re.M)
    command = [sys.executable, "-m", "visar", *shlex.split(shown)[1:]]
    wide = {**os.environ, "COLUMNS": "100"}
    ran = subprocess.run(command, cwd=folder, env=wide, capture_output=True, text=True, check=True)
    (output,) = re.findall(r"```\n(  .*?)```", README, flags=re.S)
    assert_shown(output, ran.stdout)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory, report: Path) -> Path:
    """A copy of the repository; all that its commands would download is in its environment.

    ``make demo`` makes the same environment with pip, which takes a minute.
    """
    uv = uv_program()
    folder = tmp_path_factory.mktemp("clone")
    for path in tracked_files():
        copy = folder / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    shutil.copy(report, folder / "annual-report.pdf")
    for command in (
        ["venv", "--quiet", "--seed", "--python", sys.executable, ".venv"],
        ["pip", "install", "--quiet", "--python", ".venv/bin/python", ".[ocr,reader]"],
    ):
        subprocess.run([uv, *command], cwd=folder, check=True)
    return folder


@pytest.mark.parametrize(
    "command",
    [
        line.partition("  #")[0].strip()
        for line in re.findall(r"^\$ (.*)$", README, flags=re.M)
        if not line.startswith("make serve")  # which opens a browser and goes on
    ],
)
def test_the_commands_run_in_a_clone(command: str, clone: Path) -> None:
    programs = (clone / ".venv" / "bin", Path(uv_program()).parent, os.environ["PATH"])
    environment = {
        **os.environ,
        "PATH": os.pathsep.join(map(str, programs)),
        "VISAR_INDEX": str(clone / "index"),
        "UV_PYTHON": sys.executable,
    }
    ran = subprocess.run(
        ["/bin/sh", "-c", command], cwd=clone, env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    if command.startswith("pip"):
        program = str(clone / ".venv" / "bin" / "visar-rag")
        assert subprocess.run([program, "--version"], check=True, capture_output=True).stdout
    else:
        assert "We give a warranty of seven years" in ran.stdout
    assert "torch" not in ran.stderr


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("bench", "eval"),
        ("eval run results --data questions.jsonl", "eval"),
        ("eval report results", "eval"),
        ("eval compare results", "eval"),
        ("serve", "server"),
        ("encoders serve embedded", "server"),
        ("mcp", "mcp"),
        ("ask annual-report.pdf warranty? --generator openai:MODEL", "openai"),
        ("ask annual-report.pdf warranty? --generator qwen2.5-vl", "local"),
        ("add annual-report.pdf --encoder colpali", "colpali"),
        ("add annual-report.pdf --index s3://bucket/prefix", "cloud"),
        ("add annual-report.pdf --ray local", "ray"),
    ],
)
def test_a_command_of_the_table_names_the_extra_it_lacks(
    command: str, extra: str, clone: Path
) -> None:
    """`visar bench` and `visar eval report` ended in a traceback."""
    ran = subprocess.run(
        [str(clone / ".venv" / "bin" / "visar"), *command.split()],
        cwd=clone,
        env={**os.environ, "VISAR_INDEX": str(clone / "index")},
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert install_hint(extra) in ran.stderr
    assert ran.stderr.count("\n") == 1


def table_commands() -> Iterator[list[str]]:
    """The words of each command in the table."""
    for command in re.findall(r"^\| `(visar .*?)` \|", README, flags=re.M):
        yield shlex.split(command)


def test_the_table_names_commands_and_options_that_exist() -> None:
    program: Any = typer.main.get_command(app)
    shown = list(table_commands())
    assert len(shown) > 7
    for words in shown:
        command = program
        for word in words[1:]:
            command = getattr(command, "commands", {}).get(word, command)
        assert command is not program, words
        options = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options, words


def test_it_is_short() -> None:
    assert len(README.splitlines()) < 100


def test_the_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^\$ make (\w+)", README, flags=re.M):
        assert f"\n{target}:" in makefile


@pytest.mark.parametrize(
    "page",
    [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))],
    ids=lambda page: page.name,
)
def test_links_lead_somewhere(page: Path) -> None:
    """To a file, and to a heading of it where one is named."""
    for link in re.findall(r"\]\(([^) ]+)\)", page.read_text("utf-8")):
        if link.startswith("http"):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name) if name else page
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text("utf-8"), flags=re.M)
            anchors = {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}
            assert anchor in anchors, link
