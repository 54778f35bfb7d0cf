"""The values in figures, compared with sums over the records, and their common style."""

from __future__ import annotations

import math
import re
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib import rcParams
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure

from tests.evaluation.synthetic import write_run
from visar.evaluation.details import read_details
from visar.evaluation.frames import Results, make_results, read_results
from visar.evaluation.records import QuestionRecord, RetrievalRecord, VerdictRecord
from visar.evaluation.report import (
    matrix_figures,
    retrieval_figures,
    sparsity,
    sweep_figures,
)
from visar.evaluation.report.answer_tables import settings_of
from visar.evaluation.report.drawing import (
    LOOKS,
    document_bins,
    figure_style,
    plot_spread,
    size_bins,
    stack_stages,
    to_svg,
)
from visar.evaluation.report.latency import latency_figures
from visar.evaluation.report.methods import LATE

DATASET, ENCODER = "MMLongBench", "embedded"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("run")
    write_run(folder, datasets=(DATASET,), encoders=(ENCODER,), generators=())
    return read_results(folder)


def of_method(results: Results, method: str) -> dict[str, Any]:
    chosen = results.retrievals[results.retrievals.method == method]
    return {one.question: one for one in chosen.itertuples()}


def test_gain_against_t(results: Results) -> None:
    line = sweep_figures.gains(results.counted, "recall@5")
    assert list(line.index) == [1, 5, 10, 25, 50, 75, 100, 150, 200, 300, 500, 750, 1000]
    late, ours = of_method(results, LATE), of_method(results, "visar T=50")
    differences = [
        len(set(ours[question].ranking[:5]) & set(one.evidence_pages)) / len(one.evidence_pages)
        - len(set(one.ranking[:5]) & set(one.evidence_pages)) / len(one.evidence_pages)
        for question, one in late.items()
        if one.evidence_pages
    ]
    assert line[50] == pytest.approx(100 * statistics.mean(differences))


def test_k_against_gamma_includes_all_questions(results: Results) -> None:
    before, after = (of_method(results, f"visar gamma={g}") for g in ("100", "1000"))
    assert len(after) == 40 > results.counted.question.nunique()
    ks = sweep_figures.ks_by_gamma(results.retrievals)
    assert list(ks.columns) == [10.0**power for power in range(9)]
    assert ks[1000.0].mean() == pytest.approx(statistics.mean(one.k for one in after.values()))
    line = sweep_figures.moves(ks)
    # The first γ has no previous one.
    assert min(line.index) == 10
    assert line[1000] == pytest.approx(
        statistics.mean(abs(after[q].k - before[q].k) for q in after)
    )


def test_the_papers_bins_of_k_oracle() -> None:
    places = {k: retrieval_figures.oracle_bin(k) for k in (1, 10, 11, 15, 16, 25, 26, 35, 36, 468)}
    names = {k: retrieval_figures.ORACLE_NAMES[place] for k, place in places.items()}
    assert names == {
        1: "1",
        10: "10",
        11: "11–15",
        15: "11–15",
        16: "16–20",
        25: "21–25",
        26: "26–35",
        35: "26–35",
        36: "36+",
        468: "36+",
    }


def test_f1_against_k_oracle_is_the_mean_over_questions() -> None:
    """(1) of (1): F1 1. (1, 2, 3) of (1): P ⅓, R 1, F1 ½. Their mean is 75 %.

    The F1 of mean P ⅔ and mean R 1 would be 80 %, as in Table 1.
    """
    asked, retrieved = [], []
    for name, evidence, pages, k_oracle in (
        ("a", (1,), (1,), 1),
        ("b", (1,), (1, 2, 3), 1),
        ("c", (1, 9), (1, 2), 12),
    ):
        asked.append(QuestionRecord(name, "D", "a", 99, evidence, answerable=True))
        chosen = RetrievalRecord("D", name, "e", "visar", len(pages), pages, pages, None)
        retrieved += [chosen, replace(chosen, method="oracle", k=k_oracle)]
    placed = retrieval_figures.with_oracle(make_results(asked, retrieved).counted)
    placed = placed[placed.method == "visar"]
    line = retrieval_figures.by_oracle(placed, "f1")
    assert {at: one.value for at, one in line.items()} == pytest.approx({0: 75.0, 10: 50.0})
    assert [one.count for one in line.values()] == [2, 1]
    # k − k_oracle: (1 − 1 + 3 − 1) / 2 = 1, and 2 − 12 = −10.
    differences = retrieval_figures.by_oracle(placed, "surplus")
    assert [one.value for one in differences.values()] == [1, -10]


def test_the_papers_curve_of_accuracy_against_sparsity() -> None:
    """Sparsity is 10, 20, 30 and 40 %; the last two answers are correct.

    At the 0th percentile all count: mean sparsity 25, accuracy 50. At the 50th, which is 25, the
    last two count: mean 35, accuracy 100. At the 95th, which is 38.5, only the last one counts.
    """
    points = pd.DataFrame({"sparsity": [10, 20, 30, 40], "accuracy": [0, 0, 100, 100]})
    curve = sparsity.cumulative(points)
    assert len(curve) == len(sparsity.PERCENTILES) == 20
    by_percentile = dict(zip(sparsity.PERCENTILES, curve, strict=True))
    shown = {at: (place, one.value, one.count) for at, (place, one) in by_percentile.items()}
    assert shown[0] == (25, 50, 4)
    assert shown[50] == (35, 100, 2)
    assert shown[95] == (40, 100, 1)


