"""The fuzzer itself: it makes the same documents again, and notices what must not happen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents.conftest import text_at, write_pdf
from tests.fuzz import reading
from tests.fuzz.mutations import WEIGHTS, seeds
from tests.fuzz.reading import Violation, attempt, read, write
from visar.documents import OpenedDocument, Page, Word
from visar.documents.processes import ChildProcess

OFFICE = {".docx", ".odt", ".rtf"}


def test_a_seed_and_a_number_make_the_same_document() -> None:
    program = "from tests.fuzz.reading import Case; print([Case(3, n)._content for n in range(40)])"
    made = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout
        for _ in range(2)
    ]
    assert made[0] == made[1]


def test_seeds_are_read(tmp_path: Path) -> None:
    """Mutations of what is refused anyway would test little."""
    for suffix in WEIGHTS.keys() - OFFICE:
        (tmp_path / f"a{suffix}").mkdir()
        path = write(tmp_path / f"a{suffix}", suffix, seeds()[suffix][-1])
        assert read(path).refused is None


def test_what_must_not_happen_is_noticed_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_pdf(tmp_path / "a.pdf", text_at(50, 500, "a"))
    word = Word("outside", (0.5, 0.5, 1.5, 0.6), 0)
    page = Page(1, 10.0, 10.0, 0, (word,), "text layer", blocks=())
    with monkeypatch.context() as patch:
        patch.setattr(OpenedDocument, "page", lambda *_: page)
        with pytest.raises(Violation, match="outside"):
            read(path)
        assert attempt(path, tmp_path / "kept" / "a.pdf") is None
    assert (tmp_path / "kept" / "a.pdf").read_bytes() == path.read_bytes()
    assert "Violation" in (tmp_path / "kept" / "a.pdf.txt").read_text()
    inside = Page(1, 10.0, 10.0, 0, (Word("a", (0, 0, 1, 1), 0),), "text layer", blocks=())
    with pytest.raises(Violation, match="block"):
        reading._check_blocks(inside)


def test_a_process_that_is_left_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "ENDING_SECONDS", 0.1)
    path = write_pdf(tmp_path / "a.pdf", text_at(50, 500, "a"))
    real = OpenedDocument.close
    left: list[ChildProcess] = []

    def close(self: OpenedDocument) -> None:
        left.append(ChildProcess("visar.documents.reader"))
        real(self)

    monkeypatch.setattr(OpenedDocument, "close", close)
    with pytest.raises(Violation, match="processes"):
        read(path)
    left[0].end()
