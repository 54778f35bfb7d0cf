"""Fixtures, helpers and settings for all tests."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Generator
from functools import cache
from pathlib import Path

import pikepdf
import pytest
from hypothesis import HealthCheck, settings
from reportlab.pdfgen.canvas import Canvas

# pytest-xdist sets the width of the terminal for its workers, but programs choose it themselves.
os.environ.pop("COLUMNS", None)

from tests.generation.smollm import smollm as smollm
from visar.index import Index
from visar.samples import REPORT

# In a script's background job, Ctrl-C is ignored, and programs started by tests would inherit that.
# A handler isn't inherited: with one, programs start with the default again.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Don't use the settings file of the person who runs the tests.
os.environ["VISAR_CONFIG"] = str(Path(__file__).parent / "no-such-config.toml")

# Tests may be slow on a busy machine.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("patient", patient)
# Examples are the same for every run in CI, so that it isn't flaky, and random elsewhere.
settings.register_profile("ci", patient, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "patient")


PROGRAMS = ("Chromium", "LibreOffice", "strace", "Tesseract")
"""Optional programs. Tests that need one are skipped with a reason such as "Chromium is not
installed"."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter,
) -> Generator[None, None, None]:
    """End the summary with the number of tests skipped because a program isn't installed."""
    yield
    missing = Counter(
        program
        for skipped in terminalreporter.getreports("skipped")
        for program in PROGRAMS
        if f"{program} is not installed" in skipped.longrepr[2]
    )
    if missing:
        programs = ", ".join(f"{program} ({missing[program]})" for program in sorted(missing))
        terminalreporter.write_line(
            f"{missing.total()} tests skipped, not installed: {programs}", yellow=True
        )


@pytest.fixture(scope="session")
def report() -> Path:
    """The example report: 40 pages of text, tables and charts, two of them scanned."""
    return REPORT


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory, report: Path) -> Index:
    """An index with the example report, for tests that only read it."""
    index = Index.open(tmp_path_factory.mktemp("library") / "index")
    index.add(report)
    return index


def write_pdf(path: Path, *pages: str) -> Path:
    """Write a PDF with one paragraph per page."""
    sheet = Canvas(str(path), pagesize=(400, 500), invariant=True)
    for text in pages:
        for number, line in enumerate(text.split("\n")):
            sheet.drawString(40, 440 - 16 * number, line)
        sheet.showPage()
    sheet.save()
    return path


def write_slow_pdf(path: Path, pages: int, name: str = "w", lines: int = 0) -> Path:
    """Write a small PDF whose pages take a fifth of a second each: all show the same 500 words.

    With 400,000 ``lines``, they take more than half a second.
    """
    words = (f"1 0 0 1 {n % 20 * 25} {n // 20 * 20} Tm ({name}{n}) Tj" for n in range(500))
    with pikepdf.new() as pdf:
        font = pikepdf.Dictionary(
            Type=pikepdf.Name.Font, Subtype=pikepdf.Name.Type1, BaseFont=pikepdf.Name.Helvetica
        )
        resources = pikepdf.Dictionary(Font=pikepdf.Dictionary(F=pdf.make_indirect(font)))
        content = pdf.make_stream(
            "\n".join(["BT /F 1 Tf", *words, "ET", *["0 0 m 9 9 l S"] * lines]).encode()
        )
        for _ in range(pages):
            pdf.add_blank_page(page_size=(500, 500))
            pdf.pages[-1].obj.update({"/Contents": content, "/Resources": resources})
        pdf.save(path)
    return path


def damage_page(path: Path, page: int) -> Path:
    """Replace a page of a PDF, counted from 1, with an invalid object."""
    with pikepdf.open(path, allow_overwriting_input=True) as pdf:
        pdf.Root.Pages.Kids[page - 1] = pdf.make_indirect(pikepdf.Array([1]))
        pdf.save(path)
    return path


@pytest.fixture
def make_pdf(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a PDF with one paragraph per page."""

    def make(name: str, *pages: str) -> Path:
        return write_pdf(tmp_path / name, *pages)

    return make


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that creates a tiny checkpoint of an encoder family, once for each.

    It returns the folder of the checkpoint's adapter.
    """
    from tests.encoders import tiny

    folder = tmp_path_factory.mktemp("checkpoints")
    return cache(lambda family: tiny.save(family, folder))
