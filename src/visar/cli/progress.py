"""How far long work is: bars on a terminal, elsewhere a plain line every few seconds."""

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
    """Return what shows on stderr how far work is while it is entered, unless it is to be quiet."""
    if quiet:
        return ProgressDisplay()
    return _Bars() if errors.is_terminal else _Lines()


def waiting(stage: str, *, quiet: bool) -> ProgressDisplay:
    """Return what tells off a terminal that work goes on which may take any time."""
    return ProgressDisplay() if quiet or errors.is_terminal else _Lines(stage)


class ProgressDisplay:
    """What a command tells how far it is. This one shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the display."""

    def announce(self, line: str) -> None:
        """Say what begins."""

    def step(self, stage: str, done: int, total: int, unit: str = "", label: str = "") -> None:
        """Tell how much of a stage is done, counted in units; the label is shown in its place."""

    def clear(self, *stages: str) -> None:
        """Forget these stages, or all."""

    def many_documents(self) -> Callable[[str], PageProgress]:
        """Begin with many documents at once; what it gives is called for each that begins."""
        done_of: dict[str, int] = {}
        total_of: dict[str, int] = {}

        def begin(place: str) -> PageProgress:
            def report(stage: Stage, done: int, total: int) -> None:
                done_of[place], total_of[place] = done if stage == "encoding" else 0, total
                done, total = sum(done_of.values()), sum(total_of.values())
                self.step("encoding", done, total, f"pages of {len(total_of)} documents")

            return report

        return begin

    def document(self, path: str | Path) -> PageProgress:
        """Begin with a document; what it gives is told of its pages."""
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
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self._tasks: dict[str, TaskID] = {}
        self._progress = Progress(
            TextColumn("  {task.description:<10}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}"),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
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
        self._progress.update(
            self._tasks[stage], completed=done, total=total, description=label or stage
        )

    def clear(self, *stages: str) -> None:
        for stage in stages or tuple(self._tasks):
            if stage in self._tasks:
                self._progress.remove_task(self._tasks.pop(stage))


@dataclass(frozen=True, slots=True)
class _State:
    """How far a stage is, and how far it was when it was first heard of."""

    label: str
    begun: float
    told: float = 0
    first: int = 0
    done: int = 0
    total: int = 0
    unit: str = ""

    def line(self, now: float) -> str:
        if not self.total:
            return f"{self.label}, {_duration(now - self.begun)} so far"
        line = f"{self.label} {self.done} of {self.total} {self.unit}".rstrip()
        if self.first < self.done < self.total:
            # As far as was known when it was last told: a page that takes long is one of many.
            seconds_each = (self.told - self.begun) / (self.done - self.first)
            line += f", {_duration((self.total - self.done) * seconds_each)} left"
        return line


class _Lines(ProgressDisplay):
    """A line every few seconds, of the stage that was heard of last."""

    def __init__(self, first_stage: str = "preparing") -> None:
        self._first_stage = first_stage
        self._states: dict[str, _State] = {}
        self._latest = _State(first_stage, time.monotonic())
        self._ended = threading.Event()
        self._teller = threading.Thread(target=self._tell, daemon=True)

    def __enter__(self) -> Self:
        self._teller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._teller.join()

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

    def _tell(self) -> None:
        while not self._ended.wait(SECONDS_PER_LINE):
            with contextlib.suppress(OSError):  # nobody reads it any more
                errors.print(Text(self._latest.line(time.monotonic())), soft_wrap=True)


def _duration(seconds: float) -> str:
    """A time as people say it.

    >>> [_duration(seconds) for seconds in (0.2, 40, 200, 5000)]
    ['1 s', '40 s', '3 min', '1 h 23 min']
    """
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
