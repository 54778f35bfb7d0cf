"""Result types of a library: documents, search results, answers, explanations and jobs.

Each is declared once. An index creates them, a server sends them as JSON (`visar.serialization`), a
client reads them, and the command line and notebooks show them.
"""

from visar.documents.page import PageSource
from visar.encoders.encoder import EncoderRef
from visar.results.answers import (
    NO_CITATION,
    Answer,
    Citation,
    Exchange,
    Generation,
    Thread,
    Turn,
    with_source,
)
from visar.results.library import (
    NO_TEXT,
    AccessKind,
    AccessToken,
    Additions,
    Collection,
    Document,
    InvalidPage,
    Job,
    JobState,
    Refusal,
)
from visar.results.search import (
    Decision,
    Explanation,
    Likelihood,
    MethodChoice,
    PageHit,
    Passage,
    Patches,
    PatchPair,
    QuestionWord,
    QuotedCell,
    SearchedPage,
    SearchResult,
    Strength,
)

__all__ = [
    "NO_CITATION",
    "NO_TEXT",
    "AccessKind",
    "AccessToken",
    "Additions",
    "Answer",
    "Citation",
    "Collection",
    "Decision",
    "Document",
    "EncoderRef",
    "Exchange",
    "Explanation",
    "Generation",
    "InvalidPage",
    "Job",
    "JobState",
    "Likelihood",
    "MethodChoice",
    "PageHit",
    "PageSource",
    "Passage",
    "PatchPair",
    "Patches",
    "QuestionWord",
    "QuotedCell",
    "Refusal",
    "SearchResult",
    "SearchedPage",
    "Strength",
    "Thread",
    "Turn",
    "with_source",
]
