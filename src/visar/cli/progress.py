"""Progress of long work: bars on a terminal, a plain line every few seconds elsewhere."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from rich.text import Text

from visar.cli.output import errors
from visar.text import counted

if TYPE_CHECKING:
    from rich.progress import TaskID

    from visar.ingest.pipeline import Progress as PageProgress
    from visar.ingest.pipeline import Stage

SECONDS_PER_LINE = 5.0


def progress_shown(*, quiet: bool) -> ProgressDisplay:
    """Return a display of progress on stderr; it is used as a context manager."""
    if quiet:
        return ProgressDisplay()
    return _Bars() if errors.is_terminal else _Lines()


def waiting(stage: str, *, quiet: bool) -> ProgressDisplay:
    """Return a display for work that has no steps; a terminal needs none."""
    return ProgressDisplay() if quiet or errors.is_terminal else _Lines(stage)


class ProgressDisplay:
    """A display of progress. This one shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the display."""

    def announce(self, line: str) -> None:
        """Print a line above the progress."""

    def step(self, stage: str, done: int, total: int, unit: str = "", label: str = "") -> None:
        """Show how much of a stage is done; the label replaces its name."""

    def clear(self, *stages: str) -> None:
        """Remove these stages, or all."""

    def many_documents(self) -> Callable[[str], PageProgress]:
        """Return a function to call with each document; they are counted together."""
        done_of: dict[str, int] = {}
        total_of: dict[str, int] = {}

        def begin(path: str) -> PageProgress:
            def report(stage: Stage, done: int, total: int) -> None:
                done_of[path], total_of[path] = done if stage == "encoding" else 0, total
                done, total = sum(done_of.values()), sum(total_of.values())
                self.step("encoding", done, total, f"pages of {len(total_of)} documents")

            return report

        return begin

    def document(self, path: str | Path) -> PageProgress:
        """Return a function to call with the progress of a document's pages."""
        self.clear()
        announced = False

        def report(stage: Stage, done: int, total: int) -> None:
            nonlocal announced
            if not announced:
                self.announce(f"{Path(path).name} · {counted(total, 'page')} · new to the index")
                announced = True
            # Pages read with and without OCR are one stage: together they are all pages.
            name = "encoding" if stage == "encoding" else "reading"
            self.step(name, done, total, "pages", "OCR" if stage == "ocr" else name)

        return report


class _Bars(ProgressDisplay):
    """A bar for each stage."""

    def __init__(self) -> None:
        from rich import progress

        self._tasks: dict[str, TaskID] = {}
        self._progress = progress.Progress(
            progress.TextColumn("  {task.description:<10}"),
            progress.BarColumn(bar_width=24),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[unit]}"),
            progress.TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            console=errors,
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def announce(self, line: str) -> None:
        self._progress.console.print(Text(line))

    def step(self, stage: str, done: int, total: int, unit: str = "", label: str = "") -> None:
        if stage not in self._tasks:
            self._tasks[stage] = self._progress.add_task(stage, total=total, unit=unit)
        task = self._tasks[stage]
        self._progress.update(task, completed=done, total=total, description=label or stage)

    def clear(self, *stages: str) -> None:
        for stage in stages or tuple(self._tasks):
            if stage in self._tasks:
                self._progress.remove_task(self._tasks.pop(stage))


@dataclass(frozen=True, slots=True)
class _State:
    """Progress of a stage, now and when it began."""

    label: str
    begun: float
    updated: float = 0
    first: int = 0
    done: int = 0
    total: int = 0
    unit: str = ""

    def line(self, now: float) -> str:
        if not self.total:
            return f"{self.label}, {_duration(now - self.begun)} so far"
        line = f"{self.label} {self.done} of {self.total} {self.unit}".rstrip()
        if self.first < self.done < self.total:
            # From the last update, not from now: a page that takes long is one of many.
            seconds_each = (self.updated - self.begun) / (self.done - self.first)
            line += f", {_duration((self.total - self.done) * seconds_each)} left"
        return line


class _Lines(ProgressDisplay):
    """A line every few seconds about the latest stage."""

    def __init__(self, first_stage: str = "preparing") -> None:
        self._first_stage = first_stage
        self._states: dict[str, _State] = {}
        self._latest = _State(first_stage, time.monotonic())
        self._ended = threading.Event()
        self._printer = threading.Thread(target=self._print, daemon=True)

    def __enter__(self) -> Self:
        self._printer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._printer.join()

    def announce(self, line: str) -> None:
        errors.print(Text(line), soft_wrap=True)

    def step(self, stage: str, done: int, total: int, unit: str = "", label: str = "") -> None:
        known = self._states.get(stage)
        now = time.monotonic()
        begun, first = (known.begun, known.first) if known else (now, done)
        self._latest = _State(label or stage, begun, now, first, done, total, unit)
        self._states[stage] = self._latest

    def clear(self, *stages: str) -> None:
        for stage in stages or tuple(self._states):
            self._states.pop(stage, None)
        if not stages:
            self._latest = _State(self._first_stage, time.monotonic())

    def _print(self) -> None:
        while not self._ended.wait(SECONDS_PER_LINE):
            with contextlib.suppress(OSError):  # stderr was closed
                errors.print(Text(self._latest.line(time.monotonic())), soft_wrap=True)


def _duration(seconds: float) -> str:
    """Return a time as people say it.

    >>> [_duration(seconds) for seconds in (0.2, 40, 200, 5000)]
    ['1 s', '40 s', '3 min', '1 h 23 min']
    """
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
