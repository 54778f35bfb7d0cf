"""A report as one HTML page that loads nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

from visar.evaluation.figures import Picture
from visar.evaluation.tables import Table, to_html

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --line: #d0d7de;
  --ground: #ffffff; --band: #f6f8fa; --link: #0b5394; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9da7b1; --line: #3d444d;
  --ground: #0d1117; --band: #161b22; --link: #7cc0f5; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 80rem; padding: 1.5rem; color: var(--ink);
  background: var(--ground); font: 16px/1.5 system-ui, sans-serif; }
h1, h2, h3 { line-height: 1.25; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); padding-bottom: .3rem; }
h3 { margin: 2rem 0 .6rem; font-size: 1.05rem; overflow-wrap: anywhere; }
a { color: var(--link); }
nav ul { columns: 22rem 2; column-gap: 2rem; padding: 0; list-style: none; font-size: .9rem; }
nav li { break-inside: avoid; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .55rem; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: top; white-space: nowrap; }
thead th { border-bottom: 2px solid var(--soft); }
tbody tr:nth-child(even) { background: var(--band); }
.number { text-align: right; }
.paper { display: block; color: var(--soft); font-size: .8rem; }
.notes, figcaption { color: var(--soft); font-size: .85rem; }
.notes { padding-left: 1.2rem; margin: .5rem 0 0; }
figure { margin: 2rem 0; }
figure svg { display: block; max-width: 100%; height: auto; background: #ffffff;
  border-radius: 4px; margin: .5rem 0; }
pre { overflow-x: auto; background: var(--band); padding: 1rem; font-size: .8rem;
  border-radius: 4px; }
@media print { body { max-width: none; padding: 0; font-size: 11px; } .wide { overflow: visible; }
  table { font-size: .75rem; } th, td { white-space: normal; padding: .2rem .35rem; }
  figure, tr { break-inside: avoid; } h2, h3 { break-after: avoid; }
  pre { white-space: pre-wrap; } nav { display: none; } }
"""


def render_page(
    title: str,
    introduction: Sequence[str],
    tables: Sequence[Table],
    figures: Sequence[Picture],
    manifest: str,
) -> str:
    """The whole page: a table of contents, tables, figures and the manifest."""
    paragraphs = "".join(f"<p>{escape(sentence)}</p>\n" for sentence in introduction)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<header><h1>{escape(title)}</h1>\n{paragraphs}</header>\n"
        f"{_contents(tables, figures)}<main>\n"
        f'<h2 id="tables">Tables</h2>\n{"".join(to_html(table) for table in tables)}'
        + (f'<h2 id="figures">Figures</h2>\n{_figures(figures)}' if figures else "")
        + f'<h2 id="manifest">Manifest</h2>\n<pre>{escape(manifest)}</pre>\n'
        "</main>\n</body>\n</html>\n"
    )


def _contents(tables: Sequence[Table], figures: Sequence[Picture]) -> str:
    def entries(named: Iterable[tuple[str, str]]) -> str:
        return "".join(
            f'<li><a href="#{escape(key)}">{escape(title)}</a></li>\n' for key, title in named
        )

    return (
        '<nav aria-label="Contents">\n<h2>Contents</h2>\n<ul>\n'
        + entries((one.key, one.title) for one in tables)
        + entries((one.key, one.title) for one in figures)
        + entries([("manifest", "Manifest")])
        + "</ul>\n</nav>\n"
    )


def _figures(figures: Sequence[Picture]) -> str:
    return "".join(
        f'<figure id="{escape(one.key)}">\n<h3>{escape(one.title)}</h3>\n'
        f"{_inline(one)}\n<figcaption>{escape(one.caption)}</figcaption>\n</figure>\n"
        for one in figures
    )


def _inline(picture: Picture) -> str:
    """The SVG without its prologue, with ids that no other figure of the page has."""
    svg = picture.svg[picture.svg.index("<svg") :].strip()
    svg = re.sub(r'\bid="', f'id="{picture.key}-', svg)
    svg = re.sub(r'href="#', f'href="#{picture.key}-', svg)
    svg = re.sub(r"url\(#", f"url(#{picture.key}-", svg)
    name = escape(picture.title)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{name}" ', 1)
