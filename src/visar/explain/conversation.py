"""Export of conversations as Markdown, or as HTML with images of the cited pages."""

from __future__ import annotations

import re
from html import escape

from visar.documents.page import PageSource
from visar.errors import DocumentError, NotInIndex
from visar.explain.report import data_uri
from visar.results import Answer, Exchange, PageHit, Thread

_MARKER = re.compile(r"\[(\d+)\]")
_DPI = 90
_MAX_IMAGES = 60
_STYLE = """
body { font: 16px/1.5 Inter, system-ui, sans-serif; color: #1c1917; background: #fbfaf8;
  max-width: 46rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
h2 { margin-top: 2.5rem; } small, figcaption { color: #6b645e; }
.bad { color: #b91c1c; } a { color: #c2410c; }
table { border-collapse: collapse; } td, th { border: 1px solid #e7e5e4; padding: .2rem .6rem; }
figure { margin: 1rem 0; } img { width: 100%; height: auto; }
img { border: 1px solid #e7e5e4; border-radius: 6px; }
"""


def thread_markdown(thread: Thread) -> str:
    """Return a conversation as Markdown, with a list of pages under each answer."""
    parts = [f"# {_plain(thread.name)}"]
    for exchange in thread.exchanges:
        parts += [f"## {_plain(exchange.question)}", *_searched(exchange), _text(exchange.answer)]
        parts += ["\n".join(f"- {one}" for one in exchange.answer.sources())]
    return "\n\n".join(part for part in parts if part) + "\n"


def thread_html(library: PageSource, thread: Thread) -> str:
    """Return a conversation as a self-contained HTML file.

    It has images of the first 60 pages that answers cite or quote.
    """
    from markdown_it import MarkdownIt

    markdown = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    hits = {(hit.document, hit.page): hit for one in thread.exchanges for hit in _cited(one.answer)}
    figures = {
        key: figure
        for key, hit in list(hits.items())[:_MAX_IMAGES]
        if (figure := _figure(library, hit))
    }
    body = [f"<h1>{escape(thread.name)}</h1>"]
    for exchange in thread.exchanges:
        body.append(f"<h2>{escape(exchange.question)}</h2>")
        body += [f"<p><small>{escape(line)}</small></p>" for line in _searched(exchange)]
        body.append(_linked(markdown.render(_text(exchange.answer)), exchange.answer, figures))
        items = "".join(f"<li>{escape(line)}</li>" for line in exchange.answer.sources())
        body.append(f"<ul>{items}</ul>")
    body += figures.values()
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; \
style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(thread.name)}</title>
<style>{_STYLE}</style>
</head>
<body>
{"".join(body)}
</body>
</html>
"""


def _plain(line: str) -> str:
    """Return a line with Markdown escaped."""
    return re.sub(r"([\\`*_{}\[\]<>#|])", r"\\\1", line)


def _searched(exchange: Exchange) -> list[str]:
    searched = exchange.answer.question
    return [] if searched == exchange.question else [f"Searched for: {searched}"]


def _text(answer: Answer) -> str:
    if not answer.text:
        return "No answer was found in these documents."
    if answer.problem is None and answer.generation is not None:
        return answer.text
    quotes = "\n\n".join(f"> {_plain(line)}" for line in answer.text.splitlines())
    return quotes if answer.problem is None else f"{_plain(answer.problem)}\n\n{quotes}"


def _cited(answer: Answer) -> list[PageHit]:
    """Return the pages that an answer cites or quotes."""
    named = {(one.document, one.page) for one in answer.citations}
    if not named:
        named = {(one.document, one.page) for one in answer.passages}
    return [hit for hit in answer.pages if answer.found and (hit.document, hit.page) in named]


def _anchor(document: str, page: int | None) -> str:
    return f"page-{document[:12]}-{page}"


def _figure(library: PageSource, hit: PageHit) -> str:
    try:
        image = library.image(hit.document, hit.page, _DPI)
    except (DocumentError, NotInIndex):  # the file is missing, or needs a password
        return ""
    name = escape(f"{hit.name}, page {hit.page}")
    return (
        f'<figure id="{_anchor(hit.document, hit.page)}"><img alt="{name}" src="{data_uri(image)}" '
        f'width="{image.width}" height="{image.height}"><figcaption>{name}</figcaption></figure>\n'
    )


def _linked(html: str, answer: Answer, figures: dict[tuple[str, int], str]) -> str:
    """Return the HTML of an answer with its citations linked to the images of their pages."""
    citations = iter(answer.citations)

    def link(found: re.Match[str]) -> str:
        cited = next(citations, None)
        if cited is None or (cited.document, cited.page) not in figures:
            return found[0]
        return f'<a href="#{_anchor(cited.document or "", cited.page)}">{found[0]}</a>'

    return _MARKER.sub(link, html)
