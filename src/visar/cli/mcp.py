"""``visar mcp``, and ``visar mcp install``, which changes the settings of assistants."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
from visar.cli.output import note, say, served_url
from visar.cli.settings import as_toml
from visar.errors import InvalidOption, MissingExtra
from visar.files import write_whole

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
NAME = "visar"
"""Name of the server in configuration files, and of the skill."""
SKILL = Path(__file__).parents[1] / "integrations" / "skills" / NAME / "SKILL.md"


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
            note(f"ViSAR serves {library.location} at {served_url(host, socket)}{PATH}")
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
    if importlib.util.find_spec("mcp") is None:
        raise MissingExtra("An MCP server", "mcp")
    known = agents()
    if name not in known:
        raise InvalidOption(f"Can't configure {name!r:.60} here. Choose from {', '.join(known)}.")
    agent = known[name]
    entry = agent.entry([*own_command(), "mcp", *_arguments(index, root or [])])
    if print_only:
        say(f"{agent.path}:\n{agent.shown(entry)}".rstrip())
        return
    if agent.install(entry):
        say(f"Added to {agent.path}:\n{agent.shown(entry)}".rstrip())
    else:
        say(f"{agent.path} already has this entry.")
    if (skill := agent.install_skill()) is not None:
        say(f"Copied the skill to {skill}")
    say(f"Restart {agent.title} to use it.")


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


@dataclass(frozen=True, slots=True)
class Agent:
    """An assistant that uses MCP servers."""

    title: str
    path: Path
    """Its configuration file."""
    key: str = "mcpServers"
    """Object or table in the file that contains the servers."""
    fields: Mapping[str, str] | None = None
    """Other fields of an entry, besides command and arguments."""
    skills: Path | None = None
    """Folder of the user's skills, if the assistant supports skills."""

    def entry(self, command: list[str]) -> dict[str, Any]:
        return {**(self.fields or {}), "command": command[0], "args": command[1:]}

    def shown(self, entry: Mapping[str, Any]) -> str:
        """Return an entry in the format of the configuration file."""
        if self.path.suffix == ".toml":
            return f"[{self.key}.{NAME}]\n" + "".join(
                f"{key} = {as_toml(value)}\n" for key, value in entry.items()
            )
        return _as_json({self.key: {NAME: entry}}, "  ")

    def install(self, entry: Mapping[str, Any]) -> bool:
        """Add an entry to the configuration file; return whether that changed it.

        Raises InvalidOption, and changes nothing, if the file can't be parsed.
        """
        # The file may be a link into a folder of dotfiles.
        path = self.path.resolve()
        try:
            old = path.read_text(encoding="utf-8") if path.exists() else ""
            change = self._in_toml if path.suffix == ".toml" else self._in_json
            new = change(old, entry)
        except ValueError as error:  # of the encoding too
            if isinstance(error, InvalidOption):
                raise
            raise self._refuse(f"it can't be read ({error})") from error
        if new == old:
            return False
        # It may hold secrets of other servers.
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600
        write_whole(path, new.encode(), mode=mode)
        return True

    def install_skill(self) -> Path | None:
        """Copy the skill to the user's skills; return its path, or None without skills."""
        if self.skills is None:
            return None
        target = self.skills / NAME / SKILL.name
        write_whole(target, SKILL.read_bytes())
        return target

    def _in_json(self, old: str, entry: Mapping[str, Any]) -> str:
        values = json.loads(old) if old.strip() else {}
        servers = values.setdefault(self.key, {}) if isinstance(values, dict) else None
        if not isinstance(servers, dict) or not isinstance(servers.get(NAME, {}), dict):
            raise self._refuse(f"{self.key} isn't an object")
        before = servers.get(NAME, {})
        servers[NAME] = {**before, **entry}  # the user may have added variables
        if servers[NAME] == before:
            return old
        indent = re.search(r"\n([ \t]+)", old)
        return _as_json(values, indent[1] if indent else "  ")

    def _in_toml(self, old: str, entry: Mapping[str, Any]) -> str:
        import tomllib

        values = tomllib.loads(old)
        servers = values.get(self.key, {})
        if not isinstance(servers, dict):
            raise self._refuse(f"{self.key} isn't a table")
        before = servers.get(NAME)
        if before is not None:
            if {**before, **entry} == before:
                return old
            raise self._refuse(f"it already has other settings in [{self.key}.{NAME}]")
        new = f"{old.rstrip()}\n\n{self.shown(entry)}".lstrip()
        expected = {**values, self.key: {**servers, NAME: entry}}
        try:
            added = tomllib.loads(new) == expected
        except tomllib.TOMLDecodeError:
            added = False
        if not added:
            raise self._refuse(f"{self.key} isn't a table of its own")
        return new

    def _refuse(self, reason: str) -> InvalidOption:
        return InvalidOption(
            f"Can't change {self.path}: {reason}. Run `visar mcp install … --print` and add the "
            "entry by hand."
        )


def agents() -> dict[str, Agent]:
    """Return the assistants by name, with their paths for this user and system."""
    home = Path.home()
    if sys.platform == "darwin":
        applications = home / "Library" / "Application Support"
    elif sys.platform == "win32":
        applications = Path(os.environ.get("APPDATA", home / "AppData" / "Roaming"))
    else:
        applications = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    codex = Path(os.environ.get("CODEX_HOME") or home / ".codex")
    desktop = applications / "Claude/claude_desktop_config.json"
    code = applications / "Code/User/mcp.json"
    known = {
        "claude-code": Agent("Claude Code", home / ".claude.json", skills=home / ".claude/skills"),
        "claude-desktop": Agent("Claude Desktop", desktop),
        "codex": Agent(
            "Codex", codex / "config.toml", "mcp_servers", skills=home / ".agents/skills"
        ),
        "cursor": Agent("Cursor", home / ".cursor/mcp.json", skills=home / ".cursor/skills"),
        "gemini": Agent(
            "Gemini CLI", home / ".gemini/settings.json", skills=home / ".gemini/skills"
        ),
        "vscode": Agent(
            "VS Code", code, "servers", {"type": "stdio"}, skills=home / ".copilot/skills"
        ),
    }
    if sys.platform not in ("darwin", "win32"):
        del known["claude-desktop"]  # has no documented path on this system
    return known


def own_command() -> list[str]:
    """Return the command that starts this program from any folder."""
    # Not resolved: a link such as ~/.local/bin/visar outlives what it points to.
    started = Path(sys.argv[0])
    if started.is_absolute() and started.stem == NAME and started.exists():
        return [str(started)]
    return [sys.executable, "-m", NAME]


def _as_json(value: Any, indent: str) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=False) + "\n"
