"""The SDK's own client against servers in this process, in one of their own, and over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

from mcp import Client
from mcp_types import CallToolResult, TextResourceContents

from tests.programs import server_program

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


def program(
    *arguments: str, **environment: str
) -> contextlib.AbstractContextManager[tuple[str, subprocess.Popen[str]]]:
    """Run ``visar mcp --http``; gives its address and its process, which is killed at the end."""
    return server_program("mcp", "--http", "--port", "0", *arguments, **environment)


def noisy_picture(path: Path, width: int = 1600, height: int = 2000) -> Path:
    """A picture that no JPEG makes small."""
    from PIL import Image

    Image.effect_noise((width, height), 200).convert("RGB").save(path)
    return path
