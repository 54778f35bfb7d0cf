"""Present the results of ``visar bench``: tables, the paper's latency figures, and files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

import pandas as pd

from visar.errors import InvalidOption
from visar.evaluation.methods import METHODS
from visar.evaluation.report import drawing
from visar.evaluation.report.markup import Row, Table, escape_markdown, markdown_table
from visar.evaluation.report.methods import label
from visar.evaluation.timing import APPROXIMATE, EXACT, LATE, SHORTCUTS, Bench, Part, Timing
from visar.files import write_whole
from visar.serialization import to_plain
from visar.text import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Width of a bar, where each document size takes up a width of 1.
BAR_WIDTH = 0.38


def tables(bench: Bench) -> list[Table]:
    """Return the main tables: methods, documents, and latency by document size."""
    longest = bench.sizes[-1]
    return [
        _by_method(f"All methods · {counted(len(bench.documents), 'document')}", bench.overall),
        _by_part("Documents", "DOCUMENT", [(part.name, part) for part in bench.documents]),
        _by_part(
            f"Latency against document size: the first pages of {longest.name}",
            "PART",
            [(f"{part.pages / longest.pages:.0%}", part) for part in bench.sizes],
        ),
    ]


def save(bench: Bench, folder: Path) -> list[Path]:
    """Write bench.json, bench.md and the figures to a folder; return their paths."""
    texts = {
        "bench.json": json.dumps(to_plain(bench), ensure_ascii=False, indent=2) + "\n",
        "bench.md": to_markdown(bench),
        **figures(bench),
    }
    for name, text in texts.items():
        write_whole(folder / name, text.encode())
    return [folder / name for name in texts]


def make_ready(folder: Path) -> None:
    """Check that results can be saved in a folder, before measuring.

    Raises InvalidOption if the folder isn't writable, and MissingExtra without matplotlib.
    """
    with drawing.figure_style():
        pass
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InvalidOption(f"Can't write to {folder}: {error.strerror}.") from error


def summary_lines(bench: Bench) -> list[str]:
    """Return lines that explain what was measured, and how."""
    same = sum(part.same_pages for part in bench.documents)
    questions = sum(len(part.k_star) for part in bench.documents)
    machine = bench.machine
    return [
        f"milliseconds: median (quartiles) of {counted(bench.rounds, 'round')} per question, "
        "with methods interleaved; × is the ratio to late interaction",
        f"exact and approximate ViSAR chose the same pages for {same} of "
        f"{counted(questions, 'question')} (approximate ViSAR chooses "
        f"at most {METHODS[APPROXIMATE].options['top_s']})",
        f"not included: encoding a question with {bench.encoder} "
        f"({bench.encoding.median:.1f} ms), and loading a document",
        f"{machine['processor']}, {counted(int(machine['cores']), 'core')}, numpy "
        f"{machine['numpy']}, OMP_NUM_THREADS {machine['OMP_NUM_THREADS'] or 'not set'}, "
        f"visar {machine['visar']}",
        *bench.notes,
    ]


def to_markdown(bench: Bench) -> str:
    """Return all tables as Markdown, including a table of methods for each document."""
    text = "# Latency\n\n" + "".join(f"- {line}\n" for line in summary_lines(bench))
    by_document = [
        _by_method(f"{part.name} · {counted(part.pages, 'page')}", part.timings)
        for part in bench.documents
    ]
    for table in tables(bench) + by_document:
        text += f"\n## {escape_markdown(table.title)}\n\n{markdown_table(table)}\n"
    return text + (
        "\n![Latency against document size](latency-size.svg)\n"
        "\n![Latency by component](latency-components.svg)\n"
        "\n![Latency by acceleration strategy](latency-strategies.svg)\n"
    )


def _table(title: str, rows: Sequence[Row]) -> Table:
    """Return a table of text, with numbers in all columns except the first."""
    return Table.of(title, title, rows, numeric=[*rows[0]][1:])


def _by_method(title: str, timings: Mapping[str, Timing]) -> Table:
    rows: list[Row] = []
    for name, timing in timings.items():
        row: Row = {"METHOD": f"{label(name)} only" if name in SHORTCUTS else label(name)}
        row |= {"MS": _spread(timing), "TIMES LATE": f"{timing.ratio:.1f}×"}
        for stage in timings[EXACT].stages:
            share = f"{timing.share(stage):.0%}" if stage in timing.stages else ""
            row[stage.upper().replace("-", " ")] = share
        rows.append(row)
    return _table(title, rows)


def _by_part(title: str, first: str, parts: Sequence[tuple[str, Part]]) -> Table:
    # Leave out Largest-Gap, which takes only microseconds more than late interaction.
    shown = [key for key in _methods([part for _, part in parts]) if key != "largest-gap"]
    short = {LATE: "LATE", APPROXIMATE: "VISAR APPROX."}
    rows: list[Row] = []
    for name, part in parts:
        row: Row = {first: name, "PAGES": str(part.pages), "VECTORS": f"{part.vectors:,}"}
        row["k*"] = f"{median(part.k_star):g}"
        for key in shown:
            heading = short.get(key, label(key).upper().replace("-", " "))
            row[heading] = _median(part.timings.get(key))
        rows.append(row | {"SAME PAGES": f"{part.same_pages}/{len(part.k_star)}"})
    return _table(title, rows)


def _methods(parts: Sequence[Part]) -> list[str]:
    """Return all measured methods except single shortcuts."""
    measured = dict.fromkeys(key for part in parts for key in part.timings)
    return [key for key in measured if key not in SHORTCUTS]


def _spread(timing: Timing) -> str:
    ms = timing.milliseconds
    middle, *quartiles = map(_milliseconds, (ms.median, ms.lower_quartile, ms.upper_quartile))
    return f"{middle} ({'–'.join(quartiles)})"


def _median(timing: Timing | None) -> str:
    if timing is None:
        return "–"
    middle = _milliseconds(timing.milliseconds.median)
    return middle if timing.method == LATE else f"{middle} {timing.ratio:.1f}×"


def _milliseconds(value: float) -> str:
    """Format milliseconds, with decimals only below 10."""
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def figures(bench: Bench) -> dict[str, str]:
    """Return the paper's latency figures as SVG, by file name."""
    whole, encoder = counted(bench.sizes[-1].pages, "page"), drawing.plain(bench.encoder)
    svgs = {}
    with drawing.figure_style():
        from matplotlib.figure import Figure

        for name, title, draw in (
            ("size", f"Latency against document size ({encoder})", _draw_sizes),
            (
                "components",
                f"Latency by component, exact and approximate ({encoder})",
                _draw_components,
            ),
            ("strategies", f"Latency by acceleration strategy, {whole}", _draw_strategies),
        ):
            figure = Figure()
            axes = figure.add_subplot()
            axes.set_title(title)
            draw(axes, bench)
            svgs[f"latency-{name}.svg"] = drawing.to_svg(figure)
    return svgs


