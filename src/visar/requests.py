"""The requests of the HTTP API, and how their responses are read."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, Unpack
from urllib.parse import quote

from visar.documents.options import ReadOptions
from visar.documents.page import Page
from visar.errors import DocumentError, InvalidOption, error_from_code
from visar.library import AskOptions, SearchOptions
from visar.query import Query
from visar.results import (
    Answer,
    Collection,
    Document,
    Explanation,
    Job,
    Patches,
    PatchPair,
    SearchResult,
)
from visar.serialization import from_plain, to_plain
from visar.trace import PageId

if TYPE_CHECKING:
    import httpx2
    from PIL.Image import Image

T = TypeVar("T")
Event: TypeAlias = SearchResult | str | Answer
"""A part of a streamed answer: the pages first, then pieces of text, then the whole."""
PAGE_SIZE = 1000
"""Documents per request."""


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request, and the function that reads its response."""

    read: Callable[[httpx2.Response], T]
    method: str
    path: str
    params: dict[str, Any] = field(default_factory=dict)
    json: Any = None
    upload: Path | None = None

    def options(self) -> dict[str, Any]:
        """Return the arguments of httpx's ``request``, without the content of an upload."""
        headers = {} if self.upload is None else {"Content-Type": "application/octet-stream"}
        return {"params": self.params, "json": self.json, "headers": headers}


def documents(where: str | None, collection: str | None, offset: int) -> Call[list[Document]]:
    params = _given(where=where, collection=collection, offset=offset, limit=PAGE_SIZE)
    return Call(_list_of(Document), "GET", "/documents", params)


def get(document: str) -> Call[Document]:
    """Return a document by its id, the beginning of its id, or its name."""
    return Call(_one(Document), "GET", _path("documents", document))


def remove(document: str) -> Call[Document]:
    """Remove a document from the server's index."""
    return Call(_one(Document), "DELETE", _path("documents", document))


def unlock(document: str, password: str) -> Call[None]:
    """Give the password of an encrypted document; the server keeps it until it ends."""
    path = _path("documents", document, "unlock")
    return Call(_nothing, "POST", path, json={"password": password})


def collections() -> Call[list[Collection]]:
    """Return the collections by name."""
    return Call(_list_of(Collection), "GET", "/collections")


def collect(collection: str, documents: Iterable[str]) -> Call[None]:
    """Put documents into a collection, which begins with its first document."""
    path = _path("collections", collection, "documents")
    return Call(_nothing, "PUT", path, json={"documents": list(documents)})


def uncollect(collection: str, documents: Iterable[str] | None = None) -> Call[None]:
    """Take documents, or all, out of a collection; the documents stay."""
    if documents is None:
        return Call(_nothing, "DELETE", _path("collections", collection))
    params = {"document": list(documents)}
    return Call(_nothing, "DELETE", _path("collections", collection, "documents"), params)


def jobs() -> Call[list[Job]]:
    """Return the documents on their way into the index, the newest first."""
    return Call(_list_of(Job), "GET", "/jobs")


def job(id_: str) -> Call[Job]:
    return Call(_one(Job), "GET", _path("jobs", id_))


def retry(id_: str, password: str) -> Call[Job]:
    return Call(_one(Job), "POST", _path("jobs", id_, "retry"), json={"password": password})


def upload(
    path: str | os.PathLike[str],
    name: str | None,
    encoder: object,
    metadata: Mapping[str, Any] | None,
    collection: str | None,
) -> Call[Job]:
    path = Path(path)
    if not path.is_file():
        raise DocumentError(str(path), "is not a file")
    params = _given(
        name=name or path.name,
        encoder=_name_of("encoder", encoder),
        metadata=json.dumps(dict(metadata)) if metadata else None,
        collection=collection,
    )
    return Call(_one(Job), "POST", "/documents", params, upload=path)


def search(question: str, **options: Unpack[SearchOptions]) -> Call[SearchResult]:
    """Find the pages a question needs; the options are those of `visar.Index.search`."""
    return Call(_one(SearchResult), "POST", "/search", json=query_body(question, options))


