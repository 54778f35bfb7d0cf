"""Nothing a person does ends in a traceback, or sends a terminal what it would act upon."""

from __future__ import annotations

import errno
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.typed import Ran, Visar
from visar.errors import StoreError
from visar.ingest.batch import Batch

MakePdf = Callable[..., Path]
TAXES = "Income tax is due in April.\nThe rate is nineteen percent of profits."
BOATS = "Sailing boats need wind to leave the harbour."
QUESTION = "When is income tax due?"
VISAR = [sys.executable, "-m", "visar"]


@pytest.fixture
def notes(make_pdf: MakePdf) -> Path:
    return make_pdf("notes.pdf", BOATS, TAXES)


def test_a_question_of_256_bytes_is_longer_than_a_name_can_be(visar: Visar, notes: Path) -> None:
    for question in ("why" * 85 + "?", (QUESTION + " Please tell me." * 20)[:256]):
        assert len(question) == 256
        assert visar("ask", notes, question).code == 0


@pytest.mark.parametrize("option", [None, "--doc", "--index", "--encoder", "--generator", "--open"])
def test_a_name_of_300_characters_is_refused_in_one_line(
    visar: Visar, notes: Path, option: str | None
) -> None:
    name = "n" * 300
    ran = visar("ask", *([option, name, notes] if option else [f"{name}.pdf"]), QUESTION)
    assert (ran.code, ran.out) == (2, "")
    assert "nnn" in ran.err
    assert "Traceback" not in ran.err


def test_a_document_without_text_is_added_with_a_warning(visar: Visar, make_pdf: MakePdf) -> None:
    blank, notes = make_pdf("blank.pdf", ""), make_pdf("notes.pdf", TAXES)
    ran = visar("add", blank, notes)
    assert ran.code == 0
    (warning,) = [line for line in ran.err.splitlines() if "text" in line]
    assert "blank.pdf" in warning
    assert [one["no_text"] for one in json.loads(visar("list", "--json").out)] == [True, False]
    ran = visar("ask", blank, QUESTION)
    assert "text" in ran.err
    assert re.search(r"blank\.pdf.* text", ran.out)


HOSTILE = os.fsdecode(b"tax\xff\x1b]0;owned\x07\x1b[31m.pdf")


def test_file_names_cannot_control_the_terminal(visar: Visar, notes: Path, tmp_path: Path) -> None:
    there, missing = notes.rename(tmp_path / HOSTILE), tmp_path / f"missing-{HOSTILE}"
    folder = tmp_path / f"pages-{HOSTILE}"
    copy = shutil.copy(there, tmp_path / f"copy-{HOSTILE}")
    for code, arguments in (
        (1, ("add", there, missing, copy)),
        (1, ("add", there, missing, "--json")),
        (0, ("list",)),
        (0, ("search", there, QUESTION, "--open", folder)),
        (2, ("show", missing)),
        (2, ("show", there, missing)),
        (2, ("list", "--index", missing)),
        (2, ("ask", QUESTION, "--encoder", missing)),
        (2, (missing,)),
    ):
        ran = visar(*arguments)
        assert ran.code == code, ran
        shown = ran.out + ran.err
        assert "tax" in shown
        assert all(character.isprintable() or character == "\n" for character in shown), arguments


def test_pages_cannot_be_saved_in_a_file(visar: Visar, notes: Path) -> None:
    ran = visar("ask", notes, QUESTION, "--open", notes / "pages")
    assert (ran.code, ran.out) == (2, "")
    assert str(notes / "pages") in ran.err


@pytest.mark.parametrize("command", [["list"], ["list", "--json"], ["--help"], ["search", "tax?"]])
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_reported_in_one_line(visar: Visar, notes: Path, command: list[str]) -> None:
    visar("add", notes)
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [*VISAR, *command], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert ran.returncode == 1
    assert len(ran.stderr.splitlines()) == 1
    assert os.strerror(errno.ENOSPC) in ran.stderr


def test_output_is_adapted_to_a_terminal_without_unicode(
    visar: Visar, notes: Path, tmp_path: Path
) -> None:
    umlaut = notes.rename(tmp_path / "Gebühren.pdf")
    visar("add", umlaut)
    shown, plain = (
        subprocess.run(
            [*VISAR, "ask", QUESTION, *options],
            env={**os.environ, "PYTHONIOENCODING": "ascii"},
            capture_output=True,
            check=True,
        ).stdout
        for options in ([], ["--json"])
    )
    assert b"Income tax is due in April." in shown
    assert json.loads(plain.decode("ascii"))["search"]["documents"][0]["name"] == "Gebühren.pdf"


