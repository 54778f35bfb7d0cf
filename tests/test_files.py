"""A file is there as a whole, or as it was."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from visar.files import write_whole


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.json"
    write_whole(path, b"one")
    write_whole(path, b"two")
    assert [file.read_bytes() for file in path.parent.iterdir()] == [b"two"]


def test_others_may_read_it_as_any_other_file(tmp_path: Path) -> None:
    write_whole(tmp_path / "whole", b"")
    (tmp_path / "plain").write_bytes(b"")
    assert (tmp_path / "whole").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_the_umask_of_the_process_is_never_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even for a moment it would open the files that other threads create."""
    monkeypatch.setattr(os, "umask", lambda _: pytest.fail("the umask was changed"))
    write_whole(tmp_path / "a", b"one")
    assert (tmp_path / "a").read_bytes() == b"one"


@pytest.mark.skipif(os.name != "posix", reason="Windows has no umask")
def test_the_umask_is_respected(tmp_path: Path) -> None:
    program = (
        "import os, pathlib, sys; from visar.files import write_whole; os.umask(0o027); "
        "write_whole(pathlib.Path(sys.argv[1]), b'')"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "a")], check=True)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_a_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    write_whole(path, b"one")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, b"two")
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"one"]
