"""``visar mcp``."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.text import Text

from visar.cli.options import (
    BaseUrl,
    DeviceChoice,
    EncoderName,
    GeneratorName,
    LibraryOptions,
    ReaderName,
    advanced,
    open_generator,
    option,
)
from visar.cli.output import errors
from visar.errors import InvalidOption

if TYPE_CHECKING:
    from visar.generation.protocol import Generator
    from visar.index import Index

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


@dataclass(frozen=True, kw_only=True)
class McpOptions(LibraryOptions):
    """The library to offer, and its models."""

    encoder: EncoderName = "embedded"
    generator: GeneratorName = "extractive"
    base_url: BaseUrl = None
    device: DeviceChoice = "auto"
    reader: ReaderName = "auto"

    def open_index(self, *, create: bool = False) -> Index:
        """Open the local index, and begin to load the encoder and the reader."""
        from visar.index import Index

        index = Index.open(self.index, create=create, device=self.device, reader=self.reader)
        index.preload(self.encoder)
        return index

    def writer(self) -> str | Generator | None:
        """Return the generator of answers; None for the server's own."""
        if self.url is not None:
            return self.model("generator")
        return open_generator(self.generator, self.base_url, self.device)


def mcp(
    *,
    options: McpOptions,
    write: Write = False,
    root: Root = None,
    http: Http = False,
    host: Host = "127.0.0.1",
    port: Port = PORT,
    allow_host: AllowHost = None,
) -> None:
    """Let assistants such as Claude use your index, over MCP."""
    if write and options.url is not None:
        raise InvalidOption("--write only works with a local index, not with --server.")
    if write != bool(root):
        raise InvalidOption("--write and --root DIR only work together: give both, or neither.")
    from visar.integrations.mcp import PATH, create_server, http_app
    from visar.network import own_token
    from visar.serving import http_server, listen

    with options.open_library(create=True) as library:
        server = create_server(
            library, encoder=options.model("encoder"), generator=options.writer(), roots=root
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
