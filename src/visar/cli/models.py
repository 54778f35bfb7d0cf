"""``visar encoders`` and ``visar generators``, and ``visar doctor``: what works here."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import platform
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias, get_args

import typer
from rich.text import Text

from visar._version import __version__
from visar.cli import settings
from visar.cli.help import App
from visar.cli.options import DeviceChoice, IndexLocation, Json, option
from visar.cli.output import STATE_STYLES, console, plain_table, print_hints, print_json, say
from visar.cli.settings import named_generators
from visar.documents.sandbox import Sandbox, detect_sandbox
from visar.encoders.records import EncoderRecord
from visar.encoders.registry import available_encoders, get_encoder
from visar.errors import StoreError, install_hint
from visar.generation.registry import GeneratorInfo, available_generators
from visar.models.hub import show_downloads
from visar.models.protocols import State
from visar.network import DEFAULT_PORT, TOKEN_VARIABLE, own_token
from visar.quotes.reader import BUILT_IN, ReaderInfo, default_reader
from visar.serialization import to_plain
from visar.store import default_location, open_store
from visar.text import counted

ModelInfo: TypeAlias = EncoderRecord | GeneratorInfo | ReaderInfo

app = App("List, export or serve encoders.", invoke_without_command=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Encoder, as for --encoder.")]
ExportedName = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="colmodernvbert, colsmol-256m, or one of their checkpoints."
    ),
]
Folder = Annotated[Path | None, option("--to FOLDER", "Folder to write to. [default: NAME-int8]")]
Host = Annotated[
    str, option("--host ADDRESS", "Address to listen on. If it isn't local, set VISAR_TOKEN.")
]
Port = Annotated[int, option("--port N", "Port; 0 picks a free one.", min=0, max=65535)]
TrustRemoteCode = Annotated[
    bool, option("--trust-remote-code", "Run the code in the checkpoint of visrag-ret.")
]
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


@app.callback()
def list_encoders(context: typer.Context, *, as_json: Json = False) -> None:
    """List, export or serve encoders."""
    if context.invoked_subcommand is not None:
        return
    encoders = available_encoders()
    if as_json:
        print_json([to_plain(one) | {"ready": one.state == "ready"} for one in encoders])
        return
    rows = (
        (
            one.name,
            Text(one.state, STATE_STYLES[one.state]),
            ", ".join(filter(None, (one.parameters, one.download))),
            one.page_cost,
            Text(one.description),
        )
        for one in encoders
    )
    console.print(plain_table("NAME", "HERE", "MODEL", "PAGE", "GOOD FOR", rows=rows))
    _print_missing(encoders)
    print_hints(
        ("MODEL", "parameters, and size of the download"),
        ("PAGE", "vectors of a page, and their size in the index"),
        ("text", "reads the words of a page; the others look at its image"),
        ("(paper)", "compared in the paper on ViSAR"),
        ("Half the index", "--encoder NAME+int8"),
        ("Your own checkpoint", "--encoder FOLDER, or its hub name"),
        ("Your own class", "--encoder module:Class"),
        ("On another machine", "--encoder http://host:port"),
        ("Served by vLLM", "--encoder vllm+http://host:port/MODEL"),
    )


def generators(*, as_json: Json = False) -> None:
    """List the models that can write answers."""
    named = [GeneratorInfo(name, value) for name, value in named_generators().items()]
    known = [*named, *available_generators()]
    if as_json:
        print_json([to_plain(generator) | {"state": generator.state} for generator in known])
        return
    print_models(known)
    print_hints(
        ("Your own checkpoint", "--generator FOLDER, or its hub name"),
        ("Your own class", "--generator module:Class"),
        ("Your own server", "--generator openai:MODEL --base-url http://host:port/v1"),
    )


def print_models(models: Sequence[ModelInfo], marks: Mapping[str, str] | None = None) -> None:
    """Print models, and how to install the missing ones; ``marks`` precede their names."""
    rows = (
        (
            f"{(marks or {}).get(one.name, '')}{one.name}",
            Text(one.state, STATE_STYLES[one.state]),
            one.reads or "",
            one.size,
            Text(one.description),
        )
        for one in models
    )
    console.print(plain_table("NAME", "HERE", "READS", "SIZE", "DESCRIPTION", rows=rows))
    _print_missing(models)


def _print_missing(models: Sequence[ModelInfo]) -> None:
    console.print()
    for model in models:
        if model.install is not None:
            # Below the table, where the command to type isn't wrapped.
            line = f"{model.name} is missing: {model.install}"
            say(line, STATE_STYLES["missing"])


@app.command("export")
def export(name: ExportedName, *, to: Folder = None) -> None:
    """Export a visual encoder to ONNX, to run on a CPU without torch."""
    from visar.encoders.onnx_export import default_folder, export_encoder

    folder = to or default_folder(name)
    with show_downloads():
        export_encoder(name, folder)
    size = sum(path.stat().st_size for path in folder.iterdir())
    say(f"Exported {name} to {folder} ({size / 1e6:,.0f} MB).")
    say(f"Use it with --encoder {folder}", "dim")


@app.command("serve")
def serve(
    name: Name,
    *,
    host: Host = "127.0.0.1",
    port: Port = DEFAULT_PORT,
    device: DeviceChoice = "auto",
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Serve an encoder to other machines. They use it with --encoder http://HOST:PORT."""
    from visar.encoders.service import create_encoder_app
    from visar.serving import http_server, listen

    encoder = get_encoder(name, device=device, trust_remote_code=trust_remote_code)
    token = own_token()
    with contextlib.suppress(KeyboardInterrupt), listen(host, port, token=token) as listener:
        # Process managers send SIGTERM.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        # A broken model should fail now, not with the first request.
        with show_downloads():
            encoder.encode_query("ready")
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
        log = logging.getLogger("uvicorn")
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        url = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
        users = "this machine only" if token is None else f"clients with the {TOKEN_VARIABLE}"
        say(f"Serving {encoder.name} {encoder.version} at {url}")
        say(f"for {users} · press Ctrl-C to stop", "dim")
        http_server(create_encoder_app(encoder, token=token)).run(sockets=[listener])


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


