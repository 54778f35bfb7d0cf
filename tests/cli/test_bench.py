"""``visar bench`` as typed: what it counts and writes. How fast anything is, is not tested."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.cli.typed import Visar

MakePdf = Callable[..., Path]
PAGES = (
    "Sailing boats need wind to leave the harbour.",
    "Income tax is due in April.\nThe rate is nineteen percent of profits.",
    "Lanterns carry a warranty of seven years.",
    "The cook serves herring with potatoes on Fridays.",
    "Pilots guide tankers through the narrow channel.",
)
METHODS = ["top-k", "visar", "visar-approx", "largest-gap", "score-cluster"]
FILES = [
    "bench.json",
    "bench.md",
    "latency-components.svg",
    "latency-size.svg",
    "latency-strategies.svg",
]


def test_a_file_is_measured_and_everything_is_saved(
    visar: Visar, make_pdf: MakePdf, tmp_path: Path
) -> None:
    out = tmp_path / "deep" / "out"
    path = make_pdf("notes.pdf", *PAGES)
    ran = visar("bench", path, "--rounds", "2", "--save", out, "--json")
    assert ran.code == 0
    measured = json.loads(ran.out)
    [document] = measured["documents"]
    assert (document["name"], document["pages"], len(document["k_star"])) == ("notes.pdf", 5, 3)
    assert list(document["timings"])[: len(METHODS)] == METHODS
    # Three questions in two rounds each.
    assert {timing["milliseconds"]["count"] for timing in document["timings"].values()} == {6}
    assert document["timings"]["top-k"]["ratio"] == 1
    # The shortcuts cut nothing from so short a document.
    assert document["same_pages"] == 3
    assert [part["pages"] for part in measured["sizes"]] == [1, 2, 4, 5]
    assert measured["sizes"][-1]["vectors"] == document["vectors"]

    assert sorted(file.name for file in out.iterdir()) == FILES
    assert json.loads((out / "bench.json").read_text(encoding="utf-8")) == measured
    for name in FILES[2:]:
        assert ET.parse(out / name).getroot().tag.endswith("svg")  # noqa: S314
    assert "| notes.pdf | 5 |" in (out / "bench.md").read_text(encoding="utf-8")


def test_a_custom_method_is_measured_with_the_others(visar: Visar, make_pdf: MakePdf) -> None:
    name = "tests.evaluation.plugin:three"
    path = make_pdf("notes.pdf", *PAGES)
    ran = visar("bench", path, "--rounds", "1", "--method", name, "--method", "single-vector")
    assert ran.code == 0, ran.err
    # A long name is broken where room is short.
    assert "n.plugin:three" in "".join(re.findall(r"^  ([\w.:]+)", ran.out, flags=re.M))
    measured = json.loads(visar("bench", path, "--rounds", "1", "--method", name, "--json").out)
    assert list(measured["overall"])[-1] == name
    refused = visar("bench", path, "--method", "oracle")
    assert refused.code == 2
    assert "oracle" in refused.err


def test_own_questions_find_the_same_pages_as_a_search(
    visar: Visar, make_pdf: MakePdf, tmp_path: Path
) -> None:
    questions = ["When is income tax due?", "How long is the warranty?"]
    asked = tmp_path / "questions.txt"
    asked.write_text("\n\n".join(questions) + "\n", encoding="utf-8")
    visar("add", make_pdf("notes.pdf", *PAGES), make_pdf("short.pdf", *PAGES[:2]))
    ran = visar("bench", "--doc", "notes.pdf", "--questions", asked, "--rounds", "1", "--json")
    [document] = json.loads(ran.out)["documents"]
    found = [
        json.loads(visar("search", question, "--doc", "notes.pdf", "--json").out)
        for question in questions
    ]
    assert document["k_star"] == [each["decision"]["k_star"] for each in found]


def test_the_whole_index_is_readable_in_a_terminal(visar: Visar, make_pdf: MakePdf) -> None:
    visar("add", make_pdf("notes.pdf", *PAGES), make_pdf("[b]2.pdf", *PAGES[:2]))
    ran = visar("bench", "--rounds", "1")
    assert ran.code == 0
    for expected in ("2 documents", "notes.pdf", "[b]2.pdf", "ViSAR (Approx.)", "same pages"):
        assert expected in ran.out
    assert ran.err == ""


def test_empty_first_pages_do_not_count_as_a_document_size(visar: Visar, make_pdf: MakePdf) -> None:
    path = make_pdf("covers.pdf", "", "", *PAGES[:2])
    ran = visar("bench", path, "--ocr", "never", "--rounds", "1", "--json")
    assert [part["pages"] for part in json.loads(ran.out)["sizes"]] == [3, 4]


def test_documents_that_cannot_be_measured_are_named(visar: Visar, make_pdf: MakePdf) -> None:
    visar("add", make_pdf("notes.pdf", *PAGES))
    visar("add", make_pdf("pooled.pdf", *PAGES[:2]), "--encoder", "embedded+pool2")
    visar("add", make_pdf("empty.pdf", "", ""), "--ocr", "never")
    measured = json.loads(visar("bench", "--rounds", "1", "--json").out)
    assert [document["name"] for document in measured["documents"]] == ["notes.pdf"]
    assert len(measured["notes"]) == 2
    assert "pooled.pdf" in measured["notes"][0]
    assert "empty.pdf" in measured["notes"][1]
    assert "pooled.pdf" in visar("bench", "--doc", "pooled.pdf").err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--questions", "missing.txt"], "missing.txt"),
        (["--questions", "{tmp}/empty.txt"], "empty.txt"),
        (["--questions", "{tmp}/latin.txt"], "latin.txt"),
        (["--save", "{tmp}/empty.txt"], "empty.txt"),
        (["--doc", "nothing"], "nothing"),
        (["--rounds", "0"], "--rounds"),
        (["missing.pdf"], "missing.pdf"),
    ],
)
def test_errors_are_reported_before_anything_is_measured(
    visar: Visar, make_pdf: MakePdf, tmp_path: Path, arguments: list[str], expected: str
) -> None:
    (tmp_path / "empty.txt").write_text(" \n", encoding="utf-8")
    (tmp_path / "latin.txt").write_bytes(b"Wie hei\xdft der Hafen?")
    visar("add", make_pdf("notes.pdf", *PAGES[:2]))
    ran = visar("bench", *(argument.format(tmp=tmp_path) for argument in arguments))
    assert (ran.code, ran.out) == (2, "")
    assert expected in ran.err.replace("\n", "")
    assert "Traceback" not in ran.err


def test_an_empty_index_is_not_measured(visar: Visar, make_pdf: MakePdf) -> None:
    visar("add", make_pdf("notes.pdf", *PAGES[:1]))
    visar("remove", "notes.pdf")
    ran = visar("bench")
    assert (ran.code, ran.out) == (2, "")
    assert "Traceback" not in ran.err


def test_ctrl_c_ends_it_without_a_traceback_or_half_a_result(
    visar: Visar, make_pdf: MakePdf, tmp_path: Path
) -> None:
    visar("add", make_pdf("notes.pdf", *PAGES))
    out = tmp_path / "out"
    command = [sys.executable, "-m", "visar", "bench", "--rounds", "1000000", "--save", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        while not out.exists() and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    # A shell says 130 of both: ended by itself, or by the signal on its way out.
    assert process.returncode in (130, -signal.SIGINT), errors
    assert output == ""
    assert "Traceback" not in errors
    assert list(out.iterdir()) == []


def test_without_matplotlib_saving_is_refused_and_the_extra_named(
    visar: Visar, make_pdf: MakePdf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    path = make_pdf("notes.pdf", *PAGES[:2])
    refused = visar("bench", path, "--save", tmp_path / "out")
    assert refused.code == 2
    assert "visar-rag[eval]" in refused.err
    assert visar("bench", path, "--rounds", "1").code == 0
