"""``visar mcp``."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from visar.cli.options import (
    BaseUrl,
    DeviceChoice,
    EncoderName,
    GeneratorName,
    IndexLocation,
    ServerAddress,
    open_generator,
    was_given,
)
from visar.cli.output import errors
from visar.errors import InvalidOption

if TYPE_CHECKING:
    from visar.generation.protocol import Generator

PORT = 8766

Write = Annotated[
    bool, typer.Option("--write", help="Allow adding documents, from --root only, and removing.")
]
Root = Annotated[
    list[Path] | None,
    typer.Option(
        "--root", metavar="DIR", help="Folder that documents may be added from. Repeatable."
    ),
]
Http = Annotated[
    bool, typer.Option("--http", help="Serve streamable HTTP instead of standard input and output.")
]
Host = Annotated[
    str, typer.Option(metavar="NAME", help="With --http. Off loopback, VISAR_TOKEN must be set.")
]
Port = Annotated[
    int, typer.Option(min=0, max=65535, metavar="N", help="With --http; 0 takes a free port.")
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-host", metavar="NAME", help="Host name that clients may use. Repeatable."
    ),
]


def mcp(
    context: typer.Context,
    *,
    index: IndexLocation = None,
    server: ServerAddress = None,
    encoder: EncoderName = "embedded",
    generator: GeneratorName = "extractive",
    base_url: BaseUrl = None,
    device: DeviceChoice = "auto",
    write: Write = False,
    root: Root = None,
    http: Http = False,
    host: Host = "127.0.0.1",
    port: Port = PORT,
    allow_host: AllowHost = None,
) -> None:
    """Let assistants such as Claude use the library, over the Model Context Protocol."""
    if server:
        _refuse_with_server(context)
    if write != bool(root):
        raise InvalidOption(
            "--write and --root DIR go together: documents are only added from these folders."
        )
    from visar.client import Client
    from visar.index import Index
    from visar.integrations.mcp import PATH, create_server, http_app
    from visar.network import own_token
    from visar.serving import http_server, listen

    # What is set for this machine doesn't hold for a server, unless it was given on purpose.
    named = encoder if not server or was_given(context, "encoder") else None
    writer: str | Generator | None = generator if was_given(context, "generator") else None
    with Client(server) if server else Index.open(index, device=device) as library:
        if isinstance(library, Index):
            library.preload(encoder)
            writer = open_generator(generator, base_url, device)
        mcp_server = create_server(library, encoder=named, generator=writer, roots=root)
        if not http:
            # Python's own handler would wait for a line of input first.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            mcp_server.run("stdio")
            return
        token = own_token()
        names = {name.lower() for name in (host, *(allow_host or ()))}
        with listen(host, port, token=token) as socket:
            shown = "localhost" if host == "127.0.0.1" else host
            address = f"http://{shown}:{socket.getsockname()[1]}{PATH}"
            errors.print(Text(f"ViSAR serves {library.location} at {address}"), soft_wrap=True)
            http_server(http_app(mcp_server, token=token, hosts=names)).run(sockets=[socket])


def _refuse_with_server(context: typer.Context) -> None:
    """Raise InvalidOption for options on the command line that only a local index has."""
    for option in ("index", "base_url", "device", "write", "root"):
        source = context.get_parameter_source(option)
        if source is not None and source.name == "COMMANDLINE":
            raise InvalidOption(
                f"--{option.replace('_', '-')} doesn't work with --server: the server decides "
                "this. Leave one of them out."
            )
