"""Shared by all tests."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Generator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from reportlab.pdfgen.canvas import Canvas

# Processes of pytest-xdist are told a width; what is tested decides on its own.
os.environ.pop("COLUMNS", None)

from tests.generation.smollm import smollm as smollm
from visar.index import Index
from visar.samples import REPORT

# A script that runs the tests in its background has Ctrl-C ignored, and every program they start
# would inherit that. A handler is not inherited: programs begin with the default again.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What whoever runs the tests has set for their own commands is not for those of the tests.
os.environ["VISAR_CONFIG"] = str(Path(__file__).parent / "no-such-config.toml")

# A busy machine is no error of what is tested.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("patient", patient)
# What lands must not depend on chance: the same examples every time there, new ones elsewhere.
settings.register_profile("ci", patient, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "patient")


PROGRAMS = ("Chromium", "LibreOffice", "strace", "Tesseract")
"""Optional programs: without Chromium a test is skipped because "Chromium is not installed"."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter,
) -> Generator[None, None, None]:
    """Close with the tests that were skipped because a program isn't installed."""
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
    """The example: 40 pages of text, tables and charts, two of them scanned."""
    return REPORT


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory, report: Path) -> Index:
    """An index with the example in it, for tests that only read."""
    index = Index.open(tmp_path_factory.mktemp("library") / "index")
    index.add(report)
    return index


def write_pdf(path: Path, *pages: str) -> Path:
    """Write a PDF with one paragraph a page."""
    sheet = Canvas(str(path), pagesize=(400, 500), invariant=True)
    for text in pages:
        for number, line in enumerate(text.split("\n")):
            sheet.drawString(40, 440 - 16 * number, line)
        sheet.showPage()
    sheet.save()
    return path


@pytest.fixture
def make_pdf(tmp_path: Path) -> Callable[..., Path]:
    """Make a PDF with one paragraph a page."""

    def make(name: str, *pages: str) -> Path:
        return write_pdf(tmp_path / name, *pages)

    return make


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Make a tiny checkpoint of a visual encoder's family, once; give its adapter's folder."""
    from tests.encoders import tiny

    folder = tmp_path_factory.mktemp("checkpoints")
    return cache(lambda family: tiny.save(family, folder))
