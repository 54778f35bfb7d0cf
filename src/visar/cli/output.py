"""What people read in the terminal, and what programs read instead."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Container, Iterable
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from visar.text import clean_text, counted

if TYPE_CHECKING:
    from rich.table import Table

    from visar.results import Document

# Wide enough for every table: what reads a pipe or a file has no edge to cut at.
_PIPE_WIDTH = 10_000
_SHORT_ID = 12


class SafeConsole(Console):
    """A console that drops what a terminal would act upon, such as ESC in a file's name."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render something to segments: text cleaned, rich's own controls as they are."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(clean_text(segment.text), segment.style)


def _width(stream: Any) -> int | None:
    is_terminal = stream is not None and stream.isatty()
    return None if is_terminal or "COLUMNS" in os.environ else _PIPE_WIDTH


console = SafeConsole(highlight=False, width=_width(sys.stdout))
# Progress and complaints: what a person sees, and a program that reads the output does not.
errors = SafeConsole(stderr=True, highlight=False, width=_width(sys.stderr))
STATE_STYLES = {"ready": "green", "downloads": "cyan", "missing": "yellow"}
"""Of what the program can use: there, got from the hub when first used, not there."""

# What JSON leaves as it is, and a terminal acts upon or UTF-8 does not have.
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def complain(message: str) -> None:
    """Say in one line on stderr what went wrong."""
    errors.print(Text("visar: ", style="bold red") + Text(message), soft_wrap=True)


def plain_table(*headings: str, numbers: Container[str] = ()) -> Table:
    """Return a table without lines; the columns with headings of ``numbers`` end at the right."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for place, heading in enumerate(headings):
        table.add_column(
            heading, justify="right" if heading in numbers else "left", no_wrap=place == 0
        )
    return table


def document_line(document: Document) -> str:
    """Return the line that names a document: the beginning of its id, its name, its pages."""
    return f"{document.id[:_SHORT_ID]}  {document.name} · {counted(document.pages, 'page')}"


def print_documents(documents: Iterable[Document]) -> None:
    """Print documents as a table."""
    table = plain_table("ID", "PAGES", "ADDED", "NAME", numbers={"PAGES"})
    for document in documents:
        table.add_row(
            document.id[:_SHORT_ID],
            str(document.pages),
            document.added.astimezone().strftime("%Y-%m-%d %H:%M"),
            Text(document.name),
        )
    console.print(table)


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Write a result as JSON to stdout, in the characters that it takes."""
    from visar.serialization import to_plain

    is_unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    text = json.dumps(to_plain(value), ensure_ascii=not is_unicode, indent=indent)
    sys.stdout.write(_UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")
