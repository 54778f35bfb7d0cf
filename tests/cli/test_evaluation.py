"""``visar eval compare`` and ``visar eval convert`` as typed."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.typed import Visar
from tests.evaluation.datasets.layouts import write_lines
from tests.evaluation.synthetic import write_run


def test_runs_are_compared(visar: Visar, tmp_path: Path) -> None:
    runs = [
        write_run(
            tmp_path / name,
            questions=10,
            datasets=("own",),
            encoders=("embedded",),
            generators=(),
            groups=("main",),
        )
        for name in ("old", "new")
    ]
    ran = visar("eval", "compare", *runs, "--baseline", "old/embedded/visar", "--out", tmp_path)
    assert ran.code == 0, ran.err
    for suffix in ("html", "md", "json", "csv"):
        assert f"wrote {tmp_path / f'leaderboard.{suffix}'}" in " ".join(ran.out.split())
    assert "old · embedded · ViSAR" in (tmp_path / "leaderboard.md").read_text(encoding="utf-8")
    shown = visar("eval", "compare", *runs, "--out", tmp_path / "again", "--json")
    assert [table["key"] for table in json.loads(shown.out)["tables"]] == ["runs", "retrieval-own"]
    refused = visar("eval", "compare", runs[0], tmp_path / "nothing", "--out", tmp_path)
    assert refused.code == 2
    assert str(tmp_path / "nothing") in refused.err


def test_a_benchmark_is_converted(visar: Visar, tmp_path: Path) -> None:
    question = {"qa_id": 3, "question": "How many?", "answer": "14", "evidence_pages": [2]}
    source = write_lines(tmp_path / "qa" / "dev.jsonl", [{"deck_name": "ferries", **question}])
    out = tmp_path / "slides.jsonl"
    ran = visar("eval", "convert", "SlideVQA", source, "--out", out)
    assert ran.code == 0, ran.err
    shown = " ".join(ran.out.split())
    assert all(part in shown for part in ("1 question", "1 with evidence", "1 document"))
    assert str(tmp_path / "images" / "dev" / "ferries") in shown
    as_json = visar("eval", "convert", "slidevqa", source, "--out", out, "--json")
    assert json.loads(as_json.out) == {
        "file": str(out),
        "questions": 1,
        "with_evidence": 1,
        "documents": 1,
        "missing": ["images/dev/ferries"],
    }
    refused = visar("eval", "convert", "MMDocIR", source, "--out", out)
    assert refused.code == 2
    assert all(part in refused.err for part in (str(source), "line 1", '"questions"'))
