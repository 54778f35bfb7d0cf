"""Tests with the protocol's conformance suite, and with the validator of bundles.

Both are pinned packages from the npm registry and need no network to run.
"""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcpb.build import HERE, ROOT, build
from packaging.requirements import Requirement

from tests.conftest import write_pdf
from tests.integrations.mcp_client import program, talk
from visar._version import DISTRIBUTION, __version__
from visar.index import Index
from visar.integrations.mcp import create_server

# It needs a newer Node.js than Debian has; the package of that name brings one.
CONFORMANCE = ("node@22.23.3", "@modelcontextprotocol/conformance@0.2.0-alpha.12")
MCPB = ("@anthropic-ai/mcpb@2.1.2",)
# The others ask for tools, prompts and resources of a reference server, by their names.
SCENARIOS = {
    "2025-11-25": {
        "server-initialize", "server-session-lifecycle", "ping", "tools-list", "tools-call-error",
        "resources-list", "prompts-list", "server-sse-multiple-streams", "dns-rebinding-protection",
    },
    "2026-07-28": {
        "server-stateless", "tools-list", "tools-call-error", "resources-list", "prompts-list",
        "server-sse-multiple-streams", "sep-2164-resource-not-found", "dns-rebinding-protection",
        "caching", "http-header-validation",
    },
}  # fmt: skip
# Of a tool of the reference server that needs the client's language model.
NOT_OURS = {
    "sep-2575-server-rejects-undeclared-capability",
    "sep-2575-missing-capability-http-400",
}


def run(packages: tuple[str, ...], *command: str) -> subprocess.CompletedProcess[str]:
    npx = shutil.which("npx")
    if npx is None:
        pytest.skip("npx, of Node.js, is not installed")
    given = [argument for package in packages for argument in ("--package", package)]
    begin = (npx, "--yes", *given, "--")
    if not succeeds(*begin, command[0], "--version"):
        pytest.skip(f"{packages[-1]} cannot be had from the npm registry")
    return subprocess.run([*begin, *command], capture_output=True, text=True, check=False)


@functools.cache
def succeeds(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("conformance")
    with Index.open(folder / "index") as index:
        index.add(write_pdf(folder / "manual.pdf", "The warranty is seven years."))
    with program("--index", str(folder / "index")) as (address, _):
        yield address


@pytest.mark.parametrize("version", SCENARIOS)
def test_the_server_conforms(version: str, address: str, tmp_path: Path) -> None:
    ran = run(
        CONFORMANCE, "conformance", "server", "--url", address, "--suite", "all",
        "--spec-version", version, "--output-dir", str(tmp_path / "results"),
    )  # fmt: skip
    checks: list[tuple[str, dict[str, Any]]] = [
        (path.parent.name, check)
        for path in (tmp_path / "results").glob("*/checks.json")
        for check in json.loads(path.read_text(encoding="utf-8"))
    ]
    assert len(checks) > 40, ran.stderr
    # Every message that was sent, in all scenarios, is as the schema of this version says.
    wire = [check for _, check in checks if check["id"] == "wire-schema-valid"]
    assert len(wire) > 20
    assert [check for check in wire if check["status"] != "SUCCESS"] == []
    for scenario in SCENARIOS[version]:
        of_it = [check for name, check in checks if name.startswith(f"server-{scenario}-2")]
        assert of_it, scenario
        failed = [check for check in of_it if check["status"] == "FAILURE"]
        assert {check["id"] for check in failed} <= NOT_OURS, failed


def test_the_bundle_is_valid_and_lists_every_tool(tmp_path: Path) -> None:
    bundle = build(tmp_path / "dist" / "visar.mcpb")
    unpacked = tmp_path / "unpacked"
    shutil.unpack_archive(bundle, unpacked, "zip")
    manifest = json.loads((unpacked / "manifest.json").read_text(encoding="utf-8"))
    assert (unpacked / manifest["server"]["entry_point"]).is_file()
    assert (unpacked / "visar" / "src" / "visar" / "explain" / "static" / "app.js").is_file()
    assert not list(unpacked.rglob("__pycache__"))
    with Index.open(tmp_path / "index") as index:
        server = create_server(index, roots=[tmp_path])
        listed = talk(server, lambda client: client.list_tools())
    assert {tool["name"] for tool in manifest["tools"]} == {tool.name for tool in listed.tools}
    checked = run(MCPB, "mcpb", "validate", str(unpacked / "manifest.json"))
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_registry_entry_starts_the_server_of_this_version() -> None:
    """It has the required fields of the registry's schema, and a command that exists."""
    entry = json.loads((HERE / "server.json").read_text("utf-8"))
    assert entry["$schema"].startswith("https://static.modelcontextprotocol.io/schemas/")
    assert re.fullmatch(r"io\.github\.[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", entry["name"])
    assert 1 <= len(entry["description"]) <= 100
    assert len(entry["title"]) <= 100
    (package,) = entry["packages"]
    assert (package["registryType"], package["identifier"]) == ("pypi", DISTRIBUTION)
    # The registry looks for it in the description on PyPI, as a proof of ownership.
    assert f"mcp-name: {entry['name']} " in (ROOT / "README.md").read_text("utf-8")
    assert entry["version"] == package["version"] == __version__
    assert package["transport"] == {"type": "stdio"}
    assert package["runtimeHint"] == "uvx"
    for argument in (*package["runtimeArguments"], *package["packageArguments"]):
        assert set(argument) == {"type", "value", *(("name",) if "name" in argument else ())}
        assert argument["type"] == ("named" if "name" in argument else "positional")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    # uvx runs the script that is called as the package.
    assert package["identifier"] in project["scripts"]
    (requirement,) = (Requirement(one["value"]) for one in package["runtimeArguments"])
    assert requirement.name == DISTRIBUTION
    assert requirement.extras <= set(project["optional-dependencies"])
    assert "mcp" in requirement.extras
    assert [one["value"] for one in package["packageArguments"]] == ["mcp"]
