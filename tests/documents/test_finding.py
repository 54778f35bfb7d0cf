from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from visar.documents import find_documents
from visar.errors import DocumentError


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"%PDF-")


def picture(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (9, 9)).save(path)


def test_folders_become_the_documents_in_them(tmp_path: Path) -> None:
    touch(*(tmp_path / name for name in ("b10.pdf", "b2.PDF", "notes.txt", ".hidden.pdf")))
    touch(tmp_path / "deeper" / "still" / "a.docx", tmp_path / "~$lock.docx")
    picture(tmp_path / "scan" / "1.png")
    picture(tmp_path / "scan" / "2.jpg")
    picture(tmp_path / "figure.png")
    found = [str(path.relative_to(tmp_path)) for path in find_documents([tmp_path])]
    assert found == ["b2.PDF", "b10.pdf", "deeper/still/a.docx", "figure.png", "scan"]


def test_files_that_are_named_are_taken_as_they_are_and_once(tmp_path: Path) -> None:
    touch(tmp_path / "odd.name", tmp_path / "a.pdf")
    given: list[Path | str] = [tmp_path / "odd.name", str(tmp_path), tmp_path / "a.pdf"]
    assert find_documents(given) == [tmp_path / "odd.name", tmp_path / "a.pdf"]


def test_nothing_found_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"missing.pdf does not exist"):
        find_documents([tmp_path / "missing.pdf"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(DocumentError, match=r"empty is a folder without documents"):
        find_documents([tmp_path / "empty"])
