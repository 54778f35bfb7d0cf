"""The program loads the command that was typed and no other."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from tests.cli.typed import Visar
from visar._version import __version__
from visar.cli.app import ALL, COMMANDS, GROUPS, _load, make_app
from visar.errors import install_hint
from visar.index import Index


@pytest.mark.parametrize(("place", "text"), [(place, text) for _, place, _, text in COMMANDS])
def test_the_help_of_a_command_is_the_same_loaded_or_not(place: str, text: str) -> None:
    assert inspect.getdoc(_load(place)) == text


@pytest.mark.parametrize(("place", "text"), [(place, text) for _, place, _, text in GROUPS])
def test_the_help_of_a_group_is_the_same_loaded_or_not(place: str, text: str) -> None:
    assert _load(place).info.help == text


def test_version(visar: Visar) -> None:
    assert visar("--version").out == f"visar {__version__}\n"


def test_all_commands_are_listed(visar: Visar) -> None:
    shown = visar("--help").out
    for name, _, _, text in (*COMMANDS, *GROUPS):
        assert f" {name} " in shown
        assert text.split()[0] in shown


def test_a_bare_program_and_a_bare_group_print_their_help(visar: Visar) -> None:
    for words in ([], ["eval"]):
        ran = visar(*words)
        assert (ran.code, ran.err) == (0, "")
        assert ran.out == visar(*words, "--help").out


def test_the_help_of_ask_fits_one_screen_with_the_common_options_first(
    visar: Visar, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    shown = visar("ask", "-h").out
    assert shown.count("\n") <= 50
    sections = dict(re.findall(r"^(\w[\w ]+):\n((?:  .*\n)+)", shown, flags=re.M))
    assert list(sections)[:2] == ["Arguments", "Options"]
    common = re.findall(r"^  (--[\w-]+)", sections["Options"], flags=re.M)
    assert {"--doc", "--generator", "--max-k"} <= set(common)
    assert len(common) < 8


def test_a_short_help_has_one_list_of_options(visar: Visar) -> None:
    assert re.findall(r"^\w.*:$", visar("list", "-h").out, flags=re.M) == ["Options:"]


def test_every_number_in_the_help_has_the_metavar_n() -> None:
    """Not by its type, as Click would name it: ``INTEGER RANGE``."""
    command = typer.main.get_command(make_app(ALL))
    groups = [command]
    while groups:
        for name, one in groups.pop().commands.items():  # type: ignore[attr-defined]
            groups += [one] if hasattr(one, "commands") else []
            for option in one.params:
                if option.type.name in ("integer range", "float range", "int range", "integer"):
                    assert option.metavar == "N", (name, option.name)


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


BLOCKED = """
import sys
from importlib.abc import MetaPathFinder

class Blocker(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
"""


@pytest.mark.parametrize("package", ["jinja2", "matplotlib"])
def test_a_report_without_its_extra_says_what_to_install(
    visar: Visar, package: str, tmp_path: Path, make_pdf: Callable[..., Path]
) -> None:
    make_pdf("notes.pdf", "Boats need wind.", "Income tax is due in April.")
    question = {"question": "When?", "document": "notes.pdf", "evidence_pages": [2]}
    (tmp_path / "questions.jsonl").write_text(json.dumps({**question, "answers": ["April"]}) + "\n")
    made = visar(
        *("eval", "run", tmp_path / "run", "--data", tmp_path / "questions.jsonl"),
        *("--method", "visar", "--quiet"),
    )
    assert made.code == 0, made.err
    (tmp_path / "sitecustomize.py").write_text(BLOCKED.format(package=package))
    ran = subprocess.run(
        [sys.executable, "-m", "visar", "eval", "report", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    assert ran.returncode == 2, ran.stderr
    assert install_hint("eval") in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_missing_package_is_named(visar: Visar, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it is imported: a traceback helps nobody to install it."""

    def import_package(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("No module named 'pyarrow.fs'", name="pyarrow.fs")

    monkeypatch.setattr(Index, "open", import_package)
    ran = visar("list")
    assert (ran.code, ran.out) == (2, "")
    assert "pip install pyarrow" in ran.err
