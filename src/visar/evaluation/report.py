"""From a run's folder to a report: a page to look at, Markdown and JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from visar.evaluation.figures import Picture, make_figures
from visar.evaluation.findings import Findings, read_findings
from visar.evaluation.page import render_page
from visar.evaluation.tables import Table, make_tables, to_json, to_markdown
from visar.evaluation.tables.table import escape_markdown

TITLE = "ViSAR evaluation"


@dataclass(frozen=True, slots=True)
class Report:
    """Everything a report shows."""

    title: str
    introduction: tuple[str, ...]
    """What is in it and what is not, in plain sentences."""
    tables: tuple[Table, ...]
    figures: tuple[Picture, ...]
    manifest: str
    """As JSON: versions, settings, machine."""


def write_report(folder: Path, out: Path | None = None) -> Path:
    """Write ``report.html``, ``report.md`` with ``figures/*.svg``, and ``report.json``.

    They go into ``out``, or else into the run's folder itself, and hold ids and numbers only, no
    question, answer or page. The same run gives the same files. Returns the HTML page's path.
    """
    folder = Path(folder)
    report = make_report(read_findings(folder), folder)
    out = folder if out is None else Path(out)
    figures = out / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    for picture in report.figures:
        (figures / f"{picture.key}.svg").write_text(picture.svg, encoding="utf-8")
    (out / "report.md").write_text(_to_markdown(report), encoding="utf-8")
    (out / "report.json").write_text(_to_json(report), encoding="utf-8")
    page = out / "report.html"
    page.write_text(
        render_page(
            report.title, report.introduction, report.tables, report.figures, report.manifest
        ),
        encoding="utf-8",
    )
    return page


def make_report(findings: Findings, folder: Path) -> Report:
    """All tables and figures that the run suffices for."""
    return Report(
        TITLE,
        tuple(_introduction(findings)),
        tuple(_told_apart(make_tables(findings))),
        tuple(_told_apart(make_figures(findings, folder))),
        json.dumps(list(findings.manifests), indent=2, sort_keys=True, ensure_ascii=False),
    )


_Shown = TypeVar("_Shown", Table, Picture)


def _told_apart(shown: Iterable[_Shown]) -> Iterator[_Shown]:
    """Numbers for keys that names make alike: "A b" and "A-b", or names in other scripts."""
    times: Counter[str] = Counter()
    for one in shown:
        times[one.key] += 1
        again = times[one.key]
        yield one if again == 1 else replace(one, key=f"{one.key}--{again}")


def _introduction(findings: Findings) -> list[str]:
    generators = sorted({one.generator for one in findings.judged})
    judges = sorted({one.judge for one in findings.judged})
    sentences = [
        f"Data sets: {_listed(findings.datasets)}. Encoders: {_listed(findings.encoders)}. "
        f"Generators: {_listed(generators)}. Judges: {_listed(judges)}.",
        "A number after “paper” is the paper's own, for the same data set, encoder, generator, "
        "budget and method; a note under each table says why there is none. “—” stands where there "
        "is nothing to show. Tables and figures are numbered as in the paper.",
    ]
    if not findings.retrieved:
        sentences.append("No pages have been retrieved yet: there is nothing but the questions.")
    elif not findings.answered:
        sentences.append(
            "No answers have been generated: tables and figures of answers are missing."
        )
    elif not findings.judged:
        sentences.append("No answers have been judged: tables and figures of accuracy are missing.")
    return sentences + _state(findings)


def _state(findings: Findings) -> list[str]:
    """Whether the run came to its end."""
    if not findings.manifests:
        return ["The run has no manifest: versions, settings and machine are unknown."]
    last = findings.manifests[-1]
    sentences = []
    if "finished" in last and last["finished"] is None:
        sentences.append(
            "The run's last call has not come to its end: results may be missing. The same command "
            "goes on with it."
        )
    failures = last.get("failures")
    if isinstance(failures, dict) and failures:
        sentences.append(f"Some answers could not be had from {_listed(sorted(failures))}.")
    return sentences


def _listed(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(names) if names else "none"


def _to_markdown(report: Report) -> str:
    parts = [
        f"# {escape_markdown(report.title)}\n",
        *(f"{escape_markdown(sentence)}\n" for sentence in report.introduction),
        "## Tables\n",
        *(to_markdown(table) for table in report.tables),
    ]
    if report.figures:
        parts.append("## Figures\n")
    for picture in report.figures:
        title = escape_markdown(picture.title)
        parts.append(
            f"### {title}\n\n![{title}](figures/{picture.key}.svg)\n\n"
            f"{escape_markdown(picture.caption)}\n"
        )
    # Indented code cannot be closed by anything within it.
    manifest = "\n".join(f"    {line}" for line in report.manifest.splitlines())
    parts.append(f"## Manifest\n\n{manifest}\n")
    return "\n".join(parts)


def _to_json(report: Report) -> str:
    content: dict[str, Any] = {
        "title": report.title,
        "introduction": list(report.introduction),
        "tables": [to_json(table) for table in report.tables],
        "figures": [
            {
                "key": picture.key,
                "title": picture.title,
                "caption": picture.caption,
                "file": f"figures/{picture.key}.svg",
            }
            for picture in report.figures
        ],
        "manifests": json.loads(report.manifest),
    }
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
