"""Helpers for the SDK's client, with servers in the same process, in another one, and over HTTP."""

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
    """Connect a client and return the result of a conversation."""

    async def connected() -> T:
        async with Client(server, mode=mode, **options) as client:
            return await conversation(client)

    return asyncio.run(connected())


def call(server: Any, tool: str, mode: Mode = "auto", /, **arguments: Any) -> CallToolResult:
    """Call one tool."""
    return talk(server, lambda client: client.call_tool(tool, arguments), mode)


def read_text(server: Any, uri: str) -> str:
    """Return the text of a resource."""
    (read,) = talk(server, lambda client: client.read_resource(uri)).contents
    assert isinstance(read, TextResourceContents)
    return read.text


def text_of(result: CallToolResult) -> str:
    """Return the text at the beginning of a result."""
    assert result.content[0].type == "text"
    return result.content[0].text


def program(
    *arguments: str, **environment: str
) -> contextlib.AbstractContextManager[tuple[str, subprocess.Popen[str]]]:
    """Run ``visar mcp --http``; yield its address and its process, which is killed at the end."""
    return server_program("mcp", "--http", "--port", "0", *arguments, **environment)


def noisy_picture(path: Path, width: int = 1600, height: int = 2000) -> Path:
    """Write an image that JPEG can't compress."""
    from PIL import Image

    Image.effect_noise((width, height), 200).convert("RGB").save(path)
    return path
