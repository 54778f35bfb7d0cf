"""Methods and encoders of other packages in reports."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.evaluation.synthetic import stamp, write_records, write_run
from visar.evaluation.bench_report import figures, tables, to_markdown
from visar.evaluation.records import (
    AnswerRecord,
    RetrievalRecord,
    VerdictRecord,
    read_lines,
)
from visar.evaluation.report import write_report
from visar.evaluation.report.drawing import OTHER_COLORS, STAGE_COLORS, method_looks
from visar.evaluation.statistics import summarize
from visar.evaluation.timing import APPROXIMATE, COMPARED, EXACT, SHORTCUTS, Bench, Part, Timing

DATASET, ENCODER = "MMLongBench", "their_package.encoders:Tiny"
METHODS = ("costs $5 <b>", "their_package.methods:cheap")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two plugin methods, which choose the same pages as ViSAR."""
    folder = write_run(
        tmp_path_factory.mktemp("run"),
        questions=12,
        datasets=(DATASET,),
        encoders=(ENCODER,),
        generators=("extractive",),
        groups=("main",),
    )
    kinds: tuple[Any, ...] = (RetrievalRecord, AnswerRecord, VerdictRecord)
    for kind in kinds:
        ours = [one for one in read_lines(folder, kind)[0] if one.method == "visar"]
        theirs = [replace(one, method=name) for name in METHODS for one in ours]
        write_records(folder / f"{kind.FILE}-more.jsonl", theirs)
    write_report(stamp(folder))
    return folder


@pytest.mark.parametrize(
    ("key", "methods"),
    [
        ("table-1-mmlongbench", 1),
        ("table-2-s1-mmlongbench", 1),
        ("accuracy-mmlongbench-extractive-rules", 1),
        ("outcomes-judged-by-rules", 0),
        ("table-s8-mmlongbench-their-package-encoders-tiny-extractive", 0),
    ],
)
def test_each_plugin_has_a_row(folder: Path, key: str, methods: int) -> None:
    tables = json.loads((folder / "report.json").read_text(encoding="utf-8"))["tables"]
    rows = next(table["rows"] for table in tables if table["key"] == key)
    by_method = {row[methods]: row[methods + 1 :] for row in rows}
    values = [cell["value"] if isinstance(cell, dict) else cell for cell in by_method["ViSAR"]]
    for name in METHODS:
        theirs = [cell["value"] if isinstance(cell, dict) else cell for cell in by_method[name]]
        # ViSAR isn't compared with itself, and the plugins don't differ from it.
        for own, ours in zip(theirs, values, strict=True):
            assert own == ours or (ours is None and own in (0.0, 1.0))


@pytest.mark.parametrize(
    "key",
    [
        "figure-s2",
        "figure-s4",
        "figure-fixed-k",
        "figure-budget-extractive-rules",
        "figure-4",
        "figure-4-budgets",
        "figure-s10",
        "figure-s10-sizes",
    ],
)
def test_each_plugin_has_a_color_and_a_label(folder: Path, key: str) -> None:
    svg = (folder / "figures" / f"{key}.svg").read_text(encoding="utf-8")
    for name, color in zip(METHODS, OTHER_COLORS, strict=False):
        assert name.replace("<", "&lt;").replace(">", "&gt;") in svg
        assert color.lower() in svg


def test_many_methods_have_distinct_looks() -> None:
    looks = method_looks([f"package:{number}" for number in range(40)])
    seen = {(look["color"], look["marker"], str(look.get("linestyle"))) for look in looks.values()}
    assert len(seen) == len(looks)


def test_a_benchmark_shows_plugins() -> None:
    keys = (*COMPARED, "their-method", *SHORTCUTS)
    timings = {
        key: Timing(
            key,
            summarize([1.0, 2.0, 4.0]),
            1.5,
            dict.fromkeys(STAGE_COLORS, 0.5) if key in (EXACT, APPROXIMATE, *SHORTCUTS) else {},
        )
        for key in keys
    }
    part = Part("a.pdf", 9, 90, 8, (1, 2), 2, timings)
    machine = {"processor": "P", "cores": 1, "numpy": "2", "visar": "1", "OMP_NUM_THREADS": None}
    measured = Bench("embedded", 1, machine, summarize([1]), (part,), timings, (part,), ())
    by_method, by_document, _ = tables(measured)
    rows = [[cell.text for cell in row] for row in by_method.rows]
    assert ["their-method", "2.00 (1.50–3.00)", "1.5×", "", "", "", "", ""] in rows
    assert "THEIR METHOD" in by_document.columns
    assert "| their-method | 2.00 (1.50–3.00) | 1.5× |" in to_markdown(measured)
    svg = figures(measured)["latency-size.svg"]
    assert "their-method" in svg
    assert OTHER_COLORS[0].lower() in svg
