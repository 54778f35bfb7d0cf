"""Reports: self-contained HTML files about one question, or a conversation, also as Markdown.

The report of a question has the answer, its pages and the reasons, drawn by the scripts of the web
page. Without data, the same page is an MCP App, which gets the data from its host.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from visar.documents.page import PageSource
from visar.errors import DocumentError, NotInIndex
from visar.library import Library
from visar.results import Answer, Exchange, Explanation, PageHit, SearchResult, Thread
from visar.retrieval.wording import numbers
from visar.serialization import to_plain

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_PICTURES = 20
"""Maximum number of page images."""
MAX_COMPARED = 10
"""Maximum number of pages that are compared with each other."""
_DPI = 110
_QUALITY = 75
# Each script only uses those before it.
_SCRIPTS = (
    "dom.js", "markdown.js", "answers.js", "matrix.js", "methods.js", "views.js", "report.js",
)  # fmt: skip
_APP_SCRIPTS = (*_SCRIPTS, "app.js")
_STYLES = ("views.css", "report.css")
_DECIMALS = 3
_MARKER = re.compile(r"\[(\d+)\]")
_THREAD_DPI = 90
_MAX_IMAGES = 60
_THREAD_STYLE = """
body { font: 16px/1.5 Inter, system-ui, sans-serif; color: #1c1917; background: #fbfaf8;
  max-width: 46rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
h2 { margin-top: 2.5rem; } small, figcaption { color: #6b645e; }
.bad { color: #b91c1c; } a { color: #c2410c; }
table { border-collapse: collapse; } td, th { border: 1px solid #e7e5e4; padding: .2rem .6rem; }
figure { margin: 1rem 0; } img { width: 100%; height: auto; }
img { border: 1px solid #e7e5e4; border-radius: 6px; }
"""


def html_report(library: Library, answer: Answer, explanation: Explanation) -> str:
    """Return the report of an answer: a self-contained HTML document.

    ``explanation`` is ``library.explain(answer.search)``. The report has images of the first 20
    pages. It has a content security policy, and text of documents is data in it, never markup.
    Raises DocumentError if the file of a page is missing, has changed, or needs a password.
    """
    # A "<" in the data could close its element.
    data = json.dumps(
        report_data(library, answer, explanation), ensure_ascii=False, separators=(",", ":")
    ).replace("<", "\\u003c")
    element = f'<script type="application/json" id="data">{data}</script>\n'
    return _page(answer.search.question, _SCRIPTS, element)


def html_app() -> str:
    """Return the report as an MCP App, which gets `report_data` from the result of a tool."""
    return _page("ViSAR", _APP_SCRIPTS)


def report_data(
    library: Library,
    answer: Answer,
    explanation: Explanation,
    *,
    dpi: float = _DPI,
    max_pictures: int = MAX_PICTURES,
) -> dict[str, Any]:
    """Return the data of a report; for the parameters, see `html_report`."""
    found = answer.search
    return {
        "answer": to_plain(answer, public=True),
        "explanation": to_plain(explanation, public=True),
        "pictures": [_picture(library, found, hit, dpi) for hit in found.pages[:max_pictures]],
        "pairs": _pairs(library, found),
        "numbers": list(numbers(found)),
    }


def _page(title: str, scripts: Sequence[str], data: str = "") -> str:
    style = "".join(_static(name) for name in _STYLES)
    script = "".join(_without_modules(_static(name)) for name in scripts)
    policy = f"script-src {_hash(script)}; style-src {_hash(style)}; img-src data:"
    body = f"""\
<main><noscript>This report needs JavaScript, which is disabled in your browser.</noscript></main>
{data}<script type="module">{script}</script>"""
    return _document(
        title, policy, style, body, '<meta name="color-scheme" content="light dark">\n'
    )


def _document(title: str, policy: str, style: str, body: str, head: str = "") -> str:
    """Return an HTML document that can only load what ``policy`` allows."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; {policy}; \
base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
{head}<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


def _picture(library: Library, found: SearchResult, hit: PageHit, dpi: float) -> dict[str, Any]:
    """Return the image of a page, and its patches for the heat map."""
    image = library.image(hit.document, hit.page, dpi)
    patches = library.patches(found, hit.document, hit.page)
    return {
        "source": data_uri(image),
        "width": image.width,
        "height": image.height,
        "boxes": _rounded(patches.boxes),
        "weights": _rounded(patches.weights),
        "cosines": _rounded(patches.cosines),
    }


def data_uri(image: Image) -> str:
    """Return an image as a data URI, in JPEG."""
    encoded = io.BytesIO()
    image.convert("RGB").save(encoded, "JPEG", quality=_QUALITY, optimize=True)
    return f"data:image/jpeg;base64,{_base64(encoded.getvalue())}"


def _pairs(library: Library, found: SearchResult) -> dict[str, Any]:
    """Return the patch pairs of the first pages, by ``document/page document/page``."""
    page_ids = [(hit.document, hit.page) for hit in found.pages[:MAX_COMPARED]]
    return {
        f"{first[0]}/{first[1]} {second[0]}/{second[1]}": to_plain(
            library.pairs(found, first, second)
        )
        for first in page_ids
        for second in page_ids
    }


def _rounded(values: Sequence[Any]) -> Any:
    return np.asarray(values, np.float64).round(_DECIMALS).tolist()


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _static(name: str) -> str:
    return (files("visar.explain") / "static" / name).read_text(encoding="utf-8")


def _without_modules(script: str) -> str:
    """Return a module without imports and exports, to concatenate it with others."""
    return re.sub(r"^import .*\n|^export ", "", script, flags=re.M)


def _hash(content: str) -> str:
    return f"'sha256-{_base64(hashlib.sha256(content.encode()).digest())}'"


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
    policy = "img-src data:; style-src 'unsafe-inline'"  # cells of tables have styles
    return _document(thread.name, policy, _THREAD_STYLE, "".join(body))


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
        image = library.image(hit.document, hit.page, _THREAD_DPI)
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
