"""``visar doctor``: what works on this machine, and what is missing."""

from __future__ import annotations

import importlib.util
import platform
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from rich.text import Text

from visar._version import __version__
from visar.cli import settings
from visar.cli.options import IndexLocation, Json
from visar.cli.output import STATE_STYLES, console, print_json
from visar.documents.sandbox import Sandbox, detect_sandbox
from visar.encoders.records import EncoderRecord
from visar.encoders.registry import available_encoders
from visar.errors import StoreError, install_hint
from visar.generation.registry import GeneratorInfo, available_generators
from visar.index import Index
from visar.models.protocols import State
from visar.quotes.reader import BUILT_IN, default_reader
from visar.store import default_location
from visar.text import counted

# Names per command to install them; the lists above have all.
_MAX_NAMES = 2
_SANDBOX = {
    Sandbox(files=True, calls=True): "on: document readers can't open other files or connect",
    Sandbox(files=True, calls=False): "partly on: document readers can't open other files, but can "
    "connect (the kernel lacks seccomp)",
    Sandbox(files=False, calls=True): "partly on: document readers can't connect, but can open "
    "other files (the kernel lacks Landlock)",
    Sandbox(files=False, calls=False): "off: document readers can open other files and connect "
    "(needs Linux 5.13 with Landlock and seccomp)",
}


@dataclass(frozen=True, slots=True)
class Part:
    """An optional package, model or program."""

    name: str
    use: str
    install: str | None
    """Command that installs it; None if it is installed."""

    @property
    def state(self) -> State:
        return "ready" if self.install is None else "missing"


@dataclass(frozen=True, slots=True)
class Report:
    """The output of ``visar doctor``."""

    version: str
    python: str
    config: str | None
    """Path of the configuration file, if it exists."""
    index: str
    documents: int | None
    """Number of documents; None if there is no index yet."""
    encoders: tuple[EncoderRecord, ...]
    generators: tuple[GeneratorInfo, ...]
    parts: tuple[Part, ...]
    sandbox: Sandbox
    """Restrictions of the processes that read documents, as far as the system supports them."""


def doctor(*, index: IndexLocation = None, as_json: Json = False) -> None:
    """Show what works here and what is missing."""
    location = str(index or default_location())
    report = Report(
        version=__version__,
        python=platform.python_version(),
        config=str(settings.location()) if settings.location().exists() else None,
        index=location,
        documents=_count(location),
        encoders=tuple(available_encoders()),
        generators=tuple(available_generators()),
        parts=_parts(),
        sandbox=detect_sandbox(),
    )
    if as_json:
        print_json(report)
        return
    console.print(f"[bold]visar {report.version}[/bold] · Python {report.python}")
    if report.config is not None:
        console.print(Text(f"config      {report.config} (visar config)"), soft_wrap=True)
    count = "none yet" if report.documents is None else counted(report.documents, "document")
    console.print(f"index       {report.index} ({count})", soft_wrap=True)
    console.print(f"sandbox     {_SANDBOX[report.sandbox]}", soft_wrap=True)
    groups: dict[str, Sequence[EncoderRecord | GeneratorInfo | Part]] = {
        "encoders": report.encoders,
        "generators": report.generators,
        "optional": report.parts,
    }
    for kind, members in groups.items():
        _print_group(kind, members)
    for install, names in _remedies(groups).items():
        others = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
        shown = ", ".join(names[:_MAX_NAMES]) + others
        console.print(Text(f"{shown}: {install}"), soft_wrap=True)


def _parts() -> tuple[Part, ...]:
    return (
        _package("rapidocr", "reads scanned pages", install_hint("ocr")),
        Part(BUILT_IN, "re-reads passages", None if default_reader() else install_hint("reader")),
        _package("sklearn", "the method score-cluster", install_hint("eval")),
        _program("tesseract", "reads scanned pages with --ocr-engine tesseract", "Tesseract"),
        _program("soffice", "opens Office files other than XLSX", "LibreOffice"),
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


def _remedies(
    groups: Mapping[str, Sequence[EncoderRecord | GeneratorInfo | Part]],
) -> dict[str, list[str]]:
    """Return the commands that install missing parts, with the names of the parts."""
    remedies: dict[str, list[str]] = {}
    for one in (one for members in groups.values() for one in members if one.install):
        use = f" ({one.use})" if isinstance(one, Part) else ""
        remedies.setdefault(one.install or "", []).append(f"{one.name}{use}")
    return remedies


def _print_group(kind: str, members: Sequence[EncoderRecord | GeneratorInfo | Part]) -> None:
    """Print the names of a group, one line per state."""
    for state in get_args(State):
        names = [one.name for one in members if one.state == state]
        if names:
            line = Text(f"{kind:<11} ").append(f"{state:<9}", STATE_STYLES[state])
            console.print(line.append(f"  {', '.join(names)}"), soft_wrap=True)
