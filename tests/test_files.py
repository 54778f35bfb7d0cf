"""Test atomic writes of files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from visar.files import write_whole


def test_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.json"
    write_whole(path, b"one")
    write_whole(path, b"two")
    assert [file.read_bytes() for file in path.parent.iterdir()] == [b"two"]


def test_file_has_the_usual_permissions(tmp_path: Path) -> None:
    write_whole(tmp_path / "whole", b"")
    (tmp_path / "plain").write_bytes(b"")
    assert (tmp_path / "whole").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_umask_of_the_process_is_not_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even a brief change would affect the files that other threads create."""
    monkeypatch.setattr(os, "umask", lambda _: pytest.fail("the umask was changed"))
    write_whole(tmp_path / "a", b"one")
    assert (tmp_path / "a").read_bytes() == b"one"


@pytest.mark.skipif(os.name != "posix", reason="Windows has no umask")
def test_umask_is_applied(tmp_path: Path) -> None:
    program = (
        "import os, pathlib, sys; from visar.files import write_whole; os.umask(0o027); "
        "write_whole(pathlib.Path(sys.argv[1]), b'')"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "a")], check=True)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    write_whole(path, b"one")

    def fail(_: int) -> None:
        raise BlockingIOError

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(BlockingIOError):
        write_whole(path, b"two")
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"one"]
