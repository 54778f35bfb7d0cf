"""What was measured, as tables and as files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryFile

from visar.errors import InvalidOption
from visar.evaluation.bench_figures import LABELS, counted, figures, in_milliseconds
from visar.evaluation.methods import METHODS
from visar.evaluation.palette import figure_style
from visar.evaluation.timing import APPROXIMATE, COMPARED, EXACT, LATE, Bench, Part, Timing
from visar.results import to_plain


@dataclass(frozen=True, slots=True)
class Table:
    """A heading, and rows of text under column names."""

    title: str
    columns: tuple[str, ...]
    """All but the first hold numbers."""
    rows: tuple[tuple[str, ...], ...]


def tables(bench: Bench) -> list[Table]:
    """What a person looks at: all methods, all documents, and latency against size."""
    sizes = "Latency against document size: the first pages of " + bench.sizes[-1].name
    return [
        _by_method(f"All methods · {counted(len(bench.documents), 'document')}", bench.overall),
        _by_part("Documents", "DOCUMENT", [(part.name, part) for part in bench.documents]),
        _by_part(sizes, "PART", [(_share(part, bench), part) for part in bench.sizes]),
    ]


def save(bench: Bench, folder: Path) -> list[Path]:
    """Write bench.json, bench.md and the figures into a folder that :func:`make_ready` has made."""
    texts = {
        "bench.json": json.dumps(to_plain(bench), ensure_ascii=False, indent=2) + "\n",
        "bench.md": to_markdown(bench),
        **figures(bench),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


def make_ready(folder: Path) -> None:
    """See that everything can be saved there, before the time is spent."""
    with figure_style():
        pass
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InvalidOption(f"{folder} cannot be written to: {error.strerror}.") from error


def summary_lines(bench: Bench) -> list[str]:
    """What the numbers were measured with, and what they leave out."""
    same = sum(part.same_pages for part in bench.documents)
    questions = sum(len(part.k_star) for part in bench.documents)
    machine = bench.machine
    return [
        f"milliseconds: median (quartiles) of {counted(bench.rounds, 'round')} per question, "
        "methods in turns; × is the ratio to late interaction",
        f"exact and approximate ViSAR chose the same pages for {same} of "
        f"{counted(questions, 'question')} (approximate ViSAR takes "
        f"{METHODS[APPROXIMATE].options['top_s']} at most)",
        f"not included: encoding a question with {bench.encoder}, "
        f"{bench.encoding.median:.1f} ms; loading a document",
        f"{machine['processor']}, {counted(int(machine['cores']), 'core')}, numpy "
        f"{machine['numpy']}, OMP_NUM_THREADS {machine['OMP_NUM_THREADS'] or 'not set'}, "
        f"visar {machine['visar']}",
        *bench.notes,
    ]


def to_markdown(bench: Bench) -> str:
    """All tables, each document's by method and stage included."""
    parts = ["# Latency", *(f"- {line}" for line in summary_lines(bench))]
    text = "\n".join([parts[0], "", *parts[1:], ""])
    every = tables(bench) + [
        _by_method(f"{_escaped(part.name)} · {counted(part.pages, 'page')}", part.timings)
        for part in bench.documents
    ]
    for table in every:
        rows = [table.columns, ["---"] + ["---:"] * (len(table.columns) - 1), *table.rows]
        lines = ["| " + " | ".join(_escaped(cell) for cell in row) + " |" for row in rows]
        text += "\n".join([f"\n## {table.title}", "", *lines, ""])
    images = [
        ("Latency against document size", "latency-size.svg"),
        ("Latency by component", "latency-components.svg"),
        ("Latency by acceleration strategy", "latency-strategies.svg"),
    ]
    return text + "".join(f"\n![{title}]({name})\n" for title, name in images)


def _by_method(title: str, timings: Mapping[str, Timing]) -> Table:
    stages = tuple(timings[EXACT].stages)
    rows = tuple(
        (
            LABELS.get(name, name),
            _spread(timing),
            f"{timing.ratio:.1f}×",
            *(f"{timing.share(s):.0%}" if s in timing.stages else "" for s in stages),
        )
        for name, timing in timings.items()
    )
    return Table(
        title,
        ("METHOD", "MS", "TIMES LATE", *(stage.upper().replace("-", " ") for stage in stages)),
        rows,
    )


def _by_part(title: str, first: str, parts: Sequence[tuple[str, Part]]) -> Table:
    # Largest-Gap is late interaction but for some microseconds: the other tables have it.
    shown = [
        key
        for key in COMPARED
        if key != "largest-gap" and any(key in part.timings for _, part in parts)
    ]
    columns = (first, "PAGES", "VECTORS", "k*", *(_heading(key) for key in shown), "SAME PAGES")
    rows = tuple(
        (
            name,
            str(part.pages),
            f"{part.vectors:,}",
            f"{median(part.k_star):g}",
            *(_median(part.timings.get(key)) for key in shown),
            f"{part.same_pages}/{len(part.k_star)}",
        )
        for name, part in parts
    )
    return Table(title, columns, rows)


def _heading(key: str) -> str:
    short = {LATE: "LATE", APPROXIMATE: "VISAR APPROX."}
    return short.get(key, METHODS[key].label.upper().replace("-", " "))


def _spread(timing: Timing) -> str:
    ms = timing.milliseconds
    middle, *quartiles = map(in_milliseconds, (ms.median, ms.lower_quartile, ms.upper_quartile))
    return f"{middle} ({'–'.join(quartiles)})"


def _median(timing: Timing | None) -> str:
    if timing is None:
        return "–"
    middle = in_milliseconds(timing.milliseconds.median)
    return middle if timing.method == LATE else f"{middle} {timing.ratio:.1f}×"


def _share(part: Part, bench: Bench) -> str:
    return f"{part.pages / bench.sizes[-1].pages:.0%}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|")
