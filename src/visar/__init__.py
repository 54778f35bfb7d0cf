"""ViSAR: decide per question how many pages of a document are needed, from its embeddings."""

import os
from typing import TYPE_CHECKING

from visar._version import __version__
from visar.errors import VisarError
from visar.lazy import lazy_names

if TYPE_CHECKING:
    from visar.client import AsyncClient, Client
    from visar.core import PageVectors, Selection, maxsim, prepare, select
    from visar.documents import Limits, Page, ReadOptions, Word
    from visar.encoders.protocol import Encoder, PageEmbedding
    from visar.evaluation.questions import Dataset, Question
    from visar.generation.protocol import Generator, Prompt, Reply
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

# onnxruntime writes a device id and looks up its maker's server unless this is set before its first
# import, by whatever package; its own function for it (disable_telemetry_events) does not stop what
# the import has begun. Who has set it to something else has decided.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

# Imported when they are asked for: the method needs numpy alone, and the command line often less.
_MODULES = {
    "visar.core": ("PageVectors", "maxsim", "prepare"),
    "visar.notebook": ("Selection", "select"),
    "visar.documents": ("Limits", "Page", "ReadOptions", "Word"),
    "visar.encoders.protocol": ("Encoder", "PageEmbedding"),
    "visar.evaluation.questions": ("Dataset", "Question"),
    "visar.generation.protocol": ("Generator", "Prompt", "Reply"),
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
