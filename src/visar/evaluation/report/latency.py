"""Latency of retrieval and generation: Table S8, Figures 4 and S10 to S13."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from visar.evaluation.frames import Results
from visar.evaluation.report import drawing
from visar.evaluation.report.drawing import draw_grid
from visar.evaluation.report.markup import Cell, Picture, Row, Table, mark_best
from visar.evaluation.report.methods import (
    LATE,
    is_timed,
    label,
    name_generator,
    of_group,
    other_methods,
    where,
)
from visar.evaluation.report.notes import question_notes
from visar.evaluation.report.paper import Comparison, the_paper

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TIMED = (LATE, "visar", "visar-approx", "largest-gap", "score-cluster")
# More overlapping shades would hide the lines.
_SHADED = (LATE, "visar", "visar-approx")
_SHORTCUTS = of_group("acceleration")
# The minimum number of pages of a long document in the paper.
_LONG = 100
_SPREAD = (
    "Lines: means. Shaded, for some methods: mean ± standard deviation, as in the paper, cut off "
    "at the smallest value. Bars: lower to upper quartile."
)
_APPROXIMATION = (
    "ViSAR (Approx.) has its own retrieval times but ViSAR's generation times, as in the paper."
)
_SETTING = ["dataset", "encoder", "generator", "prompt"]
_Panel = tuple[str, Sequence[str] | None, pd.DataFrame]


def answer_times(results: Results) -> pd.DataFrame:
    """Return the generation, retrieval and end_to_end seconds of all timed answers.

    The approximation gets ViSAR's answers, as in the paper, because it chooses the same pages and
    generators aren't run twice.
    """
    answers = where(results.answers, is_timed)
    budget = [*_SETTING, "max_k"]
    copies = answers[answers.method == "visar"].assign(method="visar-approx")
    own = answers[answers.method == "visar-approx"]
    copies = copies[
        ~pd.MultiIndex.from_frame(copies[budget]).isin([*own[budget].itertuples(False, None)])
    ]
    times = pd.concat([answers, copies]).rename(columns={"seconds": "generation"})
    key = ["dataset", "encoder", "method", "question"]
    retrievals = results.retrievals[[*key, "seconds", "document_pages"]]
    times = times.merge(retrievals.rename(columns={"seconds": "retrieval"}), on=key)
    return times.assign(end_to_end=times.generation + times.retrieval)


def how_timed(retrievals: pd.DataFrame) -> str:
    """Return a sentence on how retrieval was timed."""
    if retrievals.alone[retrievals.seconds.notna()].all():
        return "Retrieval was timed with all cores, one question at a time."
    return (
        "Retrieval was timed during concurrent searches on other cores. For undisturbed times, use "
        "visar eval run --measure-latency."
    )


def latency_tables(results: Results) -> list[Table]:
    """Return Table S8 for each data set, encoder and generator, or only retrieval times."""
    times = answer_times(results)
    tables = []
    timed = where(results.retrievals, is_timed)
    for (dataset, encoder), retrievals in timed.groupby(["dataset", "encoder"]):
        answers = times[(times.dataset == dataset) & (times.encoder == encoder)]
        if answers.empty:
            tables.append(_latency_table(results, retrievals, answers, None, ""))
        for (generator, prompt), group in answers.groupby(["generator", "prompt"]):
            tables.append(_latency_table(results, retrievals, group, generator, prompt))
    return tables


def _latency_table(
    results: Results,
    retrievals: pd.DataFrame,
    answers: pd.DataFrame,
    generator: str | None,
    prompt: str,
) -> Table:
    """Return Table S8 of a data set and encoder, with the answers of a generator."""
    dataset, encoder = retrievals.iloc[0][["dataset", "encoder"]]
    paper = Comparison.of_latency(results, dataset, encoder, generator, prompt)
    budgets = sorted(map(int, answers.max_k.unique()))
    counts = {}
    rows: list[Row] = []
    for method, group in retrievals.groupby("method", sort=False):
        seconds = group.seconds.dropna()
        counts[label(method), encoder] = len(seconds)
        paper_value = paper.value("retrieval_seconds", None, method)
        row: Row = {"Method": label(method), "n": paper.count(len(seconds), encoder, method)}
        row["Retrieval s"] = _seconds(seconds, 4, None, paper_value)
        for heading, name in (("Generation", "generation"), ("End to end", "end_to_end")):
            for k in budgets:
                of_budget = answers[answers.max_k == k]
                values, fixed = (
                    of_budget[name][of_budget.method == one].dropna() for one in (method, LATE)
                )
                if len(values) and name == "generation":
                    counts[f"{label(method)}, Max-{k}", encoder] = len(values)
                paper_value = paper.value(f"{name}_seconds", None, method, k)
                against = None if method == LATE else fixed
                row[f"{heading}, Max-{k} s"] = _seconds(values, 3, against, paper_value)
        rows.append(row)
    mark_best(rows, [heading for heading in rows[0] if "Max-" in heading], least=True)
    notes = [
        "Mean seconds, without encoding the question; in parentheses, the change relative to late "
        "interaction with the same budget. Bold: the lowest in a column. “—”: the generator didn't "
        "get the method's pages.",
        _APPROXIMATION,
        how_timed(retrievals),
    ]
    if len(answers) and (most := int(answers.concurrency.max())) > 1:
        notes.append(
            f"The generator answered up to {most} questions concurrently, so its seconds aren't "
            "latencies of single questions. Use --concurrency 1 to measure those."
        )
    notes += question_notes(results, dataset, counts, has_answers=True)
    if paper.obstacles:
        notes.append(f"Not compared with the paper: {'; '.join(paper.obstacles)}.")
    else:
        notes.append(
            f"The paper's times are from an {the_paper().machine}. Its Table S8 doesn't state the "
            "encoder."
        )
    names = [dataset, encoder, *([] if generator is None else [name_generator(generator, prompt)])]
    title = f"Table S8. Latency: {', '.join(names)}"
    return Table.of(f"table-s8 {' '.join(names)}", title, rows, notes)


def _seconds(
    values: pd.Series[float], digits: int, fixed: pd.Series[float] | None, paper: float | None
) -> Cell:
    """Return the mean, with the change relative to fixed top-k."""
    if values.empty:
        return Cell(None)
    change = None
    if fixed is not None and len(fixed) and fixed.mean() > 0:
        change = f"{100 * (values.mean() / fixed.mean() - 1):+.1f}%".replace("-", "−")
    return Cell(float(values.mean()), digits, remark=change, paper=paper)


def latency_figures(results: Results) -> list[Picture]:
    """Draw Figures 4 and S10 to S13."""
    methods = (*_TIMED, *filter(is_timed, other_methods(results)))
    shortcuts = ("visar", *_SHORTCUTS, "visar-approx")
    sizes: list[_Panel] = []
    by_shortcut: list[_Panel] = []
    # Zero seconds means not measured.
    measured = results.retrievals[results.retrievals.seconds > 0]
    for (dataset, encoder), frame in measured.groupby(["dataset", "encoder"]):
        for panels, shown in ((sizes, methods), (by_shortcut, shortcuts)):
            group = frame[frame.method.isin(shown)]
            # A single line compares nothing.
            if group.method.nunique() > 1:
                panels.append((f"{dataset}, {encoder}", *_by_size(results, dataset, group)))
    budgets: list[_Panel] = []
    long_documents: list[_Panel] = []
    end_to_end: list[_Panel] = []
    times = answer_times(results)
    for key, frame in times[times.method.isin(methods)].groupby(_SETTING):
        dataset, encoder, generator, prompt = key
        title = f"{dataset}, {encoder}, {name_generator(generator, prompt)}"
        own = frame[frame.method != "visar-approx"]
        budgets.append((f"Generation: {title}", *_by_budget(own, "generation")))
        whole = frame.dropna(subset="end_to_end")
        if whole.empty:
            continue
        budgets.append((f"End to end: {title}", *_by_budget(whole, "end_to_end")))
        names, placed = _by_size(results, dataset, whole[whole.document_pages >= _LONG])
        for at, group in placed.groupby("place"):
            name = f"{names[int(at)].partition(chr(10))[0]} pages, n={group.question.nunique()}"
            long_documents.append((f"{name}: {title}", *_by_budget(group, "end_to_end")))
        largest = whole[whole.max_k == whole.max_k.max()].assign(seconds=whole.end_to_end)
        name = f"{title}, Max-{whole.max_k.max()}"
        end_to_end.append((name, *_by_size(results, dataset, largest)))
    pictures = []
    for number, title, caption, panels in (
        (
            "4",
            "Figures 4 and S13. Retrieval time against document size",
            f"{_SPREAD} Without encoding the question. n is the number of questions. "
            f"{how_timed(results.retrievals)}",
            sizes,
        ),
        (
            "s12",
            "Figure S12. Retrieval time by shortcut",
            "All combinations of the three shortcuts. top-j: only the patches of each page with "
            "the highest weights; top-p: only the pages with the highest patch weight; top-s: only "
            "k up to s; ViSAR (Approx.): all three. Lines: means; n is the number of questions.",
            by_shortcut,
        ),
        (
            "4-budgets",
            "Figures 4 and S13. Generation and end-to-end time against the budget",
            f"{_SPREAD} {_APPROXIMATION} Table S8 has the numbers.",
            budgets,
        ),
        (
            "s10",
            "Figure S10. End-to-end time for long documents",
            f"Documents of at least {_LONG} pages. {_SPREAD} {_APPROXIMATION}",
            long_documents,
        ),
        (
            "s10-sizes",
            "Figure S10, all sizes. End-to-end time against document size",
            f"Retrieval and generation with the largest budget. {_SPREAD} {_APPROXIMATION} n is "
            "the number of questions.",
            end_to_end,
        ),
    ):
        looks = drawing.method_looks(shortcuts if panels is by_shortcut else methods)
        pictures += draw_grid(
            f"figure-{number}",
            title,
            caption,
            partial(_draw_lines, looks=looks),
            panels,
            columns=3 if panels is long_documents else 2,
            size=(5.2, 3.2),
            same_heights=True,
        )
    return [*pictures, *_stage_figures(results)]


def _by_size(results: Results, dataset: str, frame: pd.DataFrame) -> tuple[list[str], pd.DataFrame]:
    """Assign each row a place by its document's size; return the places' names and the rows."""
    bins = drawing.document_bins(dataset, results.of(dataset).pages)
    places = np.searchsorted([*bins.values()], frame.document_pages.astype(float))
    frame = frame.assign(place=places.astype(float))
    counts = frame.groupby("place").question.nunique()
    return [f"{name}\nn={counts.get(at, 0)}" for at, name in enumerate(bins)], frame


def _by_budget(frame: pd.DataFrame, name: str) -> tuple[None, pd.DataFrame]:
    """Assign each row a place by its budget, with the seconds of a column."""
    return None, frame.assign(place=frame.max_k.astype(float), seconds=frame[name])


def _draw_lines(
    axes: Axes,
    names: Sequence[str] | None,
    frame: pd.DataFrame,
    looks: Mapping[str, dict[str, Any]],
) -> None:
    """Draw seconds by method and place; ``names`` are those of places, if they aren't budgets."""
    methods = [method for method in looks if method in set(frame.method)]
    is_shaded = not set(methods) & set(_SHORTCUTS)
    gap = min(0.06, 0.5 / len(methods))
    for at, method in enumerate(methods):
        of_method = frame[frame.method == method]
        # Draw methods side by side, so that they don't overlap.
        places = of_method.place + gap * (at - (len(methods) - 1) / 2)
        if method in _SHADED and is_shaded:
            drawing.plot_spread(axes, places, of_method.seconds, looks[method], deviations=True)
        else:
            means = of_method.seconds.groupby(places).mean()
            axes.plot(means.index, means, **looks[method])
    axes.set_ylabel("seconds")
    if names is None:
        budgets = sorted(frame.place.unique())
        axes.set_xticks(budgets, [f"{budget:.0f}" for budget in budgets])
        axes.set_ylim(bottom=0)
        axes.set_xlabel("Max-k")
    else:
        drawing.set_log_heights(axes)
        axes.set_xticks(range(len(names)), names)
        axes.set_xlim(-0.4, len(names) - 0.6)
        axes.set_xlabel("pages of the document")


