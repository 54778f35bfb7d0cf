"""Simulation of a disk after a power loss, and a process to record.

The simulation replays the records of ``power.c``. ``python -m tests.store.power INDEX BACKUP
ORIGINAL`` changes an index, and logs a summary of the index after each step.
"""

from __future__ import annotations

import json
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tests.store.faulty_child import add
from tests.store.samples import IMAGE, TEXT, TEXT_2, document, items, put
from visar.ingest.jobs import JobStore, jobs_folder
from visar.results import Job
from visar.store import Store, open_store, sqlite_addition

Record = tuple[list[str], bytes]


@dataclass
class File:
    """A file: the content that programs see, and the content on disk."""

    content: bytearray = field(default_factory=bytearray)
    synced: bytes = b""

    def sync(self) -> None:
        self.synced = bytes(self.content)


@dataclass
class Folder:
    """A folder: the entries that programs see, and those on disk."""

    entries: dict[str, File | Folder] = field(default_factory=dict)
    synced: dict[str, File | Folder] = field(default_factory=dict)

    def sync(self) -> None:
        self.synced = dict(self.entries)


class Disk:
    """A simulated disk with one folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder
        self._root = Folder()
        self._nodes: dict[str, File | Folder] = {str(folder.stat().st_ino): self._root}

    def replay(self, record: Record) -> None:
        (operation, *values), data = record
        match operation:
            case "create" | "folder":
                node = File() if operation == "create" else Folder()
                parent, name = self._find(values[0])
                parent.entries[name] = self._nodes[values[1]] = node
            case "write":
                content, offset = self._file(values[0]).content, int(values[1])
                content.extend(bytes(max(0, offset - len(content))))
                content[offset : offset + len(data)] = data
            case "truncate":
                content, size = self._file(values[0]).content, int(values[1])
                content[size:] = bytes(max(0, size - len(content)))
            case "sync":
                self._nodes[values[0]].sync()
            case "rename":
                parent, name = self._find(values[0])
                target, new = self._find(values[1])
                target.entries[new] = parent.entries.pop(name)
            case "delete":
                parent, name = self._find(values[0])
                del parent.entries[name]

    def write(self, path: Path, *, names_are_synced: bool) -> None:
        """Write the state of the disk after a power loss to a folder.

        Files have the content of their last sync. With ``names_are_synced`` no renames are lost, as
        on file systems with a journal; otherwise folders have the entries of their last sync.
        """
        self._write(self._root, path, names_are_synced)

    def _write(self, node: File | Folder, path: Path, names_are_synced: bool) -> None:
        if isinstance(node, File):
            path.write_bytes(node.synced)
            return
        path.mkdir()
        for name, inner in (node.entries if names_are_synced else node.synced).items():
            if not name.endswith("-shm"):  # shared memory, which SQLite recreates
                self._write(inner, path / name, names_are_synced)

    def _find(self, path: str) -> tuple[Folder, str]:
        folder = self._root
        *parents, name = Path(path).relative_to(self._path).parts
        for parent in parents:
            inner = folder.entries[parent]
            assert isinstance(inner, Folder)
            folder = inner
        return folder, name

    def _file(self, inode: str) -> File:
        node = self._nodes[inode]
        assert isinstance(node, File)
        return node


def read_records(log: Path) -> Iterator[Record]:
    with log.open("rb") as file:
        while line := file.readline():
            fields = line.decode().rstrip("\n").split("\t")
            yield fields, file.read(int(fields[3])) if fields[0] == "write" else b""


def summary(store: Store) -> dict[str, object]:
    """Return the documents of a store with their encoders, collections and originals."""
    documents: dict[str, object] = {}
    for stored in store.documents():
        path = store.original(stored.id)
        files = sorted(path.rglob("*")) if path and path.is_dir() else [path] if path else []
        checksums = [zlib.crc32(file.read_bytes()) for file in files]
        encoders = list(map(str, stored.encoders))
        documents[stored.id] = [encoders, list(stored.collections), checksums]
    return documents


UPLOAD = bytes(range(256)) * 20


def queue(index: str) -> None:
    """Accept an upload like the server, which syncs the content before it queues a job."""
    folder = jobs_folder(index)
    assert folder is not None
    jobs = JobStore(folder)
    upload = jobs.incoming / "upload"
    with upload.open("wb") as file:
        file.write(UPLOAD)
        file.flush()
        os.fsync(file.fileno())
    jobs.add(Job("job", "a.pdf", "text", datetime.now(UTC)), upload)
    log_step("queued", {})
    jobs.close()


def log_step(step: str, documents: dict[str, object]) -> None:
    log = os.open(os.environ["POWER_LOG"], os.O_WRONLY | os.O_APPEND)
    os.write(log, f"done\t{step}\t{json.dumps(documents)}\n".encode())
    os.close(log)


def main(index: str, backup: str, original: str) -> None:
    # One transaction per page.
    sqlite_addition.FLUSH_BYTES = 1
    scans = Path(original)

    def with_original(name: str, path: Path) -> Callable[[Store], object]:
        return lambda store: put(store, document(name), TEXT, items(name, 3, TEXT), path)

    steps: dict[str, Callable[[Store], object]] = {
        "add": with_original("a", scans / "1.png"),
        "folder": with_original("b", scans),
        "encoder": lambda store: add(store, "a", IMAGE),
        "version": lambda store: add(store, "a", TEXT_2),
        "collect": lambda store: store.collect("some", ["a", "b"]),
        "remove": lambda store: store.remove("a"),
        "again": with_original("a", scans / "1.png"),
        "compact": lambda store: store.compact(),
        "more": lambda store: add(store, "c", TEXT),
        "backup": lambda store: store.backup(backup),
        "last": lambda store: store.remove("b"),
    }
    for name, step in steps.items():
        store = open_store(index)
        step(store)
        log_step(name, summary(store))
        # Some steps leave the write-ahead log to the next one.
        if name not in ("folder", "remove", "more"):
            store.close()
    queue(index)


if __name__ == "__main__":
    main(*sys.argv[1:])