def doctor(*, index: IndexLocation = None, as_json: Json = False) -> None:
    """Show what works here and what is missing."""
    location = str(index or default_location())
    config = settings.location()
    documents, sandbox = _count(location), detect_sandbox()
    groups: dict[str, Sequence[EncoderRecord | GeneratorInfo | Part]] = {
        "encoders": available_encoders(),
        "generators": available_generators(),
        "parts": _parts(),
    }
    if as_json:
        print_json(
            {
                "version": __version__,
                "python": platform.python_version(),
                "config": str(config) if config.exists() else None,
                "index": location,
                "documents": documents,
                **groups,
                "sandbox": sandbox,
            }
        )
        return
    console.print(f"[bold]visar {__version__}[/bold] · Python {platform.python_version()}")
    if config.exists():
        say(f"config      {config} (visar config)")
    count = "none yet" if documents is None else counted(documents, "document")
    say(f"index       {location} ({count})")
    say(f"sandbox     {_SANDBOX[sandbox]}")
    remedies: dict[str, list[str]] = {}
    for kind, members in groups.items():
        for state in get_args(State):
            if names := [one.name for one in members if one.state == state]:
                line = Text(f"{'optional' if kind == 'parts' else kind:<11} ")
                line.append(f"{state:<9}", STATE_STYLES[state])
                say(line.append(f"  {', '.join(names)}"))
        for one in members:
            if one.install:
                use = f" ({one.use})" if isinstance(one, Part) else ""
                remedies.setdefault(one.install, []).append(f"{one.name}{use}")
    for install, names in remedies.items():
        others = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
        say(f"{', '.join(names[:_MAX_NAMES])}{others}: {install}")


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
        with contextlib.closing(open_store(location, create=False)) as store:
            return len(store.documents())
    except StoreError:
        return None
