"""What docs/server.md shows works as shown."""

from __future__ import annotations

import inspect
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pikepdf
import pytest

from tests.server.service import program
from visar.cli.serve import serve
from visar.index import Index

PAGE = (Path(__file__).parents[2] / "docs" / "server.md").read_text(encoding="utf-8")
DEFAULT = "http://127.0.0.1:8764"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, report: Path) -> Path:
    folder = tmp_path_factory.mktemp("server-docs")
    with pikepdf.open(report) as pdf:
        del pdf.pages[8:]
        pdf.save(folder / "annual-report.pdf")
    (folder / "notes.pdf").write_text("no document")
    return folder


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """A server as a user starts it."""
    with Index.open(folder / "index"):
        pass
    with program(folder / "index") as (address, _):
        yield address


def test_the_client_is_used_as_shown(
    folder: Path, address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    (example,) = [
        one for one in re.findall(r"```python\n(.*?)```", PAGE, flags=re.S) if "Client" in one
    ]
    exec(example.replace(DEFAULT, address), {})  # noqa: S102
    added, *parts = capsys.readouterr().out.splitlines()
    assert added.startswith("['annual-report.pdf'] ['notes.pdf")
    assert "annual-report.pdf" in "".join(parts)
    assert any(" of 8 pages" in part for part in parts)


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
def test_curl_is_used_as_shown(folder: Path, address: str) -> None:
    shown = re.findall(r"```console\n(.*?)```", PAGE, flags=re.S)
    lines = "".join(one for one in shown if "curl" in one).replace("\\\n", " ")
    commands = lines.replace(DEFAULT, address).replace("$ ", "").splitlines()
    assert len(commands) == 4
    # There is something to ask about once the batch was sent.
    ask, batch, upload, jobs = commands
    said = [
        subprocess.run(
            ["/bin/sh", "-c", one], cwd=folder, capture_output=True, text=True, check=True
        ).stdout
        for one in (batch, ask, upload, jobs)
    ]
    assert '"name":"annual-report.pdf","job":{' in said[0]
    assert '"question":"How long is the warranty?"' in said[1]
    job = json.loads(said[2])
    assert (job["name"], job["collection"]) == ("report.pdf", "reports")
    assert job["metadata"] == {"year": 2024}
    assert job["id"] in [one["id"] for one in json.loads(said[3])]


def test_every_option_is_told() -> None:
    told = set(re.findall(r"`--([a-z-]+)`", PAGE))
    names = {name.replace("_", "-") for name in inspect.signature(serve).parameters}
    assert names - {"open-page", "base-url", "device"} <= told
