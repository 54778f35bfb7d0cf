"""How far long work is: plain lines off a terminal, bars on one, nothing if it is to be quiet."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.typed import Visar
from visar.cli import output, progress

MakePdf = Callable[..., Path]
PAGES = tuple(
    f"Page {number} is about the harbour, its boats and its taxes." for number in range(9)
)
LINE = re.compile(r"^(\w+)(?: (\d+) of (\d+) ?\w*(?:, \d+ s left)?|, \d+ s so far)$", flags=re.M)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines come every millisecond, and with every step, however short."""
    step = progress._Lines.step

    def step_and_print(lines: progress._Lines, *args: Any) -> None:
        step(lines, *args)
        output.errors.print(lines._latest.line(time.monotonic()), soft_wrap=True)

    monkeypatch.setattr(progress._Lines, "step", step_and_print)
    monkeypatch.setattr(progress, "SECONDS_PER_LINE", 0.001)


def stages(output: str) -> set[str]:
    return {stage for stage, _, _ in LINE.findall(output)}


@pytest.mark.usefixtures("impatient")
def test_every_long_command_shows_progress(visar: Visar, make_pdf: MakePdf) -> None:
    path = make_pdf("notes.pdf", *PAGES)
    added = visar("add", path)
    assert {"preparing", "encoding"} <= stages(added.err)
    assert "answering" in stages(visar("ask", "Which boats?").err)
    assert "searching" in stages(visar("search", "Which boats?").err)
    measured = visar("bench", path, "--rounds", "1")
    assert "measuring" in stages(measured.err)
    for ran in (added, measured):
        assert stages(ran.out) == set()
        for _, done, total in LINE.findall(ran.err):
            assert int(done or 0) <= int(total or 0)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("command", ["add", "ask", "search", "bench"])
def test_quiet_hides_progress(visar: Visar, make_pdf: MakePdf, command: str) -> None:
    path = make_pdf("notes.pdf", *PAGES)
    more = {"ask": ["Which boats?"], "search": ["Which boats?"], "bench": ["--rounds", "1"]}
    ran = visar(command, path, *more.get(command, []), "--quiet")
    assert (ran.code, ran.err) == (0, "")


@pytest.mark.usefixtures("impatient")
def test_an_evaluation_shows_progress(visar: Visar, make_pdf: MakePdf, tmp_path: Path) -> None:
    make_pdf("notes.pdf", *PAGES)
    question = {"question": "Which boats?", "document": "notes.pdf"}
    right = {"evidence_pages": [2], "answers": ["its boats"]}
    (tmp_path / "questions.jsonl").write_text(json.dumps(question | right) + "\n")
    run = ("eval", "run", tmp_path / "run", "--data", tmp_path / "questions.jsonl")
    ran = visar(*run, "--method", "visar")
    assert ran.code == 0, ran.err
    assert {"pages", "retrieval"} <= stages(ran.err)
    quiet = visar(*run[:2], tmp_path / "again", *run[3:], "--method", "visar", "--quiet")
    assert (quiet.code, quiet.err) == (0, "")


def numbers_in(line: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", line)]


def test_a_line_shows_the_remaining_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    lines = progress._Lines()
    now = 160.0
    assert "60 s" in lines._latest.line(now)
    # Ten pages were there before: what is left is reckoned from those done since.
    lines.step("reading", 10, 110, "pages")
    assert numbers_in(lines._latest.line(now)) == [10, 110]
    now = 170.0
    lines.step("reading", 30, 110, "pages", "OCR")
    now = 180.0
    assert numbers_in(lines._latest.line(now)) == [30, 110, 40]
    lines.step("reading", 110, 110, "pages")
    assert numbers_in(lines._latest.line(now)) == [110, 110]
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("visar")
def test_a_terminal_gets_bars(make_pdf: MakePdf) -> None:
    """Output for programs is not mixed with the progress on the terminal."""
    path = make_pdf("notes.pdf", *PAGES)
    mine, its = pty.openpty()
    ran = subprocess.run(
        [sys.executable, "-m", "visar", "add", str(path)],
        env={**os.environ, "TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=its,
        check=True,
    )
    os.close(its)
    shown = b""
    while True:
        try:
            shown += os.read(mine, 10_000)
        except OSError:  # the other side is closed, and all was read
            break
    os.close(mine)
    assert b"encoding" in shown
    assert b"9/9" in shown
    assert b"notes.pdf" in ran.stdout
    assert b"\x1b" not in ran.stdout
