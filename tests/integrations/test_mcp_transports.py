"""Tests of ``visar mcp`` over standard input and output, and over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from tests.cli.conftest import visar as visar
from tests.cli.typed import Visar
from tests.conftest import write_pdf
from tests.integrations.mcp_client import Mode, program, talk
from tests.server.service import serving
from visar.index import Index
from visar.server import Settings

TOKEN = "sixteen-letters-x"  # noqa: S105
HELLO = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {},
               "clientInfo": {"name": "test", "version": "1"}},
}  # fmt: skip
LISTED = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
HEADERS = {
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": "2025-11-25",
}
ASKED = {"question": "How long is the warranty?"}
both_eras = pytest.mark.parametrize("mode", ["auto", "legacy"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an index of one document."""
    folder = tmp_path_factory.mktemp("mcp")
    with Index.open(folder / "index") as index:
        index.add(write_pdf(folder / "manual.pdf", "The warranty is seven years.", "The end."))
    return folder


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with program("--index", str(folder / "index")) as (address, _):
        yield address


async def conversation(client: Client) -> tuple[str, Any, Any]:
    """Ask, look at the page, and follow its link."""
    asked = await client.call_tool("ask", ASKED)
    page = asked.structured_content["search"]["pages"][0]
    read = await client.call_tool("read_page", {"document": page["document"], "page": page["page"]})
    (link,) = [block for block in asked.content if block.type == "resource_link"]
    linked = await client.read_resource(link.uri)
    return asked.structured_content["text"], read, linked


def check_conversation(seen: tuple[str, Any, Any]) -> None:
    answer, read, linked = seen
    assert "seven years" in answer
    assert [block.type for block in read.content] == ["text", "image", "resource_link"]
    assert linked.contents[0].mime_type == "image/jpeg"


def test_standard_input_and_output(folder: Path) -> None:
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "visar", "mcp", "--index", str(folder / "index")],
        env=dict(os.environ),
    )
    check_conversation(talk(command, conversation, "legacy"))


def test_a_library_behind_a_server(folder: Path) -> None:
    """``visar serve`` has the index, and ``visar mcp --server`` none."""
    with (
        Index.open(folder / "index", create=False) as index,
        serving(index, Settings(token=TOKEN)) as address,
    ):
        command = StdioServerParameters(
            command=sys.executable,
            args=["-m", "visar", "mcp", "--server", address],
            env={**os.environ, "VISAR_TOKEN": TOKEN, "VISAR_INDEX": str(folder / "missing")},
        )
        check_conversation(talk(command, conversation))
    assert not (folder / "missing").exists()


