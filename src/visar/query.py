"""What is asked of a library."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from visar.serialization import Result, check_minimums


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
    exact: bool = False
    """Compare every page of a large library with the question."""
    encoder: str | None = None
    """Name of the encoder; the library's default if null."""
    method: str = "visar"
    """Method that chooses the pages."""
    k: int | None = field(default=None, metadata={"minimum": 1})
    """Number of pages for the method top-k."""
    max_k: int | None = field(default=None, metadata={"minimum": 1})
    """Maximum number of pages."""
    neighbors: int = field(default=0, metadata={"minimum": 0})
    """Number of pages to include on either side, for tables that span pages."""

    def __post_init__(self) -> None:
        check_minimums(self)
