"""Figures of time: against document size and budget, by stage and by shortcut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

from visar.evaluation.findings import Findings
from visar.evaluation.records import Answered, Retrieved
from visar.evaluation.report import drawing, scope
from visar.evaluation.report.drawing import draw_grid
from visar.evaluation.report.markup import Picture
from visar.evaluation.report.scope import LATE, answers_of, label, name_generator, seconds_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TIMED = (LATE, "visar", "visar-approx", "largest-gap", "score-cluster")
# More shades over one another would hide the lines.
_SHADED = (LATE, "visar", "visar-approx")
_DECOMPOSED = ("visar", "visar-approx")
_SHORTCUTS = scope.of_group("acceleration")
# The paper shows the budgets' effect on long documents, from this many pages on.
_LONG = 100
_SPREAD = "Means; shaded for some: from the lower to the upper quartile."
_APPROXIMATION = (
    "ViSAR (Approx.) has ViSAR's times of generation, as in the paper, and its own of retrieval."
)

_Seconds = dict[str, dict[float, list[float]]]
"""Seconds by method and place."""
_Lines = tuple[Sequence[str] | None, _Seconds]
"""Names of the places, or None where places are budgets; and what is drawn."""


def latency_figures(findings: Findings) -> list[Picture]:
    """Figures 4 and S10 to S13."""
    return [
        *_retrieval_figures(findings),
        *_budget_figures(findings),
        *_long_document_figures(findings),
        *_end_to_end_figures(findings),
        *_stage_figures(findings),
    ]


def _retrieval_figures(findings: Findings) -> list[Picture]:
    """Figures 4, S12 and S13: retrieval time against document size."""
    wanted = (
        (
            "figure-4",
            "Figures 4 and S13. Retrieval time against document size",
            f"{_SPREAD} Without encoding the question. n is the number of questions. "
            f"{scope.how_timed(one for one in findings.retrieved if one.seconds)}",
            _timed_methods(findings),
        ),
        (
            "figure-s12",
            "Figure S12. Retrieval time by shortcut",
            "All combinations of the three shortcuts. top-j: the weightiest patches of each page "
            "only; top-p: the pages with the weightiest patch only; top-s: k up to s only; ViSAR "
            "(Approx.): all three. Means; n is the number of questions.",
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
            data = _by_size(findings, dataset, times)
            # A line alone compares nothing.
            if len(data[1]) > 1:
                panels.append((f"{dataset}, {encoder}", data))
        pictures += draw_grid(
            key, title, caption, _line_drawer(methods), panels, size=(5.2, 3.2), same_heights=True
        )
    return pictures


def _timed_methods(findings: Findings) -> tuple[str, ...]:
    return (*_TIMED, *filter(scope.is_timed, scope.other_methods(findings)))


def _by_size(findings: Findings, dataset: str, times: Mapping[str, Mapping[str, float]]) -> _Lines:
    """Group seconds, given by method and question, by document size."""
    names, places = _document_places(findings, dataset)
    lines = {
        method: drawing.group(
            (float(places[question]), by_question[question])
            for question in sorted(by_question)
            # What took no time was not measured.
            if by_question[question] > 0
        )
        for method, by_question in times.items()
    }
    lines = {method: line for method, line in lines.items() if line}
    asked = {question for by_question in times.values() for question in by_question}
    counts = Counter(places[question] for question in asked)
    return [f"{name}\nn={counts[at]}" for at, name in enumerate(names)], lines


def _document_places(findings: Findings, dataset: str) -> tuple[Sequence[str], dict[str, int]]:
    """Ranges of document sizes, and the place of each question's document among them."""
    sizes = {one.question: one.pages for one in findings.questions.get(dataset, {}).values()}
    bins = drawing.document_bins(dataset, sizes.values())
    return bins.names, {question: bins.place(size) for question, size in sizes.items()}


def _line_drawer(methods: Iterable[str]) -> Callable[[Axes, _Lines], None]:
    return partial(_draw_lines, looks=drawing.method_looks(methods))


def _draw_lines(axes: Axes, data: _Lines, looks: Mapping[str, dict[str, Any]]) -> None:
    names, lines = data
    gap = min(0.06, 0.5 / len(lines)) if lines else 0
    for at, (method, seconds) in enumerate(lines.items()):
        # Beside each other, so that no method hides another.
        shift = gap * (at - (len(lines) - 1) / 2)
        by_place = {place + shift: values for place, values in seconds.items()}
        if method in _SHADED and not lines.keys() & set(_SHORTCUTS):
            drawing.plot_quartiles(axes, by_place, looks[method])
        else:
            places = sorted(by_place)
            axes.plot(places, [fmean(by_place[place]) for place in places], **looks[method])
    axes.set_ylabel("seconds")
    if names is None:
        budgets = sorted({place for by_place in lines.values() for place in by_place})
        axes.set_xticks(budgets, [f"{budget:.0f}" for budget in budgets])
        axes.set_ylim(bottom=0)
        axes.set_xlabel("Max-k")
    else:
        _show_decades(axes)
        axes.set_xticks(range(len(names)), names)
        axes.set_xlim(-0.4, len(names) - 0.6)
        axes.set_xlabel("pages of the document")


def _show_decades(axes: Axes) -> None:
    """A logarithmic axis with plain numbers, also where it spans less than a decade."""
    from matplotlib.ticker import LogLocator, NullLocator

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:g}")


_Answers = dict[int, dict[str, dict[str, Answered]]]
"""By budget, method and question."""


