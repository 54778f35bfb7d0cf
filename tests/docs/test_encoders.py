"""Run the examples of docs/encoders.md, and check its table."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.docs.shown import commands, read
from tests.programs import run_shown
from visar.encoders.records import PUBLISHED
from visar.encoders.visual import FAMILIES
from visar.samples import REPORT

PAGE = read("encoders.md")


def test_a_smaller_index_is_used_as_shown(tmp_path: Path) -> None:
    shutil.copy(REPORT, tmp_path / "report.pdf")
    shown = [command for command, _ in commands(PAGE) if command.endswith("embedded+int8")]
    assert len(shown) == 2
    for command in shown:
        ran = run_shown(command, tmp_path)
        assert ran.returncode == 0, ran.stderr


def test_the_table_of_checkpoints_is_the_program_s() -> None:
    rows = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| `")]
    listed = {row[0].strip("`"): row[1:] for row in rows if row[1].startswith("`")}
    assert listed == {
        one.name: [
            f"`{one.repository}`",
            one.description,
            f"{one.parameters}, {one.download}",
        ]
        for one in PUBLISHED.values()
    }
    for family in FAMILIES.values():
        assert family.model_class.replace("_", ".").lower() in PAGE.lower()
