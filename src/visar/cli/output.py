"""What people read in the terminal, and what programs read instead."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from visar.ingest import Progress as Report
    from visar.ingest import Stage

console = Console(highlight=False)
# Progress and complaints: what a person sees, and a program that reads the output does not.
errors = Console(stderr=True, highlight=False)
STATE_STYLES = {"ready": "green", "downloads": "cyan", "missing": "yellow"}
"""Of what the program can use: there, got from the hub when first used, not there."""


def complain(message: str) -> None:
    """Say in one line on stderr what went wrong."""
    errors.print(Text("visar: ", style="bold red") + Text(message), soft_wrap=True)


def print_json(value: Any) -> None:
    """Write a result as JSON to stdout."""
    from visar.results import to_plain

    sys.stdout.write(json.dumps(to_plain(value), ensure_ascii=False, indent=2) + "\n")


@contextmanager
def progress_bars() -> Iterator[DocumentBars]:
    """Bars on stderr while the block runs; nothing when it is no terminal."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:.1f}/s" if task.speed else "", style="dim")

    columns = (
        TextColumn("  {task.description:<9}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("pages"),
        Rate(),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
    )
    with Progress(*columns, console=errors, disable=not errors.is_terminal) as progress:
        yield DocumentBars(progress)


class DocumentBars:
    """One bar per stage of the document that is being added."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def __call__(self, path: Path) -> Report:
        """Begin with a document; its bars appear with its first page."""
        for task in self._progress.task_ids:
            self._progress.remove_task(task)
        bars: dict[str, TaskID] = {}

        def report(stage: Stage, done: int, total: int) -> None:
            # Pages read with and without OCR share a bar: together they are all pages.
            name = "encoding" if stage == "encoding" else "reading"
            if not bars:
                self._progress.console.print(
                    Text(f"{path.name} · {total} pages · new to the index")
                )
            if name not in bars:
                bars[name] = self._progress.add_task(name, total=total)
            label = "OCR" if stage == "ocr" else name
            self._progress.update(bars[name], completed=done, description=label)

        return report