@contextlib.contextmanager
def started(folder: Path) -> Iterator[tuple[subprocess.Popen[str], IO[str], IO[str]]]:
    """Start ``visar mcp``; yield the process with its input and output."""
    process = subprocess.Popen(
        [sys.executable, "-m", "visar", "mcp", "--index", str(folder / "index")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process, process.stdin, process.stdout
    finally:
        process.kill()
        process.communicate()


def test_only_messages_are_written(folder: Path) -> None:
    """Every output line is JSON-RPC, even for invalid input; the end of input ends the server."""
    asked = {
        "jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": {"name": "read_page", "arguments": {"document": "none", "page": 1}},
    }  # fmt: skip
    begun = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    lines = [json.dumps(HELLO), "no message", json.dumps(begun), json.dumps(asked)]
    with started(folder) as (process, typed, written):
        typed.write("\n".join(lines) + "\n")
        typed.flush()
        answers: list[dict[str, Any]] = []
        while not any(answer.get("id") == 2 for answer in answers):
            answers.append(json.loads(written.readline()))
        rest, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert rest == ""
    assert "Traceback" not in said
    (told,) = [answer for answer in answers if answer.get("id") == 2]
    assert told["result"]["isError"]


def test_ctrl_c_ends_a_server_that_waits_for_input(folder: Path) -> None:
    with started(folder) as (process, typed, written):
        typed.write(json.dumps(HELLO) + "\n")
        typed.flush()
        assert json.loads(written.readline())["id"] == 1
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == -signal.SIGINT


@both_eras
def test_streamable_http(address: str, mode: Mode) -> None:
    check_conversation(talk(address, conversation, mode))


def test_other_origins_and_hosts_are_rejected(address: str) -> None:
    with httpx2.Client(trust_env=False, headers=HEADERS, timeout=60) as http:
        assert http.post(address, json=LISTED).status_code == 200
        for more, status, code in (
            ({"Host": "evil.example"}, 403, "host"),
            ({"Host": "192.0.2.1"}, 403, "host"),
            ({"Origin": "https://evil.example"}, 403, "origin"),
            ({"Origin": "null"}, 403, "origin"),
            ({"Content-Type": "text/plain"}, 415, "content_type"),
        ):
            refused = http.post(address, json=LISTED, headers=more)
            assert (refused.status_code, refused.json()["code"]) == (status, code), more
        own = {"Origin": address.removesuffix("/mcp")}
        assert http.post(address, json=LISTED, headers=own).status_code == 200
        for method in ("GET", "DELETE"):
            refused = http.request(method, address)
            assert refused.status_code == 405
            assert refused.headers["Allow"] == "POST"
        long = {**LISTED, "params": {"_meta": {"x": "x" * 1_000_000}}}
        assert http.post(address, json=long).status_code == 413
        # Without a length, once the limit is passed.
        parts = iter([json.dumps(long).encode()])
        refused = http.post(address, content=parts, headers={"Content-Type": "application/json"})
        assert (refused.status_code, refused.json()["code"]) == (413, "too_large")


def test_requests_need_the_token_and_a_known_host(folder: Path) -> None:
    """The requests name other hosts, as they would on a public address. Ctrl-C ends the server."""
    options = ("--index", str(folder / "index"), "--allow-host", "mcp.example")
    with program(*options, VISAR_TOKEN=TOKEN) as (address, process):
        token = {"Authorization": f"Bearer {TOKEN}"}
        with httpx2.Client(trust_env=False, headers=HEADERS, timeout=60) as http:
            for more, status in (
                (token, 200),
                (token | {"Host": "10.0.0.7:8766"}, 200),
                (token | {"Host": "MCP.example:443"}, 200),
                (token | {"Host": "mcp.example", "Origin": "https://mcp.example"}, 200),
                (token | {"Host": "evil.example"}, 403),
                (token | {"Host": "mcp.example", "Origin": "https://evil.example"}, 403),
                ({"Authorization": "Bearer wrong"}, 401),
                ({}, 401),
            ):
                assert http.post(address, json=LISTED, headers=more).status_code == status, more

        async def asked() -> str:
            async with httpx2.AsyncClient(headers=token, timeout=60) as http:
                transport = streamable_http_client(address, http_client=http)
                async with Client(transport) as client:
                    return (await conversation(client))[0]

        assert "seven years" in asyncio.run(asked())
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--write"], "--root"),
        (["--root", "."], "--write"),
        (["--write", "--root", "missing"], "missing"),
        (["--http", "--host", "0.0.0.0"], "VISAR_TOKEN"),  # noqa: S104
        (["--encoder", "none"], "none"),
        (["--generator", "none"], "none"),
    ],
)
def test_invalid_options_are_reported(
    visar: Visar, tmp_path: Path, options: list[str], said: str
) -> None:
    ran = visar("mcp", "--index", tmp_path / "index", *options)
    assert ran.code == 2
    assert said in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    "options", [["--write", "--root", "."], ["--index", "x"], ["--device", "cpu"]]
)
def test_options_of_a_local_index_are_rejected_with_a_server(
    visar: Visar, options: list[str]
) -> None:
    ran = visar("mcp", "--server", "http://127.0.0.1:9", *options)
    assert ran.code == 2
    assert options[0] in ran.err
    assert "--server" in ran.err
