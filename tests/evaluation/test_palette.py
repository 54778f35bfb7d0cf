"""Figures look alike and can be told apart."""

from __future__ import annotations

from matplotlib import rcParams
from matplotlib.figure import Figure

from visar.evaluation.methods import METHODS
from visar.evaluation.palette import COLOURS, MARKERS, figure_style, to_svg


def _drawn() -> str:
    with figure_style():
        figure = Figure()
        axes = figure.add_subplot()
        axes.plot([1, 2], [2, 1], color=COLOURS["visar"], label="ViSAR, γ = 10⁵")
        axes.legend()
        return to_svg(figure)


def test_every_main_method_has_a_colour_and_a_marker_of_its_own() -> None:
    main = {key for key, method in METHODS.items() if method.group == "main"}
    assert main | {"evidence"} == set(COLOURS) == set(MARKERS)
    assert len(set(COLOURS.values())) == len(COLOURS)
    assert len(set(MARKERS.values())) == len(MARKERS)


def test_the_same_figure_is_the_same_file() -> None:
    """Reports are committed: a figure may only change when its numbers do."""
    assert _drawn() == _drawn()
    assert "<dc:date>" not in _drawn()


def test_text_in_figures_is_text() -> None:
    assert "ViSAR, γ = 10⁵" in _drawn()


def test_the_style_ends_with_the_block_and_ignores_what_was_set_before() -> None:
    plain = _drawn()
    rcParams["font.size"] = 30
    try:
        assert _drawn() == plain
        assert rcParams["font.size"] == 30
    finally:
        rcParams["font.size"] = 10
