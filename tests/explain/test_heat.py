"""Tests of heat maps."""

from __future__ import annotations

import numpy as np
from PIL import Image

from visar.explain.pictures import overlay_heat, pixel_heat

BOXES = np.array([[0.5, 0.0, 1.0, 0.5], [0.0, 0.5, 0.25, 1.0]], np.float32)


def test_the_heaviest_patch_is_the_hottest() -> None:
    heat = pixel_heat(BOXES, np.array([0.5, 0.25], np.float32), 8, 4)
    assert heat[0, 7] == 1
    assert heat[3, 0] == 0.5
    assert heat[0, 0] == 0


def test_white_gets_colored_and_text_stays_dark() -> None:
    page = Image.new("RGB", (8, 4), "white")
    page.putpixel((6, 1), (0, 0, 0))
    hot = overlay_heat(page, BOXES, np.array([1.0, 0.0], np.float32))
    pixels = np.asarray(hot, np.int16)
    assert pixels[0, 0].tolist() == [255, 255, 255]
    assert pixels[0, 7, 0] > pixels[0, 7, 2] + 50
    assert pixels[1, 6].tolist() == [0, 0, 0]


def test_a_page_without_weights_is_unchanged() -> None:
    page = Image.new("RGB", (8, 4), "white")
    assert overlay_heat(page, BOXES, np.zeros(2, np.float32)).tobytes() == page.tobytes()
