"""``visar encoders`` as typed, and an encoder served by one process and used by another."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from visar.cli import main
from visar.encoders import registry
from visar.encoders.records import RECORDS, EncoderRecord

TOKEN = "correct-horse-battery-staple"  # noqa: S105


@pytest.fixture
def visar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., tuple[int, str, str]]:
    """Type a command: its exit code, what it wrote and what it complained of."""
    monkeypatch.setenv("VISAR_INDEX", str(tmp_path / "index"))
    monkeypatch.delenv("VISAR_TOKEN", raising=False)

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["visar", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run


Visar = Callable[..., tuple[int, str, str]]


def test_every_encoder_is_listed_with_its_state(
    visar: Visar, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = visar("encoders")
    assert code == 0
    assert re.search(r"^embedded +ready +22 M, 21 MB +209, 188 KB +text", out, re.MULTILINE)
    table = out.split("\n\n")[0].splitlines()
    assert len(table) == 1 + len(RECORDS), "a line each"
    assert max(map(len, table)) <= 80, "in any terminal"
    assert re.search(r"^colpali .* 3 B, 6 GB +1030, 264 KB +charts", out, re.MULTILINE)
    listed = json.loads(visar("encoders", "--json")[1])
    known = registry.available_encoders()
    assert [entry["name"] for entry in listed] == [info.name for info in known]
    facts = {"dimension", "reads", "install", "description", "ready", "state", "size", "vectors"}
    assert facts | {"parameters", "download", "page_bytes", "repository"} <= listed[0].keys()
    assert not {"factory", "model_class"} & listed[0].keys()
    assert listed[0]["ready"] is True


def test_missing_parts_are_listed_with_their_install_command(
    visar: Visar, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EncoderRecord, "missing", ["something"])
    _, out, _ = visar("encoders")
    assert "missing" in out
    assert "pip install visar-rag" in " ".join(out.split())
    assert json.loads(visar("encoders", "--json")[1])[0]["ready"] is False


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["serve", "colpalli"], "There is no encoder 'colpalli'"),
        (["serve"], "Missing argument"),
        (["export", "embedded"], "ColModernVBERT"),
        (["export", "colpalli"], "There is no encoder 'colpalli'"),
        (["serve", "embedded", "--port", "70000"], "--port"),
        (["serve", "embedded", "--host", "0.0.0.0"], "VISAR_TOKEN"),  # noqa: S104
        (["serve", "embedded", "--host", "192.0.2.7", "--port", "0"], "VISAR_TOKEN"),
        (["frobnicate"], "No such command"),
    ],
)
def test_errors_name_the_option_or_file(visar: Visar, arguments: list[str], expected: str) -> None:
    code, out, err = visar("encoders", *arguments)
    assert code == 2
    assert out == ""
    assert expected in err
    assert "Traceback" not in err


def test_an_unreachable_encoder_is_an_error(visar: Visar, make_pdf: Callable[..., Path]) -> None:
    path = make_pdf("tax.pdf", "Income tax is due in April.")
    code, _, err = visar("ask", path, "When?", "--encoder", "http://127.0.0.1:1")
    assert code == 2
    assert "visar encoders serve" in err


def test_an_encoder_is_exported_and_adds_documents(
    visar: Visar,
    checkpoint: Callable[[str], Path],
    make_pdf: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = visar("encoders", "export", f"colmodernvbert={checkpoint('colmodernvbert')}")
    assert code == 0
    assert "--encoder colmodernvbert-int8" in out
    path = make_pdf("tax.pdf", "Income tax is due in April.")
    code, _, _ = visar("add", path, "--encoder", "colmodernvbert-int8")
    assert code == 0
    (document,) = json.loads(visar("list", "--json")[1])
    assert [one["name"] for one in document["encoders"]] == ["colmodernvbert-int8"]
    code, _, err = visar("encoders", "export", str(checkpoint("colsmol")), "--to", tmp_path)
    assert code == 2
    assert "--to" in err


HIDDEN = """
import sys
sys.modules[sys.argv.pop(1)] = None  # as if it were not installed
from visar.cli import main
main()
"""


@pytest.mark.parametrize("package", ["fastapi", "uvicorn"])
def test_a_missing_server_package_is_named(package: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", HIDDEN, package, "encoders", "serve", "embedded"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert "pip install 'visar-rag[server]'" in ran.stderr
    assert "Traceback" not in ran.stderr


IMPORTED = """
import sys
from visar.cli import main
try:
    main()
finally:
    print("imported:", *sys.modules, file=sys.stderr)
"""


def test_local_questions_do_not_load_the_http_client(
    make_pdf: Callable[..., Path], tmp_path: Path
) -> None:
    path = make_pdf("notes.pdf", "Boats need wind.", "Income tax is due in April.")
    ran = subprocess.run(
        [sys.executable, "-c", IMPORTED, "ask", path, "When is tax due?"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "VISAR_INDEX": str(tmp_path / "index")},
    )
    assert "April" in ran.stdout
    modules = set(ran.stderr.rpartition("imported:")[2].split())
    assert "visar.index" in modules
    assert not modules & {"httpx2", "safetensors", "fastapi", "uvicorn", "pydantic"}


class Served:
    """An encoder in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """End it by its id: its exit code, and what it logged."""
        os.kill(self.process.pid, number)
        _, log = self.process.communicate(timeout=30)
        return self.process.returncode, log


@pytest.fixture
def served() -> Iterator[Served]:
    process = subprocess.Popen(
        [sys.executable, "-m", "visar", "encoders", "serve", "embedded", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "VISAR_TOKEN": TOKEN},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"\bembedded \S+ at (http://127\.0\.0\.1:\d+)$", line)
        assert found, line
        yield Served(process, found[1])
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_one_process_encodes_for_another(
    served: Served, visar: Visar, make_pdf: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_pdf("notes.pdf", "Boats need wind.", "Income tax is due in April.")
    code, _, err = visar("ask", path, "When is tax due?", "--encoder", served.url)
    assert code == 2
    assert "VISAR_TOKEN" in err
    monkeypatch.setenv("VISAR_TOKEN", TOKEN)
    code, out, _ = visar("ask", path, "When is tax due?", "--encoder", served.url)
    assert code == 0
    assert "Income tax is due in April." in out
    ended, log = served.end(signal.SIGTERM)
    assert ended == 0
    assert "POST /v1/pages" in log
    assert "Traceback" not in log
    assert TOKEN not in log
    # What was encoded there is asked about here.
    code, out, _ = visar("ask", "When is tax due?")
    assert code == 0
    assert "Income tax is due in April." in out


def test_ctrl_c_stops_it(served: Served) -> None:
    ended, log = served.end(signal.SIGINT)
    assert ended == 0
    assert "Traceback" not in log
