from __future__ import annotations

from pathlib import Path

from PIL import Image

from visar.documents import find_documents


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
    found = [str(path.relative_to(tmp_path)) for path in find_documents([tmp_path]).paths]
    assert found == ["b2.PDF", "b10.pdf", "deeper/still/a.docx", "figure.png", "scan"]


def test_files_that_are_named_are_taken_as_they_are_and_once(tmp_path: Path) -> None:
    touch(tmp_path / "odd.name", tmp_path / "a.pdf")
    given: list[Path | str] = [tmp_path / "odd.name", str(tmp_path), tmp_path / "a.pdf"]
    assert find_documents(given).paths == (tmp_path / "odd.name", tmp_path / "a.pdf")


def test_what_cannot_be_used_is_reported_and_does_not_stop_the_rest(tmp_path: Path) -> None:
    touch(tmp_path / "good" / "a.pdf", tmp_path / "z.pdf")
    (tmp_path / "empty").mkdir()
    missing, empty = tmp_path / "missing.pdf", tmp_path / "empty"
    found = find_documents([missing, tmp_path / "good", empty, tmp_path / "z.pdf"])
    assert found.paths == (tmp_path / "good" / "a.pdf", tmp_path / "z.pdf")
    assert found.refused == (
        (missing, f"{missing} does not exist, or not any more."),
        (empty, f"{empty} is a folder without documents."),
    )
