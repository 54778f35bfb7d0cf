"""Examples in the docs: blocks of code, commands, and their output."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def read(name: str) -> str:
    """Return the text of a page of ``docs``."""
    return (DOCS / name).read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    """Return the contents of the blocks in a language, in their order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page, flags=re.M | re.S)


def commands(page: str, program: str = "visar") -> list[tuple[str, str]]:
    """Return the commands of a program that a page shows, each with its indented output."""
    return re.findall(rf"^\$ ((?:\w+=\S+ )?{program}\b.*)\n((?:  .*\n)*)", page, flags=re.M)


def assert_shown(shown: str, output: str) -> None:
    """Check that a program printed what a page shows.

    Columns are compared one by one. Left out are what a page abridges with "…", and bars, which
    differ between machines.
    """
    for line in shown.splitlines():
        for cell in re.split(r"…|█+|\s{2,}", line):
            assert cell.strip() in output, line
