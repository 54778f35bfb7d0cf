"""The commands as typed: what they print, where, and with which exit code."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pikepdf
import pytest

from tests.cli.typed import Visar
from tests.conftest import damage_page
from visar.core.baselines import Choice
from visar.documents.sandbox import detect_sandbox
from visar.index import Index
from visar.retrieval.methods import ScoredPages

MakePdf = Callable[..., Path]
TAXES = "Income tax is due in April.\nThe rate is nineteen percent of profits."
BOATS = "Sailing boats need wind to leave the harbour."


def test_ask_answers_from_a_file_and_adds_it_to_the_index(visar: Visar, make_pdf: MakePdf) -> None:
    path = make_pdf("notes.pdf", BOATS, TAXES)
    asked = visar("ask", path, "When is income tax due?")
    assert asked.code == 0
    assert "Income tax is due in April." in asked.out
    assert "of 2 pages" in asked.out
    assert "k* = " not in asked.out
    listed = json.loads(visar("list", "--json").out)
    assert [document["name"] for document in listed] == ["notes.pdf"]


def test_why_shows_the_numbers(visar: Visar, make_pdf: MakePdf) -> None:
    path = make_pdf("notes.pdf", BOATS, TAXES, BOATS)
    shown = visar("ask", path, "When is income tax due?", "--why").out
    for number in ("PROBABILITY", "s_p", "LATE INTERACTION", "k* = ", "J(1) = ", "sparsity"):
        assert number in shown
    assert "--why" in visar("search", "When is income tax due?").out


def test_the_numbers_printed_on_pages_are_shown(
    visar: Visar, make_pdf: MakePdf, tmp_path: Path
) -> None:
    path = tmp_path / "preface.pdf"
    with pikepdf.open(make_pdf("notes.pdf", BOATS, TAXES)) as pdf:
        roman = pikepdf.Dictionary(S=pikepdf.Name.r)
        pdf.Root.PageLabels = pikepdf.Dictionary(Nums=pikepdf.Array([0, roman]))
        pdf.save(path)
    found = json.loads(visar("search", path, "When is income tax due?", "--json").out)
    assert [(hit["page"], hit["label"]) for hit in found["pages"]] == [(2, "ii")]
    shown = visar("search", "When is income tax due?").out.splitlines()
    assert shown[0].split()[:2] == ["PAGE", "PRINTED"]
    assert shown[1].split()[:2] == ["2", "ii"]


def test_ten_pages_are_shown_and_the_others_counted(visar: Visar, make_pdf: MakePdf) -> None:
    pages = [f"{town} has sailing boats." for town in ("Oban", "Leith", "Wick", "Ayr") * 3]
    asked = ("search", make_pdf("towns.pdf", *pages), "Which towns have sailing boats?")
    shown = visar(*asked, "--method", "top-k", "--k", "12").out
    assert len([line for line in shown.splitlines() if "has sailing boats" in line]) == 10
    assert "2 more" in shown
    assert "12 of 12 pages" in shown
    found = json.loads(visar(*asked, "--method", "top-k", "--k", "12", "--json").out)
    assert len(found["pages"]) == 12


def test_the_other_first_page_is_shown_as_runner_up(visar: Visar, make_pdf: MakePdf) -> None:
    path = make_pdf("notes.pdf", BOATS, TAXES, TAXES.replace("Income tax", "Harbour dues"))
    method = ("--method", "tests.cli.test_commands:last_page")
    found = json.loads(visar("search", path, "When is income tax due?", *method, "--json").out)
    assert [hit["page"] for hit in found["pages"]] == [3]
    assert found["runner_up"]["page"] == 2
    shown = visar("search", "When is income tax due?", *method).out
    assert "Income tax is due in April." in shown
    assert json.loads(visar("search", "When is income tax due?", "--json").out)["runner_up"] is None


def last_page(pages: ScoredPages) -> Choice:
    """Choose the page that neither ranking puts first."""
    return Choice(1, np.array([len(pages) - 1]))


def test_an_encoder_is_pooled_by_its_name(visar: Visar, make_pdf: MakePdf) -> None:
    path = make_pdf("notes.pdf", BOATS, TAXES)
    pooled = ("--encoder", "embedded+pool2")
    assert visar("add", path, *pooled).code == 0
    asked = visar("ask", "When is income tax due?", *pooled)
    assert asked.code == 0
    assert "Income tax is due in April." in asked.out
    found = json.loads(visar("search", "When is income tax due?", *pooled, "--json").out)
    assert found["encoder"]["name"] == "embedded+pool2"
    refused = visar("ask", "When is income tax due?", "--encoder", "embedded+pool1")
    assert refused.code == 2
    assert "+pool1" in refused.err


def test_a_damaged_page_is_named_and_the_others_are_searched(
    visar: Visar, make_pdf: MakePdf
) -> None:
    path = damage_page(make_pdf("sea.pdf", "The tower is green.", "The sea is blue.", ""), 2)
    asked = visar("ask", path, "Which color does the tower have?")
    assert "The tower is green." in asked.out
    for output in (asked.err, asked.out, visar("show", "sea.pdf").out):
        assert "page 2" in output.lower()
    (page,) = json.loads(visar("show", "sea.pdf", "--json").out)["invalid"]
    assert page["number"] == 2


def test_every_command_prints_json(visar: Visar, make_pdf: MakePdf) -> None:
    path = make_pdf("notes.pdf", BOATS, TAXES)
    added = json.loads(visar("add", path, "--json").out)
    assert added["refused"] == []
    identity = added["added"][0]["id"]
    assert json.loads(visar("ask", "tax?", "--json").out)["search"]["pages"][0]["page"] == 2
    assert json.loads(visar("search", "tax?", "--json").out)["k"] >= 1
    assert json.loads(visar("list", "--json").out)[0]["id"] == identity
    assert json.loads(visar("show", identity[:6], "--json").out)["pages"] == 2
    assert json.loads(visar("verify", "--json").out) == []
    assert "pages" in json.loads(visar("compact", "--json").out)
    assert json.loads(visar("doctor", "--json").out)["documents"] == 1
    assert json.loads(visar("remove", "notes.pdf", "--json").out)["id"] == identity
    assert json.loads(visar("list", "--json").out) == []


def test_verify_names_damaged_documents(visar: Visar, make_pdf: MakePdf, tmp_path: Path) -> None:
    index = tmp_path / "damaged"
    visar("add", make_pdf("notes.pdf", BOATS, TAXES), "--index", index)
    vectors = next(index.rglob("*.vectors.npy"))
    content = bytearray(vectors.read_bytes())
    content[-1] ^= 0xFF
    vectors.write_bytes(content)
    ran = visar("verify", "--index", index)
    assert ran.code == 1
    assert "notes.pdf" in ran.out


def test_doctor_says_which_sandbox_the_system_supports(visar: Visar) -> None:
    found = detect_sandbox()
    assert json.loads(visar("doctor", "--json").out)["sandbox"] == asdict(found)
    (line,) = [line for line in visar("doctor").out.splitlines() if line.startswith("sandbox")]
    assert line.split()[1].rstrip(":") == ("off", "partly", "on")[found.files + found.calls]


def test_text_output_shows_the_essentials(visar: Visar, make_pdf: MakePdf) -> None:
    visar("add", make_pdf("notes.pdf", BOATS, TAXES))
    assert "notes.pdf" in visar("list").out
    assert "2" in visar("show", "notes.pdf").out
    assert "1 document" in visar("verify").out
    assert "0 pages" in visar("compact").out
    assert re.search(r"^encoders +ready\b", visar("doctor").out, re.MULTILINE)
    assert "notes.pdf" in visar("remove", "notes.pdf").out
    assert "visar add" in visar("list").out


def test_names_are_printed_unchanged(visar: Visar, make_pdf: MakePdf) -> None:
    """Square brackets in a name are no commands to the terminal's library."""
    name = "[red]notes[bold].pdf"
    assert name in visar("add", make_pdf(name, BOATS, TAXES)).out
    assert name in visar("list").out
    assert name in visar("show", name).out
    assert name in visar("remove", name).out


