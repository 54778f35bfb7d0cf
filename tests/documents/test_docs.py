"""Test the example of reading documents in docs/documents.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.documents.conftest import text_at, write_pdf

PAGE = Path(__file__).parents[2] / "docs" / "documents.md"


def test_python_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_pdf(tmp_path / "report.pdf", text_at(50, 500, "a"))
    (tmp_path / "letters").mkdir()
    _, example = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.S)
    names: dict[str, Any] = {}
    exec(example, names)  # noqa: S102
    assert [word.text for word in names["page"].words] == ["a"]
    assert names["identify"]("report.pdf").id == names["document"].id
    assert [path.name for path in names["found"].paths] == ["report.pdf"]
    assert "letters" in names["found"].refused[0][1]
