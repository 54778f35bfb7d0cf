"""ViSAR as a program in a process of its own: commands that a page shows, and servers."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path


def run_shown(command: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a page shows it, in a folder with an index of its own."""
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


@contextlib.contextmanager
def server_program(
    *arguments: str, **environment: str
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run a command that serves; gives the address it names, and its process, killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "visar", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "500", **environment},
    )
    assert process.stderr is not None
    try:
        said = ""
        while not (found := re.search(r"at (http://\S+)", said)):
            line = process.stderr.readline()
            assert line, f"visar {arguments[0]} has ended: {said}"
            said += line
        yield found[1], process
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
