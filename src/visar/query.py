"""`Query`: everything that the result of a search depends on, except the documents."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from visar.errors import InvalidOption, NotInIndex
from visar.serialization import Result, check_minimums
from visar.text import clean_text

MAX_COLLECTION_NAME_LENGTH = 200

# Without it, pydantic would accept true as a number and "yes" as a boolean.
_STRICT = {"strict": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Query(Result):
    """A question, the documents to search, and the way to choose pages."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {
        **Result.__pydantic_config__,
        "extra": "forbid",
    }

    question: str
    documents: tuple[str, ...] | None = None
    """Ids or names of documents; all documents by default."""
    collection: str | None = None
    """Only search this collection."""
    where: str | None = None
    """Filter on metadata, such as ``year >= 2020 and kind = "report"``."""
    exact: bool = field(default=False, metadata=_STRICT)
    """Compare every page of a large library with the question."""
    encoder: str | None = None
    """Name of the encoder; the library's default if null."""
    method: str = "visar"
    """Method that chooses the pages."""
    k: int | None = field(default=None, metadata={"minimum": 1} | _STRICT)
    """Number of pages for the method top-k."""
    max_k: int | None = field(default=None, metadata={"minimum": 1} | _STRICT)
    """Maximum number of pages."""
    neighbors: int = field(default=0, metadata={"minimum": 0} | _STRICT)
    """Number of pages to include on either side, for tables that span pages."""

    def __post_init__(self) -> None:
        check_minimums(self)
        if self.collection is not None:
            check_collection(self.collection)


def check_collection(name: str) -> str:
    """Return the name of a collection; raises InvalidOption if it isn't valid."""
    is_line = clean_text(name) == name and not {"\n", "\t"} & {*name}
    # Browsers resolve dots in paths, and "/documents" at the end is a path of the HTTP API.
    is_path = name in (".", "..") or name.endswith("/documents")
    if is_path or not (is_line and 0 < len(name) <= MAX_COLLECTION_NAME_LENGTH):
        raise InvalidOption(
            f"{name!r:.100} can't be the name of a collection: use 1 to "
            f"{MAX_COLLECTION_NAME_LENGTH} characters on one line, without control characters, "
            'and not ".", ".." or "…/documents".'
        )
    return name


def unknown_collection(name: str, known: Iterable[str]) -> NotInIndex:
    """Return the error for a collection that doesn't exist, with the names of those that do."""
    names = ", ".join(known)
    others = f"You have: {names}." if names else "You have none yet."
    return NotInIndex(f"No collection {name!r}. {others}")
