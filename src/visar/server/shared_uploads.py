"""Uploads to an index in object storage, kept beside it until they are added.

Several servers may serve such an index, each with a queue of its own on its own disk. What one has
accepted must not be lost with it, so it is in the storage before it is acknowledged:

    uploads/SERVER/alive        written again every few seconds
    uploads/SERVER/JOB/job      what is to be done, as JSON
    uploads/SERVER/JOB/file     what was uploaded

A server that has been silent for a while counts as dead, and any other one takes its jobs over. Two
may take the same one: the document is in the index once all the same.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import uuid4

from filelock import FileLock, Timeout

from visar.errors import StoreError
from visar.ingest.inputs import filesystem

SECONDS_PER_BEAT = 5.0
SILENT = timedelta(seconds=20)
_SERVER = "server-id"


def claim_folder(folder: Path) -> tuple[Path, FileLock]:
    """Take a folder for the jobs of a server, or another one beside it if a server has it.

    The lock is held until it is released, or the process ends.
    """
    number = 1
    while True:
        mine = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        mine.mkdir(parents=True, exist_ok=True)
        lock = FileLock(mine / "lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            number += 1
        else:
            return mine, lock


class SharedUploads:
    """The uploads of one server in object storage.

    Parameters
    ----------
    location, options
        Of the index.
    folder
        That of the server on its own disk, which remembers who it is.
    """

    def __init__(self, location: str, options: Mapping[str, str], folder: Path) -> None:
        self._files, key = filesystem(f"{location.rstrip('/')}/uploads", options)
        self._all = PurePosixPath(key)
        name = folder / _SERVER
        if not name.exists():
            name.write_text(uuid4().hex, encoding="ascii")
        self._mine = self._all / name.read_text(encoding="ascii")

    def put(self, job: str, content: Mapping[str, Any], path: Path) -> None:
        """Keep an upload. When this returns, another server can go on with it."""
        with _explained():
            with path.open("rb") as file, self._open(self._mine / job / "file") as stream:
                shutil.copyfileobj(file, stream, 1 << 20)
            # Last: with it the job is there.
            with self._open(self._mine / job / "job") as stream:
                stream.write(json.dumps(content).encode())

    def drop(self, job: str) -> None:
        """Forget an upload."""
        self._delete(self._mine / job)

    def jobs(self) -> list[str]:
        """The jobs of this server that are kept."""
        return [path.parent.name for path, _ in self._list(self._mine) if path.name == "job"]

    def beat(self) -> None:
        """Tell the others that this server is there."""
        with self._open(self._mine / "alive") as stream:
            stream.write(b"")

    def abandoned(self) -> Iterator[tuple[str, dict[str, Any], PurePosixPath]]:
        """Give the jobs of servers that are silent: ids, what is to be done, and where they are.

        Times are those of the storage, which this server's own beat tells, not of any machine.
        """
        found = dict(self._list(self._all))
        now = found.get(self._mine / "alive")
        if now is None:
            return
        for path in found:
            server = path.parent.parent
            if path.name != "job" or server == self._mine:
                continue
            heard = found.get(server / "alive")
            if heard is None or now - heard > SILENT:
                with self._files.open_input_stream(str(path)) as stream:
                    yield path.parent.name, json.loads(stream.read()), path.parent

    def take(self, abandoned: PurePosixPath, path: Path) -> None:
        """Download what was uploaded for a job of another server."""
        with (
            self._files.open_input_stream(str(abandoned / "file")) as stream,
            path.open("wb") as to,
        ):
            shutil.copyfileobj(stream, to, 1 << 20)

    def drop_abandoned(self, abandoned: PurePosixPath) -> None:
        """Forget a job of another server."""
        self._delete(abandoned)

    def _open(self, path: PurePosixPath) -> Any:
        return self._files.open_output_stream(str(path))

    def _delete(self, folder: PurePosixPath) -> None:
        with contextlib.suppress(FileNotFoundError):
            # The description first: without it there is no job.
            self._files.delete_file(str(folder / "job"))
        with contextlib.suppress(FileNotFoundError):
            self._files.delete_file(str(folder / "file"))

    def _list(self, folder: PurePosixPath) -> Iterator[tuple[PurePosixPath, Any]]:
        from pyarrow.fs import FileSelector, FileType

        selector = FileSelector(str(folder), recursive=True, allow_not_found=True)
        for info in self._files.get_file_info(selector):
            if info.type == FileType.File:
                yield PurePosixPath(info.path), info.mtime


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"the upload cannot be kept in object storage: {error}") from error
