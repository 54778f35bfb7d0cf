"""Completion, as bash, zsh and fish ask for it; bash itself runs the script."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.cli.typed import Visar
from visar.cli import completion
from visar.retrieval.methods import method_names

INSTALLING = Path(__file__).parents[2] / "docs" / "installing.md"
MakePdf = Callable[..., Path]
BASH = shutil.which("bash") or "/bin/bash"
# What bash does when Tab is pressed after some words: each result is on a line of its own.
PRESS_TAB = r"""
. "$COMPLETION"
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _visar_completion visar
printf '%s\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def environment(visar: Visar, tmp_path: Path) -> dict[str, str]:
    """An environment with the program ``visar`` on its path, bash's script, and an index."""
    script = tmp_path / "visar.bash"
    script.write_text(visar("completion", "bash").out)
    program = tmp_path / "bin" / "visar"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.argv[0] = 'visar'\n"
        "from visar.cli import main\nmain()\n"
    )
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    pythons = os.pathsep.join(filter(None, sys.path))
    return os.environ | {
        "COMPLETION": str(script),
        "PATH": path,
        "PYTHONPATH": pythons,
        "VISAR_INDEX": str(tmp_path / "index"),
    }


def press_tab(environment: Mapping[str, str], *words: str) -> list[str]:
    ran = subprocess.run(
        [BASH, "--norc", "-c", PRESS_TAB, "bash", "visar", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert ran.stderr == ""
    return list(filter(None, ran.stdout.split("\n")))


@pytest.mark.skipif(not Path(BASH).exists(), reason="needs bash")
def test_bash_completes_commands_options_and_names(
    visar: Visar, make_pdf: MakePdf, environment: dict[str, str]
) -> None:
    made = [make_pdf(name, f"About {name}.") for name in ("my boats.pdf", "tax.pdf")]
    assert visar("add", *made).code == 0
    assert press_tab(environment, "se") == ["search", "serve", "setup"]
    assert press_tab(environment, "ask", "--oc") == ["--ocr", "--ocr-engine"]
    assert press_tab(environment, "ask", "--ocr", "") == ["auto", "always", "never"]
    assert press_tab(environment, "ask", "--method", "visar") == ["visar", "visar-approx"]
    assert press_tab(environment, "eval", "co") == ["compare", "convert"]
    # A blank does not end a word.
    assert press_tab(environment, "show", "") == [r"my\ boats.pdf", "tax.pdf"]
    assert press_tab(environment, "ask", "--doc", "t") == ["tax.pdf"]
    # The files that bash offers by itself come where nothing is known.
    assert press_tab(environment, "ask", "exam") == []


@pytest.mark.skipif(not Path(BASH).exists(), reason="needs bash")
def test_a_missing_index_completes_nothing_and_is_not_created(
    environment: dict[str, str], tmp_path: Path
) -> None:
    assert press_tab(environment, "show", "--index", str(tmp_path / "other"), "") == []
    assert not (tmp_path / "other").exists()
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize(
    ("shell", "expected"),
    [
        ("fish", "largest-gap"),
        ("zsh", "_arguments '*: :((\"largest-gap\"))'"),
    ],
)
def test_other_shells_complete_names(
    visar: Visar, monkeypatch: pytest.MonkeyPatch, shell: str, expected: str
) -> None:
    monkeypatch.setenv(completion.VARIABLE, f"complete_{shell}")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "visar ask --method larg")
    ran = visar()
    assert (ran.code, ran.out.strip()) == (0, expected)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_calls_the_program_for_completions(visar: Visar, shell: str) -> None:
    script = visar("completion", shell).out
    assert f"{completion.VARIABLE}=complete_{shell}" in script
    assert f"visar completion {shell}" in INSTALLING.read_text(encoding="utf-8")


def test_errors_during_completion_are_silent(
    visar: Visar, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "index").write_text("not an index")
    monkeypatch.setenv(completion.VARIABLE, "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "visar show ")
    monkeypatch.setenv("COMP_CWORD", "2")
    ran = visar()
    assert (ran.code, ran.out.strip(), ran.err) == (0, "", "")


def test_names_come_from_the_registries() -> None:
    from typer import Context
    from typer.main import get_command

    from visar.cli.app import make_app

    context = Context(get_command(make_app(None)))
    assert completion.methods(context) == method_names()
    assert {"embedded", "colpali"} <= set(completion.encoders(context))
    assert "extractive" in completion.generators(context)
    assert completion.evaluated_methods(context)[0] == "main"
    assert "FinanceBench" in completion.converters(context)
