"""The results of a run as tables."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.evaluation.synthetic import DATASETS, write_records, write_run
from visar.errors import NotARun
from visar.evaluation.frames import make_results, read_results
from visar.evaluation.records import QuestionRecord, RetrievalRecord

ASKED = QuestionRecord("q1", "D", "a.pdf", 9, (2, 3), answerable=True)


def test_incomplete_lines_of_crashed_writers_are_skipped(tmp_path: Path) -> None:
    whole = json.dumps(asdict(ASKED))
    (tmp_path / "asked.jsonl").write_text(f'{whole}\n{{"questi\n\n{whole}\n{whole[:30]}')
    results = read_results(tmp_path)
    assert list(results.questions.question) == ["q1"]
    # The last line may still be completed, unlike an invalid line in the middle.
    assert results.unreadable == ("asked.jsonl, line 2",)


def test_folders_without_a_run_are_errors(tmp_path: Path) -> None:
    with pytest.raises(NotARun, match="No run in"):
        read_results(tmp_path)
    with pytest.raises(NotARun, match="isn't a folder"):
        read_results(tmp_path / "none")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "Invalid JSON"),
        ("[1]", "must be an object"),
        ('{"skipped": {"missing": []}}', "skipped, missing must be an object"),
    ],
)
def test_a_damaged_manifest_is_an_error(tmp_path: Path, content: str, message: str) -> None:
    write_records(tmp_path / "asked.jsonl", [ASKED])
    (tmp_path / "manifest.1.json").write_text(content)
    with pytest.raises(NotARun, match=rf"manifest\.1\.json.*{message}"):
        read_results(tmp_path)


def test_manifests_keep_fields_of_other_versions(tmp_path: Path) -> None:
    write_records(tmp_path / "asked.jsonl", [ASKED])
    (tmp_path / "manifest.a.json").write_text('{"visar": "2", "started": "2"}')
    (tmp_path / "manifest.b.json").write_text('{"visar": "1", "started": "1", "more": [1]}')
    assert read_results(tmp_path).manifests == (
        {"visar": "1", "started": "1", "more": [1]},
        {"visar": "2", "started": "2"},
    )


def test_skipped_documents_come_from_the_manifests(tmp_path: Path) -> None:
    results = read_results(write_run(tmp_path, questions=5, generators=(), encoders=()))
    skipped = {"gone.pdf": "missing", "locked.pdf": "locked.pdf is encrypted"}
    assert results.skipped_documents("MMLongBench") == skipped
    assert results.skipped_documents("MMLongBench, corrected") == skipped
    assert results.skipped_documents(DATASETS[-1]) == {}
    assert make_results([ASKED], manifests=({"visar": "1"},)).skipped_documents("D") == {}


def test_a_retrieval_has_its_question_its_metrics_and_its_seconds() -> None:
    """Pages (2, 5) of evidence (2, 3): recall ½, precision ½, F1 ½, and not all evidence.

    The ranking 2, 5, 3 has both: recall 1, hit 1, first at rank 1; DCG is 1 + 1 / log₂ 4 = 1.5 of
    at most 1 + 1 / log₂ 3, for both kinds of NDCG.
    """
    chosen = RetrievalRecord(
        "D", "q1", "e", "visar", 2, (2, 5), (2, 5, 3), None, {"a": 0.5, "b": 0.25}
    )
    other = replace(chosen, method="their:method", seconds={}, pages=(3, 2), k=2)
    results = make_results([ASKED], [other, chosen])
    first, second = results.retrievals.to_dict("records")
    assert [first["method"], second["method"]] == ["visar", "their:method"]
    assert (first["seconds"], first["seconds.a"], first["document_pages"]) == (0.75, 0.5, 9)
    assert math.isnan(second["seconds"])
    values = [first[name] for name in ("recall", "precision", "f1", "perfect_recall")]
    assert values == pytest.approx([50, 50, 50, 0])
    assert second["perfect_recall"] == 100
    best = 1.5 / (1 + 1 / math.log2(3))
    names = ("recall@5", "hits@10", "mrr@5", "ndcg@5", "paper_ndcg@10")
    assert [first[name] for name in names] == pytest.approx([100, 100, 1, best, best])


def test_questions_without_evidence_do_not_count_for_retrieval() -> None:
    results = make_results(
        [replace(ASKED, evidence_pages=())],
        [RetrievalRecord("D", "q1", "e", "visar", 1, (2,), (2,), None)],
    )
    assert (len(results.retrievals), len(results.counted)) == (1, 0)