def _stage_figures(results: Results) -> list[Picture]:
    """Draw Figure S11: the time of ViSAR's stages."""
    panels = []
    stages = [name for name in results.retrievals.columns if name.startswith("seconds.")]
    frame = results.retrievals[results.retrievals.method.isin(("visar", "visar-approx"))]
    for (dataset, encoder, method), group in frame.groupby(["dataset", "encoder", "method"]):
        names, placed = _by_size(results, dataset, group)
        milliseconds = (1000 * placed[stages]).rename(columns=lambda name: name[8:])
        milliseconds = milliseconds.dropna(axis=1, how="all")
        if len(milliseconds.columns):
            by_place = milliseconds.groupby(placed.place)
            panels.append((f"{label(method)}: {dataset}, {encoder}", names, by_place))
    return draw_grid(
        "figure-s11",
        "Figure S11. Retrieval time by stage",
        "Means over questions about documents of these sizes; bars: ± standard deviation of each "
        "stage, cut off at 0. The paper's weights are “query to page” and “page to query”; "
        "its matrix is “self-similarity” (the diagonal) and “page to page” (the rows that are "
        "needed); its ranking includes the search for k*.",
        _draw_stages,
        panels,
        same_heights=True,
    )


def _draw_stages(axes: Axes, names: Sequence[str], by_place: Any) -> None:
    means, deviations = by_place.mean().fillna(0), by_place.std(ddof=0).fillna(0)
    drawing.stack_stages(axes, means, 0.7, deviations)
    axes.set_xticks(range(len(names)), [name.partition("\n")[0] for name in names])
    axes.set_xlabel("pages of the document")