def test_open_writes_the_pages_with_heat(visar: Visar, make_pdf: MakePdf, tmp_path: Path) -> None:
    ran = visar(
        "ask", make_pdf("notes.pdf", BOATS, TAXES), "When is tax due?", "--open", tmp_path / "out"
    )
    written = list((tmp_path / "out").glob("*.png"))
    assert written
    assert str(written[0]) in ran.out


def test_an_encrypted_file_asks_for_its_password(
    visar: Visar, make_pdf: MakePdf, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.pdf"
    with pikepdf.open(make_pdf("open.pdf", TAXES)) as pdf:
        pdf.save(secret, encryption=pikepdf.Encryption(user="sesame", owner="owner"))
    refused = visar("ask", secret, "When is tax due?")
    assert refused.code == 2
    assert "--password" in refused.err
    assert "Traceback" not in refused.err
    assert visar("ask", secret, "When is tax due?", "--password", "sesame").code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["ask", "missing.pdf", "question?"], 2, "missing.pdf"),
        (["ask", "question?"], 2, "index"),
        (["ask", "  "], 2, "visar ask"),
        (["show", "nothing"], 2, "index"),
        (["ask"], 2, "visar ask"),
        (["show"], 2, "DOCUMENT"),
        (["frobnicate"], 2, "frobnicate"),
        (["ask", "question?", "--max-k", "0"], 2, "--max-k"),
    ],
)
def test_errors_go_to_stderr_without_a_traceback(
    visar: Visar, arguments: list[str], code: int, expected: str
) -> None:
    ran = visar(*arguments)
    assert ran.code == code
    assert ran.out == ""
    assert expected in ran.err
    assert "Traceback" not in ran.err


