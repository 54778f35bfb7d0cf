"""What the figures draw, against sums over the records, and that they look alike."""

from __future__ import annotations

import re
import statistics
from pathlib import Path

import numpy as np
import pytest
from matplotlib import rcParams
from matplotlib.figure import Figure

from tests.evaluation.synthetic import write_run
from visar.evaluation import metrics
from visar.evaluation.findings import Findings, read_findings
from visar.evaluation.methods import METHODS
from visar.evaluation.records import Asked, Judged, Retrieved
from visar.evaluation.report import retrieval_figures
from visar.evaluation.report.drawing import LOOKS, OTHER_LOOKS, figure_style, size_bins, to_svg
from visar.evaluation.report.latency_figures import latency_figures
from visar.evaluation.report.retrieval_tables import f1
from visar.evaluation.report.scope import LATE, with_evidence

DATASET, ENCODER = "MMLongBench", "embedded"


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    folder = tmp_path_factory.mktemp("run")
    write_run(folder, datasets=(DATASET,), encoders=(ENCODER,), generators=())
    return read_findings(folder)


def of_method(findings: Findings, method: str) -> dict[str, Retrieved]:
    return {one.question: one for one in findings.retrieved if one.method == method}


def evidence(findings: Findings) -> dict[str, tuple[int, ...]]:
    return {one.question: one.evidence_pages for one in findings.asked if one.evidence_pages}


def test_gain_against_t(findings: Findings) -> None:
    line = retrieval_figures._gains(findings, DATASET, ENCODER, metric=metrics.recall_at, rank=5)
    assert list(line) == [m.options["top_t"] for m in METHODS.values() if m.group == "T"]
    late, ours = of_method(findings, LATE), of_method(findings, "visar T=50")
    differences = [
        len(set(ours[question].ranking[:5]) & set(pages)) / len(pages)
        - len(set(late[question].ranking[:5]) & set(pages)) / len(pages)
        for question, pages in evidence(findings).items()
    ]
    assert line[50] == pytest.approx(100 * statistics.mean(differences))


def test_k_against_gamma(findings: Findings) -> None:
    before, after = (of_method(findings, f"visar gamma={g}") for g in ("100", "1000"))
    moves = [abs(after[q].k - before[q].k) for q in evidence(findings)]
    line = retrieval_figures._moves(findings, DATASET, ENCODER)
    # The first γ has none before it.
    assert min(line) == 10
    assert line[1000] == pytest.approx(statistics.mean(moves))
    means = retrieval_figures._means(findings, DATASET, ENCODER)
    assert means[1000] == pytest.approx(statistics.mean(after[q].k for q in evidence(findings)))


def test_quality_against_oracle(findings: Findings) -> None:
    sizes = {question: one.k for question, one in of_method(findings, "oracle").items()}
    pairs = with_evidence(findings, DATASET, of_method(findings, "visar"))
    single = [question for question, size in sizes.items() if size == 1]
    ours = of_method(findings, "visar")
    p = statistics.mean(
        len(set(ours[q].pages) & set(evidence(findings)[q])) / len(ours[q].pages) for q in single
    )
    r = statistics.mean(
        len(set(ours[q].pages) & set(evidence(findings)[q])) / len(evidence(findings)[q])
        for q in single
    )
    by_size = retrieval_figures._by_oracle(pairs, sizes, f1)
    assert by_size[1] == pytest.approx(100 * 2 * p * r / (p + r))
    differences = retrieval_figures._by_oracle(pairs, sizes, None)
    assert differences[1] == pytest.approx(statistics.mean(ours[q].k - 1 for q in single))
    # All that is larger shares the last bin.
    assert max(by_size) <= 10 < max(sizes.values())


