"""Each table of a benchmark has a program that writes it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_sections_of_the_docs_are_those_that_programs_save() -> None:
    pages = [page.read_text("utf-8") for page in (ROOT / "docs").glob("*.md")]
    begun, ended = (
        {name for page in pages for name in re.findall(rf"<!-- (.*): {mark} -->", page)}
        for mark in ("begin", "end")
    )
    assert len(begun) > 10
    assert begun == ended
    programs = [path.read_text("utf-8") for path in (ROOT / "benchmarks").glob("*.py")]
    saving = [
        program for program in programs if "save_section" in program or "print_trials" in program
    ]
    assert {
        name for name in begun if not any(f'"{name}"' in program for program in saving)
    } == set()
