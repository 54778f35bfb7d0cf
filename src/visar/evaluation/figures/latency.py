"""Figures of time: against document size and budget, by stage and by shortcut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

from visar.evaluation.figures.drawing import (
    Panel,
    Picture,
    draw_grid,
    method_style,
    plain,
    range_label,
    size_bins,
)
from visar.evaluation.findings import Findings
from visar.evaluation.methods import METHODS
from visar.evaluation.palette import COLOURS, STAGE_COLOURS
from visar.evaluation.statistics import summarize
from visar.evaluation.tables.latency import seconds_of
from visar.evaluation.tables.scope import label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TIMED = ("top-k", "visar", "visar-approx", "largest-gap", "score-cluster")
# More shades over one another would hide the lines.
_SHADED = ("top-k", "visar", "visar-approx")
_DECOMPOSED = ("visar", "visar-approx")
# Shortcuts one by one: their lines are told apart by their strokes.
_SHORTCUT_LINES: tuple[Any, ...] = ("--", "-.", ":", (0, (6, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)))

_Bins = Sequence[tuple[int, int]]
_BinnedSeconds = dict[tuple[int, int], list[float]]


def latency_figures(findings: Findings) -> list[Picture]:
    """Figures 4 and S10 to S13."""
    return [
        *_size_figures(findings),
        *_budget_figures(findings),
        *_end_to_end_figures(findings),
        *_stage_figures(findings),
    ]


def _size_figures(findings: Findings) -> list[Picture]:
    """Retrieval time against document size: of the methods, and of ViSAR's shortcuts."""
    wanted = (
        (
            "figure-4",
            "Figures 4 and S13. Retrieval time against document size",
            _TIMED,
            "Means of the questions about documents of that many pages; shaded for some: one "
            "standard deviation.",
        ),
        (
            "figure-s12",
            "Figure S12. Retrieval time by shortcut",
            ("visar", *_shortcuts(), "visar-approx"),
            "top-j: the weightiest patches of each page only; top-p: the pages with the weightiest "
            "patch only; top-s: k up to s only; ViSAR (Approx.): all three.",
        ),
    )
    pictures = []
    for key, title, methods, caption in wanted:
        panels = []
        for (dataset, encoder), by_method in findings.choices.items():
            bins = _bins(findings, dataset)
            times = {
                method: {question: seconds_of(one) for question, one in by_method[method].items()}
                for method in methods
                if method in by_method
            }
            lines = _by_size(findings, dataset, times, bins)
            if len(lines) > 1:
                draw = partial(_draw_by_size, lines=lines, bins=bins)
                panels.append(Panel(f"{dataset}, {encoder}", draw))
        if panels:
            pictures.append(draw_grid(key, title, caption, panels, columns=min(2, len(panels))))
    return pictures


def _shortcuts() -> tuple[str, ...]:
    return tuple(key for key, method in METHODS.items() if method.group == "acceleration")


def _bins(findings: Findings, dataset: str) -> list[tuple[int, int]]:
    return size_bins(one.pages for one in findings.questions.get(dataset, {}).values())


def _by_size(
    findings: Findings, dataset: str, times: Mapping[str, Mapping[str, float]], bins: _Bins
) -> dict[str, _BinnedSeconds]:
    """By method and size; what took no time was not measured."""
    asked = findings.questions.get(dataset, {})
    found: dict[str, _BinnedSeconds] = {}
    for method, by_question in times.items():
        for question in sorted(by_question):
            if by_question[question] > 0:
                place = _bin_of(asked[question].pages, bins)
                binned = found.setdefault(method, {})
                binned.setdefault(place, []).append(by_question[question])
    return found


def _bin_of(pages: int, bins: _Bins) -> tuple[int, int]:
    return next(one for one in bins if pages <= one[1])


