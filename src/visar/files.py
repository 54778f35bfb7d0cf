"""Atomic writes of files and folders."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path


def write_whole(path: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Write a file atomically: readers see either the old or the new content.

    Missing parent folders are created. The content is on disk when the call returns. If it can't be
    written (OSError), the old file is unchanged, and no temporary file is left. ``mode`` has the
    permissions of the file, before the umask.
    """
    make_folder(path.parent)
    part = path.with_name(f".{path.name[:40]}-{secrets.token_hex(8)}.part")
    # The kernel applies the umask. Reading the umask would change it for the whole process.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    handle = os.open(part, flags, mode)
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
def atomic_path(target: Path) -> Iterator[Path]:
    """Context manager: write a file or folder to a temporary path, then rename it to ``target``.

    If another process has created the folder in the meantime, that one is kept.
    """
    part = target.with_name(f"{target.name}.{secrets.token_hex(4)}.part")
    try:
        yield part
        for path in (part, *part.rglob("*")):
            if path.is_dir():
                sync_folder(path)
            else:
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


def copy_atomically(source: Path, target: Path) -> None:
    """Copy a file, or a folder of files, atomically."""
    with atomic_path(target) as part:
        if source.is_dir():
            shutil.copytree(source, part)
        else:
            shutil.copyfile(source, part)


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents durably."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in missing:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flush the entries of a folder to disk, if the system supports it (not on Windows)."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
