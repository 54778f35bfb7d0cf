"""Assistants that use MCP servers, and adding ViSAR to their configuration files."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from visar.errors import InvalidOption
from visar.files import write_whole

NAME = "visar"
"""Name of the server in configuration files, and of the skill."""
SKILL = Path(__file__).parents[1] / "integrations" / "skills" / NAME / "SKILL.md"


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
        """Return the entry for a command that starts the server."""
        return {**(self.fields or {}), "command": command[0], "args": command[1:]}

    def shown(self, entry: Mapping[str, Any]) -> str:
        """Return an entry in the format of the configuration file."""
        if self.path.suffix == ".toml":
            return f"[{self.key}.{NAME}]\n" + "".join(
                f"{key} = {_as_toml(value)}\n" for key, value in entry.items()
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
    known = {
        "claude-code": Agent(
            "Claude Code", home / ".claude.json", skills=home / ".claude" / "skills"
        ),
        "claude-desktop": Agent(
            "Claude Desktop", applications / "Claude" / "claude_desktop_config.json"
        ),
        "codex": Agent(
            "Codex", codex / "config.toml", "mcp_servers", skills=home / ".agents" / "skills"
        ),
        "cursor": Agent(
            "Cursor", home / ".cursor" / "mcp.json", skills=home / ".cursor" / "skills"
        ),
        "gemini": Agent(
            "Gemini CLI", home / ".gemini" / "settings.json", skills=home / ".gemini" / "skills"
        ),
        "vscode": Agent(
            "VS Code",
            applications / "Code" / "User" / "mcp.json",
            "servers",
            {"type": "stdio"},
            skills=home / ".copilot" / "skills",
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


def _as_toml(value: Any) -> str:
    # Strings and lists of strings are written as in JSON, but for one character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
