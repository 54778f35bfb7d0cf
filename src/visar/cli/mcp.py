"""``visar mcp``."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from visar.cli.options import (
    BaseUrl,
    DeviceChoice,
    EncoderName,
    GeneratorName,
    IndexLocation,
    open_generator,
)
from visar.cli.output import errors
from visar.errors import InvalidOption

PORT = 8766

Write = Annotated[
    bool, typer.Option("--write", help="Let documents be added, from --root only, and removed.")
]
Root = Annotated[
    list[Path] | None,
    typer.Option(
        "--root",
        metavar="DIR",
        help="A folder that documents may be added from. May be given several times.",
    ),
]
Http = Annotated[
    bool, typer.Option("--http", help="Serve streamable HTTP instead of standard input and output.")
]
Host = Annotated[str, typer.Option(help="With --http. Off loopback, VISAR_TOKEN must be set.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="With --http; 0 takes a free one.")]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-host",
        metavar="NAME",
        help="A name that clients reach --http by, beside addresses. May be given several times.",
    ),
]


def mcp(
    *,
    index: IndexLocation = None,
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
    """Let assistants such as Claude use the index, over the Model Context Protocol."""
    if write != bool(root):
        raise InvalidOption(
            "--write and --root DIR go together: documents are added from such folders only."
        )
    from visar.index import Index
    from visar.integrations.mcp import PATH, create_server, http_app
    from visar.network import own_token
    from visar.serving import http_server, listen

    with Index.open(index, device=device) as library:
        library.preload(encoder)
        server = create_server(
            library,
            encoder=encoder,
            generator=open_generator(generator, base_url, device),
            roots=root,
        )
        if not http:
            # Python's own handler would wait for a line of input first.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            server.run("stdio")
            return
        token = own_token()
        names = {name.lower() for name in (host, *(allow_host or ()))}
        with listen(host, port, token=token) as socket:
            shown = "localhost" if host == "127.0.0.1" else host
            address = f"http://{shown}:{socket.getsockname()[1]}{PATH}"
            errors.print(Text(f"ViSAR serves {library.location} at {address}"), soft_wrap=True)
            http_server(http_app(server, token=token, hosts=names)).run(sockets=[socket])
