"""Test backups."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from itertools import count
from pathlib import Path

import pytest

from tests.store.samples import add, interrupt, open_kind, state
from visar.errors import StoreError
from visar.files import copy_atomically
from visar.store import open_store, sqlite_upkeep
from visar.store.sqlite import SqliteStore


@pytest.fixture
def original(tmp_path: Path) -> Path:
    """A folder of page images."""
    folder = tmp_path / "scans"
    folder.mkdir()
    (folder / "1.png").write_bytes(bytes(range(256)) * 40)
    return folder


@pytest.fixture
def full(index: Path, original: Path) -> SqliteStore:
    """An index with two documents and an unfinished addition."""
    store = SqliteStore.open(index)
    add(store, "a", original=original)
    add(store, "b", original=original / "1.png")
    store.collect("some", ["a"])
    interrupt(store, "half", [1, 2])
    return store


def test_backup_is_a_complete_index(full: SqliteStore, tmp_path: Path) -> None:
    target, reports = tmp_path / "to" / "backup", list[tuple[int, int]]()
    backup = full.backup(target, lambda done, total: reports.append((done, total)))
    assert backup.documents == 2
    assert backup.bytes == sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    assert reports[-1][0] == reports[-1][1] > 0
    assert {path.name for path in target.iterdir()} == {"index.sqlite", "vectors", "files"}
    assert [path.name for path in target.parent.iterdir()] == ["backup"]
    copy = SqliteStore.open(target, create=False)
    assert copy.verify() == []  # no unfinished addition either
    assert state(copy) == state(full)
    add(copy, "c")
    assert copy.verify() == []
    copy.close()
    # The copy doesn't share files with the index.
    full.remove("a")
    full.compact()
    again = SqliteStore.open(target)
    assert [stored.id for stored in again.documents()] == ["a", "b", "c"]
    assert again.verify() == []
    again.close()
    full.close()


def test_backup_does_not_overwrite_existing_files(
    full: SqliteStore, tmp_path: Path, index: Path
) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder.part").mkdir()
    (tmp_path / "folder.part" / "download").write_text("mine")
    targets = (
        tmp_path / "file",
        index,
        index / "backup",
        tmp_path / "folder",
        ".",
        "/",
        "s3://b/c",
    )
    for target in targets:
        with pytest.raises(StoreError):
            full.backup(target)
    assert (tmp_path / "file").read_text() == "mine"
    assert (tmp_path / "folder.part" / "download").read_text() == "mine"
    assert not (index / "backup.part").exists()
    full.close()


def test_lancedb_index_cannot_be_backed_up(tmp_path: Path) -> None:
    pytest.importorskip("lancedb")
    store = open_kind("lance", tmp_path / "lance")
    with pytest.raises(StoreError):
        store.backup(tmp_path / "backup")
    assert not (tmp_path / "backup").exists()
    store.close()


@pytest.mark.parametrize("change", ["remove", "add"])
def test_changes_during_a_backup(
    full: SqliteStore, tmp_path: Path, index: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Change the index before each copy of a file, unless the backup blocks writers."""
    numbers, copies = count(), list[str]()
    other = SqliteStore.open(index)

    def copy_and_change(source: Path, target: Path) -> None:
        if change == "remove" and other.documents() and not full._connection.in_transaction:
            other.remove(other.documents()[-1].id)
        if change == "add" and not full._connection.in_transaction:
            add(other, f"new-{next(numbers)}")
        copies.append(source.name)
        copy_atomically(source, target)

    monkeypatch.setattr(sqlite_upkeep, "copy_atomically", copy_and_change)
    full.backup(tmp_path / "backup")
    assert copies
    copy = SqliteStore.open(tmp_path / "backup")
    assert copy.verify() == []
    assert state(copy) == state(full)
    for store in (copy, other, full):
        store.close()


def test_interrupted_backup_is_resumed(
    full: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, copies = tmp_path / "backup", list[str]()

    def copy(source: Path, to: Path) -> None:
        if len(copies) == max_copies:
            raise KeyboardInterrupt
        copies.append(source.name)
        copy_atomically(source, to)

    monkeypatch.setattr(sqlite_upkeep, "copy_atomically", copy)
    max_copies = 1
    with pytest.raises(KeyboardInterrupt):
        full.backup(target)
    assert not target.exists()
    max_copies = 1000
    full.backup(target)
    assert len(copies) == len(set(copies)) == 6
    backup = SqliteStore.open(target)
    assert backup.verify() == []
    assert state(backup) == state(full)
    for store in (backup, full):
        store.close()


def test_concurrent_backups_to_the_same_folder(full: SqliteStore, tmp_path: Path) -> None:
    target, errors = tmp_path / "backup", list[str]()

    def back_up() -> None:
        store = open_store(full.location)
        try:
            store.backup(target)
        except StoreError as error:
            errors.append(str(error))
        finally:
            store.close()

    threads = [threading.Thread(target=back_up) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 3
    copy = SqliteStore.open(target)
    assert copy.verify() == []
    assert state(copy) == state(full)
    for store in (copy, full):
        store.close()


def test_read_only_index_can_be_backed_up(full: SqliteStore, tmp_path: Path) -> None:
    shutil.copytree(full.location, tmp_path / "left")  # with its log, as after a kill
    store = SqliteStore.open(tmp_path / "left", read_only=True)
    store.backup(tmp_path / "backup")
    copy = SqliteStore.open(tmp_path / "backup")
    assert state(copy) == state(full)
    assert copy.verify() == []
    for each in (copy, store, full):
        each.close()


def test_backup_command(full: SqliteStore, tmp_path: Path) -> None:
    target = tmp_path / "backup"
    command = [sys.executable, "-m", "visar", "backup", str(target), "--index", full.location]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "2 documents" in run.stdout
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 2
    listing = [sys.executable, "-m", "visar", "list", "--json", "--index", str(target)]
    assert '"a.pdf"' in subprocess.run(listing, capture_output=True, text=True, check=True).stdout
    full.close()
