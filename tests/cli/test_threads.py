"""Conversations at the terminal: follow-ups in ``visar chat``, and ``visar threads``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.typed import Visar
from tests.server.service import serving
from visar.index import Index

QUESTION = "Who keeps the harbour?"
FOLLOW_UP = "And when did she begin?"


@pytest.fixture
def notes(make_pdf: Callable[..., Path]) -> Path:
    return make_pdf(
        "notes.pdf",
        "Ada Lovelock keeps the harbour.",
        "Ada Lovelock, harbour keeper, began in 1912.",
        "Boats need wind.",
    )


def threads(visar: Visar, *options: str) -> list[dict[str, object]]:
    listed: list[dict[str, object]] = json.loads(visar("threads", "list", "--json", *options).out)
    return listed


def test_a_chat_is_saved_and_continued(visar: Visar, notes: Path) -> None:
    first = visar("chat", notes, typed=f"{QUESTION}\n{FOLLOW_UP}\n")
    assert first.code == 0
    assert "When did Ada Lovelock begin?" in first.out
    assert "1912" in first.out
    (saved,) = threads(visar)
    assert (saved["name"], saved["length"]) == (QUESTION, 2)
    short = str(saved["id"])[:8]
    assert f"visar chat --thread {short}" in first.out

    again = visar("chat", "--thread", short, typed="/history\nAnd what do boats need?\n")
    assert QUESTION in again.out
    assert [one["length"] for one in threads(visar)] == [3]
    assert "1912" in visar("threads", "show", short).out


def test_a_conversation_is_exported_renamed_and_deleted(
    visar: Visar, notes: Path, tmp_path: Path
) -> None:
    visar("chat", notes, typed=f"{QUESTION}\n")
    id_ = str(threads(visar)[0]["id"])
    page = tmp_path / "chat.html"
    assert visar("threads", "export", id_, "--format", "html", "--out", page).code == 0
    assert "data:image/jpeg" in page.read_text()
    assert visar("threads", "export", id_).out.startswith(f"# {QUESTION}")
    assert visar("threads", "rename", id_, "Harbour").code == 0
    assert [one["name"] for one in threads(visar)] == ["Harbour"]
    assert visar("threads", "delete", id_[:6]).code == 0
    assert threads(visar) == []
    gone = visar("threads", "show", id_)
    assert (gone.code, "Traceback" in gone.err) == (2, False)


def test_conversations_are_those_of_the_server(
    visar: Visar, notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Index.open(tmp_path / "served") as index, serving(index) as address:
        index.add(notes)
        monkeypatch.setenv("VISAR_SERVER", address)
        ran = visar("chat", typed=f"{QUESTION}\n{FOLLOW_UP}\n")
        assert "1912" in ran.out
        assert [one["length"] for one in threads(visar)] == [2]
        assert [one.length for one in index.threads()] == [2]


def test_without_a_saved_conversation_follow_ups_still_work(visar: Visar, notes: Path) -> None:
    """A new conversation can't be saved on a disk that is read-only."""
    visar("add", notes)
    from visar.store.sqlite import SqliteStore

    with pytest.MonkeyPatch.context() as patch:
        opened = SqliteStore.open
        patch.setattr(
            SqliteStore,
            "open",
            lambda location, **options: opened(location, **{**options, "read_only": True}),
        )
        ran = visar("chat", "--doc", "notes.pdf", typed=f"{QUESTION}\n{FOLLOW_UP}\n")
    assert ran.code == 0
    assert "1912" in ran.out
    assert ran.err.count("visar: ") == 1
    assert "save" in ran.err
    assert threads(visar) == []
