"""What docs/documents.md shows works as shown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.documents.conftest import text_at, write_pdf

PAGE = Path(__file__).parents[2] / "docs" / "documents.md"


def test_the_python_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_pdf(tmp_path / "report.pdf", text_at(50, 500, "a"))
    (tmp_path / "letters").mkdir()
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.S)
    shown: dict[str, Any] = {}
    exec(example, shown)  # noqa: S102
    assert [word.text for word in shown["page"].words] == ["a"]
    assert shown["identify"]("report.pdf").id == shown["document"].id
    assert [path.name for path in shown["found"].paths] == ["report.pdf"]
    assert "letters is a folder without documents" in shown["found"].refused[0][1]
