"""``--server URL``: the same commands, on an index behind a server."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from tests.cli.typed import Visar
from tests.conftest import write_pdf
from tests.server.conftest import encrypt
from tests.server.service import serving
from visar.index import Index
from visar.server import Settings

MakePdf = Callable[..., Path]
QUESTION = "When is income tax due?"
# Other in every run: times, and where the index is.
MEASURED = ("seconds", "timings", "summary", "source", "trace")
TIMES = re.compile(r"[\d.]+ m?s\b")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with two documents, for questions."""
    folder = tmp_path_factory.mktemp("theirs")
    pages = ("Boats need wind.", "Income tax is due in April.", "Nets are mended in winter.")
    with Index.open(folder / "index") as index:
        for name in ("book.pdf", "letter.pdf"):
            path = write_pdf(folder / name, *pages, f"This is the {name}.")
            index.add(path, collection=Path(name).stem)
    return folder / "index"


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[str]:
    with Index.open(folder) as index, serving(index) as address:
        yield address


@pytest.fixture
def empty_server(tmp_path: Path) -> Iterator[str]:
    with Index.open(tmp_path / "empty") as index, serving(index) as address:
        yield address


def test_a_token_that_reads_can_chat(
    visar: Visar, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Follow-ups work, but nothing is saved."""
    with Index.open(folder) as index, serving(index, Settings(token="x" * 16)) as address:
        token, secret = index.tokens.create("read", collection="letter")
        monkeypatch.setenv("VISAR_TOKEN", secret)
        ran = visar("chat", "--server", address, "--json", typed=f"{QUESTION}\nAnd in winter?\n")
        assert ran.code == 0
        assert "save" in ran.err
        answers = [json.loads(line) for line in ran.out.splitlines()]
        assert len(answers) == 2
        assert {hit["name"] for one in answers for hit in one["search"]["pages"]} == {"letter.pdf"}
        assert visar("add", __file__, "--server", address).code == 2
        assert index.threads() == []
        index.tokens.revoke(token.id)


def unmeasured(value: Any) -> Any:
    """A result without what differs between two runs."""
    if isinstance(value, dict):
        return {key: unmeasured(one) for key, one in value.items() if key not in MEASURED}
    return [unmeasured(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    "command",
    [
        ["ask", QUESTION],
        ["ask", QUESTION, "--doc", "letter.pdf", "--why", "--max-k", "1"],
        ["ask", "Which vaccines are there?"],
        ["search", QUESTION, "--collection", "book", "--neighbors", "1"],
        ["search", QUESTION, "--method", "top-k", "--k", "3", "--exact"],
        ["explain", QUESTION],
        ["list", "--collection", "book"],
    ],
)
def test_a_server_returns_the_results_of_its_index(
    visar: Visar, folder: Path, server: str, command: list[str]
) -> None:
    here, there = visar(*command, "--index", folder), visar(*command, "--server", server)
    assert (there.code, there.err) == (0, "")
    assert TIMES.sub("", there.out) == TIMES.sub("", here.out)
    here, there = (
        visar(*command, "--json", *place) for place in (("--index", folder), ("--server", server))
    )
    mine, theirs = (unmeasured(json.loads(ran.out)) for ran in (here, there))
    # The server's default encoder has its name here.
    text = json.dumps(mine).replace('"encoder": "embedded"', '"encoder": null')
    assert json.loads(text) == theirs


def test_pages_and_reports_are_saved(visar: Visar, server: str, tmp_path: Path) -> None:
    asked = visar(
        "ask", QUESTION, "--server", server, "--doc", "book.pdf", "--open", tmp_path / "a"
    )
    assert asked.code == 0, asked.err
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["01-book-page-2.png"]
    saved = ("--out", tmp_path / "report.html", "--png", tmp_path / "b")
    explained = visar(
        "explain", QUESTION, "--server", server, "--doc", "book.pdf", *saved, "--json"
    )
    assert explained.code == 0, explained.err
    written = [Path(path) for path in json.loads(explained.out)["written"]]
    assert [path.name for path in written] == [
        "report.html",
        "activity.png",
        "similarity.png",
        "cost.png",
        "01-book-page-2.png",
    ]
    assert all(path.stat().st_size > 1000 for path in written)


def test_a_chat_asks_the_server(visar: Visar, server: str) -> None:
    ran = visar("chat", "--server", server, "--json", typed=f"{QUESTION}\nWhat do boats need?\n")
    assert ran.code == 0, ran.err
    answers = [json.loads(line) for line in ran.out.splitlines()]
    assert [answer["search"]["pages"][0]["page"] for answer in answers] == [2, 1]


@pytest.mark.parametrize(
    "command",
    [
        ["ask", QUESTION, "--device", "cpu"],
        ["ask", QUESTION, "--ocr", "never"],
        ["ask", QUESTION, "--ocr-engine", "tesseract"],
        ["ask", QUESTION, "--base-url", "http://127.0.0.1:1/v1"],
        ["ask", QUESTION, "--send-tokens", "100"],
        ["ask", QUESTION, "--send-megapixels", "1"],
        ["ask", QUESTION, "--password", "sesame"],
        ["search", "--image", "chart.png"],
        ["explain", QUESTION, "--device", "cpu"],
        ["chat", "--ocr", "never"],
        ["add", "notes.pdf", "--max-pages", "3"],
        ["add", "notes.pdf", "--max-megabytes", "3"],
        ["add", "notes.pdf", "--max-megapixels", "3"],
        ["add", "notes.pdf", "--seconds-per-page", "3"],
        ["add", "notes.pdf", "--ray", "auto"],
        ["list", "--storage-option", "aws_region=eu-west-1"],
        ["list", "--index", "elsewhere"],
    ],
)
def test_an_option_that_a_server_cannot_honor_is_refused(
    visar: Visar, server: str, command: list[str]
) -> None:
    ran = visar(*command, "--server", server)
    assert (ran.code, ran.out) == (2, "")
    assert command[-2] in ran.err


def test_names_that_the_server_does_not_have_are_refused(visar: Visar, server: str) -> None:
    for option in ("--encoder", "--generator", "--method", "--doc", "--collection"):
        ran = visar("ask", QUESTION, option, "no-such", "--server", server)
        assert (ran.code, ran.out) == (2, ""), option
        assert "no-such" in ran.err


def test_environment_variables_apply_only_where_they_belong(
    visar: Visar, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    assert visar("search", QUESTION, "--server", server).code == 0
    monkeypatch.setenv("VISAR_DEVICE", "cpu")
    ran = visar("search", QUESTION, "--server", server)
    assert (ran.code, ran.out) == (2, "")
    assert "--device" in ran.err
    # What is typed wins over the environment.
    monkeypatch.setenv("VISAR_SERVER", server)
    assert "book.pdf" in visar("list").out
    assert visar("list", "--index", tmp_path / "none").code == 2


def test_documents_are_added_shown_and_removed(
    visar: Visar, empty_server: str, make_pdf: MakePdf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISAR_SERVER", empty_server)
    letter = make_pdf("letter.pdf", "Income tax is due in April.")
    book = make_pdf("book.pdf", "Boats need wind.", "Nets are mended in winter.")
    added = visar(
        *("add", letter, book, "--quiet", "--json"),
        *("--collection", "mine", "--set", "year=1999", "--set", "kind=draft"),
    )
    assert added.code == 0, added.err
    documents = json.loads(added.out)["added"]
    assert [(one["name"], one["pages"]) for one in documents] == [
        ("letter.pdf", 1),
        ("book.pdf", 2),
    ]
    # Two workers of the server may end in any order.
    for choice in (("--collection", "mine"), ("--where", 'year = 1999 and kind = "draft"')):
        listed = json.loads(visar("list", *choice, "--json").out)
        assert sorted(listed, key=itemgetter("pages")) == documents
    assert json.loads(visar("show", "book.pdf", "--json").out) == documents[1]
    # A file that is there is asked about under its id.
    found = json.loads(visar("search", book, "When are nets mended?", "--json").out)
    assert [document["name"] for document in found["documents"]] == ["book.pdf"]
    assert json.loads(visar("remove", "letter.pdf", "--json").out)["name"] == "letter.pdf"
    assert [one["name"] for one in json.loads(visar("list", "--json").out)] == ["book.pdf"]


def test_an_encoder_of_the_server_is_used(
    visar: Visar, empty_server: str, make_pdf: MakePdf
) -> None:
    path = make_pdf("letter.pdf", "Income tax is due in April.")
    refused = visar("add", path, "--server", empty_server, "--encoder", "no-such")
    assert refused.code == 2
    assert "no-such" in refused.err
    added = visar("add", path, "--server", empty_server, "--encoder", "embedded", "--json")
    (document,) = json.loads(added.out)["added"]
    assert [encoder["name"] for encoder in document["encoders"]] == ["embedded"]


def test_a_password_is_sent(
    visar: Visar, empty_server: str, make_pdf: MakePdf, tmp_path: Path
) -> None:
    path = encrypt(make_pdf("letter.pdf", "Income tax is due in April."), "sesame")
    to_server = ("--server", empty_server, "--quiet")
    assert visar("add", path, *to_server).code == 2
    added = visar("add", path, *to_server, "--password", "sesame")
    assert added.code == 0, added.err
    asked = ("ask", QUESTION, "--doc", path.name, *to_server, "--open", tmp_path / "out")
    assert visar(*asked, "--password", "wrong").code == 2
    assert visar(*asked, "--password", "sesame").code == 0
    assert len(list((tmp_path / "out").iterdir())) == 1


def test_errors_of_the_server_are_reported(visar: Visar, empty_server: str, tmp_path: Path) -> None:
    bad = tmp_path / "notes.pdf"
    bad.write_text("not a document")
    for command in (["add", bad], ["remove", "notes.pdf"], ["show", "notes.pdf"]):
        ran = visar(*command, "--server", empty_server)
        assert (ran.code, ran.out) == (2, "")
        assert "notes.pdf" in ran.err
    for address in ("http://127.0.0.1:1", "nowhere"):
        ran = visar("list", "--server", address)
        assert (ran.code, ran.out) == (2, "")
        assert address in ran.err
        assert "Traceback" not in ran.err
