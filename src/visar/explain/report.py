"""Report of one question: a self-contained HTML file with the answer, its pages and the reasons.

The scripts of the web page draw it. Without data, the same page is an MCP App, which gets the data
from its host.
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

from visar.library import Library
from visar.results import Answer, Explanation, PageHit, SearchResult
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


def html_report(library: Library, answer: Answer, explanation: Explanation) -> str:
    """Return the report of an answer.

    Parameters
    ----------
    library
        Library that gave the answer.
    answer
        The answer. The report has images of its first 20 pages.
    explanation
        ``library.explain(answer.search)``.

    Returns
    -------
    str
        A self-contained HTML document with a content security policy. Text of documents is data
        in it, never markup.

    Raises
    ------
    DocumentError
        The file of a page is missing, has changed, or needs a password.
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
<main><noscript>This report needs JavaScript, which is disabled in your browser.</noscript></main>
{data}<script type="module">{script}</script>
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
