"""``visar eval cut`` as typed."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.typed import Visar
from tests.evaluation.test_cut import write


def test_the_command_prints_a_table_and_json(visar: Visar, tmp_path: Path) -> None:
    predictions, qrels = write(tmp_path)
    shown = visar("eval", "cut", predictions, "--methods", "autocut,top-k", "--qrels", qrels)
    assert shown.code == 0, shown.err
    lines = [line.split() for line in shown.out.splitlines()]
    assert lines[1] == [
        "autocut",
        "default/test",
        "2",
        "1.5",
        "50.0",
        "50.0",
        "50.0",
        "50.0",
        "50.0",
    ]
    ran = visar("eval", "cut", predictions, "--methods", "autocut", "--qrels", qrels, "--json")
    assert json.loads(ran.out)[0]["perfect_recall"] == 0.5
    refused = visar("eval", "cut", predictions, "--methods", "visar")
    assert refused.code == 2
    assert refused.err.startswith("visar: ")
    assert refused.out == ""
