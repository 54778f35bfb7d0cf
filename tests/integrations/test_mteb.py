"""Tests of ViSAR in mteb, on a task with pages of the example report. Nothing is downloaded."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

from tests.evaluation.datasets.beir_sets import page_images
from visar._version import __version__
from visar.encoders.embedded import EmbeddedEncoder
from visar.errors import InvalidOption
from visar.evaluation import metrics
from visar.evaluation.cut import cut

if TYPE_CHECKING:
    from visar.integrations.mteb import VisarSearch

# Of mteb and what it imports.
pytestmark = pytest.mark.filterwarnings("ignore")

PAGES = (9, 3, 20, 12)
QUERIES = {"q1": "How long is the warranty?", "q2": "How many employees are there?"}
QRELS = {"q1": {"p2": 1}, "q2": {"p0": 1, "p3": 1}}


def search_model(**options: Any) -> VisarSearch:
    # Imported here: mteb takes seconds.
    from visar.integrations.mteb import VisarSearch

    return VisarSearch("embedded", **options)


def harbour_task() -> Any:
    # Ours first: it makes torchvision importable where it was built for another torch.
    import visar.integrations.mteb  # noqa: F401, I001
    from datasets import Dataset  # type: ignore[import-untyped]
    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from mteb.abstasks.task_metadata import TaskMetadata

    class HarbourPages(AbsTaskRetrieval):
        """Two questions about four pages."""

        metadata = TaskMetadata(
            name="HarbourPages",
            description="Pages of an example report.",
            reference=None,
            dataset={"path": "nobody/nothing", "revision": "1"},
            type="DocumentUnderstanding",
            category="t2i",
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="ndcg_at_5",
            date=None,
            domains=None,
            task_subtypes=None,
            license=None,
            annotations_creators=None,
            dialect=None,
            modalities=["text", "image"],
            sample_creation=None,
            bibtex_citation=None,
        )

        def load_data(self, *_: Any, **__: Any) -> None:
            images = [Image.open(io.BytesIO(image)) for image in page_images(PAGES, 110)]
            corpus = [
                {"id": f"p{position}", "image": image} for position, image in enumerate(images)
            ]
            self.dataset = {
                "default": {
                    "test": {
                        "corpus": Dataset.from_list(corpus),
                        "queries": Dataset.from_list(
                            [{"id": name, "text": text} for name, text in QUERIES.items()]
                        ),
                        "relevant_docs": QRELS,
                        "top_ranked": None,
                    }
                }
            }
            self.data_loaded = True

    return HarbourPages()


def evaluated(model: VisarSearch, folder: Path) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """Return mteb's scores and saved predictions."""
    import mteb

    result = mteb.evaluate(
        model,
        harbour_task(),
        cache=None,
        prediction_folder=folder,
        co2_tracker=False,
        show_progress_bar=False,
    )
    saved = json.loads((folder / "HarbourPages_predictions.json").read_text())
    return result.task_results[0].scores["test"][0], saved["default"]["test"]


def test_ndcg_of_mteb_matches_ours(tmp_path: Path) -> None:
    scores, predictions = evaluated(search_model(method="top-k"), tmp_path)
    ours = []
    for query, documents in predictions.items():
        assert len(documents) == len(PAGES)
        ranking = [int(name[1:]) for name in sorted(documents, key=lambda name: -documents[name])]
        evidence = {int(name[1:]) for name in QRELS[query]}
        ours.append(metrics.ndcg_at(ranking, evidence, 5))
    assert scores["ndcg_at_5"] == pytest.approx(sum(ours) / len(ours), abs=1e-5)
    assert 0 < scores["ndcg_at_5"] <= 1
    # What mteb saves can be cut.
    qrels = tmp_path / "qrels.jsonl"
    rows = [
        {"query-id": query, "corpus-id": page, "score": grade}
        for query, pages in QRELS.items()
        for page, grade in pages.items()
    ]
    qrels.write_text("\n".join(map(json.dumps, rows)))
    (row,) = cut(tmp_path / "HarbourPages_predictions.json", ["top-k"], qrels=qrels, fixed=[10])
    assert row.ndcg == pytest.approx(scores["ndcg_at_10"], abs=1e-5)


def test_an_adaptive_method_returns_the_chosen_pages(tmp_path: Path) -> None:
    model = search_model()
    scores, predictions = evaluated(model, tmp_path)
    assert all(1 <= len(documents) < len(PAGES) for documents in predictions.values())
    assert scores["recall_at_5"] > 0
    assert model.mteb_model_meta.name == "visar/embedded-visar"
    # mteb keeps results by it: another version of the methods computes again.
    assert model.mteb_model_meta.revision == f"{EmbeddedEncoder.version}-visar-{__version__}"


def test_whole_rankings_and_candidates_of_another_model() -> None:
    model = search_model(cut=False)
    task = harbour_task()
    task.load_data()
    data = task.dataset["default"]["test"]
    model.index(data["corpus"])
    whole = model.search(data["queries"], top_k=10)
    assert {len(documents) for documents in whole.values()} == {len(PAGES)}
    assert {len(found) for found in model.search(data["queries"], top_k=2).values()} == {2}
    few = model.search(data["queries"], top_k=10, top_ranked={"q1": ["p2", "p0"], "q2": ["p3"]})
    assert {query: set(found) for query, found in few.items()} == {"q1": {"p2", "p0"}, "q2": {"p3"}}


def test_a_corpus_without_images_raises_an_error() -> None:
    with pytest.raises(InvalidOption, match="'d1'"):
        search_model().index([{"id": "d1", "text": "words"}])


def test_tied_pages_keep_their_order() -> None:
    from visar.integrations.mteb import _strictly_decreasing

    scores = _strictly_decreasing(np.array([2.0, 2.0, 1.5, 1.7]))
    as_stored = np.array(scores, np.float32)
    assert (np.diff(as_stored) < 0).all()
    assert scores == pytest.approx([2, 2, 1.5, 1.5], abs=1e-6)
