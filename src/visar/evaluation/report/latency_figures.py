"""Figures of time: against document size and budget, by stage and by shortcut."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import cycle
from statistics import fmean
from typing import TYPE_CHECKING, Any

from visar.evaluation.findings import Findings
from visar.evaluation.report import drawing, scope
from visar.evaluation.report.answer_tables import seconds_of
from visar.evaluation.report.drawing import draw_grid
from visar.evaluation.report.markup import Picture
from visar.evaluation.report.scope import LATE, label
from visar.evaluation.statistics import summarize

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TIMED = (LATE, "visar", "visar-approx", "largest-gap", "score-cluster")
# More shades over one another would hide the lines.
_SHADED = (LATE, "visar", "visar-approx")
_DECOMPOSED = ("visar", "visar-approx")
_SHORTCUTS = scope.of_group("acceleration")
# Shortcuts one by one: their lines are told apart by their strokes.
_SHORTCUT_LINES = ("--", "-.", ":", (0, (6, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)))

_Bins = Sequence[tuple[int, int]]
_Lines = tuple[_Bins, dict[str, dict[int, list[float]]]]
"""Bins of document sizes; seconds by method and place of the bin."""
_Bars = dict[int, dict[str, tuple[float, float]]]
"""Mean seconds of retrieval and generation by budget and method."""


def latency_figures(findings: Findings) -> list[Picture]:
    """Figures 4 and S10 to S13."""
    return [
        *_retrieval_figures(findings),
        *_budget_figures(findings),
        *_end_to_end_figures(findings),
        *_stage_figures(findings),
    ]


def _retrieval_figures(findings: Findings) -> list[Picture]:
    """Figures 4, S12 and S13: retrieval time against document size."""
    wanted = (
        (
            "figure-4",
            "Figures 4 and S13. Retrieval time against document size",
            "Means of the questions about documents of that many pages; shaded for some: one "
            "standard deviation.",
            (*_TIMED, *scope.other_methods(findings)),
        ),
        (
            "figure-s12",
            "Figure S12. Retrieval time by shortcut",
            "top-j: the weightiest patches of each page only; top-p: the pages with the weightiest "
            "patch only; top-s: k up to s only; ViSAR (Approx.): all three.",
            ("visar", *_SHORTCUTS, "visar-approx"),
        ),
    )
    pictures = []
    for key, title, caption, methods in wanted:
        panels = []
        for (dataset, encoder), by_method in findings.choices.items():
            times = {
                method: {question: seconds_of(one) for question, one in by_method[method].items()}
                for method in methods
                if method in by_method
            }
            bins, lines = _by_size(findings, dataset, times)
            # A line alone compares nothing.
            if len(lines) > 1:
                panels.append((f"{dataset}, {encoder}", (bins, lines)))
        pictures += draw_grid(key, title, caption, _line_drawer(findings), panels)
    return pictures


def _by_size(findings: Findings, dataset: str, times: Mapping[str, Mapping[str, float]]) -> _Lines:
    """Group seconds, given by method and question, by document size."""
    bins, places = _document_bins(findings, dataset)
    lines = {
        method: drawing.group(
            (places[question], by_question[question])
            for question in sorted(by_question)
            # What took no time was not measured.
            if by_question[question] > 0
        )
        for method, by_question in times.items()
    }
    return bins, {method: line for method, line in lines.items() if line}


def _document_bins(findings: Findings, dataset: str) -> tuple[_Bins, dict[str, int]]:
    """Ranges of document sizes, and the place of each question's document among them."""
    sizes = {one.question: one.pages for one in findings.questions.get(dataset, {}).values()}
    bins = drawing.size_bins(sizes.values())
    last_sizes = [last for _, last in bins]
    return bins, {question: bisect_left(last_sizes, size) for question, size in sizes.items()}


def _line_drawer(findings: Findings) -> Callable[[Axes, _Lines], None]:
    looks = drawing.method_looks(scope.other_methods(findings))
    colour = looks["visar"]["color"]
    for method, line in zip(_SHORTCUTS, cycle(_SHORTCUT_LINES), strict=False):
        looks[method] = {"color": colour, "linestyle": line, "label": label(method)}
    return partial(_draw_by_size, looks=looks)


def _draw_by_size(axes: Axes, data: _Lines, looks: Mapping[str, dict[str, Any]]) -> None:
    bins, lines = data
    for method, by_place in lines.items():
        places = sorted(by_place)
        summaries = [summarize(by_place[place]) for place in places]
        axes.plot(places, [one.mean for one in summaries], **looks[method])
        if method in _SHADED:
            axes.fill_between(
                places,
                # A logarithmic axis has no room for zero and less.
                [max(one.mean - one.std, one.mean / 10) for one in summaries],
                [one.mean + one.std for one in summaries],
                color=looks[method]["color"],
                alpha=0.15,
                linewidth=0,
            )
    _show_decades(axes)
    _label_sizes(axes, bins)
    axes.set_ylabel("seconds")


