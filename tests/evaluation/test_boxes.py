"""F1 of boxes, on areas that can be read off, and of quotes on pages of the example report."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.evaluation.datasets.beir_sets import page_images
from tests.evaluation.datasets.layouts import write_lines
from visar.documents.page import Box
from visar.errors import DatasetError, InvalidOption
from visar.evaluation.boxes import best_box_f1, box_f1, marked_boxes, measure_quotes
from visar.evaluation.datasets import open_dataset
from visar.evaluation.questions import EvidenceBox
from visar.index import Index

LEFT: Box = (0, 0, 0.5, 1)
RIGHT: Box = (0.5, 0, 1, 1)
WHOLE: Box = (0, 0, 1, 1)


@pytest.mark.parametrize(
    ("chosen", "marked", "f1"),
    [
        ({1: [LEFT]}, {1: [LEFT]}, 1.0),
        ({1: [LEFT]}, {1: [RIGHT]}, 0.0),
        ({}, {1: [RIGHT]}, 0.0),
        # 2 · 0.5 / (1 + 0.5)
        ({1: [WHOLE]}, {1: [LEFT]}, 2 / 3),
        # Two boxes that overlap are one area, and so are two that make up a third.
        ({1: [LEFT, LEFT]}, {1: [LEFT]}, 1.0),
        ({1: [LEFT, RIGHT]}, {1: [WHOLE]}, 1.0),
        # On another page: 2 · 0.5 / (0.5 + 0.5 + 0.5), and nothing of it.
        ({1: [LEFT], 2: [LEFT]}, {1: [LEFT]}, 2 / 3),
        ({2: [LEFT]}, {1: [LEFT]}, 0.0),
    ],
)
def test_f1_of_areas(chosen: dict[int, list[Box]], marked: dict[int, list[Box]], f1: float) -> None:
    assert box_f1(chosen, marked) == pytest.approx(f1)


corners = st.sampled_from(list(combinations(range(9), 2)))
box = st.tuples(corners, corners).map(
    lambda sides: (sides[0][0] / 8, sides[1][0] / 8, sides[0][1] / 8, sides[1][1] / 8)
)
boxes = st.lists(box, min_size=1, max_size=5)


@given(boxes, boxes)
def test_f1_is_that_of_pixels(chosen: list[Box], marked: list[Box]) -> None:
    """Compared with two pictures of 8 × 8 pixels; the other way round it is the same."""

    def picture(some: list[Box]) -> np.ndarray:
        pixels = np.zeros((8, 8), np.bool_)
        for left, top, right, bottom in some:
            pixels[int(8 * left) : int(8 * right), int(8 * top) : int(8 * bottom)] = True
        return pixels

    first, second = picture(chosen), picture(marked)
    expected = 2 * (first & second).sum() / (first.sum() + second.sum())
    assert box_f1({1: chosen}, {1: marked}) == pytest.approx(expected)
    assert box_f1({1: marked}, {1: chosen}) == pytest.approx(expected)


def test_the_best_annotator_counts() -> None:
    marks = [
        EvidenceBox(3, 0, (0, 0, 100, 50)),
        EvidenceBox(3, 1, (0, 0, 50, 50)),
        EvidenceBox(3, 1, (50, 0, 100, 200)),
    ]
    first, second = marked_boxes(marks, {3: (100, 200)})
    assert first == {3: [(0, 0, 1, 0.25)]}
    assert second == {3: [(0, 0, 0.5, 0.25), (0.5, 0, 1, 1)]}
    assert best_box_f1({3: [(0, 0, 1, 0.25)]}, [second, first]) == 1.0


def test_nothing_marked_is_refused() -> None:
    with pytest.raises(InvalidOption, match="Nothing is marked"):
        box_f1({1: [LEFT]}, {})
    with pytest.raises(InvalidOption, match="Nothing is marked"):
        best_box_f1({1: [LEFT]}, [])


def write_set(folder: Path, mark: dict[str, int] | None) -> Path:
    """One question about two pages of the report; its answer is on the second."""
    (folder / "images").mkdir(parents=True)
    corpus = []
    for number, image in enumerate(page_images((3, 9), 110)):
        (folder / "images" / f"{number}.png").write_bytes(image)
        corpus.append({"_id": str(number), "image": f"images/{number}.png"})
    write_lines(folder / "corpus.jsonl", corpus)
    question = "How long is the warranty?"
    write_lines(folder / "queries.jsonl", [{"_id": "q", "text": question}])
    marks = [] if mark is None else [mark]
    judged = {"query-id": "q", "corpus-id": "1", "score": 1, "bounding_boxes": marks}
    (folder / "qrels.jsonl").write_text(json.dumps(judged))
    return folder


def test_quotes_are_compared_with_the_marks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole page is marked, so that precision is 1 and F1 tells the share that is quoted."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    page = {"x1": 0, "y1": 0, "x2": 910, "y2": 1287}
    dataset = open_dataset(write_set(tmp_path / "marked", page))
    with Index.open(tmp_path / "index", reader="none") as index:
        found = measure_quotes(index, dataset)
        assert found.questions == 1
        assert 0 < found.f1 < 0.5
        unmarked = open_dataset(write_set(tmp_path / "unmarked", None))
        with pytest.raises(DatasetError, match="unmarked has no marked boxes"):
            measure_quotes(index, unmarked)
