"""F1 of boxes with known areas, and of quotes on pages of the example report."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.evaluation.datasets.beir_sets import page_images
from tests.evaluation.datasets.layouts import write_lines
from tests.evaluation.small_run import evaluate
from visar.documents.page import Box
from visar.errors import InvalidOption
from visar.evaluation.boxes import box_f1, marked_boxes, quotes_f1
from visar.evaluation.frames import read_results
from visar.evaluation.questions import EvidenceBox
from visar.evaluation.report.answer_tables import box_tables
from visar.results import Passage

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
        # Overlapping boxes are one area, and so are two boxes that form a third.
        ({1: [LEFT, LEFT]}, {1: [LEFT]}, 1.0),
        ({1: [LEFT, RIGHT]}, {1: [WHOLE]}, 1.0),
        # Boxes on another page: 2 · 0.5 / (0.5 + 0.5 + 0.5), and 0.
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
def test_f1_equals_that_of_pixels(chosen: list[Box], marked: list[Box]) -> None:
    """Compared with images of 8 × 8 pixels, in both directions."""

    def picture(some: list[Box]) -> np.ndarray:
        pixels = np.zeros((8, 8), np.bool_)
        for left, top, right, bottom in some:
            pixels[int(8 * left) : int(8 * right), int(8 * top) : int(8 * bottom)] = True
        return pixels

    first, second = picture(chosen), picture(marked)
    expected = 2 * (first & second).sum() / (first.sum() + second.sum())
    assert box_f1({1: chosen}, {1: marked}) == pytest.approx(expected)
    assert box_f1({1: marked}, {1: chosen}) == pytest.approx(expected)


def test_the_best_annotator_counts(tmp_path: Path) -> None:
    Image.new("L", (100, 200)).save(tmp_path / "1.png")
    marks = [
        EvidenceBox(1, 0, (0, 0, 100, 50)),
        EvidenceBox(1, 1, (0, 0, 50, 50)),
        EvidenceBox(1, 1, (50, 0, 100, 200)),
    ]
    first, second = marked_boxes(marks, {1: (100, 200)})
    assert first == {1: [(0, 0, 1, 0.25)]}
    assert second == {1: [(0, 0, 0.5, 0.25), (0.5, 0, 1, 1)]}
    passage = Passage("", "", 1, 1.0, ((0, 0, 1, 0.25),))
    assert quotes_f1([passage], marks[::-1], tmp_path) == 1.0


def test_no_marked_boxes_are_an_error() -> None:
    with pytest.raises(InvalidOption, match="marked"):
        box_f1({1: [LEFT]}, {})


def write_set(folder: Path, mark: dict[str, int] | None) -> Path:
    """Write one question about two pages of the report; its answer is on the second."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
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


def test_quotes_are_compared_with_marked_boxes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole page is marked, so precision is 1 and F1 depends on the quoted share."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run, data = tmp_path / "run", tmp_path / "marked"
    settings: dict[str, Any] = {"methods": ("visar",), "generators": ("extractive",)}
    page = {"x1": 0, "y1": 0, "x2": 910, "y2": 1287}
    evaluate(run, data=(str(write_set(data, page)),), max_k=(5,), **settings)
    results = read_results(run)
    (f1,) = results.answers.box_f1
    assert 0 < f1 < 0.5
    (table,) = box_tables(results)
    assert table.rows[0][-1].value == pytest.approx(100 * f1)
    # With other marks, the quotes are compared again: only the upper half of the page is marked.
    evaluate(run, data=(str(write_set(data, page | {"y2": 643})),), max_k=(5,), **settings)
    (other,) = read_results(run).answers.box_f1
    assert other != f1


def test_quotes_without_marked_boxes_have_no_f1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    data = (str(write_set(tmp_path / "unmarked", None)),)
    evaluate(tmp_path / "run", data=data, methods=("visar",), generators=("extractive",))
    assert box_tables(read_results(tmp_path / "run")) == []
