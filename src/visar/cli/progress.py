"""Progress displays: bars in a terminal, otherwise a line every few seconds."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from rich.text import Text

from visar.cli.output import errors, note
from visar.ingest.downloads import is_web_url, url_name
from visar.text import counted

if TYPE_CHECKING:
    from rich.progress import TaskID

    from visar.ingest.pipeline import Progress as PageProgress
    from visar.ingest.pipeline import Stage

SECONDS_PER_LINE = 5.0
_BYTES_PER_MB = 1_000_000


def progress_shown(*, quiet: bool) -> ProgressDisplay:
    """Return a progress display on stderr, to be used as a context manager."""
    if quiet:
        return ProgressDisplay()
    return _Bars() if errors.is_terminal else _Lines()


def waiting(stage: str, *, quiet: bool) -> ProgressDisplay:
    """Return a display for work without steps; terminals show nothing."""
    return ProgressDisplay() if quiet or errors.is_terminal else _Lines(stage)


class ProgressDisplay:
    """A progress display. The base class shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the display."""

    def announce(self, line: str) -> None:
        """Print a line above the progress."""

    def step(self, stage: str, done: float, total: float, unit: str = "", label: str = "") -> None:
        """Show the progress of a stage, under its name or a label."""

    def clear(self, *stages: str) -> None:
        """Remove these stages, or all."""

    def many_documents(self) -> Callable[[str], PageProgress]:
        """Return a function that begins a document; all are counted together."""
        done_of: dict[str, int] = {}
        total_of: dict[str, int] = {}

        def begin(path: str) -> PageProgress:
            def report(stage: Stage, done: int, total: int) -> None:
                if stage == "downloading":
                    self._download(done, total)
                    return
                done_of[path], total_of[path] = done if stage == "encoding" else 0, total
                done, total = sum(done_of.values()), sum(total_of.values())
                self.step("encoding", done, total, f"pages of {len(total_of)} documents")

            return report

        return begin

    def document(self, path: str | Path) -> PageProgress:
        """Return a callback for the progress of a document."""
        self.clear()
        announced = False

        def report(stage: Stage, done: int, total: int) -> None:
            nonlocal announced
            if stage == "downloading":
                self._download(done, total)
                return
            if not announced:
                self.clear("downloading")
                name = url_name(path) if is_web_url(path) else Path(path).name
                self.announce(f"{name} · {counted(total, 'page')} · adding to your index")
                announced = True
            # Reading with and without OCR is one stage: together they cover all pages.
            name = "encoding" if stage == "encoding" else "reading"
            self.step(name, done, total, "pages", "OCR" if stage == "ocr" else name)

        return report

    def _download(self, received: int, size: int) -> None:
        self.step("downloading", received / _BYTES_PER_MB, size / _BYTES_PER_MB, "MB")


class _Bars(ProgressDisplay):
    """A bar for each stage."""

    def __init__(self) -> None:
        from rich import progress

        self._tasks: dict[str, TaskID] = {}
        self._progress = progress.Progress(
            progress.TextColumn("  {task.description:<11}"),
            progress.BarColumn(bar_width=24),
            progress.TextColumn("{task.fields[count]}"),
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

    def step(self, stage: str, done: float, total: float, unit: str = "", label: str = "") -> None:
        if stage not in self._tasks:
            self._tasks[stage] = self._progress.add_task(stage, total=total or None, count="")
        whole = _number(total)
        count = _number(done) if not total else f"{_number(done):>{len(whole)}}/{whole}"
        self._progress.update(
            self._tasks[stage],
            completed=done,
            total=total or None,
            description=label or stage,
            count=f"{count} {unit}",
        )

    def clear(self, *stages: str) -> None:
        for stage in stages or tuple(self._tasks):
            if stage in self._tasks:
                self._progress.remove_task(self._tasks.pop(stage))


@dataclass(frozen=True, slots=True)
class _State:
    """The progress of a stage, with its beginning."""

    label: str
    begun: float
    updated: float = 0
    first: float = 0
    done: float = 0
    total: float = 0
    unit: str = ""

    def line(self, now: float) -> str:
        if not (self.done or self.total):
            return f"{self.label}, {_duration(now - self.begun)} so far"
        of_total = f" of {_number(self.total)}" if self.total else ""
        line = f"{self.label} {_number(self.done)}{of_total} {self.unit}".rstrip()
        if self.first < self.done < self.total:
            # Until the last update, not now, so that one slow page doesn't count too much.
            seconds_each = (self.updated - self.begun) / (self.done - self.first)
            line += f", {_duration((self.total - self.done) * seconds_each)} left"
        return line


class _Lines(ProgressDisplay):
    """A line every few seconds, with the latest stage."""

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
        note(line)

    def step(self, stage: str, done: float, total: float, unit: str = "", label: str = "") -> None:
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
                note(self._latest.line(time.monotonic()))


def _number(count: float) -> str:
    """Return a number with one decimal place at most.

    >>> [_number(count) for count in (40, 3.14, 12.0)]
    ['40', '3.1', '12']
    """
    return f"{count:.1f}".removesuffix(".0")


def _duration(seconds: float) -> str:
    """Return a duration for people.

    >>> [_duration(seconds) for seconds in (0.2, 40, 200, 5000)]
    ['1 s', '40 s', '3 min', '1 h 23 min']
    """
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
