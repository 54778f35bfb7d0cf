"""Output as text and as JSON."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Container, Iterable
from datetime import datetime
from socket import socket
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from visar.text import clean_text, counted

if TYPE_CHECKING:
    from rich.table import Table

    from visar.results import Document

# Wide enough for every table: lines in pipes and files don't wrap.
_PIPE_WIDTH = 10_000
SHORT_ID = 12


class SafeConsole(Console):
    """A console that removes control characters, such as ESC in a file name."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render to segments, with clean text and rich's own controls."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(clean_text(segment.text), segment.style)


def _width(stream: Any) -> int | None:
    is_terminal = stream is not None and stream.isatty()
    return None if is_terminal or "COLUMNS" in os.environ else _PIPE_WIDTH


console = SafeConsole(highlight=False, width=_width(sys.stdout))
# For progress and errors, to keep stdout clean for other programs.
errors = SafeConsole(stderr=True, highlight=False, width=_width(sys.stderr))
STATE_STYLES = {"ready": "green", "downloads": "cyan", "missing": "yellow"}
"""Styles by state: installed, downloaded at first use, or not installed."""

# Characters that JSON allows, but terminals interpret or UTF-8 can't encode.
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def complain(message: str) -> None:
    """Print an error on stderr, in one line."""
    note(Text("visar: ", style="bold red") + Text(message))


def say(line: str | Text, style: str = "") -> None:
    """Print a line on stdout, without markup and without breaking it."""
    console.print(Text(line, style) if isinstance(line, str) else line, soft_wrap=True)


def note(line: str | Text, style: str = "") -> None:
    """Print a line on stderr, like `say`."""
    errors.print(Text(line, style) if isinstance(line, str) else line, soft_wrap=True)


def moment(when: datetime) -> str:
    """Return a time for people, in their time zone."""
    return when.astimezone().strftime("%Y-%m-%d %H:%M")


def plain_table(
    *headings: str, rows: Iterable[Iterable[str | Text]] = (), numbers: Container[str] = ()
) -> Table:
    """Return a table without borders; columns in ``numbers`` are aligned to the right."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for column, heading in enumerate(headings):
        table.add_column(
            heading, justify="right" if heading in numbers else "left", no_wrap=column == 0
        )
    for row in rows:
        table.add_row(*row)
    return table


def document_line(document: Document) -> str:
    """Return a document in one line: short id, name, number of pages."""
    return f"{document.id[:SHORT_ID]}  {document.name} · {counted(document.pages, 'page')}"


def served_url(host: str, listener: socket) -> str:
    """Return the URL of a server, for people to open."""
    name = "localhost" if host == "127.0.0.1" else f"[{host}]" if ":" in host else host
    return f"http://{name}:{listener.getsockname()[1]}"


def print_hints(*hints: tuple[str, str]) -> None:
    """Print hints, each a purpose and the options for it."""
    for purpose, options in hints:
        say(f"{purpose}: {options}", "dim")


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Print a result as JSON, escaped where stdout can't encode it."""
    from visar.serialization import to_plain

    is_unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    text = json.dumps(to_plain(value), ensure_ascii=not is_unicode, indent=indent)
    sys.stdout.write(_UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")
