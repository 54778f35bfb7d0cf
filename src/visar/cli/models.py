"""``visar encoders`` and ``visar generators``."""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from socket import socket
from typing import Annotated, TypeAlias

import typer
from rich.text import Text

from visar.cli.help import App
from visar.cli.options import DeviceChoice, Json, option
from visar.cli.output import STATE_STYLES, console, plain_table, print_hints, print_json
from visar.cli.settings import named_generators
from visar.encoders.records import EncoderRecord
from visar.encoders.registry import available_encoders, get_encoder
from visar.generation.registry import GeneratorInfo, available_generators
from visar.models.hub import show_downloads
from visar.network import DEFAULT_PORT, TOKEN_VARIABLE, own_token
from visar.quotes.reader import ReaderInfo
from visar.serialization import to_plain

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


@app.callback()
def list_encoders(context: typer.Context, *, as_json: Json = False) -> None:
    """List, export or serve encoders."""
    if context.invoked_subcommand is not None:
        return
    encoders = available_encoders()
    if as_json:
        print_json([to_plain(one) | {"ready": one.state == "ready"} for one in encoders])
        return
    table = plain_table("NAME", "HERE", "MODEL", "PAGE", "GOOD FOR")
    for one in encoders:
        table.add_row(
            one.name,
            Text(one.state, STATE_STYLES[one.state]),
            ", ".join(filter(None, (one.parameters, one.download))),
            one.page_cost,
            Text(one.description),
        )
    console.print(table)
    console.print()
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
    named = [
        GeneratorInfo(name, value, reads=None, size="", install=None)
        for name, value in named_generators().items()
    ]
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
    table = plain_table("NAME", "HERE", "READS", "SIZE", "DESCRIPTION")
    for model in models:
        state = Text(model.state, STATE_STYLES[model.state])
        name = f"{(marks or {}).get(model.name, '')}{model.name}"
        table.add_row(name, state, model.reads or "", model.size, Text(model.description))
    console.print(table)
    console.print()
    _print_missing(models)


def _print_missing(models: Sequence[ModelInfo]) -> None:
    for model in models:
        if model.install is not None:
            # Below the table, where the command to type isn't wrapped.
            line = f"{model.name} is missing: {model.install}"
            console.print(Text(line, STATE_STYLES["missing"]), soft_wrap=True)


@app.command("export")
def export(name: ExportedName, *, to: Folder = None) -> None:
    """Export a visual encoder to ONNX, to run on a CPU without torch."""
    from visar.encoders.onnx_export import default_folder, export_encoder

    folder = to or default_folder(name)
    with show_downloads():
        export_encoder(name, folder)
    size = sum(path.stat().st_size for path in folder.iterdir())
    console.print(Text(f"Exported {name} to {folder} ({size / 1e6:,.0f} MB)."), soft_wrap=True)
    console.print(Text(f"Use it with --encoder {folder}", "dim"), soft_wrap=True)


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
        _log_requests()
        _announce(f"{encoder.name} {encoder.version}", host, listener, guarded=token is not None)
        http_server(create_encoder_app(encoder, token=token)).run(sockets=[listener])


def _announce(encoder: str, host: str, listener: socket, *, guarded: bool) -> None:
    name = f"[{host}]" if ":" in host else host
    url = f"http://{name}:{listener.getsockname()[1]}"
    users = f"clients with the {TOKEN_VARIABLE}" if guarded else "this machine only"
    console.print(Text(f"Serving {encoder} at {url}"), soft_wrap=True)
    console.print(Text(f"for {users} · press Ctrl-C to stop", "dim"))


def _log_requests() -> None:
    """Log requests and errors to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    log = logging.getLogger("uvicorn")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
