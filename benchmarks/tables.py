"""Format benchmark results as Markdown, and save them to pages of docs/."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "benchmarks.md"
RELIABILITY = DOCS / "reliability.md"


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def markdown_line(header: Sequence[str], row: Sequence[str]) -> str:
    """Return a single row with its names: "Trials: 100; lost: 0."."""
    line = "; ".join(f"{name}: {value}" for name, value in zip(header, row, strict=True))
    return f"{line[0].upper()}{line[1:]}."


def save_section(name: str, content: str, page: Path = PAGE) -> None:
    """Replace the text between the markers of a section of docs/benchmarks.md or another page."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    if not rest or not after:
        raise SystemExit(f"{page} has no section {begin} … {end}")
    page.write_text(f"{before}{begin}\n{content}\n{end}{after}", encoding="utf-8")