def _show_decades(axes: Axes) -> None:
    """A logarithmic axis with plain numbers, also where it spans less than a decade."""
    from matplotlib.ticker import LogLocator, NullLocator

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:g}")


def _label_sizes(axes: Axes, bins: _Bins) -> None:
    axes.set_xticks(range(len(bins)), [drawing.range_label(*one) for one in bins])
    axes.set_xlabel("pages of the document")


def _budget_figures(findings: Findings) -> list[Picture]:
    """Figure 4: retrieval and generation under each budget."""
    methods = (*_TIMED, *scope.other_methods(findings))
    settings: dict[tuple[str, str, str], _Bars] = {}
    for (dataset, generator, encoder, k), by_method in findings.answers.items():
        chosen = findings.choices.get((dataset, encoder), {})
        for method in [one for one in methods if one in by_method]:
            answered, retrieved = by_method[method], chosen.get(method, {})
            if both := sorted(answered.keys() & retrieved.keys()):
                bars = settings.setdefault((dataset, generator, encoder), {}).setdefault(k, {})
                bars[method] = (
                    fmean(seconds_of(retrieved[question]) for question in both),
                    fmean(answered[question].seconds for question in both),
                )
    looks = drawing.method_looks(scope.other_methods(findings))
    return draw_grid(
        "figure-4-budgets",
        "Figures 4 and S13. Time end to end against the budget",
        "Means over questions: retrieval (black, below) and generation (coloured, above). Table S8 "
        "has the numbers.",
        partial(_draw_budgets, looks={method: looks[method] for method in methods}),
        [
            (f"{dataset}, {encoder}, {generator}", bars)
            for (dataset, generator, encoder), bars in settings.items()
        ],
    )


def _draw_budgets(axes: Axes, bars: _Bars, looks: Mapping[str, dict[str, Any]]) -> None:
    width = 0.84 / len(looks)
    for place, (method, look) in enumerate(looks.items()):
        found = [(at, bars[k][method]) for at, k in enumerate(sorted(bars)) if method in bars[k]]
        if not found:
            continue
        at = [center + (place - (len(looks) - 1) / 2) * width for center, _ in found]
        retrieval = [one for _, (one, _) in found]
        generation = [one for _, (_, one) in found]
        axes.bar(at, retrieval, width * 0.92, color="black", label="retrieval")
        named = {"color": look["color"], "label": look["label"]}
        axes.bar(at, generation, width * 0.92, bottom=retrieval, **named)
    axes.set_xticks(range(len(bars)), [f"Max-{k}" for k in sorted(bars)])
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("seconds")


def _end_to_end_figures(findings: Findings) -> list[Picture]:
    """Figure S10: retrieval and generation together, under the largest budget."""
    # The keys are sorted: of each setting, the largest budget is the last.
    largest = {key[:3]: key[3] for key in findings.answers}
    panels = []
    for (dataset, generator, encoder), k in largest.items():
        chosen = findings.choices.get((dataset, encoder), {})
        answers = findings.answers[dataset, generator, encoder, k]
        times = {
            method: {
                question: seconds_of(chosen[method][question]) + one.seconds
                for question, one in answers[method].items()
                if question in chosen[method]
            }
            for method in (*_TIMED, *scope.other_methods(findings))
            if method in answers and method in chosen
        }
        bins, lines = _by_size(findings, dataset, times)
        if lines:
            panels.append((f"{dataset}, {encoder}, {generator}, Max-{k}", (bins, lines)))
    return draw_grid(
        "figure-s10",
        "Figure S10. Time end to end against document size",
        "Retrieval and generation under the largest budget; shaded for some: one standard "
        "deviation.",
        _line_drawer(findings),
        panels,
    )


def _stage_figures(findings: Findings) -> list[Picture]:
    """Figure S11: which stage of ViSAR takes how long."""
    panels = []
    for (dataset, encoder), by_method in findings.choices.items():
        bins, places = _document_bins(findings, dataset)
        for method in [one for one in _DECOMPOSED if one in by_method]:
            seconds = drawing.group(
                ((stage, places[question]), value)
                for question in sorted(by_method[method])
                for stage, value in by_method[method][question].seconds.items()
            )
            stages = {
                stage: [1000 * fmean(seconds.get((stage, at), [0.0])) for at in range(len(bins))]
                for stage, _ in seconds
            }
            if stages:
                panels.append((f"{label(method)}: {dataset}, {encoder}", (bins, stages)))
    return draw_grid(
        "figure-s11",
        "Figure S11. Retrieval time by stage",
        "Means of the questions about documents of that many pages.",
        _draw_stages,
        panels,
    )


def _draw_stages(axes: Axes, data: tuple[_Bins, Mapping[str, list[float]]]) -> None:
    bins, stages = data
    drawing.stack_stages(axes, range(len(bins)), stages, 0.7)
    _label_sizes(axes, bins)
