"""Writing files atomically."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Write a file in one step: readers see the old content or the new, never a part of it.

    Missing parent folders are created. The content is on disk when the call returns. After a
    failure the old file is as it was, and nothing else is left.

    Parameters
    ----------
    path
        The file to create or replace.
    content
        All of its bytes.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name[:40]}-{secrets.token_hex(8)}.part")
    # The kernel applies the umask, as for any new file: it is never asked for or changed here,
    # because it belongs to the whole process.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    handle = os.open(part, flags, 0o666)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


@contextlib.contextmanager
def made_whole(target: Path) -> Iterator[Path]:
    """Give a path to make a file or a folder at, which is then ``target`` in one step.

    It is there whole or not at all. Where another process was faster, a folder of its stays.
    """
    part = target.with_name(f"{target.name}.{secrets.token_hex(4)}.part")
    try:
        yield part
        for path in [part] if part.is_file() else [p for p in part.rglob("*") if p.is_file()]:
            with path.open("rb+") as file:
                os.fsync(file.fileno())
        try:
            part.replace(target)
        except OSError:
            if not target.exists():
                raise
        sync_folder(target.parent)
    finally:
        if part.is_dir():
            shutil.rmtree(part)
        else:
            part.unlink(missing_ok=True)


def copy_whole(source: Path, target: Path) -> None:
    """Copy a file, or a folder of files, in one step: the copy is there whole or not at all."""
    with made_whole(target) as part:
        if source.is_dir():
            shutil.copytree(source, part)
        else:
            shutil.copyfile(source, part)


def sync_folder(folder: Path) -> None:
    """Put the names in a folder on disk, where folders can be synchronised: not on Windows."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