def test_the_question_comes_last(visar: Visar, make_pdf: MakePdf) -> None:
    path = make_pdf("notes.pdf", TAXES)
    ran = visar("ask", "When?", path)
    assert (ran.code, ran.out) == (2, "")
    assert path.name in ran.err


def test_a_batch_reports_refused_files(visar: Visar, make_pdf: MakePdf, tmp_path: Path) -> None:
    bad = tmp_path / "bad.pdf"
    bad.write_bytes(b"nothing like a PDF")
    ran = visar("add", make_pdf("good.pdf", TAXES), bad)
    assert ran.code == 1
    assert "good.pdf" in ran.out
    assert "bad.pdf" in ran.err
    assert "1 of 2" in ran.err


def test_ctrl_c_prints_one_word_and_no_traceback(
    visar: Visar, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Index, "open", interrupted)
    ran = visar("list")
    assert (ran.code, ran.out) == (130, "")
    assert "interrupted" in ran.err
    assert "Traceback" not in ran.err


def test_k_needs_a_method_with_a_fixed_number(visar: Visar, make_pdf: MakePdf) -> None:
    visar("add", make_pdf("notes.pdf", BOATS))
    ran = visar("ask", "--k", "3", "Where are the boats?")
    assert (ran.code, ran.out) == (2, "")
    assert "--method top-k" in ran.err
    assert "--max-k" in ran.err


def test_listing_an_unknown_collection_is_an_error(visar: Visar, make_pdf: MakePdf) -> None:
    visar("add", make_pdf("notes.pdf", BOATS), "--collection", "boats")
    ran = visar("list", "--collection", "bots")
    assert (ran.code, ran.out) == (2, "")
    assert "'bots'" in ran.err
    assert "boats" in ran.err
    # A filter that matches nothing isn't an error.
    assert visar("list", "--collection", "boats", "--where", "year = 1").code == 0


def test_a_question_longer_than_a_file_name_is_a_question(visar: Visar, make_pdf: MakePdf) -> None:
    path = make_pdf("notes.pdf", BOATS, TAXES)
    question = "When is income tax due, " + "and why, " * 60 + "please?"
    asked = visar("ask", path, question)
    assert asked.code == 0, asked.err
    assert "Income tax is due in April." in asked.out


def test_an_index_in_object_storage_creates_no_local_folder(
    visar: Visar, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, empty_bucket: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in (["--index", "s3://bucket/prefix"], []):
        monkeypatch.setenv("VISAR_INDEX", "s3://bucket/prefix")
        listed = visar("list", *arguments)
        assert listed.code == 2
        assert "s3://bucket/prefix" in listed.err
    assert any("bucket" in path for path in empty_bucket)
    assert not list(tmp_path.glob("s3:*"))


def test_the_same_document_as_file_and_by_name_is_asked_once(
    visar: Visar, make_pdf: MakePdf
) -> None:
    path = make_pdf("notes.pdf", BOATS, TAXES)
    found = json.loads(visar("search", path, "tax?", "--doc", "notes.pdf", "--json").out)
    assert found["pages_searched"] == 2


def test_a_missing_path_does_not_stop_the_others(visar: Visar, make_pdf: MakePdf) -> None:
    first, last = make_pdf("first.pdf", BOATS), make_pdf("last.pdf", TAXES)
    added = visar("add", first, "missing.pdf", last)
    assert added.code == 1
    assert "missing.pdf" in added.err
    listed = json.loads(visar("list", "--json").out)
    assert [document["name"] for document in listed] == ["first.pdf", "last.pdf"]
