"""``visar encoders``."""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
from socket import socket
from typing import Annotated

import typer
from rich.text import Text

from visar.cli.options import DeviceChoice, Json, advanced, option
from visar.cli.output import STATE_STYLES, console, plain_table, print_hints, print_json
from visar.encoders.registry import EncoderInfo, available_encoders, get_encoder
from visar.models.hub import downloads_shown
from visar.network import DEFAULT_PORT, TOKEN_VARIABLE, own_token
from visar.serialization import to_plain

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
    table = plain_table("NAME", "HERE", "READS", "DIM", "SIZE", "DESCRIPTION", numbers={"DIM"})
    for encoder in encoders:
        table.add_row(
            encoder.name,
            Text(encoder.state, STATE_STYLES[encoder.state]),
            encoder.reads,
            None if encoder.dimension is None else str(encoder.dimension),
            encoder.size,
            _needs(encoder),
        )
    console.print(table)
    console.print()
    for encoder in encoders:
        if encoder.install is not None:
            # Below the table, where the command to type isn't wrapped.
            line = f"{encoder.name} is not installed: {encoder.install}"
            console.print(Text(line, STATE_STYLES["missing"]), soft_wrap=True)
    print_hints(
        ("Your own checkpoint", "--encoder FOLDER, or its hub name"),
        ("Your own class", "--encoder module:Class"),
        ("On another machine", "--encoder http://host:port"),
        ("Served by vLLM", "--encoder vllm+http://host:port/MODEL"),
    )


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


def _needs(encoder: EncoderInfo) -> Text:
    needs = Text(encoder.description)
    if encoder.state == "downloads":
        needs.append(f" → {encoder.next_step}", STATE_STYLES["downloads"])
    return needs


def _log_requests() -> None:
    """Log requests and errors to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    log = logging.getLogger("uvicorn")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
