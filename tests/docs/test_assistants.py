"""Run the examples of docs/assistants.md."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from mcp import Client, StdioServerParameters

from tests.conftest import write_pdf
from tests.docs.shown import blocks, read
from tests.integrations.mcp_client import program, talk
from tests.server.service import serving
from visar.cli.mcp import agents
from visar.cli.serve import PORT
from visar.index import Index
from visar.integrations.mcp.server import PAGE
from visar.samples import REPORT

DOCS = read("assistants.md")
COMMANDS = [shlex.split(line) for line in re.findall(r"^\$ (.*)$", DOCS, flags=re.M)]


async def tools(client: Client) -> set[str]:
    return {tool.name for tool in (await client.list_tools()).tools}


def test_the_commands_and_the_configuration_run(tmp_path: Path) -> None:
    install, add, assistant, write, remote, http = COMMANDS
    assert install == ["pip", "install", "visar-rag[mcp]"]
    assert assistant == ["visar", "mcp", "install", "claude-code"]
    environment = {**os.environ, "VISAR_INDEX": str(tmp_path / "index"), "HOME": str(tmp_path)}
    write_pdf(tmp_path / "annual-report.pdf", "The warranty is seven years.")
    added = subprocess.run(
        [sys.executable, "-m", *add],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        check=False,
    )
    assert added.returncode == 0, added.stderr

    (configuration,) = blocks(DOCS, "json")
    configured = json.loads(configuration)["mcpServers"]["visar"]
    typed = [configured["command"], *configured["args"]]
    for folder in ("Documents", "Downloads"):
        (tmp_path / folder).mkdir()
    offered = {
        name: talk(
            StdioServerParameters(
                command=sys.executable, args=["-m", *command], env=environment, cwd=tmp_path
            ),
            tools,
        )
        for name, command in (("reads", typed), ("writes", write))
    }
    assert offered["writes"] - offered["reads"] == {"add", "remove"}
    assert (
        set(re.findall(r"`(\w+)`", DOCS.partition("| tool |")[2].partition("\n\n")[0]))
        == (offered["writes"])
    )
    *options, _ = remote
    with Index.open(environment["VISAR_INDEX"]) as index, serving(index) as address:
        command = StdioServerParameters(
            command=sys.executable, args=["-m", *options, address], env=dict(os.environ)
        )
        assert talk(command, tools) == offered["reads"]
    assert http == ["visar", "mcp", "--http", "--port", "8766"]
    with program(VISAR_INDEX=environment["VISAR_INDEX"]) as (address, _):
        assert address.endswith("/mcp")
        assert talk(address, tools) == offered["reads"]


def test_what_is_named_is_there() -> None:
    assert PAGE.format(document="DOCUMENT", page="PAGE") in DOCS
    assert set(agents()) <= set(re.findall(r"`([\w-]+)`", DOCS)) | {"claude-code"}


def test_a_chat_program_gets_an_answer_with_links(tmp_path: Path) -> None:
    default = f"http://127.0.0.1:{PORT}"
    (example,) = [one for one in blocks(DOCS, "python") if "OpenAI(base_url" in one]
    with Index.open(tmp_path / "index") as index:
        index.add(REPORT)
        with serving(index) as address:
            ran = subprocess.run(
                [sys.executable, "-c", example.replace(default, address)],
                capture_output=True,
                text=True,
                check=False,
            )
    assert ran.returncode == 0, ran.stderr
    assert "£47.5 million" in ran.stdout
    assert f"]({address}/api/v1/documents/" in ran.stdout
    assert set(re.findall(r"http://127\.0\.0\.1:\d+", DOCS)) == {default}
