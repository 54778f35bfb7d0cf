"""Test what a process for reading documents could still do after an attack."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.documents.conftest import text_at, text_image, write_pdf
from visar.documents import OpenedDocument, sandbox
from visar.documents.processes import ChildProcess
from visar.index import Index
from visar.ingest.ocr_processes import OCR_PROCESSES, OcrClient

supported = pytest.mark.skipif(
    not (sandbox.detect_sandbox().files and sandbox.detect_sandbox().calls),
    reason="the kernel lacks Landlock or seccomp",
)

# Attempts everything and prints the results: "done", "denied" or the error.
PROBE = """
import json, os, socket, subprocess, sys
from pathlib import Path

given = json.loads(sys.argv[1])
if given["restrict"]:
    from visar.documents.sandbox import restrict
    restrict([given["document"]])
document, folder = Path(given["document"]), Path(given["folder"])

def connect(family, address, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as one:
        one.connect(address)

attempts = {
    "read document": document.read_bytes,
    "import a library": lambda: __import__("PIL.ImageFont"),
    "start a thread": lambda: __import__("threading").Thread(target=print, args=("",)).start(),
    "read passwd": Path("/etc/passwd").read_bytes,
    "read home": Path(given["home"], "key").read_bytes,
    "list home": lambda: os.listdir(given["home"]),
    "read index": Path(given["index"]).read_bytes,
    "read parent": Path(f"/proc/{os.getppid()}/environ").read_bytes,
    "write folder": (folder / "new").touch,
    "write beside": document.with_name("new").touch,
    "write document": lambda: document.open("r+b").close(),
    "empty document": lambda: os.close(os.open(document, os.O_RDONLY | os.O_TRUNC)),
    "truncate document": lambda: os.truncate(document, 0),
    "chmod": lambda: document.chmod(0o644),
    "utime": lambda: os.utime(document),
    "xattr": lambda: os.setxattr(document, "user.visar", b""),
    "link": lambda: document.with_name("link").symlink_to(document),
    "make folder": document.with_name("made").mkdir,
    "signal parent": lambda: os.kill(os.getppid(), 0),
    "run program": lambda: subprocess.run(["/bin/true"], check=True),
    "fork": lambda: os.fork() or os._exit(0),
    "leave group": lambda: os.setpgid(0, 0),
    "internet socket": lambda: socket.socket(socket.AF_INET).close(),
    "datagram socket": lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).close(),
    "netlink socket": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close(),
    "local socket": lambda: socket.socket(socket.AF_UNIX).close(),
    "local datagrams": lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).close(),
    "connect": lambda: connect(socket.AF_INET, ("127.0.0.1", given["port"])),
    "connect locally": lambda: connect(socket.AF_UNIX, given["socket"]),
    "remove": document.unlink,
}
results = {}
for name, attempt in attempts.items():
    try:
        attempt()
        results[name] = "done"
    except PermissionError:
        results[name] = "denied"
    except Exception as error:
        results[name] = repr(error)
