"""ViSAR doesn't use the network unless it is told to, and leaves no device id."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents.conftest import text_image

# onnxruntime writes a device id when it is imported, and first looks up a server 9 seconds
# later. The datagram to port 9 shows that the test would notice network traffic.
PROGRAM = """
import socket, sys, time
import visar

with visar.Index.open(sys.argv[1]) as index:
    index.add(sys.argv[2])
    print(index.ask("When is income tax due?").pages[0].snippet)
    time.sleep(12)
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"here", ("127.0.0.1", 9))
"""
IMPORT = "import visar, onnxruntime"


def run_at_home(home: Path, command: list[str], **variables: str) -> str:
    """Run a program with another home directory, and return its output."""
    # Don't pass CI, which turns onnxruntime's telemetry off.
    inherited = ("PATH", "LD_LIBRARY_PATH", "LANG")
    environment = {name: os.environ[name] for name in inherited if name in os.environ}
    environment |= {"HOME": str(home), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ran = subprocess.run(
        command, env=environment | variables, capture_output=True, text=True, check=True
    )
    return ran.stdout


def device_ids(home: Path) -> list[Path]:
    return [path for path in home.rglob("*") if "microsoft" in path.name.lower()]


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_asking_about_a_scan_does_not_use_the_network(tmp_path: Path) -> None:
    """The embedded encoder and OCR use onnxruntime, each in its own process."""
    scan, log, home = tmp_path / "scan.png", tmp_path / "log", tmp_path / "home"
    text_image("Income tax is due in April.").save(scan)
    home.mkdir()
    strace = ["strace", "-f", "-qq", "--seccomp-bpf", "-e", "trace=network", "-o", str(log)]
    program = [sys.executable, "-c", PROGRAM, str(tmp_path / "index"), str(scan)]
    assert "April" in run_at_home(home, [*strace, *program])
    ports = re.findall(r"(?:connect|send\w+)\(.*?sin6?_port=htons\((\d+)\)", log.read_text())
    assert ports == ["9"]
    assert device_ids(home) == []


def test_importing_onnxruntime_after_visar_leaves_no_device_id(tmp_path: Path) -> None:
    run_at_home(tmp_path, [sys.executable, "-c", IMPORT])
    assert device_ids(tmp_path) == []


def test_the_users_telemetry_setting_is_kept(tmp_path: Path) -> None:
    program = "import os, visar; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    output = run_at_home(tmp_path, [sys.executable, "-c", program], ORT_DISABLE_TELEMETRY="0")
    assert output == "0\n"
