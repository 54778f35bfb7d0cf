"""The program loads the command that was typed and no other."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from tests.cli.typed import Visar
from visar._version import __version__
from visar.cli.app import COMMANDS, GROUPS, _load


@pytest.mark.parametrize(("name", "place", "text"), COMMANDS)
def test_the_help_of_a_command_is_the_same_loaded_or_not(name: str, place: str, text: str) -> None:
    assert inspect.getdoc(_load(place)) == text, name


@pytest.mark.parametrize(("name", "place", "text"), GROUPS)
def test_the_help_of_a_group_is_the_same_loaded_or_not(name: str, place: str, text: str) -> None:
    assert _load(place).info.help == text, name


def test_version(visar: Visar) -> None:
    assert visar("--version").out == f"visar {__version__}\n"


def test_all_commands_are_listed(visar: Visar) -> None:
    shown = visar("--help").out
    for name, _, text in (*COMMANDS, *GROUPS):
        assert f" {name} " in shown
        assert text.split()[0] in shown


def test_help_imports_no_command() -> None:
    program = (
        "import sys; sys.argv = ['visar', '--help']\n"
        "from visar.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted(m for m in sys.modules if m.startswith('visar.') or m == 'numpy'))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = ran.stdout.splitlines()[-1]
    for absent in ("numpy", "visar.index", "visar.evaluation", "visar.generation", "lancedb"):
        assert absent not in loaded
