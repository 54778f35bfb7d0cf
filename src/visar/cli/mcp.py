"""``visar mcp``."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

from rich.text import Text

from visar.cli.options import (
    BaseUrl,
    DeviceChoice,
    EncoderName,
    GeneratorName,
    IndexLocation,
    advanced,
    open_generator,
    option,
)
from visar.cli.output import errors
from visar.errors import InvalidOption

PORT = 8766

Write = Annotated[bool, option("--write", "Allow adding documents from --root, and removing them.")]
Root = Annotated[
    list[Path] | None,
    option("--root DIR", "Folder that documents may be added from. Repeatable."),
]
Http = Annotated[bool, option("--http", "Serve streamable HTTP instead of stdin and stdout.")]
Host = Annotated[
    str, advanced("--host ADDRESS", "With --http. Other than loopback needs VISAR_TOKEN.")
]
Port = Annotated[int, advanced("--port N", "With --http; 0 for a free one.", min=0, max=65535)]
AllowHost = Annotated[
    list[str] | None,
    advanced("--allow-host NAME", "Host name that clients may use with --http. Repeatable."),
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
    """Let assistants such as Claude use your index, over MCP."""
    if write != bool(root):
        raise InvalidOption("--write and --root DIR only work together: give both, or neither.")
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
            # Python's own handler would first wait for a line of input.
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
