"""ViSAR in a separate process: commands from the docs, and servers."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path


def run_shown(command: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command from the docs in a folder, which also holds its index."""
    program = folder / "visar"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m visar "$@"\n')
    program.chmod(0o755)
    return subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=folder,
        env={
            **os.environ,
            "VISAR_INDEX": str(folder / "index"),
            "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
            **environment,
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def start_server(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Start a command that runs a server."""
    return subprocess.Popen(
        [sys.executable, "-m", "visar", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "500", **environment},
    )


def server_address(process: subprocess.Popen[str]) -> str:
    """Wait for a server to print its address; raises AssertionError if it exits before."""
    assert process.stderr is not None
    output = ""
    while not (match := re.search(r"at (http://\S+)", output)):
        line = process.stderr.readline()
        assert line, f"the server has exited: {output}"
        output += line
    return match[1]


@contextlib.contextmanager
def server_program(
    *arguments: str, **environment: str
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run a command that runs a server; yields its address and process, and kills it at the end."""
    with start_server(*arguments, **environment) as process:
        try:
            yield server_address(process), process
        finally:
            process.kill()
