"""How well the parts of pages that a system points at are those that annotators marked.

ViDoRe v3 compares boxes by their F1. Here it is that of areas: all boxes of a page are one area,
whatever their number and overlap, since annotators draw one box or many around the same lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from visar.documents import ReadOptions
from visar.documents.finding import visible_files
from visar.documents.page import Box
from visar.errors import DatasetError, InvalidOption
from visar.evaluation.datasets import CORPUS_LIMITS
from visar.evaluation.questions import Dataset, EvidenceBox
from visar.index import Index
from visar.results import Passage

Boxes: TypeAlias = Mapping[int, Sequence[Box]]
"""Boxes (left, top, right, bottom) by page."""

QUOTES = 3
"""Number of quotes whose boxes are compared by default."""


@dataclass(frozen=True, slots=True)
class BoxQuality:
    """How well the boxes of a system match those of a data set."""

    questions: int
    """Number of questions that have marked boxes."""
    f1: float
    """Mean of their `box_f1` with the best matching annotator."""


def box_f1(chosen: Boxes, marked: Boxes) -> float:
    """F1 of areas: 2 |C ∩ M| / (|C| + |M|), summed over all pages of either.

    C is the area of the chosen boxes of a page, M that of the marked ones, both as shares of the
    page. 1 if both are the same; 0 if nothing overlaps, or nothing was chosen. Raises
    InvalidOption if nothing is marked.

    The left half of page 1 is chosen, and its upper half marked:

    >>> box_f1({1: [(0, 0, 0.5, 1)]}, {1: [(0, 0, 1, 0.5)]})
    0.5
    """
    both = total = marked_area = 0.0
    for page in {*chosen, *marked}:
        edges = [*chosen.get(page, ()), *marked.get(page, ())]
        cells = _cell_areas(edges)
        of_chosen = _covered(chosen.get(page, ()), edges)
        of_marked = _covered(marked.get(page, ()), edges)
        both += float(cells[of_chosen & of_marked].sum())
        marked_area += float(cells[of_marked].sum())
        total += float(cells[of_chosen].sum()) + float(cells[of_marked].sum())
    if marked_area == 0:
        raise InvalidOption("Nothing is marked: leave the question out of the comparison of boxes.")
    return 2 * both / total


def best_box_f1(chosen: Boxes, annotators: Sequence[Boxes]) -> float:
    """`box_f1` with the annotator whose boxes match best; raises as that does."""
    if not annotators:
        raise InvalidOption("Nothing is marked: leave the question out of the comparison of boxes.")
    return max(box_f1(chosen, marked) for marked in annotators)


def quoted_boxes(passages: Sequence[Passage]) -> dict[int, list[Box]]:
    """The boxes of quotes from one document, by page."""
    boxes: dict[int, list[Box]] = {}
    for passage in passages:
        boxes.setdefault(passage.page, []).extend(passage.boxes)
    return boxes


def marked_boxes(
    marked: Sequence[EvidenceBox], sizes: Mapping[int, tuple[int, int]]
) -> list[dict[int, list[Box]]]:
    """The boxes of each annotator by page, as shares of pages whose sizes in pixels are given."""
    by_annotator: dict[int, dict[int, list[Box]]] = {}
    for one in marked:
        width, height = sizes[one.page]
        left, top, right, bottom = one.box
        box = (left / width, top / height, right / width, bottom / height)
        by_annotator.setdefault(one.annotator, {}).setdefault(one.page, []).append(box)
    return list(by_annotator.values())


def measure_quotes(
    index: Index,
    dataset: Dataset,
    *,
    encoder: str | None = None,
    method: str = "visar",
    quotes: int = QUOTES,
) -> BoxQuality:
    """Compare the boxes of the best quotes with those marked in a data set.

    Parameters
    ----------
    index
        Takes the documents, unless it has them.
    dataset
        Its documents are folders of page images, as those in the layout of BEIR are.
    encoder, method
        As `visar.Index.search` takes them.
    quotes
        Number of best quotes of a question whose boxes count.

    Raises
    ------
    DatasetError
        If no question has marked boxes about a document that is there.
    """
    scores = []
    options = ReadOptions(limits=CORPUS_LIMITS)
    ids: dict[str, str] = {}
    for question in dataset.questions():
        path = dataset.path(question.document) if question.boxes else None
        if path is None:
            continue
        if question.document not in ids:
            ids[question.document] = index.add(path, encoder=encoder, options=options).id
        found = index.search(
            question.text, documents=[ids[question.document]], encoder=encoder, method=method
        )
        sizes = _sizes(path, {box.page for box in question.boxes})
        marked = marked_boxes(question.boxes, sizes)
        scores.append(best_box_f1(quoted_boxes(found.passages[:quotes]), marked))
    if not scores:
        raise DatasetError(f"{dataset.name} has no marked boxes on documents that are here.")
    return BoxQuality(len(scores), fmean(scores))


def _sizes(folder: Path, pages: set[int]) -> dict[int, tuple[int, int]]:
    """Width and height of page images of a folder, in pixels."""
    from PIL import Image

    files = visible_files(folder)
    sizes = {}
    for page in pages:
        with Image.open(files[page - 1]) as image:
            sizes[page] = image.size
    return sizes


def _cell_areas(boxes: Sequence[Box]) -> NDArray[np.float64]:
    """The areas of the cells that the edges of boxes cut a page into."""
    across, down = _edges(boxes)
    return np.outer(np.diff(across), np.diff(down))


def _covered(boxes: Sequence[Box], edges: Sequence[Box]) -> NDArray[np.bool_]:
    """Whether each cell lies in one of the boxes."""
    across, down = _edges(edges)
    covered = np.zeros((len(across) - 1, len(down) - 1), np.bool_)
    for left, top, right, bottom in boxes:
        columns = (across[:-1] >= left) & (across[1:] <= right)
        rows = (down[:-1] >= top) & (down[1:] <= bottom)
        covered |= np.outer(columns, rows)
    return covered


def _edges(boxes: Sequence[Box]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    values = np.array(boxes, np.float64)
    return np.unique(values[:, [0, 2]]), np.unique(values[:, [1, 3]])
