"""``visar doctor``: what can run here, and what is missing."""

from __future__ import annotations

import importlib.util
import platform
import shutil
from dataclasses import dataclass

from rich.text import Text

from visar._version import __version__
from visar.cli.options import IndexFolder, Json
from visar.cli.output import STATE_STYLES, console, print_json
from visar.encoders.registry import EncoderInfo, available_encoders
from visar.errors import StoreError
from visar.generation.registry import GeneratorInfo, available_generators
from visar.index import Index, default_location
from visar.models.protocols import State


@dataclass(frozen=True, slots=True)
class Part:
    """Something the program can use."""

    name: str
    use: str
    install: str | None
    """What to do to have it; None when it is there."""

    @property
    def state(self) -> State:
        return "ready" if self.install is None else "missing"


@dataclass(frozen=True, slots=True)
class Report:
    version: str
    python: str
    index: str
    documents: int | None
    """None when there is no index yet."""
    encoders: tuple[EncoderInfo, ...]
    generators: tuple[GeneratorInfo, ...]
    parts: tuple[Part, ...]


def doctor(*, index: IndexFolder = None, as_json: Json = False) -> None:
    """Show what is installed, what can run here, and what is missing."""
    location = str(index or default_location())
    report = Report(
        version=__version__,
        python=platform.python_version(),
        index=location,
        documents=_count(location),
        encoders=tuple(available_encoders()),
        generators=tuple(available_generators()),
        parts=_parts(),
    )
    if as_json:
        print_json(report)
        return
    console.print(f"[bold]visar {report.version}[/bold] · Python {report.python}")
    held = "none yet" if report.documents is None else f"{report.documents} documents"
    console.print(f"index       {report.index} ({held})", soft_wrap=True)
    for encoder in report.encoders:
        _print_part("encoder", encoder.state, encoder.name, encoder.description, encoder.next_step)
    for generator in report.generators:
        _print_part(
            "generator",
            generator.state,
            generator.name,
            generator.description,
            generator.next_step,
        )
    for part in report.parts:
        _print_part("optional", part.state, part.name, part.use, part.install)


def _parts() -> tuple[Part, ...]:
    return (
        _package("rapidocr", "reads scanned pages", "pip install 'visar[ocr]'"),
        _package("sklearn", "the method score-cluster", "pip install 'visar[eval]'"),
        _program("tesseract", "reads scanned pages, --ocr-engine tesseract", "Tesseract"),
        _program("soffice", "opens DOCX, PPTX and other office files", "LibreOffice"),
    )


def _package(name: str, use: str, install: str) -> Part:
    return Part(name, use, None if importlib.util.find_spec(name) else install)


def _program(command: str, use: str, product: str) -> Part:
    return Part(command, use, None if shutil.which(command) else f"install {product}")


def _count(location: str) -> int | None:
    try:
        return len(Index.open(location, create=False).documents())
    except StoreError:
        return None


def _print_part(kind: str, state: State, name: str, use: str, next_step: str | None) -> None:
    line = Text(f"{kind:<11} ").append(f"{state:<9}", STATE_STYLES[state])
    line.append(f"  {name:<14} ").append(use, "dim")
    console.print(line.append(f" → {next_step}" if next_step else ""), soft_wrap=True)
