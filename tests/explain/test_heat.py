"""Heat is where the weight is, and the page stays readable."""

from __future__ import annotations

import numpy as np
from PIL import Image

from visar.explain.heat import heat_of_pixels, with_heat

BOXES = np.array([[0.5, 0.0, 1.0, 0.5], [0.0, 0.5, 0.25, 1.0]], np.float32)


def test_the_heaviest_patch_is_hottest() -> None:
    heat = heat_of_pixels(BOXES, np.array([0.5, 0.25], np.float32), 8, 4)
    assert heat[0, 7] == 1
    assert heat[3, 0] == 0.5
    assert heat[0, 0] == 0


def test_paper_takes_colour_and_ink_stays_dark() -> None:
    page = Image.new("RGB", (8, 4), "white")
    page.putpixel((6, 1), (0, 0, 0))
    hot = with_heat(page, BOXES, np.array([1.0, 0.0], np.float32))
    pixels = np.asarray(hot, np.int16)
    assert pixels[0, 0].tolist() == [255, 255, 255]
    assert pixels[0, 7, 0] > pixels[0, 7, 2] + 50
    assert pixels[1, 6].tolist() == [0, 0, 0]


def test_a_page_without_weight_is_left_as_it_is() -> None:
    page = Image.new("RGB", (8, 4), "white")
    assert with_heat(page, BOXES, np.zeros(2, np.float32)).tobytes() == page.tobytes()
