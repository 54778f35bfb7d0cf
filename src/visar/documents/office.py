"""Office documents: telling their format, and making PDFs of them by LibreOffice."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

from visar.documents.finding import OLE_SIGNATURE, RTF_SIGNATURE, ZIP_SIGNATURE
from visar.documents.options import Limits
from visar.documents.processes import child_environment, last_line
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


def office_format(path: Path) -> str | None:
    """Return the office format of a file as LibreOffice knows it, such as ``".docx"``.

    ``ENCRYPTED`` for an encrypted document of Microsoft Office; None for a file that is no office
    document. Runs in the worker process: a zip directory may take any amount of memory.
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
    names = {name.encode("utf-16-le"): found for name, found in _OLE_STREAMS.items()}
    overlap = max(map(len, names))
    present: set[str] = set()
    with path.open("rb") as stream:
        window = b""
        while chunk := stream.read(_OLE_CHUNK):
            window = window[-overlap:] + chunk
            present.update(found for name, found in names.items() if name in window)
    return next((found for found in _OLE_STREAMS.values() if found in present), None)


def convert(path: Path, name: str, suffix: str, folder: Path, limits: Limits) -> Path:
    """Make a PDF of an office document with LibreOffice, within the time and memory of the limits.

    ``name`` is what errors call it, ``suffix`` its format from `office_format`, ``folder`` an
    empty one for the PDF and for what LibreOffice needs meanwhile. Raises DocumentError if
    LibreOffice is not installed, fails, or takes too long.
    """
    program = shutil.which("soffice") or shutil.which("libreoffice")
    if program is None:
        raise DocumentError(
            name,
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
    complaint = _run(command, name, limits)
    result = source.with_suffix(".pdf")
    if not result.is_file():
        detail = f" ({complaint})" if complaint else ""
        raise DocumentError(
            name,
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
        env=child_environment(),
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
    return last_line(errors.decode(errors="replace"))


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
