"""Makes the server answer in the shape that the page reads. Delete once it does so by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from visar.results import Answer, SearchResult, to_plain
from visar.server import questions, schemas


class _Explanation(schemas.Explanation):
    similarity: list[list[float]]


def _to_schema(kind: Any, value: Any, **more: Any) -> Any:
    if kind is _Explanation:
        more["similarity"] = value.similarity.tolist()
    return schemas.to_schema(kind, value, **more)


_old_search = questions._search
_old_answer = questions._answer


def _search(found: SearchResult) -> Any:
    return {**_old_search(found).model_dump(mode="json"), "passages": to_plain(found.passages)}


def _answer(answer: Answer) -> Any:
    old = {"question": answer.question, "text": answer.text, "generator": answer.generator}
    new = {name: to_plain(getattr(answer, name)) for name in ("passages", "citations")}
    generation = to_plain(answer.generation)
    return {**old, **new, "generation": generation, "search": _search(answer.search)}


@pytest.fixture(scope="module", autouse=True)
def new_shape() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(questions, "Explanation", _Explanation)
        patch.setattr(questions, "to_schema", _to_schema)
        patch.setattr(questions, "_search", _search)
        patch.setattr(questions, "_answer", _answer)
        yield
