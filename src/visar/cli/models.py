"""``visar encoders`` and ``visar generators``."""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
from collections.abc import Mapping, Sequence
from socket import socket
from typing import Annotated, TypeAlias

import typer
from rich.text import Text

from visar.cli.options import DeviceChoice, Json, advanced, option
from visar.cli.output import STATE_STYLES, console, plain_table, print_hints, print_json
from visar.encoders.registry import EncoderInfo, available_encoders, get_encoder
from visar.generation.registry import GeneratorInfo, available_generators
from visar.models.hub import downloads_shown
from visar.network import DEFAULT_PORT, TOKEN_VARIABLE, own_token
from visar.quotes.reader import ReaderInfo
from visar.serialization import to_plain

ModelInfo: TypeAlias = EncoderInfo | GeneratorInfo | ReaderInfo

app = typer.Typer(
    help="List encoders, or run one as a service.",
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Encoder, as --encoder takes it.")]
Host = Annotated[
    str, option("--host ADDRESS", "Address to listen on. Other than loopback needs VISAR_TOKEN.")
]
Port = Annotated[int, option("--port N", "Port; 0 for a free one.", min=0, max=65535)]
TrustRemoteCode = Annotated[
    bool, advanced("--trust-remote-code", "Run the code in the checkpoint of visrag-ret.")
]


@app.callback()
def list_encoders(context: typer.Context, *, as_json: Json = False) -> None:
    """List encoders, or run one as a service."""
    if context.invoked_subcommand is not None:
        return
    encoders = available_encoders()
    if as_json:
        print_json([to_plain(encoder) | {"ready": encoder.is_ready} for encoder in encoders])
        return
    print_models(encoders)
    print_hints(
        ("Your own checkpoint", "--encoder FOLDER, or its hub name"),
        ("Your own class", "--encoder module:Class"),
        ("On another machine", "--encoder http://host:port"),
        ("Served by vLLM", "--encoder vllm+http://host:port/MODEL"),
    )


def generators(*, as_json: Json = False) -> None:
    """List generators, which write answers."""
    known = available_generators()
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
    """Print models, and how to install those that are missing.

    ``marks`` are printed before their names.
    """
    table = plain_table("NAME", "HERE", "READS", "SIZE", "DESCRIPTION")
    for model in models:
        state = Text(model.state, STATE_STYLES[model.state])
        name = f"{(marks or {}).get(model.name, '')}{model.name}"
        table.add_row(name, state, model.reads or "", model.size, Text(model.description))
    console.print(table)
    console.print()
    for model in models:
        if model.install is not None:
            # Below the table, where the command to type isn't wrapped.
            line = f"{model.name} is missing: {model.install}"
            console.print(Text(line, STATE_STYLES["missing"]), soft_wrap=True)


@app.command("serve")
def serve(
    name: Name,
    *,
    host: Host = "127.0.0.1",
    port: Port = DEFAULT_PORT,
    device: DeviceChoice = "auto",
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Run an encoder as a service, for --encoder http://HOST:PORT."""
    from visar.encoders.service import create_encoder_app
    from visar.serving import http_server, listen

    encoder = get_encoder(name, device=device, trust_remote_code=trust_remote_code)
    token = own_token()
    with contextlib.suppress(KeyboardInterrupt), listen(host, port, token=token) as listener:
        # Supervisors end it as Ctrl-C does.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        # A broken model should fail now, not with the first request.
        with downloads_shown():
            encoder.encode_query("ready")
        _log_requests()
        _announce(f"{encoder.name} {encoder.version}", host, listener, guarded=token is not None)
        http_server(create_encoder_app(encoder, token=token)).run(sockets=[listener])


def _announce(who: str, host: str, listener: socket, *, guarded: bool) -> None:
    name = f"[{host}]" if ":" in host else host
    url = f"http://{name}:{listener.getsockname()[1]}"
    users = f"clients with its {TOKEN_VARIABLE}" if guarded else "this machine"
    console.print(Text(f"{who} listens on {url}"), soft_wrap=True)
    console.print(Text(f"for {users} · stop with Ctrl-C", "dim"))


def _log_requests() -> None:
    """Log requests and errors to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    log = logging.getLogger("uvicorn")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
