"""Answer questions about long documents, and decide per question how many pages are needed."""

import os
from typing import TYPE_CHECKING

from visar._version import __version__
from visar.errors import VisarError
from visar.lazy import lazy_names

if TYPE_CHECKING:
    from visar.client import AsyncClient, Client
    from visar.core import PageVectors, Selection, maxsim, prepare, select
    from visar.documents import Limits, Page, ReadOptions, Word
    from visar.encoders.encoder import Encoder, PageEmbedding
    from visar.evaluation.questions import Dataset, Question
    from visar.generation.generator import Generator, Prompt, Reply
    from visar.index import Index
    from visar.library import AnswerStream, Library
    from visar.results import Answer, Document, PageHit, SearchResult
    from visar.retrieval.methods import Method, ScoredPages

__all__ = [
    "Answer",
    "AnswerStream",
    "AsyncClient",
    "Client",
    "Dataset",
    "Document",
    "Encoder",
    "Generator",
    "Index",
    "Library",
    "Limits",
    "Method",
    "Page",
    "PageEmbedding",
    "PageHit",
    "PageVectors",
    "Prompt",
    "Question",
    "ReadOptions",
    "Reply",
    "ScoredPages",
    "SearchResult",
    "Selection",
    "VisarError",
    "Word",
    "__version__",
    "maxsim",
    "prepare",
    "select",
]

# Without this, importing onnxruntime writes a device id and later contacts its maker's server. It
# must be set before the first import by any package: disable_telemetry_events() comes too late. A
# value that the user has set is kept.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

# Imported on first use: `visar.select` only needs numpy, and the command line often less.
_MODULES = {
    "visar.core": ("PageVectors", "maxsim", "prepare"),
    "visar.notebook": ("Selection", "select"),
    "visar.documents": ("Limits", "Page", "ReadOptions", "Word"),
    "visar.encoders.encoder": ("Encoder", "PageEmbedding"),
    "visar.evaluation.questions": ("Dataset", "Question"),
    "visar.generation.generator": ("Generator", "Prompt", "Reply"),
    "visar.client": ("AsyncClient", "Client"),
    "visar.index": ("Index",),
    "visar.library": ("AnswerStream", "Library"),
    "visar.results": ("Answer", "Document", "PageHit", "SearchResult"),
    "visar.retrieval.methods": ("Method", "ScoredPages"),
}
__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    """Return the public names, loaded or not, so that notebooks complete them."""
    return sorted({*globals(), *__all__})
