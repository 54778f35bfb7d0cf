"""``visar mcp``, and ``visar mcp install``."""

from __future__ import annotations

import importlib.util
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from visar.cli.help import NETWORK, App
from visar.cli.options import (
    BaseUrl,
    DeviceChoice,
    EncoderName,
    GeneratorName,
    IndexLocation,
    LibraryOptions,
    ReaderName,
    open_generator,
    option,
    with_options,
)
from visar.cli.output import console, errors
from visar.errors import InvalidOption, MissingExtra

if TYPE_CHECKING:
    from visar.generation.generator import Generator
    from visar.index import Index

PORT = 8766

app = App("Let AI assistants use your index, over MCP.", invoke_without_command=True)

Write = Annotated[
    bool, option("--write", "Allow adding documents from --root and removing documents.")
]
Root = Annotated[
    list[Path] | None,
    option("--root FOLDER", "Folder that documents may be added from. Repeatable."),
]
Http = Annotated[
    bool, option("--http", "Serve streamable HTTP instead of stdin and stdout.", NETWORK)
]
Host = Annotated[
    str,
    option("--host ADDRESS", "Address to listen on. If it isn't local, set VISAR_TOKEN.", NETWORK),
]
Port = Annotated[int, option("--port N", "Port; 0 picks a free one.", NETWORK, min=0, max=65535)]
AllowHost = Annotated[
    list[str] | None,
    option("--allow-host NAME", "Host name that clients may use. Repeatable.", NETWORK),
]
AgentName = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Assistant: claude-code, claude-desktop, codex, cursor, gemini or vscode.",
    ),
]
PrintOnly = Annotated[bool, option("--print", "Only print the entry.")]


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


@app.callback()
@with_options
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
    """Let AI assistants use your index, over MCP."""
    if write and options.url is not None:
        raise InvalidOption("--write only works with a local index, not with --server.")
    if write != bool(root):
        raise InvalidOption("--write and --root only work together. Use both, or neither.")
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


@app.command()
def install(
    name: AgentName,
    *,
    index: IndexLocation = None,
    root: Root = None,
    print_only: PrintOnly = False,
) -> None:
    """Add ViSAR to the settings of an assistant."""
    from visar.cli.agents import agents, own_command

    if importlib.util.find_spec("mcp") is None:
        raise MissingExtra("An MCP server", "mcp")
    known = agents()
    if name not in known:
        raise InvalidOption(f"Can't configure {name!r:.60} here. Choose from {', '.join(known)}.")
    agent = known[name]
    entry = agent.entry([*own_command(), "mcp", *_arguments(index, root or [])])
    if print_only:
        console.print(Text(f"{agent.path}:"), soft_wrap=True)
        console.print(Text(agent.shown(entry)), soft_wrap=True, end="")
        return
    if agent.install(entry):
        console.print(Text(f"Added to {agent.path}:"), soft_wrap=True)
        console.print(Text(agent.shown(entry)), soft_wrap=True, end="")
    else:
        console.print(Text(f"{agent.path} already has this entry."), soft_wrap=True)
    if (skill := agent.install_skill()) is not None:
        console.print(Text(f"Copied the skill to {skill}"), soft_wrap=True)
    console.print(Text(f"Restart {agent.title} to use it."))


def _arguments(index: str | None, roots: list[Path]) -> list[str]:
    """Return options of ``visar mcp`` that mean the same in every folder."""
    arguments: list[str] = []
    if index is not None:
        is_address = "://" in index
        arguments += ["--index", index if is_address else str(Path(index).expanduser().absolute())]
    for root in roots:
        if not root.expanduser().is_dir():
            raise InvalidOption(f"--root {root}: no such folder.")
        arguments += ["--root", str(root.expanduser().absolute())]
    return [*arguments, "--write"] if roots else arguments
