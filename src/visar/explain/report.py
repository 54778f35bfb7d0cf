"""A report of one question: a single HTML file with the answer, the pages and the reasons.

It is drawn by the scripts of the web page, and asks for nothing over the network. The same page
without data is an MCP App, which the host that shows it sends the data to.
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
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from visar.explain.explanation import Explanation, PatchPair
from visar.explain.words import numbers, why_so_many
from visar.results import Answer, PageHit, PageSource, SearchResult, to_plain

MOST_PICTURES = 20
MOST_COMPARED = 10
"""Of the chosen pages, each with each."""
_DPI = 110
_QUALITY = 75
# In the order in which they use each other.
_SCRIPTS = ("dom.js", "matrix.js", "methods.js", "views.js", "report.js")
_APP_SCRIPTS = (*_SCRIPTS, "app.js")
_STYLES = ("views.css", "report.css")
_DECIMALS = 3


class PatchSource(PageSource, Protocol):
    """Where pages and their patches can be read again; an `visar.Index` is one."""

    def patches(
        self, found: SearchResult, document: str, number: int
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the boxes of a page's patches, and their weights and cosines."""
        ...

    def pairs(
        self, found: SearchResult, first: tuple[str, int], second: tuple[str, int]
    ) -> tuple[PatchPair, ...]:
        """Return the best matching patches of two pages."""
        ...


def html_report(source: PatchSource, answer: Answer, explanation: Explanation) -> str:
    """Make the report of an answer.

    Parameters
    ----------
    source
        The index that was asked.
    answer
        What it answered. The first 20 of its pages are shown as pictures.
    explanation
        ``source.explain(answer.search)``.

    Returns
    -------
    str
        A whole HTML document. Nothing in it comes from elsewhere, and a content security policy
        keeps it so; text of documents is data in it, never markup.

    Raises
    ------
    DocumentError
        If the file of a page is gone, has changed, or needs a password.
    """
    # A "<" could end the element that the data is in.
    data = json.dumps(
        report_data(source, answer, explanation), ensure_ascii=False, separators=(",", ":")
    ).replace("<", "\\u003c")
    element = f'<script type="application/json" id="data">{data}</script>\n'
    return _page(answer.search.question, _SCRIPTS, element)


def html_app() -> str:
    """Make the report's page as an MCP App: a tool's result brings it `report_data`."""
    return _page("ViSAR", _APP_SCRIPTS)


def report_data(
    source: PatchSource,
    answer: Answer,
    explanation: Explanation,
    *,
    dpi: float = _DPI,
    most_pictures: int = MOST_PICTURES,
) -> dict[str, Any]:
    """Return the data that the report shows. The arguments are those of `html_report`."""
    found, plain = answer.search, to_plain(answer)
    # No paths of documents or models: reports are passed on.
    names = ("question", "method", "pages", "pages_searched", "k", "strength", "seconds")
    plain["search"] = {
        **{name: plain["search"][name] for name in names},
        "passages": plain["passages"],
        "documents": [{"id": one.id, "name": one.name} for one in found.documents],
        "summary": why_so_many(found),
    }
    similarity = [[float(f"{value:.3g}") for value in row] for row in explanation.similarity]
    return {
        "answer": plain,
        "explanation": {**to_plain(explanation), "similarity": similarity},
        "pictures": [_picture(source, found, hit, dpi) for hit in found.pages[:most_pictures]],
        "pairs": _pairs(source, found),
        "numbers": list(numbers(found)),
    }


def _page(title: str, scripts: Sequence[str], data: str = "") -> str:
    style = "".join(_static(name) for name in _STYLES)
    script = "".join(_without_modules(_static(name)) for name in scripts)
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
<main><noscript>This report is drawn by a script of its own, which the browser does not run.\
</noscript></main>
{data}<script type="module">{script}</script>
</body>
</html>
"""


def _picture(source: PatchSource, found: SearchResult, hit: PageHit, dpi: float) -> dict[str, Any]:
    """A page as JPEG, with its patches for the heat."""
    image = source.image(hit.document, hit.page, dpi).convert("RGB")
    encoded = io.BytesIO()
    image.save(encoded, "JPEG", quality=_QUALITY, optimize=True)
    boxes, weights = source.patches(found, hit.document, hit.page)
    return {
        "source": f"data:image/jpeg;base64,{_base64(encoded.getvalue())}",
        "width": image.width,
        "height": image.height,
        "boxes": _rounded(boxes),
        "weights": _rounded(weights[0]),
        "cosines": _rounded(weights[1:]),
    }


def _pairs(source: PatchSource, found: SearchResult) -> dict[str, Any]:
    """What the first chosen pages share, by ``document/page document/page``."""
    places = [(hit.document, hit.page) for hit in found.pages[:MOST_COMPARED]]
    return {
        f"{first[0]}/{first[1]} {second[0]}/{second[1]}": to_plain(
            source.pairs(found, first, second)
        )
        for first in places
        for second in places
    }


def _rounded(values: NDArray[np.float32]) -> Any:
    return values.astype(np.float64).round(_DECIMALS).tolist()


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _static(name: str) -> str:
    return (files("visar.explain") / "static" / name).read_text(encoding="utf-8")


def _without_modules(script: str) -> str:
    """Let scripts that import each other stand one after the other in one element."""
    return re.sub(r"^import .*\n|^export ", "", script, flags=re.M)


def _hash(content: str) -> str:
    return f"'sha256-{_base64(hashlib.sha256(content.encode()).digest())}'"