def _answered_settings(
    findings: Findings,
) -> list[tuple[str, str, Mapping[str, Mapping[str, Retrieved]], _Answers]]:
    """Data set, a panel's title, what was retrieved, and what was answered."""
    grouped: dict[tuple[str, str, str, str], _Answers] = {}
    for key, by_method in findings.answers.items():
        setting = (key.dataset, key.encoder, key.generator, key.prompt)
        grouped.setdefault(setting, {})[key.max_k] = by_method
    return [
        (
            dataset,
            f"{dataset}, {encoder}, {name_generator(generator, prompt)}",
            findings.choices.get((dataset, encoder), {}),
            answers,
        )
        for (dataset, encoder, generator, prompt), answers in grouped.items()
    ]


def _end_to_end(
    retrieved: Mapping[str, Mapping[str, Retrieved]],
    answers: Mapping[str, Mapping[str, Answered]],
    method: str,
) -> dict[str, float]:
    """Seconds of retrieval and generation together, by question."""
    chosen = retrieved.get(method, {})
    return {
        question: seconds_of(chosen[question]) + one.seconds
        for question, one in answers_of(answers, method).items()
        if question in chosen and chosen[question].seconds
    }


def _budget_figures(findings: Findings) -> list[Picture]:
    """Figures 4 and S13: generation and end to end against the budget."""
    methods = _timed_methods(findings)
    panels: list[tuple[str, _Lines]] = []
    for _, title, retrieved, answers in _answered_settings(findings):
        generation: _Seconds = {}
        both: _Seconds = {}
        for k, by_method in sorted(answers.items()):
            for method in methods:
                if method in by_method:
                    seconds = [one.seconds for one in by_method[method].values()]
                    generation.setdefault(method, {})[k] = seconds
                if times := list(_end_to_end(retrieved, by_method, method).values()):
                    both.setdefault(method, {})[k] = times
        panels.append((f"Generation: {title}", (None, generation)))
        if both:
            panels.append((f"End to end: {title}", (None, both)))
    return draw_grid(
        "figure-4-budgets",
        "Figures 4 and S13. Time of generation and end to end against the budget",
        f"{_SPREAD} {_APPROXIMATION} Table S8 has the numbers.",
        _line_drawer(methods),
        panels,
        size=(5.2, 3.0),
        same_heights=True,
    )


def _long_document_figures(findings: Findings) -> list[Picture]:
    """Figure S10: end to end against the budget, for long documents."""
    methods = _timed_methods(findings)
    panels: list[tuple[str, _Lines]] = []
    for dataset, title, retrieved, answers in _answered_settings(findings):
        names, places = _document_places(findings, dataset)
        asked = findings.questions[dataset]
        for at, name in enumerate(names):
            of_size = {
                question
                for question, place in places.items()
                if place == at and asked[question].pages >= _LONG
            }
            lines: _Seconds = {}
            for k, by_method in sorted(answers.items()):
                for method in methods:
                    times = _end_to_end(retrieved, by_method, method)
                    if shared := sorted(of_size & times.keys()):
                        seconds = [times[question] for question in shared]
                        lines.setdefault(method, {})[k] = seconds
            if lines:
                count = max(len(values) for line in lines.values() for values in line.values())
                panels.append((f"{name} pages, n={count}: {title}", (None, lines)))
    return draw_grid(
        "figure-s10",
        "Figure S10. Time end to end for long documents",
        f"Documents of at least {_LONG} pages. {_SPREAD} {_APPROXIMATION}",
        _line_drawer(methods),
        panels,
        columns=3,
        size=(4.4, 3.0),
        same_heights=True,
    )


def _end_to_end_figures(findings: Findings) -> list[Picture]:
    """End to end against document size, under the largest budget."""
    methods = _timed_methods(findings)
    panels = []
    for dataset, title, retrieved, answers in _answered_settings(findings):
        k = max(answers)
        times = {method: _end_to_end(retrieved, answers[k], method) for method in methods}
        data = _by_size(findings, dataset, {m: of for m, of in times.items() if of})
        if data[1]:
            panels.append((f"{title}, Max-{k}", data))
    return draw_grid(
        "figure-s10-sizes",
        "Figure S10, all sizes. Time end to end against document size",
        f"Retrieval and generation under the largest budget. {_SPREAD} {_APPROXIMATION} n is the "
        "number of questions.",
        _line_drawer(methods),
        panels,
        size=(5.2, 3.2),
        same_heights=True,
    )


def _stage_figures(findings: Findings) -> list[Picture]:
    """Figure S11: which stage of ViSAR takes how long."""
    panels = []
    for (dataset, encoder), by_method in findings.choices.items():
        names, places = _document_places(findings, dataset)
        for method in [one for one in _DECOMPOSED if one in by_method]:
            seconds = drawing.group(
                ((stage, places[question]), value)
                for question in sorted(by_method[method])
                for stage, value in by_method[method][question].seconds.items()
            )
            stages = {
                stage: [1000 * fmean(seconds.get((stage, at), [0.0])) for at in range(len(names))]
                for stage, _ in seconds
            }
            if stages:
                panels.append((f"{label(method)}: {dataset}, {encoder}", (names, stages)))
    return draw_grid(
        "figure-s11",
        "Figure S11. Retrieval time by stage",
        "Means of the questions about documents of that many pages. The paper's weights are “query "
        "to page” and “page to query”; its matrix is “self-similarity” (the diagonal) and “page to "
        "page” (the rows that decide); its ranking has the search for k*.",
        _draw_stages,
        panels,
        same_heights=True,
    )


def _draw_stages(axes: Axes, data: tuple[Sequence[str], Mapping[str, list[float]]]) -> None:
    names, stages = data
    drawing.stack_stages(axes, range(len(names)), stages, 0.7)
    axes.set_xticks(range(len(names)), names)
    axes.set_xlabel("pages of the document")
