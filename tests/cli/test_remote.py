"""The commands on the index of a server: as those on an index of this machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.typed import Visar
from tests.server.service import serving
from visar.index import Index


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with Index.open(tmp_path / "theirs") as index, serving(index) as address:
        yield address


def test_documents_are_added_asked_and_removed(
    visar: Visar, address: str, make_pdf: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISAR_SERVER", address)
    letter = make_pdf("letter.pdf", "Income tax is due in April.")
    book = make_pdf("book.pdf", "Boats need wind.", "Nets are mended in winter.")
    added = visar("add", letter, book, "--quiet")
    assert added.code == 0, added.err
    assert "letter.pdf · 1 page\n" in added.out
    assert "book.pdf · 2 pages\n" in added.out
    listed = visar("list").out.splitlines()
    assert listed[0].split() == ["ID", "PAGES", "ADDED", "NAME"]
    assert [line.split()[-1] for line in listed[1:]] == ["letter.pdf", "book.pdf"]
    assert "Income tax is due in April." in visar("ask", "When is income tax due?").out
    found = json.loads(visar("search", "When are nets mended?", "--json").out)
    assert (found["pages"][0]["name"], found["pages"][0]["page"]) == ("book.pdf", 2)
    removed = visar("remove", "letter.pdf")
    assert removed.out.startswith("removed")
    assert removed.out.endswith("letter.pdf · 1 page\n")


def test_what_the_server_refuses_is_said(visar: Visar, address: str, tmp_path: Path) -> None:
    bad = tmp_path / "notes.pdf"
    bad.write_text("no document")
    ran = visar("add", bad, "--server", address)
    assert (ran.code, ran.out) == (2, "")
    assert "notes.pdf" in ran.err
    ran = visar("remove", "nothing.pdf", "--server", address)
    assert (ran.code, ran.out) == (2, "")
    assert "nothing.pdf" in ran.err
