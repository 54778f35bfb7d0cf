"""Methods applied to predictions in mteb's JSON format, with numbers computed by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from visar.errors import DatasetError, InvalidOption
from visar.evaluation.cut import cut, default_methods, read_predictions

# q1 has two clear pages of five, q2 has one.
SCORES = {
    "query-test-1": {"corpus-test-a": 9.0, "corpus-test-b": 8.9, "corpus-test-c": 1.0,
                     "corpus-test-d": 0.9, "corpus-test-e": 0.8},
    "query-test-2": {"corpus-test-c": 7.0, "corpus-test-a": 2.0, "corpus-test-b": 1.9,
                     "corpus-test-d": 1.8, "corpus-test-e": 1.7},
}  # fmt: skip
# q1: a and b, found at ranks 1 and 2. q2: b at rank 3, and z, which isn't predicted.
QRELS = "query-id\tcorpus-id\tscore\n1\ta\t1\n1\tb\t2\n2\tb\t1\n2\tz\t1\n3\ta\t1\n"


def write(folder: Path, predictions: Any = None, qrels: str = QRELS) -> tuple[Path, Path]:
    meta = {"mteb_model_meta": {"model_name": "a/b", "revision": "1"}}
    content = {**meta, "default": {"test": SCORES if predictions is None else predictions}}
    (folder / "predictions.json").write_text(json.dumps(content))
    (folder / "qrels.tsv").write_text(qrels)
    return folder / "predictions.json", folder / "qrels.tsv"


def test_chosen_documents_are_measured(tmp_path: Path) -> None:
    """Autocut chooses a and b for query 1, and c for query 2."""
    predictions, qrels = write(tmp_path)
    (row,) = cut(predictions, ["autocut"], qrels=qrels)
    assert (row.subset, row.method, row.queries, row.mean_k) == ("default/test", "autocut", 2, 1.5)
    # Recall 1 and 0, precision 1 and 0; only query 1 has all its evidence.
    assert (row.recall, row.precision, row.f1, row.perfect_recall) == (0.5, 0.5, 0.5, 0.5)
    assert row.ndcg == 0.5


def test_fixed_k_has_a_row_for_each_k(tmp_path: Path) -> None:
    predictions, qrels = write(tmp_path)
    one, three = cut(predictions, ["top-k"], qrels=qrels, fixed=[1, 3])
    assert (one.method, one.mean_k, three.method, three.mean_k) == (
        ("top-k, k = 1", 1.0, "top-k, k = 3", 3.0)
    )
    # k = 3: query 1 has both, query 2 one of two, at rank 3.
    assert three.recall == (1 + 1 / 2) / 2
    assert three.precision == pytest.approx((2 / 3 + 1 / 3) / 2)
    assert three.perfect_recall == 0.5
    ideal = 1 + 1 / math.log2(3)
    assert three.ndcg == pytest.approx((1 + (1 / math.log2(4)) / ideal) / 2)


def test_a_higher_grade_reduces_the_evidence(tmp_path: Path) -> None:
    """With grade 2, only b of query 1 is evidence; query 2 has none and is left out."""
    predictions, qrels = write(tmp_path)
    (row,) = cut(predictions, ["top-k"], qrels=qrels, fixed=[1], grade=2)
    assert (row.queries, row.recall) == (1, 0.0)


def test_the_threshold_is_fitted_on_the_other_half(tmp_path: Path) -> None:
    """Query 2 gives 1.9, which chooses a and b of query 1; query 1 gives 8.9: 1 page of query 2."""
    predictions, qrels = write(tmp_path)
    (row,) = cut(predictions, ["threshold"], qrels=qrels)
    assert row.mean_k == (2 + 1) / 2
    with pytest.raises(InvalidOption, match="fitted on held-out queries"):
        cut(predictions, ["threshold"])


def test_the_oracle_chooses_all_found_evidence(tmp_path: Path) -> None:
    predictions, qrels = write(tmp_path)
    (row,) = cut(predictions, ["oracle"], qrels=qrels)
    assert row.mean_k == (2 + 3) / 2
    assert row.recall == (1 + 1 / 2) / 2


def test_without_judgments_only_k_is_known(tmp_path: Path) -> None:
    predictions, _ = write(tmp_path)
    rows = cut(predictions)
    assert {row.method.partition(",")[0] for row in rows} == set(default_methods())
    assert "oracle" not in default_methods()
    assert all(row.recall is None and 1 <= row.mean_k <= 5 for row in rows)


def test_the_depth_limits_the_documents(tmp_path: Path) -> None:
    predictions, _ = write(tmp_path)
    (row,) = cut(predictions, ["top-k"], fixed=[5], depth=3)
    assert row.mean_k == 3


@pytest.mark.parametrize("method", ["visar", "visar-approx", "single-vector"])
def test_methods_that_need_vectors_are_errors(tmp_path: Path, method: str) -> None:
    predictions, _ = write(tmp_path)
    with pytest.raises(InvalidOption, match="vectors"):
        cut(predictions, [method])


def test_judgments_of_other_queries_are_errors(tmp_path: Path) -> None:
    predictions, qrels = write(tmp_path, qrels="query-id\tcorpus-id\tscore\n77\ta\t1\n")
    with pytest.raises(DatasetError, match="'77', predictions 'query-test-1'"):
        cut(predictions, qrels=qrels)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1]", r"expected an object, not \[1\]"),
        ("{", "JSON"),
        ('{"default": {"test": {"1": {"a": "high"}}}}', "the score of a must be a number, not 'hi"),
        ('{"default": {"test": {"1": {"a": NaN}}}}', "must be a number, not nan"),
        ('{"default": {"test": {}}}', "no predictions"),
    ],
)
def test_invalid_predictions_are_errors(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "p.json").write_text(content)
    with pytest.raises(DatasetError, match=message):
        read_predictions(tmp_path / "p.json")
