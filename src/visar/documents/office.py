"""Office documents: detecting their format, and converting them to PDF with LibreOffice."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

from visar.documents.finding import OLE_SIGNATURE, RTF_SIGNATURE, ZIP_SIGNATURE
from visar.documents.options import Limits
from visar.documents.processes import child_environment, last_line
from visar.documents.sandbox import sandbox_command
from visar.errors import DocumentError

ENCRYPTED = "encrypted"

_OPENXML_FOLDERS = {"word/": ".docx", "ppt/": ".pptx", "xl/": ".xlsx"}
_OPENDOCUMENT = {
    b"application/vnd.oasis.opendocument.text": ".odt",
    b"application/vnd.oasis.opendocument.presentation": ".odp",
    b"application/vnd.oasis.opendocument.spreadsheet": ".ods",
}
# Microsoft Office wraps encrypted documents of all formats in OLE.
_OLE_STREAMS = {
    "EncryptedPackage": ENCRYPTED,
    "WordDocument": ".doc",
    "PowerPoint Document": ".ppt",
    "Workbook": ".xls",
}
_OLE_CHUNK = 1 << 20

# Disables macros, and loading pictures from the network.
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
# Environment variables with the folder for temporary files of LibreOffice and its libraries.
_FOLDERS = ("TMPDIR", "XDG_RUNTIME_DIR")
# Exit codes with which LibreOffice asks for a restart, as after creating a profile.
_RESTART_CODES = (79, 81)
# LibreOffice reserves far more address space than it uses.
_MEMORY_FACTOR = 4


def office_format(path: Path) -> str | None:
    """Return the suffix of an office document's format, such as ``".docx"``.

    Returns ``ENCRYPTED`` for an encrypted document of Microsoft Office, and None for other files.
    This runs in the worker process, because a zip directory can take any amount of memory.
    """
    with path.open("rb") as stream:
        head = stream.read(max(map(len, (OLE_SIGNATURE, RTF_SIGNATURE, ZIP_SIGNATURE))))
    if head.startswith(RTF_SIGNATURE):
        return ".rtf"
    if head.startswith(ZIP_SIGNATURE):
        return _zip_format(path)
    return _ole_format(path) if head.startswith(OLE_SIGNATURE) else None


def _zip_format(path: Path) -> str | None:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if "mimetype" in names:
                with archive.open("mimetype") as stream:
                    return _OPENDOCUMENT.get(stream.read(100).strip())
    except (zipfile.BadZipFile, OSError, ValueError, RuntimeError, NotImplementedError):
        return None
    for folder, suffix in _OPENXML_FOLDERS.items():
        if any(name.startswith(folder) for name in names):
            return suffix
    return None


def _ole_format(path: Path) -> str | None:
    names = {name.encode("utf-16-le"): suffix for name, suffix in _OLE_STREAMS.items()}
    overlap = max(map(len, names))
    present: set[str] = set()
    with path.open("rb") as stream:
        window = b""
        while chunk := stream.read(_OLE_CHUNK):
            window = window[-overlap:] + chunk
            present.update(suffix for name, suffix in names.items() if name in window)
    return next((suffix for suffix in _OLE_STREAMS.values() if suffix in present), None)


def convert(path: Path, name: str, suffix: str, folder: Path, limits: Limits) -> Path:
    """Convert an office document to PDF with LibreOffice, within the limits on time and memory.

    ``name`` is the name of the document in errors, ``suffix`` its format from `office_format`, and
    ``folder`` an empty folder for the PDF and temporary files. Raises DocumentError if LibreOffice
    isn't installed, fails, or takes too long.
    """
    program = shutil.which("soffice") or shutil.which("libreoffice")
    if program is None:
        raise DocumentError(
            name,
            "is an office document, and LibreOffice (soffice) isn't installed: install it, or save "
            "the document as PDF",
        )
    profile = folder / "profile"
    (profile / "user").mkdir(parents=True)
    (profile / "user" / "registrymodifications.xcu").write_text(_PROFILE)
    # Copied to a name with the detected suffix, because LibreOffice trusts suffixes.
    source = folder / f"document{suffix}"
    shutil.copyfile(path, source)
    command = [
        _binary(program),
        f"-env:UserInstallation={profile.as_uri()}",
        *("--headless", "--norestore", "--nolockcheck", "--nodefault"),
        *("--convert-to", "pdf", "--outdir", str(folder), str(source)),
    ]
    message = _run(command, name, folder, limits)
    result = source.with_suffix(".pdf")
    # A link would make the next process read its target.
    if result.is_symlink() or not result.is_file():
        detail = f" ({message})" if message else ""
        raise DocumentError(
            name,
            f"couldn't be converted by LibreOffice{detail}: it may be damaged or encrypted",
        )
    return result


def _binary(program: str) -> str:
    """Return the program behind soffice, whose splash screen needs a socket outside the sandbox."""
    binary = Path(program).resolve().with_name("soffice.bin")
    use_binary = sys.platform == "linux" and binary.is_file()
    # Absolute, because the program starts in another folder.
    return str(binary) if use_binary else os.path.abspath(program)  # noqa: PTH100


def _run(command: list[str], name: str, folder: Path, limits: Limits) -> str:
    """Run LibreOffice, and return the last line of its error output."""
    deadline = time.monotonic() + limits.conversion_seconds
    while True:
        code, errors = _run_once(command, name, folder, limits, deadline - time.monotonic())
        if code not in _RESTART_CODES:
            return last_line(errors.decode(errors="replace"))


def _run_once(
    command: list[str], name: str, folder: Path, limits: Limits, seconds: float
) -> tuple[int, bytes]:
    process = subprocess.Popen(  # noqa: S603
        sandbox_command(command, folder, _MEMORY_FACTOR * limits.worker_memory),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        # A relative path of the socket, because the limit is 107 bytes.
        cwd=folder,
        env={**child_environment(), **dict.fromkeys(_FOLDERS, str(folder)), "OSL_SOCKET_PATH": "."},
    )
    try:
        _, errors = process.communicate(timeout=max(0.0, seconds))
    except subprocess.TimeoutExpired as error:
        raise DocumentError(
            name,
            "couldn't be converted by LibreOffice within "
            f"{limits.conversion_seconds:g} seconds (Limits.conversion_seconds)",
        ) from error
    finally:
        _end_group(process)
    return process.returncode, errors


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End the program and its child processes, because soffice may be a wrapper script."""
    if os.name == "posix":
        # All processes may have ended already.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()
    if process.stderr is not None:
        process.stderr.close()