def ask(question: str, **options: Unpack[AskOptions]) -> Call[Answer]:
    """Answer a question; ``generator`` is one of the names that the server offers."""
    return Call(_one(Answer), "POST", "/ask", json=query_body(question, options))


def explain(found: SearchResult) -> Call[Explanation]:
    """Explain a result: weights, matrix, cost, and what other methods would take."""
    return Call(_one(Explanation), "POST", "/explain", json=to_plain(found.query))


def patches(found: SearchResult, document: str, number: int) -> Call[Patches]:
    """Return the patches of a searched page with their weights for the question."""
    body = {**to_plain(found.query), "document": document, "page": number}
    return Call(_one(Patches), "POST", "/explain/patches", json=body)


def pairs(found: SearchResult, first: PageId, second: PageId) -> Call[tuple[PatchPair, ...]]:
    """Return the best matching patches of two searched pages."""
    pages = [{"document": document, "page": page} for document, page in (first, second)]
    body = {**to_plain(found.query), "first": pages[0], "second": pages[1]}
    return Call(_one(tuple[PatchPair, ...]), "POST", "/explain/pair", json=body)


def page(document: str, number: int) -> Call[Page]:
    """Return a page with its words; 1 is the first."""
    return Call(_one(Page), "GET", _path("documents", document, "pages", number))


def image(document: str, number: int, dpi: float = 144) -> Call[Image]:
    """Return a page as a picture."""
    path = _path("documents", document, "pages", number, "image")
    return Call(_picture, "GET", path, {"dpi": dpi})


def _path(*parts: str | int) -> str:
    return "/" + "/".join(quote(str(part), safe="") for part in parts)


def _given(**params: Any) -> dict[str, Any]:
    return {name: value for name, value in params.items() if value is not None}


def query_body(question: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a question; refuses what can't be sent, naming the option."""
    known = {one.name for one in fields(Query)} | {"generator"}
    named = {name: _name_of(name, value) for name, value in options.items() if name in known}
    for name, value in options.items():
        if name not in known and value is not None:
            raise InvalidOption(f"A server decides {name} itself: leave it out.")
    generator = named.pop("generator", None)
    if documents := named.get("documents"):
        named["documents"] = tuple(documents)
    body: dict[str, Any] = to_plain(Query(question=question, **named))
    return body | _given(generator=generator)


def _name_of(option: str, value: Any) -> Any:
    if option in ("encoder", "generator", "method") and not isinstance(value, str | None):
        raise InvalidOption(f"A server takes the name of {option}, not {value!r:.60}.")
    return value


def password(options: ReadOptions | None, ray: str | None = None) -> str | None:
    """Return the password; refuses other options, which a server has its own settings for."""
    if ray is not None:
        raise InvalidOption("ray works on an index, not on a server: leave it out.")
    for one in fields(ReadOptions):
        if options is not None and one.name != "password":
            given = getattr(options, one.name)
            if given != getattr(ReadOptions(), one.name):
                raise InvalidOption(f"A server has its own setting for {one.name}: leave it out.")
    return None if options is None else options.password


def _one(kind: type[T]) -> Callable[[httpx2.Response], T]:
    return lambda response: from_plain(kind, response.json())


def _list_of(kind: type[T]) -> Callable[[httpx2.Response], list[T]]:
    return lambda response: [from_plain(kind, one) for one in response.json()]


def _nothing(_: httpx2.Response) -> None:
    return None


def _picture(response: httpx2.Response) -> Image:
    from PIL import Image

    picture = Image.open(io.BytesIO(response.content))
    picture.load()
    return picture


def event(name: str, data: Any) -> Event:
    """Read an event of a streamed answer; raises what a problem says."""
    if name == "problem":
        raise error_from_code(str(data["code"]), str(data["detail"]))
    if name == "text":
        return str(data)
    return from_plain(SearchResult, data) if name == "search" else from_plain(Answer, data)
