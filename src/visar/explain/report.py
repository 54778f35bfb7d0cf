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
from typing import Any

import numpy as np

from visar.library import Library
from visar.results import Answer, Explanation, PageHit, SearchResult
from visar.retrieval.wording import numbers
from visar.serialization import to_plain

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


def html_report(library: Library, answer: Answer, explanation: Explanation) -> str:
    """Make the report of an answer.

    Parameters
    ----------
    library
        The library that was asked.
    answer
        Its answer. The first 20 of its pages are shown as pictures.
    explanation
        ``library.explain(answer.search)``.

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
        report_data(library, answer, explanation), ensure_ascii=False, separators=(",", ":")
    ).replace("<", "\\u003c")
    element = f'<script type="application/json" id="data">{data}</script>\n'
    return _page(answer.search.question, _SCRIPTS, element)


def html_app() -> str:
    """Make the report's page as an MCP App: a tool's result brings it `report_data`."""
    return _page("ViSAR", _APP_SCRIPTS)


def report_data(
    library: Library,
    answer: Answer,
    explanation: Explanation,
    *,
    dpi: float = _DPI,
    most_pictures: int = MOST_PICTURES,
) -> dict[str, Any]:
    """Make what the scripts of the report show; the arguments are those of `html_report`."""
    found = answer.search
    return {
        "answer": to_plain(answer, public=True),
        "explanation": to_plain(explanation, public=True),
        "pictures": [_picture(library, found, hit, dpi) for hit in found.pages[:most_pictures]],
        "pairs": _pairs(library, found),
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


def _picture(library: Library, found: SearchResult, hit: PageHit, dpi: float) -> dict[str, Any]:
    """A page as JPEG, with its patches for the heat."""
    image = library.image(hit.document, hit.page, dpi).convert("RGB")
    encoded = io.BytesIO()
    image.save(encoded, "JPEG", quality=_QUALITY, optimize=True)
    patches = library.patches(found, hit.document, hit.page)
    return {
        "source": f"data:image/jpeg;base64,{_base64(encoded.getvalue())}",
        "width": image.width,
        "height": image.height,
        "boxes": _rounded(patches.boxes),
        "weights": _rounded(patches.weights),
        "cosines": _rounded(patches.cosines),
    }


def _pairs(library: Library, found: SearchResult) -> dict[str, Any]:
    """What the first chosen pages share, by ``document/page document/page``."""
    places = [(hit.document, hit.page) for hit in found.pages[:MOST_COMPARED]]
    return {
        f"{first[0]}/{first[1]} {second[0]}/{second[1]}": to_plain(
            library.pairs(found, first, second)
        )
        for first in places
        for second in places
    }


def _rounded(values: Sequence[Any]) -> Any:
    return np.asarray(values, np.float64).round(_DECIMALS).tolist()


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _static(name: str) -> str:
    return (files("visar.explain") / "static" / name).read_text(encoding="utf-8")


def _without_modules(script: str) -> str:
    """Let scripts that import each other stand one after the other in one element."""
    return re.sub(r"^import .*\n|^export ", "", script, flags=re.M)


def _hash(content: str) -> str:
    return f"'sha256-{_base64(hashlib.sha256(content.encode()).digest())}'"
