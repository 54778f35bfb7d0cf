"""Test the HTML of a selection in a notebook."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

import visar
from visar.core import Selection


def html_of(selection: Any) -> str:
    """Return the HTML that a notebook shows."""
    return str(selection._repr_html_())


def parse_html(selection: Selection) -> ET.Element:
    return ET.fromstring(f"<div>{html_of(selection)}</div>")  # noqa: S314 - our own markup


def select_from(count: int) -> Selection:
    random = np.random.default_rng(5)
    pages = random.normal(size=(count, 8, 16))
    pages /= np.linalg.norm(pages, axis=2, keepdims=True)
    query = pages[0, :4] + 0.2 * random.normal(size=(4, 16))
    query /= np.linalg.norm(query, axis=1, keepdims=True)
    return visar.select(query, list(pages), full_matrix=True)


@pytest.mark.parametrize("count", [1, 2, 40])
def test_every_page_has_a_bar_and_selected_pages_another_color(count: int) -> None:
    selection = select_from(count)
    idle, chosen = (path for path in parse_html(selection).iter("path") if path.get("stroke-width"))
    assert len(re.findall("M", idle.get("d", ""))) == count - selection.k
    assert len(re.findall("M", chosen.get("d", ""))) == selection.k
    assert f"{selection.k} of {count} pages" in "".join(parse_html(selection).itertext())


def test_curve_goes_through_every_cost_and_names_k_star() -> None:
    selection = select_from(40)
    root = parse_html(selection)
    (line,) = root.iter("polyline")
    heights = [float(point.split(",")[1]) for point in line.get("points", "").split()]
    assert len(heights) == len(selection.cost)
    # SVG counts y downward, so the largest y is where J is lowest.
    assert int(np.argmax(heights)) == int(np.argmin(selection.cost))
    assert f"k* = {selection.k_star}" in "".join(root.itertext())


def test_fallback_is_named() -> None:
    assert "(one page)" in html_of(select_from(1))