def _draw_by_size(axes: Axes, lines: Mapping[str, _BinnedSeconds], bins: _Bins) -> None:
    shortcuts = _shortcuts()
    for method, binned in lines.items():
        places = [place for place, one in enumerate(bins) if one in binned]
        summaries = [summarize(binned[bins[place]]) for place in places]
        if method in shortcuts:
            line = _SHORTCUT_LINES[shortcuts.index(method) % len(_SHORTCUT_LINES)]
            style = {"color": COLOURS["visar"], "linestyle": line, "label": plain(label(method))}
        else:
            style = method_style(method)
        axes.plot(places, [one.mean for one in summaries], **style)
        if method not in _SHADED:
            continue
        axes.fill_between(
            places,
            # A logarithmic axis has no room for zero and less.
            [max(one.mean - one.std, one.mean / 10) for one in summaries],
            [one.mean + one.std for one in summaries],
            color=style["color"],
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
    axes.set_xticks(range(len(bins)), [range_label(*one) for one in bins])
    axes.set_xlabel("pages of the document")


def _budget_figures(findings: Findings) -> list[Picture]:
    """Figure 4: retrieval and generation under each budget."""
    panels = []
    settings = sorted({key[:3] for key in findings.answers})
    for dataset, generator, encoder in settings:
        chosen = findings.choices.get((dataset, encoder), {})
        bars: dict[int, dict[str, tuple[float, float]]] = {}
        for (*setting, k), by_method in findings.answers.items():
            if tuple(setting) != (dataset, generator, encoder):
                continue
            for method in [one for one in _TIMED if one in by_method and one in chosen]:
                answered = by_method[method]
                both = [q for q in sorted(answered) if q in chosen[method]]
                if both:
                    bars.setdefault(k, {})[method] = (
                        fmean(seconds_of(chosen[method][q]) for q in both),
                        fmean(answered[q].seconds for q in both),
                    )
        if bars:
            title = f"{dataset}, {encoder}, {generator}"
            panels.append(Panel(title, partial(_draw_budgets, bars=bars)))
    if not panels:
        return []
    return [
        draw_grid(
            "figure-4-budgets",
            "Figures 4 and S13. Time end to end against the budget",
            "Means over questions: retrieval (black, below) and generation (coloured, above). "
            "Table S8 has the numbers.",
            panels,
            columns=min(2, len(panels)),
        )
    ]


def _end_to_end_figures(findings: Findings) -> list[Picture]:
    """Figure S10: retrieval and generation together, under the largest budget."""
    panels = []
    largest: dict[tuple[str, str, str], int] = {}
    for *setting, k in findings.answers:
        dataset, generator, encoder = setting
        largest[dataset, generator, encoder] = max(k, largest.get((dataset, generator, encoder), 0))
    for (dataset, generator, encoder), k in largest.items():
        chosen = findings.choices.get((dataset, encoder), {})
        answers = findings.answers[dataset, generator, encoder, k]
        times = {
            method: {
                question: seconds_of(chosen[method][question]) + one.seconds
                for question, one in answers[method].items()
                if question in chosen[method]
            }
            for method in _TIMED
            if method in answers and method in chosen
        }
        bins = _bins(findings, dataset)
        lines = _by_size(findings, dataset, times, bins)
        if lines:
            draw = partial(_draw_by_size, lines=lines, bins=bins)
            panels.append(Panel(f"{dataset}, {encoder}, {generator}, Max-{k}", draw))
    if not panels:
        return []
    return [
        draw_grid(
            "figure-s10",
            "Figure S10. Time end to end against document size",
            "Retrieval and generation under the largest budget; shaded for some: one standard "
            "deviation.",
            panels,
            columns=min(2, len(panels)),
        )
    ]


def _draw_budgets(axes: Axes, bars: Mapping[int, Mapping[str, tuple[float, float]]]) -> None:
    width = 0.84 / len(_TIMED)
    for place, method in enumerate(_TIMED):
        found = [(at, bars[k][method]) for at, k in enumerate(sorted(bars)) if method in bars[k]]
        if not found:
            continue
        style = method_style(method)
        at = [center + (place - (len(_TIMED) - 1) / 2) * width for center, _ in found]
        retrieval = [one for _, (one, _) in found]
        generation = [one for _, (_, one) in found]
        axes.bar(at, retrieval, width * 0.92, color="black", label="retrieval")
        axes.bar(
            at,
            generation,
            width * 0.92,
            bottom=retrieval,
            color=style["color"],
            label=style["label"],
        )
    axes.set_xticks(range(len(bars)), [f"Max-{k}" for k in sorted(bars)])
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("seconds")


def _stage_figures(findings: Findings) -> list[Picture]:
    """Figure S11: which stage of ViSAR takes how long."""
    panels = []
    for (dataset, encoder), by_method in findings.choices.items():
        bins = _bins(findings, dataset)
        asked = findings.questions.get(dataset, {})
        for method in [one for one in _DECOMPOSED if one in by_method]:
            stages: dict[str, _BinnedSeconds] = {}
            for question in sorted(by_method[method]):
                place = _bin_of(asked[question].pages, bins)
                for stage, seconds in by_method[method][question].seconds.items():
                    stages.setdefault(stage, {}).setdefault(place, []).append(seconds)
            if stages:
                title = f"{label(method)}: {dataset}, {encoder}"
                panels.append(Panel(title, partial(_draw_stages, stages=stages, bins=bins)))
    if not panels:
        return []
    return [
        draw_grid(
            "figure-s11",
            "Figure S11. Retrieval time by stage",
            "Means of the questions about documents of that many pages.",
            panels,
            columns=min(2, len(panels)),
        )
    ]


_OTHER_STAGES = ("#444444", "#767676", "#A6A6A6", "#D9D9D9")


def _draw_stages(axes: Axes, stages: Mapping[str, _BinnedSeconds], bins: _Bins) -> None:
    heights = [0.0] * len(bins)
    known = [stage for stage in STAGE_COLOURS if stage in stages]
    others = sorted(stages.keys() - STAGE_COLOURS.keys())
    for stage in (*known, *others):
        means = [1000 * fmean(stages[stage].get(one, [0.0])) for one in bins]
        colour = STAGE_COLOURS.get(stage)
        if colour is None:
            colour = _OTHER_STAGES[others.index(stage) % len(_OTHER_STAGES)]
        axes.bar(range(len(bins)), means, 0.7, bottom=heights, color=colour, label=plain(stage))
        heights = [height + mean for height, mean in zip(heights, means, strict=True)]
    _label_sizes(axes, bins)
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("milliseconds")
