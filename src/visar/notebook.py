"""HTML of results for notebooks: answers, pages, and a chart of page scores and the cost curve."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np

from visar.core import Selection, select
from visar.core.vectors import Float64

if TYPE_CHECKING:
    from visar.results import Answer, SearchResult

__all__ = ["Selection", "answer_html", "search_html", "select", "selection_html"]

# Visible on light and dark backgrounds.
_ACCENT = "#e0611a"


def answer_html(answer: Answer) -> str:
    """Return an answer with its pages as HTML."""
    parts = [f"<p>{escape(answer.text)}</p>"]
    if not answer.found:
        parts = ["<p>No answer found. The closest passages, probably not relevant:</p>"]
    elif answer.generation is None:
        quotes = ((escape(one.text).replace("\n", "<br>"), one.page) for one in answer.passages)
        parts = [f"<p>{quote} <small>page {page}</small></p>" for quote, page in quotes]
    else:
        items = "".join(f"<li>{escape(line)}</li>" for line in answer.sources())
        parts.append(f"<ul>{items}</ul>")
    return f"<p><b>{escape(answer.question)}</b></p>{''.join(parts)}{_pages_html(answer.search)}"


def search_html(found: SearchResult) -> str:
    """Return the pages of a search as HTML."""
    return f"<p><b>{escape(found.question)}</b></p>{_pages_html(found)}"


def _pages_html(found: SearchResult) -> str:
    rows = "".join(
        f"<tr><td>{escape(hit.name)}</td><td>{hit.page}</td><td>{hit.likelihood or ''}</td>"
        f'<td style="text-align:left">{escape(hit.snippet)}</td></tr>'
        for hit in found.pages
    )
    heading = (
        '<tr><th>document</th><th>page</th><th></th><th style="text-align:left">match</th></tr>'
    )
    shown = f"<p>{escape(found.summary)}</p>"
    if found.trace is not None and isinstance(found.trace.relevance, Selection):
        shown = selection_html(found.trace.relevance)
    return f"<table>{heading}{rows}</table>{shown}"


def selection_html(selection: Selection) -> str:
    """Return page scores s_p, with selected pages in color, and the cost curve J(k) as SVG."""
    reason = f" ({escape(selection.fallback)})" if selection.fallback else ""
    return (
        f'<div style="margin-top:.7em">{selection.k} of {len(selection.ranking)} pages{reason}, '
        f"k* {'=' if selection.k_star_exact else '≥'} {selection.k_star}</div>"
        '<svg viewBox="0 0 640 150" width="640" style="max-width:100%" font-size="11" '
        'fill="currentColor" role="img" aria-label="Page scores and cost curve">'
        f"{_bars(selection)}{_curve(selection.cost, selection.k_star)}</svg>"
    )


def _curve(cost: Float64, k_star: int) -> str:
    known = np.flatnonzero(np.isfinite(cost))
    if len(known) < 2:
        return ""
    last = max(int(known[-1]) + 1, k_star)
    x = 370 + 260 * known / (last - 1)
    y = 110 - 90 * (cost[known] - cost[known].min()) / (np.ptp(cost[known]) or 1.0)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    chosen = 370 + 260 * (k_star - 1) / (last - 1)
    return (
        f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="1.5"/>'
        f'<path d="M{chosen:.1f} 15V110" stroke="{_ACCENT}" stroke-dasharray="4 3"/>'
        # Above the curve, and inside the chart even if the line is at its edge.
        f'<text x="{min(chosen, 615):.1f}" y="11" fill="{_ACCENT}" text-anchor="middle">'
        f"k* = {k_star}</text>"
        f'<text x="370" y="126">1</text><text x="630" y="126" text-anchor="end">{last}</text>'
        '<text x="500" y="142" text-anchor="middle">cost of stopping after k pages</text>'
    )


def _bars(selection: Selection) -> str:
    n = len(selection.scores)
    step = 310 / n
    heights = np.maximum(1.5, 90 * selection.scores / (selection.scores.max(initial=0) or 1.0))
    selected = np.isin(np.arange(n), selection.pages)
    parts = []
    for pages, style, thinnest in (
        (np.flatnonzero(~selected), 'stroke="currentColor" stroke-opacity=".3"', 0.5),
        (np.flatnonzero(selected), f'stroke="{_ACCENT}"', 2),
    ):
        path = "".join(f"M{10 + (p + 0.5) * step:.1f} 110v{-heights[p]:.1f}" for p in pages)
        parts.append(f'<path d="{path}" {style} stroke-width="{max(thinnest, step * 0.8):.2f}"/>')
    return (
        f'{"".join(parts)}<text x="10" y="126">1</text>'
        f'<text x="320" y="126" text-anchor="end">{n}</text>'
        '<text x="165" y="142" text-anchor="middle">relevance of each page</text>'
    )


# The core package has no HTML; `visar.select` imports this module, which adds it.
Selection._repr_html_ = selection_html  # type: ignore[attr-defined]
