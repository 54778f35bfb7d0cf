"""ViSAR in the configuration files of assistants, in a home folder of the test's own."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from tests.cli.typed import Visar
from tests.integrations.mcp_client import talk
from visar.cli.mcp import SKILL
from visar.index import Index

FILES = {
    "claude-code": (".claude.json", ".claude/skills"),
    "codex": (".codex/config.toml", ".agents/skills"),
    "cursor": (".cursor/mcp.json", ".cursor/skills"),
    "gemini": (".gemini/settings.json", ".gemini/skills"),
    "vscode": (".config/Code/User/mcp.json", ".copilot/skills"),
}
KEYS = {"codex": "mcp_servers", "vscode": "servers"}
pytestmark = pytest.mark.skipif(
    sys.platform in ("darwin", "win32"), reason="the paths of other systems differ"
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for variable in ("XDG_CONFIG_HOME", "CODEX_HOME"):
        monkeypatch.delenv(variable, raising=False)
    return home


def servers(name: str, path: Path) -> dict[str, Any]:
    """The servers in a program's configuration file."""
    text = path.read_text(encoding="utf-8")
    values = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    found: dict[str, Any] = values[KEYS.get(name, "mcpServers")]
    return found


@pytest.mark.parametrize("name", FILES)
def test_the_entry_starts_the_server_and_the_skill_is_installed(
    visar: Visar, home: Path, tmp_path: Path, name: str
) -> None:
    with Index.open(tmp_path / "index"):
        pass
    (home / "Documents").mkdir()
    ran = visar("mcp", "install", name, "--root", home / "Documents")
    assert ran.code == 0, ran.err
    configuration, skills = FILES[name]
    assert str(home / configuration) in ran.out
    entry = servers(name, home / configuration)["visar"]
    assert entry.get("type", "stdio") == "stdio"
    # As an assistant starts it: from another folder, without the variables of the shell.
    environment = {"HOME": str(home), "PATH": os.defpath, "PYTHONPATH": os.pathsep.join(sys.path)}
    server = StdioServerParameters(
        command=entry["command"], args=entry["args"], env=environment, cwd=tmp_path
    )

    async def tools(client: Client) -> set[str]:
        return {tool.name for tool in (await client.list_tools()).tools}

    assert {"ask", "read_page", "add"} <= talk(server, tools)
    assert (home / skills / "visar" / "SKILL.md").read_bytes() == SKILL.read_bytes()
    content = (home / configuration).read_bytes()
    again = visar("mcp", "install", name, "--root", home / "Documents")
    assert again.code == 0
    assert str(home / configuration) in again.out
    assert (home / configuration).read_bytes() == content


def test_everything_else_in_a_json_file_stays(visar: Visar, home: Path, tmp_path: Path) -> None:
    """Also the mode of a file with secrets, a link to it, and the user's own variables."""
    dotfiles = home / "dotfiles.json"
    other = {"command": "other", "env": {"KEY": "sécret"}}
    mine = {"command": "old", "args": [], "env": {"VISAR_DEVICE": "cpu"}}
    before = {"numStartups": 7, "mcpServers": {"other": other, "visar": mine}, "x": [1.5, None]}
    dotfiles.write_text(json.dumps(before, indent=4, ensure_ascii=False), encoding="utf-8")
    dotfiles.chmod(0o600)
    (home / ".claude.json").symlink_to(dotfiles)
    assert visar("mcp", "install", "claude-code", "--index", tmp_path / "other").code == 0
    text = dotfiles.read_text(encoding="utf-8")
    after = json.loads(text)
    entry = after["mcpServers"].pop("visar")
    assert (entry["env"], entry["args"][-2:]) == (mine["env"], ["--index", str(tmp_path / "other")])
    del before["mcpServers"]["visar"]  # type: ignore[attr-defined]
    assert after == before
    assert '\n    "numStartups": 7' in text
    assert "sécret" in text
    assert stat.S_IMODE(dotfiles.stat().st_mode) == 0o600
    assert (home / ".claude.json").is_symlink()


def test_comments_and_tables_of_a_toml_file_stay(visar: Visar, home: Path) -> None:
    path = home / ".codex" / "config.toml"
    path.parent.mkdir()
    before = '# mine\nmodel = "gpt"\n\n[mcp_servers.other]  # of work\ncommand = "other"\n'
    path.write_text(before, encoding="utf-8")
    assert visar("mcp", "install", "codex").code == 0
    after = path.read_text(encoding="utf-8")
    assert after.startswith(before)
    assert set(servers("codex", path)) == {"other", "visar"}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("vscode", '{\n  // comments\n  "servers": {}\n}'),
        ("cursor", '{"mcpServers": [1]}'),
        ("cursor", "[]"),
        ("cursor", '{"mcpServers": {"visar": 7}}'),
        ("gemini", "{"),
        ("codex", "model = "),
        ("codex", 'mcp_servers = {other = {command = "other"}}'),
        ("codex", 'mcp_servers = "none"'),
        ("codex", '[mcp_servers.visar]\ncommand = "mine"\n'),
        ("codex", b"\xff"),
    ],
)
def test_an_invalid_file_is_not_changed(
    visar: Visar, home: Path, name: str, content: str | bytes
) -> None:
    path = home / FILES[name][0]
    path.parent.mkdir(parents=True, exist_ok=True)
    content = content.encode() if isinstance(content, str) else content
    path.write_bytes(content)
    ran = visar("mcp", "install", name)
    assert ran.code == 2
    assert str(path) in ran.err
    assert "--print" in ran.err
    assert path.read_bytes() == content
    assert [one for one in path.parent.iterdir() if one != path] == []


def test_print_shows_the_entry_and_changes_nothing(visar: Visar, home: Path) -> None:
    for name, (configuration, _) in FILES.items():
        ran = visar("mcp", "install", name, "--print")
        assert ran.code == 0
        place, _, shown = ran.out.partition(":\n")
        assert place == str(home / configuration)
        values = tomllib.loads(shown) if name == "codex" else json.loads(shown)
        assert "mcp" in values[KEYS.get(name, "mcpServers")]["visar"]["args"]
    assert list(home.iterdir()) == []


def test_errors_name_the_value(visar: Visar, home: Path) -> None:
    for arguments, named in (
        (("mcp", "install", "emacs"), "claude-code, codex, cursor, gemini, vscode"),
        (("mcp", "install", "codex", "--root", "/no/such"), "/no/such"),
        (("mcp", "--write", "install", "codex"), "--write"),
    ):
        ran = visar(*arguments)
        assert ran.code == 2
        assert named in ran.err
    assert list(home.iterdir()) == []


@pytest.mark.usefixtures("home")
def test_the_installed_command_is_used() -> None:
    """Assistants that are started from a desktop have another PATH."""
    script = Path(sys.executable).parent / "visar"
    environment = {**os.environ, "PATH": f"{script.parent}{os.pathsep}{os.defpath}"}
    ran = subprocess.run(
        ["visar", "mcp", "install", "cursor", "--print"],  # noqa: S607 - found in PATH
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    shown = json.loads(ran.stdout.partition(":\n")[2])
    assert shown["mcpServers"]["visar"]["command"] == str(script)


def test_the_skill_has_the_required_format() -> None:
    """The rules of agentskills.io for the front matter; the command examples exist."""
    _, front, body = SKILL.read_text(encoding="utf-8").split("---\n", 2)
    fields = dict(line.split(": ", 1) for line in front.splitlines())
    assert set(fields) == {"name", "description"}
    assert fields["name"] == SKILL.parent.name
    assert 1 <= len(fields["description"]) <= 1024
    assert len(body.splitlines()) < 500
