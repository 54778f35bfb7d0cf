from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
from PIL import Image

from visar.documents import find_documents


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"%PDF-")


def picture(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (9, 9)).save(path)


def test_folders_are_expanded_to_documents(tmp_path: Path) -> None:
    touch(*(tmp_path / name for name in ("b10.pdf", "b2.PDF", "film.mp4", ".hidden.pdf")))
    touch(tmp_path / "deeper" / "still" / "a.docx", tmp_path / "~$lock.docx")
    picture(tmp_path / "scan" / "1.png")
    picture(tmp_path / "scan" / "2.jpg")
    picture(tmp_path / "figure.png")
    documents = find_documents([tmp_path, tmp_path / "deeper"])
    found = [str(path.relative_to(tmp_path)) for path in documents.paths]
    assert documents.skipped == (tmp_path / "film.mp4",)
    assert found == ["b2.PDF", "b10.pdf", "deeper/still/a.docx", "figure.png", "scan"]


def test_named_files_are_documents_whatever_their_suffix(tmp_path: Path) -> None:
    touch(tmp_path / "odd.name", tmp_path / "a.pdf")
    given: list[Path | str] = [tmp_path / "odd.name", str(tmp_path), tmp_path / "a.pdf"]
    assert find_documents(given).paths == (tmp_path / "odd.name", tmp_path / "a.pdf")


def test_unusable_paths_are_reported(tmp_path: Path) -> None:
    touch(tmp_path / "good" / "a.pdf", tmp_path / "z.pdf")
    (tmp_path / "empty").mkdir()
    missing, empty = tmp_path / "missing.pdf", tmp_path / "empty"
    found = find_documents([missing, tmp_path / "good", empty, tmp_path / "z.pdf"])
    assert found.paths == (tmp_path / "good" / "a.pdf", tmp_path / "z.pdf")
    assert [path for path, _ in found.refused] == [missing, empty]
    assert all(str(path) in reason for path, reason in found.refused)


def test_invalid_names_are_reported(tmp_path: Path) -> None:
    touch(tmp_path / "z.pdf")
    odd = ["x" * 300, "x/" * 3000, "nu\0ll", os.fsdecode(b"caf\xe9")]
    found = find_documents([*odd, tmp_path / "z.pdf"])
    assert found.paths == (tmp_path / "z.pdf",)
    assert [path for path, _ in found.refused] == [Path(name) for name in odd]
    for _, reason in found.refused:
        reason.encode()


def test_folder_that_cannot_be_listed_is_reported(tmp_path: Path) -> None:
    """Not even root can list a folder whose path is too long."""
    touch(tmp_path / "a" / "a.pdf", tmp_path / "c" / "c.pdf")
    deep = os.open(tmp_path / "a", os.O_RDONLY)
    for _ in range(20):
        os.mkdir("b" * 250, dir_fd=deep)
        below = os.open("b" * 250, os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = below
    os.close(deep)
    found = find_documents([tmp_path])
    assert found.paths == (tmp_path / "a" / "a.pdf", tmp_path / "c" / "c.pdf")
    ((path, reason),) = found.refused
    assert path.name == "b" * 250
    assert os.strerror(errno.ENAMETOOLONG) in reason
    shutil.rmtree(tmp_path / "a")


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
def test_folders_and_files_without_read_permission(tmp_path: Path) -> None:
    touch(tmp_path / "a" / "a.pdf", tmp_path / "b" / "b.pdf")
    picture(tmp_path / "mixed" / "1.png")
    touch(tmp_path / "mixed" / "2.pdf")
    (tmp_path / "a").chmod(0)
    (tmp_path / "mixed" / "1.png").chmod(0)
    found = find_documents([tmp_path])
    (tmp_path / "a").chmod(0o755)
    names = ["b.pdf", "1.png", "2.pdf"]
    assert [path.name for path in found.paths] == names
    ((path, reason),) = found.refused
    assert path == tmp_path / "a"
    assert os.strerror(errno.EACCES) in reason


def test_links_to_folders_are_only_followed_if_named(tmp_path: Path) -> None:
    touch(tmp_path / "real" / "a.pdf")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "loop").symlink_to(tmp_path)
    (tmp_path / "real" / "gone.pdf").symlink_to(tmp_path / "nowhere")
    found = find_documents([tmp_path / "link"])
    assert found.paths == (tmp_path / "link" / "a.pdf",)
    assert [path.name for path, _ in found.refused] == ["gone.pdf"]


def test_deeply_nested_folders(tmp_path: Path) -> None:
    folder = tmp_path
    for _ in range(1200):
        folder = folder / "d"
        folder.mkdir()
    touch(folder / "a.pdf")
    assert find_documents([tmp_path]).paths == (folder / "a.pdf",)
    (folder / "a.pdf").unlink()
    # pytest deletes temporary folders recursively, which fails for such a depth.
    while folder != tmp_path:
        folder.rmdir()
        folder = folder.parent
