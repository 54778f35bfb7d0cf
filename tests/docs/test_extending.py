"""Run the parts of docs/extending.md by module:name, and as a package with entry points."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pikepdf
import pytest

from tests.docs.shown import read
from tests.programs import run_shown

PAGE = read("extending.md").partition("## Write your own parts")[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, report: Path) -> Path:
    """The page's module, installed as a package would be, beside the report it asks about."""
    folder = tmp_path_factory.mktemp("extending")
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.M | re.S)
    (folder / "my_visar.py").write_text("\n\n".join(blocks))
    (toml,) = re.findall(r"^```toml\n(.*?)^```", PAGE, flags=re.M | re.S)
    points = re.sub(r'\[project\.entry-points\."(.*?)"\]', r"[\1]", toml).replace('"', "")
    info = folder / "my_visar-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-visar\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(points.partition("\n")[2])
    with pikepdf.open(report) as pdf:
        del pdf.pages[12:]
        pdf.save(folder / "annual-report.pdf")
    return folder


def run(folder: Path, command: str, *, as_package: bool) -> str:
    paths = [str(folder)] if as_package else []
    path = os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    ran = run_shown(command, folder, PYTHONPATH=path)
    assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"
    return ran.stdout


COMMANDS = re.findall(r"^\$ (.*)$", PAGE, flags=re.M)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_run(folder: Path, command: str) -> None:
    shown = run(folder, command, as_package=False)
    if "Shouting" in command:
        assert "HOW LONG IS THE WARRANTY?" in shown


def test_a_package_is_known_by_its_names(folder: Path) -> None:
    """Also in the processes of an evaluation, which find the entry points themselves."""
    question = 'annual-report.pdf "How long is the warranty?"'
    assert "letters" in run(folder, "visar encoders --json", as_package=True)
    assert "shout" in run(folder, "visar generators --json", as_package=True)
    run(folder, f"visar search {question} --encoder letters --method half", as_package=True)
    shown = run(folder, f"visar ask {question} --generator shout", as_package=True)
    assert "HOW LONG IS THE WARRANTY?" in shown
    run(folder, "visar eval run named --data faq --method half", as_package=True)
    run(folder, f"visar ask {question} --reader lengths", as_package=True)
    assert "half" in run(folder, "visar eval report named", as_package=True) or any(
        "half" in path.read_text() for path in (folder / "named").rglob("*.md")
    )
    run(folder, "visar eval compare named --out compared", as_package=True)
    assert "| half |" in (folder / "compared" / "leaderboard.md").read_text(encoding="utf-8")
