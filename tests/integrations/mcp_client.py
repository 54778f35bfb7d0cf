"""The SDK's own client against servers in this process, in one of their own, and over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar

from mcp import Client
from mcp_types import CallToolResult, TextResourceContents

T = TypeVar("T")
Mode = Literal["legacy", "auto"]


def talk(
    server: Any, conversation: Callable[[Client], Awaitable[T]], mode: Mode = "auto", **options: Any
) -> T:
    """Connect a client, let it talk, and give what comes of it."""

    async def connected() -> T:
        async with Client(server, mode=mode, **options) as client:
            return await conversation(client)

    return asyncio.run(connected())


def call(server: Any, tool: str, mode: Mode = "auto", /, **arguments: Any) -> CallToolResult:
    """Call one tool."""
    return talk(server, lambda client: client.call_tool(tool, arguments), mode)


def read_text(server: Any, uri: str) -> str:
    """Read a resource that is text."""
    (read,) = talk(server, lambda client: client.read_resource(uri)).contents
    assert isinstance(read, TextResourceContents)
    return read.text


def text_of(result: CallToolResult) -> str:
    """The text that every result begins with."""
    assert result.content[0].type == "text"
    return result.content[0].text


@contextlib.contextmanager
def program(*arguments: str, **environment: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run ``visar mcp --http``; gives its address and its process, which is killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "visar", "mcp", "--http", "--port", "0", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "500", **environment},
    )
    assert process.stderr is not None
    try:
        said = ""
        while not (found := re.search(r"at (http://\S+)", said)):
            line = process.stderr.readline()
            assert line, f"visar mcp has ended: {said}"
            said += line
        yield found[1], process
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def noisy_picture(path: Path, width: int = 1600, height: int = 2000) -> Path:
    """A picture that no JPEG makes small."""
    from PIL import Image

    Image.effect_noise((width, height), 200).convert("RGB").save(path)
    return path