@pytest.mark.parametrize(
    "sizes", [[4], [4, 4], [1, 3, 9, 27, 81, 243, 729], list(range(1, 60)), [5, 6, 7, 468]]
)
def test_every_size_has_its_bin(sizes: list[int]) -> None:
    bins = size_bins(sizes)
    assert len(bins) <= 6
    for size in sizes:
        assert sum(first <= size <= last for first, last in bins) == 1


def test_a_method_has_one_colour_in_all_figures(findings: Findings) -> None:
    distributions = retrieval_figures.distribution_figures(findings)
    for picture in [*distributions, latency_figures(findings)[0]]:
        assert LOOKS["visar"][0].lower() in picture.svg, picture.key
    assert LOOKS["oracle"][0].lower() in distributions[0].svg


def test_every_look_is_of_one_main_method() -> None:
    main = {key for key, method in METHODS.items() if method.group == "main"}
    assert main | {"evidence"} == LOOKS.keys()
    for part in zip(*LOOKS.values(), *OTHER_LOOKS, strict=True):
        assert len(set(part)) == len(part)


def _drawn() -> str:
    with figure_style():
        figure = Figure()
        axes = figure.add_subplot()
        axes.plot([1, 2], [2, 1], label="ViSAR, γ = 10⁵")
        axes.legend()
        return to_svg(figure)


def test_the_same_figure_is_the_same_file_with_text_as_text() -> None:
    """Reports are committed: a figure may only change when its numbers do."""
    assert _drawn() == _drawn()
    assert "<dc:date>" not in _drawn()
    assert "ViSAR, γ = 10⁵" in _drawn()


def test_the_style_ends_with_the_block_and_ignores_what_was_set_before() -> None:
    plain = _drawn()
    rcParams["font.size"] = 30
    try:
        assert _drawn() == plain
        assert rcParams["font.size"] == 30
    finally:
        rcParams["font.size"] = 10


def test_each_shortcut_has_its_line(findings: Findings) -> None:
    shortcuts = next(one for one in latency_figures(findings) if one.key == "figure-s12")
    for name in ("ViSAR", "ViSAR (Approx.)", "top-j = 450", "top-p = 75", "top-s = 10"):
        assert f">{name}<" in shortcuts.svg


def test_a_detail_without_oracle_has_no_mark_of_it(tmp_path: Path) -> None:
    (tmp_path / "details").mkdir()
    np.savez(
        tmp_path / "details" / "one.npz",
        similarity=np.eye(4),
        cost=np.array([-2.0, -1.0, np.nan]),
        k_star=1,
        k_oracle=0,
        id="q1",
    )
    (picture,) = retrieval_figures.matrix_figures(retrieval_figures.read_details(tmp_path))
    assert picture.caption == (
        "4 pages; 75% of the entries are zero (black). k* = 1, k_oracle = —."
    )
    assert "ViSAR: 1" in picture.svg
    assert "Oracle" not in picture.svg


def test_bins_of_few_answers_are_left_out() -> None:
    setting = ("D", "e", "visar")
    asked, retrieved, judged = [], [], []
    for number, sparsity in enumerate([0.1, 0.1, 0.5, 0.5, 0.5, 1.0, 1.0, 1.0]):
        asked.append(Asked(f"q{number}", "D", "a", 9, (1,), answerable=True))
        dataset, encoder, method = setting
        retrieved.append(
            Retrieved(dataset, f"q{number}", encoder, method, 1, (1,), (1,), sparsity, {})
        )
        judged.append(
            Judged(dataset, f"q{number}", encoder, method, "g", 5, "rules", correct=number % 2 > 0)
        )
    findings = Findings(tuple(asked), tuple(retrieved), (), tuple(judged))
    (picture,) = retrieval_figures.sparsity_figures(findings)
    # Two bins have enough, and a full sparsity belongs to the last one.
    line = re.search(
        r'd="(M [^"]*)" clip-path="[^"]*" style="fill: none; stroke: #0072b2', picture.svg
    )
    assert line is not None
    assert len(re.findall("[ML]", line.group(1))) == 2