def _draw_sizes(axes: Axes, bench: Bench) -> None:
    """Draw a line per method over parts of the longest document, and a point per document."""
    methods = _methods([*bench.documents, *bench.sizes])
    looks = drawing.method_looks(methods)
    for key in methods:
        color, marker, name = (looks[key][part] for part in ("color", "marker", "label"))
        lines, points = (
            [(part.pages, part.timings[key].milliseconds) for part in parts if key in part.timings]
            for parts in (bench.sizes, bench.documents)
        )
        if lines:
            pages = [count for count, _ in lines]
            medians = [ms.median for _, ms in lines]
            axes.plot(pages, medians, label=name, color=color, marker=marker)
            quartiles = [(ms.lower_quartile, ms.upper_quartile) for _, ms in lines]
            drawing.shade(axes, pages, *zip(*quartiles, strict=True), color=color, alpha=0.2)
        axes.plot(
            [count for count, _ in points],
            [ms.median for _, ms in points],
            linestyle="",
            alpha=0.35,
            color=color,
            marker=marker,
        )
    drawing.set_log_heights(axes)
    axes.set_xlim(left=0)
    axes.set(xlabel="pages", ylabel="milliseconds")
    text = "lines: the first pages of the longest document · points: whole documents"
    small = {"va": "top", "fontsize": 8, "color": "#555555"}
    _annotate(axes, text, (0, 0), (0, -34), xycoords="axes fraction", **small)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))


def _draw_components(axes: Axes, bench: Bench) -> None:
    """Draw stacked stages of exact and approximate ViSAR for each part of the longest document."""
    bars = {
        place + side * (BAR_WIDTH / 2 + 0.02): part.timings[key]
        for place, part in enumerate(bench.sizes)
        for side, key in ((-1, EXACT), (1, APPROXIMATE))
    }
    _stack(axes, bars)
    axes.set_xticks([*bars], ["exact", "appr."] * len(bench.sizes), fontsize="small")
    for place, part in enumerate(bench.sizes):
        below = {"xycoords": ("data", "axes fraction"), "ha": "center", "va": "top"}
        _annotate(axes, counted(part.pages, "page"), (place, 0), (0, -22), **below)


def _draw_strategies(axes: Axes, bench: Bench) -> None:
    """Draw stages with no, single and all shortcuts, for the longest document."""
    shortcuts = {key: label(key).replace(" ", "\n", 1) for key in SHORTCUTS}
    names = {EXACT: "none\n(exact)"} | shortcuts | {APPROXIMATE: "all three\n(approx.)"}
    timings = bench.sizes[-1].timings
    _stack(axes, {float(place): timings[key] for place, key in enumerate(names)})
    axes.set_xticks(range(len(names)), list(names.values()))


def _stack(axes: Axes, bars: Mapping[float, Timing]) -> None:
    """Draw bars of stacked stages by place, labeled with their total."""
    known = dict.fromkeys(
        (*drawing.STAGE_COLORS, *(stage for timing in bars.values() for stage in timing.stages))
    )
    stages = pd.DataFrame([timing.stages for timing in bars.values()], [*bars], [*known])
    heights = drawing.stack_stages(axes, stages.fillna(0.0), BAR_WIDTH)
    for place, height in heights.items():
        _annotate(axes, _milliseconds(height), (place, height), (0, 2), ha="center", fontsize=8)
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1.0, 0.5))


def _annotate(
    axes: Axes, text: str, at: tuple[Any, float], offset: tuple[int, int], **options: Any
) -> None:
    axes.annotate(text, at, offset, textcoords="offset points", **options)