sys.stdout.write(json.dumps(results))
"""
NEEDED = {"read document", "import a library", "start a thread"}
PROGRAMS_MAY = {
    *("import a library", "start a thread", "write folder", "run program", "fork", "local socket")
}


@pytest.fixture
def given(tmp_path: Path, library: Index) -> Iterator[dict[str, Any]]:
    """Files that must not be readable, and listening servers."""
    for name in ("input", "home", "folder"):
        (tmp_path / name).mkdir()
    (tmp_path / "home" / "key").write_text("secret")
    document = write_pdf(tmp_path / "input" / "a.pdf", text_at(50, 500, "a"))
    local = tmp_path / "socket"
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as other:
        other.bind(str(local))
        other.listen()
        yield {
            "restrict": False,
            "document": str(document),
            "folder": str(tmp_path / "folder"),
            "home": str(tmp_path / "home"),
            "index": str(
                next(path for path in Path(library.location).rglob("*") if path.is_file())
            ),
            "port": server.getsockname()[1],
            "socket": str(local),
        }


def run(command: list[str]) -> dict[str, str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    results: dict[str, str] = json.loads(ran.stdout.strip().splitlines()[-1])
    return results


def probe(given: dict[str, Any], **changes: Any) -> list[str]:
    return [sys.executable, "-c", PROBE, json.dumps({**given, **changes})]


def test_process_without_a_sandbox_can_do_everything(given: dict[str, Any]) -> None:
    assert set(run(probe(given)).values()) == {"done"}


@supported
def test_reader_can_only_read_its_document(given: dict[str, Any]) -> None:
    results = run(probe(given, restrict=True))
    assert results == {name: "done" if name in NEEDED else "denied" for name in results}
    assert Path(given["document"]).stat().st_size > 0


@supported
def test_program_can_also_write_to_its_folder(given: dict[str, Any]) -> None:
    """LibreOffice and Tesseract get their files in the folder or by pipe."""
    document = Path(given["document"])
    size = document.stat().st_size
    results = run(sandbox.sandbox_command(probe(given), Path(given["folder"])))
    done = {name for name, result in results.items() if result == "done"}
    # Old versions of Landlock don't restrict signals.
    assert done - {"signal parent"} == PROGRAMS_MAY
    assert document.stat().st_size == size


@supported
def test_folder_of_a_user_script_is_not_readable(given: dict[str, Any]) -> None:
    """The sys.path that the processes inherit may contain the folder of a script."""
    command = probe(given, restrict=True)
    command[2] = f"import sys; sys.path.insert(0, {given['home']!r})\n{PROBE}"
    assert run(command)["read home"] == "denied"


def status(pid: int) -> list[dict[str, str]]:
    """Return the status of each thread of a process."""
    texts = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    return [dict(re.findall(r"(\w+):\t(.*)", text)) for text in texts]


def is_restricted(pid: int) -> bool:
    return {(one["NoNewPrivs"], one["Seccomp"]) for one in status(pid)} == {("1", "2")}


@supported
def test_all_threads_of_the_worker_are_sandboxed(tmp_path: Path, opened: Any) -> None:
    Image.new("RGB", (90, 90), "white").save(tmp_path / "b.png")
    for path in (write_pdf(tmp_path / "a.pdf", text_at(50, 500, "a")), tmp_path / "b.png"):
        document: OpenedDocument = opened(path)
        document.image(1)
        assert document._worker._process is not None
        assert is_restricted(document._worker._process.pid)


@supported
def test_all_threads_of_the_ocr_process_are_sandboxed() -> None:
    client = OcrClient(threads=2)
    words = client.read_image(text_image("Warranty period"), "rapidocr")
    assert [word.text for word in words] == ["Warranty", "period"]
    with OCR_PROCESSES.process() as process:
        assert len(status(process.pid)) > 1
        assert is_restricted(process.pid)


@supported
@pytest.mark.parametrize("source_format", ["pdf", "images"])
def test_worker_cannot_open_another_document(tmp_path: Path, source_format: str) -> None:
    """The worker gets a request for another file than it was started for."""
    if source_format == "pdf":
        paths = [write_pdf(tmp_path / name, text_at(50, 500, "a")) for name in ("a.pdf", "b.pdf")]
    else:
        paths = [tmp_path / "a.png", tmp_path / "b.png"]
        for path in paths:
            Image.new("L", (9, 9)).save(path)
    process = ChildProcess("visar.documents.reader")
    try:
        settings = {"source_format": source_format, "memory": 2_000_000_000, "seconds": 30}
        process.ask({**settings, "readable": [str(paths[0])]}, seconds=60)
        request = {"do": "open", "source_format": source_format, "password": None, "max_pages": 9}
        own, _ = process.ask({**request, "paths": [str(paths[0])]}, seconds=60)
        other, _ = process.ask({**request, "paths": [str(paths[1])]}, seconds=60)
        what, _ = process.ask({"do": "format", "path": str(paths[1])}, seconds=60)
    finally:
        process.end()
    assert own["pages"] == 1
    assert other["error"] == "broken"
    assert "PermissionError" in what["message"]


@supported
def test_root_only_keeps_capabilities_for_reading(tmp_path: Path, opened: Any) -> None:
    document: OpenedDocument = opened(write_pdf(tmp_path / "a.pdf", text_at(50, 500, "a")))
    assert document._worker._process is not None
    (one,) = status(document._worker._process.pid)
    # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH.
    assert int(one["CapPrm"], 16) | int(one["CapEff"], 16) in (0, 0b110)


@pytest.mark.parametrize(
    ("header", "column"),
    [("x86_64-linux-gnu/asm/unistd_64.h", 0), ("asm-generic/unistd.h", 1)],
)
def test_system_call_numbers_match_the_kernel(header: str, column: int) -> None:
    """This also checks aarch64 on other machines."""
    path = Path("/usr/include") / header
    if not path.exists():
        pytest.skip("Linux headers are not installed")
    named = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)$", path.read_text(), re.MULTILINE)
    expected = {name: int(number) for name, number in named}
    tables = (
        sandbox._BLOCKED_CALLS,
        sandbox._BLOCKED_FOR_READERS,
        sandbox._MISSING_CALLS,
        sandbox._CONDITIONAL_CALLS,
    )
    ours = {name: numbers[column] for table in tables for name, numbers in table.items()}
    assert ours == {name: expected.get(name) for name in ours}