def test_closed_streams_are_not_an_error(visar: Visar, notes: Path) -> None:
    visar("add", notes)
    command = 'exec "$@" <&- >&- 2>&-'
    for arguments in (["list"], ["list", "--json"]):
        ran = subprocess.run(["sh", "-c", command, "sh", *VISAR, *arguments], check=False)  # noqa: S607
        assert ran.returncode == 0


# Stands between the program and a module: says that it is being imported, and takes its time.
SLOW_IMPORT = """
import sys, time

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.stdout.write("importing\\n")
            sys.stdout.flush()
            time.sleep(60)

sys.meta_path.insert(0, Slow())
"""


@pytest.mark.parametrize(
    "module", ["visar.cli.app", "typer", "visar.index", "numpy", "onnxruntime"]
)
def test_ctrl_c_during_imports_exits_with_130(
    visar: Visar, notes: Path, tmp_path: Path, module: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(SLOW_IMPORT.format(module=module))
    visar("add", notes)
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    process = subprocess.Popen(
        [*VISAR, "ask", QUESTION, "--open", str(tmp_path / "pages")],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (130, "")
    assert errors.startswith("visar: interrupted")
    assert errors.count("\n") == 1


def test_ctrl_c_during_add_keeps_finished_documents(
    visar: Visar, notes: Path, report: Path
) -> None:
    process = subprocess.Popen(
        [*VISAR, "add", str(notes), str(report)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    while report.name not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "notes.pdf" in output
    assert report.name not in output
    assert "interrupted" in errors
    assert "Traceback" not in errors
    assert "notes.pdf" in visar("list").out


def test_an_index_removed_under_a_chat_ends_it(visar: Visar, notes: Path, tmp_path: Path) -> None:
    visar("add", notes)
    process = subprocess.Popen(
        [*VISAR, "chat", "--json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{QUESTION}\n")
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["search"]["query"]["question"] == QUESTION
    shutil.rmtree(tmp_path / "index")
    output, errors = process.communicate(f"{QUESTION}\n", timeout=60)
    assert (process.returncode, output) == (2, "")
    assert errors.startswith("visar: ")
    assert str(tmp_path / "index") in errors
    assert "Traceback" not in errors


def test_questions_in_another_encoding_do_not_end_a_chat(visar: Visar, notes: Path) -> None:
    visar("add", notes)
    typed = f"Wann ist die Steuer fällig?\n{QUESTION}\n".encode("latin-1")
    ran = subprocess.run([*VISAR, "chat", "--json"], input=typed, capture_output=True, check=True)
    assert len(ran.stdout.splitlines()) == 2


def test_added_documents_are_listed_even_if_the_index_fails_later(
    visar: Visar, make_pdf: MakePdf, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = make_pdf("first.pdf", BOATS), make_pdf("second.pdf", TAXES)
    add = Batch.add_locally

    def fail_with_second(self: Batch, path: Path, *options: Any, **named: Any) -> object:
        if path == second:
            raise StoreError("the disk is full")
        return add(self, path, *options, **named)

    monkeypatch.setattr(Batch, "add_locally", fail_with_second)
    ran = visar("add", first, "missing.pdf", second)
    assert ran.code == 2
    assert "first.pdf" in ran.out
    assert "missing.pdf" in ran.err
    assert "the disk is full" in ran.err
    listed = json.loads(visar("add", first, second, "--json").out)
    assert [document["name"] for document in listed["added"]] == ["first.pdf"]


def at_a_terminal(command: list[str], typed: bytes) -> tuple[int, bytes]:
    """Run a command whose stdin is a terminal; what it printed."""
    mine, its = pty.openpty()
    try:
        with subprocess.Popen(
            command, stdin=its, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as process:
            os.write(mine, typed)
            out, _ = process.communicate(timeout=120)
    finally:
        os.close(mine)
        os.close(its)
    return process.returncode, out


@pytest.mark.usefixtures("visar")
def test_a_terminal_prompts_for_a_missing_question(notes: Path) -> None:
    code, out = at_a_terminal([*VISAR, "ask", str(notes)], f"{QUESTION}\n".encode())
    assert code == 0
    assert b"Income tax is due in April." in out
    code, out = at_a_terminal([*VISAR, "ask", str(notes)], b"\x04")
    assert code == 1
    assert b"Traceback" not in out


def asked(ran: Ran) -> tuple[str, list[str]]:
    found = json.loads(ran.out)
    return found["query"]["question"], [document["name"] for document in found["documents"]]


def test_a_question_without_quotes_is_understood(
    visar: Visar, notes: Path, make_pdf: MakePdf, monkeypatch: pytest.MonkeyPatch
) -> None:
    visar("add", make_pdf("boats.pdf", BOATS))
    words = ["When", "is", "the", "income", "and/or", "tax", "due?"]
    found = visar("search", notes, *words, "--json")
    assert asked(found) == (" ".join(words), ["notes.pdf"])
    assert asked(visar("search", *words, "--json"))[1] == ["boats.pdf", "notes.pdf"]
    # A word of it that is a file, too: whether it is meant cannot be known.
    monkeypatch.chdir(notes.parent)
    refused = visar("search", "What", "is", "in", "notes.pdf")
    assert refused.code == 2
    assert "notes.pdf" in refused.err


def test_a_missing_file_is_not_part_of_the_question(visar: Visar, notes: Path) -> None:
    for words in (["missing.pdf", "Why?"], ["missing", QUESTION], ["gone/away", "Why?"]):
        ran = visar("search", notes, *words, "--json")
        assert asked(ran) == (words[-1], ["notes.pdf"])
        assert words[0] in ran.err
    ran = visar("ask", "missing.pdf")
    assert ran.code == 2
    assert "visar ask" in ran.err


def test_the_nearest_document_is_suggested(visar: Visar, notes: Path) -> None:
    visar("add", notes)
    for arguments in (["show", "note.pdf"], ["ask", QUESTION, "--doc", "nodes.pdf"]):
        ran = visar(*arguments)
        assert ran.code == 2
        assert suggests(ran, "notes.pdf")


def suggests(ran: Ran, name: str) -> bool:
    """Return whether an error asks if a name was meant."""
    return re.search(rf"\b{re.escape(name)}\b\W?\?", ran.err) is not None


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["aks", QUESTION], "ask"),
        (["ask", QUESTION, "--method", "visra"], "visar"),
        (["ask", QUESTION, "--encoder", "embeded"], "embedded"),
        (["ask", QUESTION, "--generator", "extractiv"], "extractive"),
    ],
)
def test_the_nearest_name_is_suggested(
    visar: Visar, notes: Path, arguments: list[str], name: str
) -> None:
    visar("add", notes)
    ran = visar(*arguments)
    assert ran.code == 2
    assert suggests(ran, name)


def test_the_same_content_keeps_its_first_name_as_long_as_that_file_is_there(
    visar: Visar, notes: Path, tmp_path: Path
) -> None:
    visar("add", notes)
    copy = tmp_path / "copy.pdf"
    copy.write_bytes(notes.read_bytes())
    for command in (("add",), ("search",)):
        ran = visar(*command, copy, *([QUESTION] if command == ("search",) else []))
        assert ran.code == 0
        (note,) = [line for line in ran.err.splitlines() if str(copy) in line]
        assert "notes.pdf" in note
    assert "copy.pdf" not in visar("list").out
    # Another file is in its place now: the document has moved.
    notes.write_bytes(b"something else")
    assert "notes.pdf" not in visar("add", copy).err
    listed = json.loads(visar("list", "--json").out)
    assert [document["name"] for document in listed] == ["copy.pdf"]


def test_a_table_in_a_pipe_is_not_cut(visar: Visar, notes: Path, tmp_path: Path) -> None:
    name = "annual-report-" * 15 + ".pdf"
    visar("add", notes.rename(tmp_path / name))
    lines = visar("list").out.splitlines()
    assert len(lines) == 2
    assert lines[1].endswith(name)
    assert all(
        "→" not in line or line.startswith(("col", "edge-col"))
        for line in visar("encoders").out.splitlines()
    )


@pytest.mark.parametrize("bare", [False, True])
def test_doctor_fits_on_a_screen(visar: Visar, monkeypatch: pytest.MonkeyPatch, bare: bool) -> None:
    """With everything installed, and without any optional part."""
    if bare:
        optional = {"openai", "torch", "torchvision", "transformers", "colpali_engine", "rapidocr"}
        for name in optional | {"sklearn", "sentence_transformers", "peft"}:
            monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.setattr(shutil, "which", lambda _: None)
    lines = visar("doctor").out.splitlines()
    assert sum(max(1, -(-len(line) // 80)) for line in lines) <= 24
