"""The trace of a search, from which explanations are computed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from visar.core import Relevance

PageId: TypeAlias = tuple[str, int]
"""The id of a document and a page number, from 1."""


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """The data of a search that explanations need. A server never sends it."""

    question: NDArray[np.float32] = field(repr=False)
    """Vectors of the question."""
    pages: tuple[PageId, ...] = field(repr=False)
    """Pages that the method chose from, in the order of ``relevance``."""
    relevance: Relevance
    """Weights and scores, and the cost if it is a `Selection`. Pages are counted from 0."""
    spans: tuple[tuple[int, int], ...] | None = field(default=None, repr=False)
    """Characters of the question that each vector is from; None if the encoder doesn't say."""

    def patch_weights(self, document: str, page: int) -> NDArray[np.float32] | None:
        """Return the weights of a page's vectors; None if the method didn't choose from it."""
        if (document, page) not in self.pages:
            return None
        return self.relevance.patch_weights[self.pages.index((document, page))]

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> dict[str, str]:
        return {"type": "any"}
