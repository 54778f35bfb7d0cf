"""Compare the boxes of quotes with those that annotators marked.

ViDoRe v3 compares boxes by F1. Here it is the F1 of areas: all boxes of a page form one area, as
annotators may draw one or several boxes around the same lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from visar.documents.finding import visible_files
from visar.documents.page import Box
from visar.encoders.pooling import covered_area
from visar.errors import InvalidOption
from visar.evaluation.questions import EvidenceBox
from visar.results import Passage

Boxes: TypeAlias = Mapping[int, Sequence[Box]]
"""Boxes (left, top, right, bottom) by page."""


def box_f1(chosen: Boxes, marked: Boxes) -> float:
    """Return the F1 of areas: 2 |C ∩ M| / (|C| + |M|), summed over pages.

    C is the area of the chosen boxes of a page, and M of the marked ones, as fractions of the page.
    F1 is 1 if both are equal, and 0 if they don't overlap or nothing was chosen. Raises
    InvalidOption if nothing is marked.

    The left half of page 1 is chosen, and its upper half is marked:

    >>> box_f1({1: [(0, 0, 0.5, 1)]}, {1: [(0, 0, 1, 0.5)]})
    0.5
    """
    both = total = marked_area = 0.0
    for page in {*chosen, *marked}:
        own, other = chosen.get(page, ()), marked.get(page, ())
        areas = _area(own) + _area(other)
        both += areas - _area([*own, *other])
        total += areas
        marked_area += _area(other)
    if marked_area == 0:
        raise InvalidOption("The question has no marked boxes: leave it out of the comparison.")
    return 2 * both / total


def _area(boxes: Sequence[Box]) -> float:
    return covered_area(np.array(boxes, np.float64)) if boxes else 0.0


def marked_boxes(
    marked: Sequence[EvidenceBox], sizes: Mapping[int, tuple[int, int]]
) -> list[dict[int, list[Box]]]:
    """Return each annotator's boxes by page, as fractions of pages with the given pixel sizes."""
    by_annotator: dict[int, dict[int, list[Box]]] = {}
    for one in marked:
        width, height = sizes[one.page]
        left, top, right, bottom = one.box
        box = (left / width, top / height, right / width, bottom / height)
        by_annotator.setdefault(one.annotator, {}).setdefault(one.page, []).append(box)
    return list(by_annotator.values())


def quotes_f1(passages: Sequence[Passage], marked: Sequence[EvidenceBox], folder: Path) -> float:
    """Return the `box_f1` of quotes from a folder of page images, with the best annotator."""
    from PIL import Image

    quoted: dict[int, list[Box]] = {}
    for passage in passages:
        quoted.setdefault(passage.page, []).extend(passage.boxes)
    files = visible_files(folder)
    sizes = {}
    for page in {one.page for one in marked}:
        with Image.open(files[page - 1]) as image:
            sizes[page] = image.size
    return max(box_f1(quoted, boxes) for boxes in marked_boxes(marked, sizes))
