"""Nothing goes over the network unasked: what a real process looks up and writes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents.conftest import text_image

# onnxruntime writes a device id when it is imported, and looks up a server 9, 15 and 23 seconds
# later. The datagram to port 9 of this machine shows that those who watch would see others.
PROGRAM = """
import socket, sys, time
import visar

with visar.Index.open(sys.argv[1]) as index:
    index.add(sys.argv[2])
    print(index.ask("When is income tax due?").pages[0].snippet)
    time.sleep(30)
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"here", ("127.0.0.1", 9))
"""
IMPORT = "import visar, onnxruntime"


def run_at_home(home: Path, command: list[str], **variables: str) -> str:
    """Run a program for which ``home`` is all there is of its user's files."""
    unset = {"ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME", "XDG_DATA_HOME"}
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment |= {"HOME": str(home), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ran = subprocess.run(
        command, env=environment | variables, capture_output=True, text=True, check=True
    )
    return ran.stdout


def device_ids(home: Path) -> list[Path]:
    return [path for path in home.rglob("*") if "microsoft" in path.name.lower()]


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_asking_a_scanned_document_looks_nothing_up_and_leaves_no_device_id(tmp_path: Path) -> None:
    """The embedded encoder and OCR, each in a process of its own, use onnxruntime."""
    scan, log, home = tmp_path / "scan.png", tmp_path / "log", tmp_path / "home"
    text_image("Income tax is due in April.").save(scan)
    home.mkdir()
    watched = ["strace", "-f", "-qq", "--seccomp-bpf", "-e", "trace=network", "-o", str(log)]
    program = [sys.executable, "-c", PROGRAM, str(tmp_path / "index"), str(scan)]
    assert "April" in run_at_home(home, [*watched, *program])
    sent = re.findall(r"(?:connect|send\w+)\(.*?sin6?_port=htons\((\d+)\)", log.read_text())
    assert sent == ["9"]
    assert device_ids(home) == []


@pytest.mark.parametrize(
    ("setting", "written"), [({}, False), ({"ORT_DISABLE_TELEMETRY": "0"}, True)]
)
def test_telemetry_is_off_unless_its_user_has_decided_otherwise(
    tmp_path: Path, setting: dict[str, str], written: bool
) -> None:
    run_at_home(tmp_path, [sys.executable, "-c", IMPORT], **setting)
    assert bool(device_ids(tmp_path)) == written
