"""Run the examples of docs/http-api.md, and check that it lists every request."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pikepdf
import pytest

from tests.docs.shown import blocks, read
from tests.encoders.servers import serving
from tests.server.service import program
from visar.encoders.embedded import EmbeddedEncoder
from visar.index import Index
from visar.server import create_app

PAGE, _, ENCODERS = read("http-api.md").partition("## Encoder services")
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
    (example,) = [one for one in blocks(PAGE, "python") if "Client" in one]
    exec(example.replace(DEFAULT, address), {})  # noqa: S102
    added, *parts = capsys.readouterr().out.splitlines()
    assert added.startswith("['annual-report.pdf'] [")
    assert "notes.pdf" in added
    assert "annual-report.pdf" in "".join(parts)
    assert any(" of 8 pages" in part for part in parts)


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
def test_curl_is_used_as_shown(folder: Path, address: str) -> None:
    shown = blocks(PAGE, "console")
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


def test_every_request_is_in_the_table(tmp_path: Path) -> None:
    with Index.open(tmp_path / "index") as index:
        paths = create_app(index).openapi()["paths"]
    # The first name of a path, such as "documents", stands for all below it.
    for path in paths:
        name = path.removeprefix("/api").removeprefix("/v1").split("/")[1]
        assert f"/{name}" in PAGE, path


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
def test_an_encoder_service_is_used_as_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    steps = re.findall(r"^\$ (curl [^\n]*)$|```python\n(.*?)```", ENCODERS, flags=re.M | re.S)
    assert len(steps) == 4
    with serving(EmbeddedEncoder()) as url:
        for command, example in steps:
            exec(example, {})  # noqa: S102
            asked = command.replace("http://127.0.0.1:8765", url)
            subprocess.run(["/bin/sh", "-c", asked], check=True)
    assert '"name":"embedded"' in capfd.readouterr().out
    assert json.loads(Path("query.json").read_text())["vectors"]["shape"] == [7, 448]
    (page,) = json.loads(Path("vectors.json").read_text())["pages"]
    assert page["vectors"]["shape"] == [1, 448]