def test_shades_of_quartiles_and_of_standard_deviations() -> None:
    """The mean of 1, 1, 1, 97 is 25; the quartiles are 1 and 1 + ¼ · 96 = 25.

    The standard deviation is √(3 · 24² / 4 + 72² / 4) = 41.57, so the shade goes from 25 − 41.57,
    which is cut off at 1 because times aren't negative, to 66.57.
    """
    places, values = pd.Series([1.0] * 4), pd.Series([1.0, 1.0, 1.0, 97.0])
    with figure_style():
        for deviations, expected in ((False, (1, 25)), (True, (1, 66.569))):
            axes = Figure().add_subplot()
            plot_spread(axes, places, values, {"color": "black"}, deviations=deviations)
            assert np.asarray(axes.lines[0].get_ydata()).tolist() == [25]
            (shade,) = [one for one in axes.collections if isinstance(one, PolyCollection)]
            heights = np.asarray(shade.get_paths()[0].vertices)[:, 1]
            assert (heights.min(), heights.max()) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(
    ("dataset", "sizes", "bins"),
    [
        (
            "MMLongBench",
            [9, 50, 51, 150, 200, 468],
            {"1–50": 50, "51–100": 100, "101–150": 150, "151–200": 200, "201+": math.inf},
        ),
        ("MMLongBench, corrected", [9, 468], {"1–50": 50, "201+": math.inf}),
        (
            "LongDocURL",
            [50, 76, 125, 150, 151],
            {"50–75": 75, "76–100": 100, "101–125": 125, "126–150": math.inf},
        ),
    ],
)
def test_the_papers_bins_of_document_sizes(
    dataset: str, sizes: list[int], bins: dict[str, float]
) -> None:
    assert document_bins(dataset, sizes) == bins


@pytest.mark.parametrize(
    "sizes", [[4], [4, 4], [1, 3, 9, 27, 81, 243, 729], list(range(1, 60)), [5, 6, 7, 468]]
)
def test_every_size_has_a_bin(sizes: list[int]) -> None:
    bins = size_bins(sizes)
    assert len(bins) <= 6
    for size in sizes:
        assert sum(first <= size <= last for first, last in bins) == 1


def test_a_method_has_the_same_color_in_all_figures(results: Results) -> None:
    distributions = retrieval_figures.distribution_figures(results)
    for picture in [*distributions, latency_figures(results)[0]]:
        assert LOOKS["visar"][0].lower() in picture.svg, picture.key
    assert LOOKS["oracle"][0].lower() in distributions[0].svg


def _draw() -> str:
    with figure_style():
        figure = Figure()
        axes = figure.add_subplot()
        axes.plot([1, 2], [2, 1], label="ViSAR, γ = 10⁵")
        axes.legend()
        return to_svg(figure)


def test_figures_are_deterministic_and_keep_text() -> None:
    """Reports are committed, so figures may only change with their numbers."""
    plain = _draw()
    assert "<dc:date>" not in plain
    assert "ViSAR, γ = 10⁵" in plain
    rcParams["font.size"] = 30
    try:
        assert _draw() == plain
        assert rcParams["font.size"] == 30
    finally:
        rcParams["font.size"] = 10


def test_each_shortcut_has_a_line(results: Results) -> None:
    shortcuts = next(one for one in latency_figures(results) if one.key == "figure-s12")
    for name in (
        "ViSAR",
        "top-j = 450",
        "top-p = 75",
        "top-s = 10",
        "top-j = 450, top-p = 75",
        "top-j = 450, top-s = 10",
        "top-p = 75, top-s = 10",
        "ViSAR (Approx.)",
    ):
        assert f">{name}<" in shortcuts.svg


def test_a_detail_without_oracle_has_no_line_for_it(tmp_path: Path) -> None:
    (tmp_path / "details").mkdir()
    np.savez(
        tmp_path / "details" / "one.npz",
        similarity=np.eye(4),
        cost=np.array([-2.0, -1.0, np.nan]),
        k_star=1,
        k_oracle=0,
        id="q1",
    )
    (picture,) = matrix_figures.matrix_figures(read_details(tmp_path))
    assert picture.caption == (
        "4 pages; 75% of the entries are zero (black). k* = 1, k_oracle = —."
    )
    assert "ViSAR: 1" in picture.svg
    assert "Oracle" not in picture.svg


def test_bins_with_few_answers_are_omitted() -> None:
    asked, retrieved, judged = [], [], []
    for number, share in enumerate([0.1, 0.1, 0.5, 0.5, 0.5, 1.0, 1.0, 1.0]):
        key = ("D", f"q{number}", "e", "visar")
        asked.append(QuestionRecord(key[1], "D", "a", 9, (1,), answerable=True))
        chosen = RetrievalRecord(*key, 1, (1,), (1,), 0.0, {}, paper_sparsity=share)
        retrieved.append(chosen)
        judged.append(VerdictRecord(*key, "g", 5, "rules", correct=number % 2 > 0))
    results = make_results(asked, retrieved, judged=judged)
    _, picture = sparsity.sparsity_figures(settings_of(results))
    assert "Sparsity is the share of pages whose s_p" in picture.caption
    # Two bins have enough answers, and a sparsity of 100% is in the last one.
    line = re.search(
        r'd="(M [^"]*)" clip-path="[^"]*" style="fill: none; stroke: #0072b2', picture.svg
    )
    assert line is not None
    assert len(re.findall("[ML]", line.group(1))) == 2


def test_the_spread_of_stages_is_cut_off_at_zero() -> None:
    """A stage of 2 ms with a deviation of 5 ms reaches from 0 to 7 ms."""
    axes = Figure().add_subplot()
    stages, deviations = (pd.DataFrame({"ranking": [value]}) for value in (2.0, 5.0))
    stack_stages(axes, stages, 0.8, deviations)
    (spread,) = [one for one in axes.collections if isinstance(one, LineCollection)]
    assert [y for _, y in spread.get_segments()[0]] == [0, 7]
