"""Where on the page the patches of an image stand."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from visar.documents.page import Box

WHOLE_PAGE: Box = (0.0, 0.0, 1.0, 1.0)


def grid_boxes(rows: int, columns: int, within: Box = WHOLE_PAGE) -> NDArray[np.float32]:
    """Boxes of a grid laid over a part of the page, row after row.

    >>> grid_boxes(1, 2).tolist()
    [[0.0, 0.0, 0.5, 1.0], [0.5, 0.0, 1.0, 1.0]]
    """
    left, top, right, bottom = within
    across = np.linspace(left, right, columns + 1)
    down = np.linspace(top, bottom, rows + 1)
    boxes = np.empty((rows, columns, 4), np.float32)
    boxes[..., 0], boxes[..., 2] = across[:-1], across[1:]
    boxes[..., 1], boxes[..., 3] = down[:-1, None], down[1:, None]
    return boxes.reshape(-1, 4)


def tile_box(row: int, column: int, rows: int, columns: int) -> Box:
    """The part of the page that a tile shows; rows and columns are counted from 0.

    >>> tile_box(1, 0, 2, 4)
    (0.0, 0.5, 0.25, 1.0)
    """
    return column / columns, row / rows, (column + 1) / columns, (row + 1) / rows
