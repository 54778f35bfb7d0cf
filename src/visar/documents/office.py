"""Office documents become PDFs, by LibreOffice where it is installed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from visar.documents.limits import Limits
from visar.errors import DocumentError

# No macros, and no pictures fetched from wherever the document points to.
_PROFILE = """<?xml version="1.0" encoding="UTF-8"?>
<oor:items xmlns:oor="http://openoffice.org/2001/registry">
<item oor:path="/org.openoffice.Office.Common/Security/Scripting">
<prop oor:name="DisableMacrosExecution" oor:op="fuse"><value>true</value></prop></item>
<item oor:path="/org.openoffice.Office.Common/Security/Scripting">
<prop oor:name="BlockUntrustedRefererLinks" oor:op="fuse"><value>true</value></prop></item>
<item oor:path="/org.openoffice.Office.Common/Security/Scripting">
<prop oor:name="MacroSecurityLevel" oor:op="fuse"><value>3</value></prop></item>
</oor:items>
"""
# LibreOffice reserves far more address space than it uses.
_MEMORY_FACTOR = 4
# Limits itself, then becomes the program named by its arguments.
_LIMITED = (
    "import os, resource, sys; size = int(sys.argv[1]); "
    "hard = resource.getrlimit(resource.RLIMIT_AS)[1]; "
    "size = size if hard == resource.RLIM_INFINITY else min(size, hard); "
    "resource.setrlimit(resource.RLIMIT_AS, (size, size)); "
    "resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); "
    "os.execv(sys.argv[2], sys.argv[2:])"
)


def converter() -> str | None:
    """Where LibreOffice is, or None."""
    return shutil.which("soffice") or shutil.which("libreoffice")


def convert(path: Path, suffix: str, folder: Path, limits: Limits) -> Path:
    """Make a PDF of an office document in ``folder``; ``suffix`` tells what it is."""
    program = converter()
    if program is None:
        raise DocumentError(
            path.name,
            "is an office document: reading it needs LibreOffice (the program soffice), which is "
            "not installed. Install it, or save the document as PDF",
        )
    profile = folder / "profile"
    (profile / "user").mkdir(parents=True)
    (profile / "user" / "registrymodifications.xcu").write_text(_PROFILE)
    # Under a name of its own: LibreOffice believes suffixes.
    source = folder / f"document{suffix}"
    shutil.copyfile(path, source)
    command = [
        program,
        f"-env:UserInstallation={profile.as_uri()}",
        *("--headless", "--norestore", "--nolockcheck", "--nodefault"),
        *("--convert-to", "pdf", "--outdir", str(folder), str(source)),
    ]
    complaint = _run(command, path.name, limits)
    result = source.with_suffix(".pdf")
    if not result.is_file():
        detail = f" ({complaint})" if complaint else ""
        raise DocumentError(
            path.name,
            f"could not be converted by LibreOffice{detail}: it may be damaged or encrypted",
        )
    return result


def _run(command: list[str], name: str, limits: Limits) -> str:
    """Run LibreOffice to its end; what it complained about, in one line."""
    if sys.platform == "linux":
        memory = str(_MEMORY_FACTOR * limits.worker_memory)
        command = [sys.executable, "-I", "-c", _LIMITED, memory, *command]
    process = subprocess.Popen(  # noqa: S603
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        _, errors = process.communicate(timeout=limits.conversion_seconds)
    except subprocess.TimeoutExpired as error:
        raise DocumentError(
            name,
            f"took LibreOffice longer than {limits.conversion_seconds:g} seconds to convert "
            "(Limits.conversion_seconds)",
        ) from error
    finally:
        _end_group(process)
    lines = errors.decode(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else ""


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End the program and what it started: soffice is a script around the real one."""
    if os.name == "posix":
        # All of it may have ended.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()
    if process.stderr is not None:
        process.stderr.close()
