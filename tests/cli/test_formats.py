"""Folders with files of many kinds, on the command line."""

from __future__ import annotations

import json
from pathlib import Path

from PIL import Image

from tests.cli.typed import Visar

TEXTS = {
    "stock.csv": "product,warehouse,price\nDesk lamp,Kiel,149.00\nFloor lamp,Bremen,279.50\n"
    "Reading lamp,Hamburg,89.90\n",
    "manual.md": "# Manual\n\n## Warranty\n\nThe warranty period of all pumps is 36 months.\n",
    "deep/mail.txt": "The harbour master of Lübeck is called Jan Holm.\n",
}


def mixed_folder(folder: Path) -> Path:
    for name, text in TEXTS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    for name in ("film.mp4", "song.mp3", "deep/other.mp4", "LICENSE"):
        (folder / name).write_bytes(b"\0\1\2")
    (folder / "broken.txt").write_bytes(bytes(range(256)))
    return folder


def test_a_mixed_folder_is_searched_and_skipped_files_are_reported_once(
    visar: Visar, tmp_path: Path
) -> None:
    folder = mixed_folder(tmp_path / "mixed")
    added = visar("add", folder)
    assert added.code == 1
    assert [added.out.count(name) for name in ("stock.csv", "manual.md", "mail.txt")] == [1, 1, 1]
    (note,) = [line for line in added.err.splitlines() if ".mp4" in line]
    assert all(count in note for count in ("4 files", "2 .mp4", "1 .mp3"))
    assert added.err.count("broken.txt") == 1
    for question, name, quote in (
        ("How long is the warranty of pumps?", "manual.md", "36 months"),
        ("Who is the harbour master of Lübeck?", "mail.txt", "Jan Holm"),
    ):
        answer = json.loads(visar("ask", question, "--json").out)
        assert answer["search"]["pages"][0]["name"] == name
        assert quote in answer["passages"][0]["text"]
    # Once more, as part of a question.
    asked = visar("ask", folder, "Who is the harbour master?")
    assert asked.err.count("4 files") == 1
    assert "Jan Holm" in asked.out


def test_a_row_of_a_csv_is_quoted_as_a_row_and_its_page_shown(visar: Visar, tmp_path: Path) -> None:
    path = mixed_folder(tmp_path / "mixed") / "stock.csv"
    pages = tmp_path / "pages"
    asked = visar("ask", path, "What is the price of the floor lamp?", "--open", pages, "--json")
    answer = json.loads(asked.out)
    rows: dict[int, list[str]] = {}
    for cell in answer["passages"][0]["cells"]:
        rows.setdefault(cell["row"], []).append(cell["text"])
    assert rows == {0: ["product", "warehouse", "price"], 1: ["Floor lamp", "Bremen", "279.50"]}
    (picture,) = pages.glob("*.png")
    assert Image.open(picture).convert("L").getextrema() == (0, 255)


def test_skipped_files_are_listed_as_json(visar: Visar, tmp_path: Path) -> None:
    folder = mixed_folder(tmp_path / "mixed")
    added = json.loads(visar("add", folder, "--json").out)
    assert sorted(Path(path).name for path in added["skipped"]) == [
        "LICENSE", "film.mp4", "other.mp4", "song.mp3",
    ]  # fmt: skip
