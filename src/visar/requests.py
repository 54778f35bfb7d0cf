"""Requests to the HTTP API, with functions that read the responses.

The docstrings of the functions become those of the methods of `visar.Client`.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, Unpack
from urllib.parse import quote

from visar.documents.options import ReadOptions
from visar.documents.page import Page
from visar.errors import DocumentError, InvalidOption, error_from_code
from visar.ingest.downloads import is_web_url
from visar.library import AskOptions, SearchOptions
from visar.query import Query
from visar.results import (
    Additions,
    Answer,
    Collection,
    Document,
    Explanation,
    Job,
    Patches,
    PatchPair,
    Refusal,
    SearchResult,
    Thread,
)
from visar.serialization import from_plain, to_plain
from visar.trace import PageId

if TYPE_CHECKING:
    import httpx2
    from PIL.Image import Image

    from visar.encoders.encoder import Encoder
    from visar.ingest.pipeline import Progress

T = TypeVar("T")
_SECONDS_PER_POLL = 0.3
Event: TypeAlias = SearchResult | str | Answer
"""An event of a streamed answer: the search first, then pieces of text, then the whole answer."""
PAGE_SIZE = 1000
"""Maximum number of documents in a response."""


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
        """Return the arguments for httpx's ``request``, except the content of an upload."""
        headers = {} if self.upload is None else {"Content-Type": "application/octet-stream"}
        return {"params": self.params, "json": self.json, "headers": headers}


Steps: TypeAlias = Generator[Call[Any] | float, Any, T]
"""Several requests: yields each, or seconds to pause, gets its result, and returns the whole."""


def steps(request: Call[T] | Steps[T]) -> Steps[T]:
    """Return a single request as steps."""
    return (yield request) if isinstance(request, Call) else (yield from request)


def documents(*, where: str | None = None, collection: str | None = None) -> Steps[list[Document]]:
    """Return all documents, or those that match, in the order they were added."""
    result: list[Document] = []
    while len(result) % PAGE_SIZE == 0:
        page = {"offset": len(result), "limit": PAGE_SIZE}
        params = _without_none(where=where, collection=collection, **page)
        part = yield Call(_read_one(list[Document]), "GET", "/documents", params)
        if not part:
            break
        result += part
    return result


def get(document: str) -> Call[Document]:
    """Return a document by its id, a prefix of its id, or its name.

    Raises NotInIndex if no document matches, or several do.
    """
    return Call(_read_one(Document), "GET", _path("documents", document))


def remove(document: str) -> Call[Document]:
    """Remove a document and everything stored for it."""
    return Call(_read_one(Document), "DELETE", _path("documents", document))


def unlock(document: str, password: str) -> Call[None]:
    """Send the password of an encrypted document, so that its pages can be shown.

    The server keeps it in memory until it stops. Raises EncryptedDocument if the password is wrong.
    """
    path = _path("documents", document, "unlock")
    return Call(_read_nothing, "POST", path, json={"password": password})


def collections() -> Call[list[Collection]]:
    """Return the collections, sorted by name."""
    return Call(_read_one(list[Collection]), "GET", "/collections")


def collect(collection: str, documents: Iterable[str]) -> Call[None]:
    """Add documents to a collection, and create it if needed."""
    path = _path("collections", collection, "documents")
    return Call(_read_nothing, "PUT", path, json={"documents": list(documents)})


def uncollect(collection: str, documents: Iterable[str] | None = None) -> Call[None]:
    """Remove documents from a collection, by default all; the library keeps them."""
    if documents is None:
        return Call(_read_nothing, "DELETE", _path("collections", collection))
    params = {"document": list(documents)}
    return Call(_read_nothing, "DELETE", _path("collections", collection, "documents"), params)


def jobs() -> Call[list[Job]]:
    """Return the jobs that add uploaded documents, newest first."""
    return Call(_read_one(list[Job]), "GET", "/jobs")


def add(
    path: str | os.PathLike[str],
    *,
    encoder: str | Encoder | None = None,
    options: ReadOptions | None = None,
    progress: Progress | None = None,
    name: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    collection: str | None = None,
) -> Steps[Document]:
    """Upload a file, wait until it is in the index, and return the document.

    ``options`` may only set a password: the server has its own settings for OCR and limits. Raises
    DocumentError if the server can't read the file.
    """
    password = _password(options)
    job = yield _upload(path, name, encoder, metadata, collection)
    return (yield from _finish(job, password, progress))


def add_all(
    paths: Iterable[str | os.PathLike[str]],
    *,
    encoder: str | Encoder | None = None,
    options: ReadOptions | None = None,
    progress: Callable[[str], Progress] | None = None,
    each: Callable[[str, Document | Refusal], None] | None = None,
    metadata: Mapping[str, Any] | None = None,
    collection: str | None = None,
    ray: str | None = None,
) -> Steps[Additions]:
    """Upload files and wait until they are in the index.

    A file that can't be added doesn't stop the others. ``each`` is called with the path and
    result of each file. The other options are those of `add`.
    """
    password = _password(options, ray)
    uploads: list[tuple[str, Job | DocumentError]] = []
    for path in map(str, paths):
        try:
            uploads.append((path, (yield _upload(path, None, encoder, metadata, collection))))
        except DocumentError as error:
            uploads.append((path, error))
    results: list[Document | Refusal] = []
    for path, job in uploads:
        try:
            if isinstance(job, DocumentError):
                raise job
            report = None if progress is None else progress(path)
            results.append((yield from _finish(job, password, report)))
        except DocumentError as error:
            results.append(Refusal(path, str(error)))
        if each is not None:
            each(path, results[-1])
    return Additions(
        tuple(one for one in results if isinstance(one, Document)),
        tuple(one for one in results if isinstance(one, Refusal)),
    )


def _finish(job: Job, password: str | None, progress: Progress | None) -> Steps[Document]:
    """Wait for a job, with the password if it needs one, and return the document."""
    job = yield from _wait(job, progress)
    if job.code == "password" and password is not None:
        path = _path("jobs", job.id, "retry")
        retried = yield Call(_read_one(Job), "POST", path, json={"password": password})
        job = yield from _wait(retried, progress)
    if job.state != "done" or job.document is None:
        reason = job.reason or "the job was cancelled"
        raise DocumentError(job.name, f"was not added: {reason.rstrip('.')}")
    document: Document = yield get(job.document)
    return document


def _wait(job: Job, progress: Progress | None) -> Steps[Job]:
    while not job.is_finished:
        yield _SECONDS_PER_POLL
        job = yield Call(_read_one(Job), "GET", _path("jobs", job.id))
        if progress is not None and job.stage and job.pages:
            progress(job.stage, job.pages_done, job.pages)  # type: ignore[arg-type]
    return job


def _upload(
    path: str | os.PathLike[str],
    name: str | None,
    encoder: object,
    metadata: Mapping[str, Any] | None,
    collection: str | None,
) -> Call[Job]:
    if is_web_url(path):
        raise DocumentError(path, "can't be uploaded: download it, and add the file")
    path = Path(path)
    if not path.is_file():
        raise DocumentError(str(path), "is not a file")
    params = _without_none(
        name=name or path.name,
        encoder=_check_name("encoder", encoder),
        metadata=json.dumps(dict(metadata)) if metadata else None,
        collection=collection,
    )
    return Call(_read_one(Job), "POST", "/documents", params, upload=path)


def search(question: str, **options: Unpack[SearchOptions]) -> Call[SearchResult]:
    """Find the pages a question needs; see `visar.Library.search`."""
    return Call(_read_one(SearchResult), "POST", "/search", json=query_body(question, options))


def ask(question: str, **options: Unpack[AskOptions]) -> Call[Answer]:
    """Answer a question; see `visar.Library.ask`. The server decides which generators it offers."""
    return Call(_read_one(Answer), "POST", "/ask", json=query_body(question, options))


def threads() -> Call[list[Thread]]:
    """Return the saved conversations without their exchanges, latest first."""
    return Call(_read_one(list[Thread]), "GET", "/threads")


def thread(thread: str) -> Call[Thread]:
    """Return a saved conversation by its id."""
    return Call(_read_one(Thread), "GET", _path("threads", thread))


def create_thread(name: str = "", collection: str | None = None) -> Call[Thread]:
    """Save a new conversation. Without a name, it is named after its first question."""
    body = _without_none(name=name, collection=collection)
    return Call(_read_one(Thread), "POST", "/threads", json=body)


def rename_thread(thread: str, name: str) -> Call[Thread]:
    """Rename a saved conversation."""
    return Call(_read_one(Thread), "PATCH", _path("threads", thread), json={"name": name})


def delete_thread(thread: str) -> Call[None]:
    """Delete a saved conversation."""
    return Call(_read_nothing, "DELETE", _path("threads", thread))


def explain(found: SearchResult) -> Call[Explanation]:
    """Explain a result: weights, similarities, cost, and the choices of other methods."""
    return Call(_read_one(Explanation), "POST", "/explain", json=to_plain(found.query))


def patches(found: SearchResult, document: str, number: int) -> Call[Patches]:
    """Return the patches of a searched page with their weights for the question."""
    body = {**to_plain(found.query), "document": document, "page": number}
    return Call(_read_one(Patches), "POST", "/explain/patches", json=body)


def pairs(found: SearchResult, first: PageId, second: PageId) -> Call[tuple[PatchPair, ...]]:
    """Return the best matching patches of two searched pages."""
    pages = [{"document": document, "page": page} for document, page in (first, second)]
    body = {**to_plain(found.query), "first": pages[0], "second": pages[1]}
    return Call(_read_one(tuple[PatchPair, ...]), "POST", "/explain/pair", json=body)


def page(document: str, number: int) -> Call[Page]:
    """Return a page of a document with its words. The first page is 1."""
    return Call(_read_one(Page), "GET", _path("documents", document, "pages", number))


def image(document: str, number: int, dpi: float = 144) -> Call[Image]:
    """Render a page as an image."""
    path = _path("documents", document, "pages", number, "image")
    return Call(_read_image, "GET", path, {"dpi": dpi})


def _path(*parts: str | int) -> str:
    return "/" + "/".join(quote(str(part), safe="") for part in parts)


def _without_none(**params: Any) -> dict[str, Any]:
    return {name: value for name, value in params.items() if value is not None}


def query_body(question: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a question; raises InvalidOption for an option that can't be sent."""
    query_options = {one.name for one in fields(Query)}
    ask_options = ("generator", "history", "thread", "standalone")
    values = {}
    for name, value in options.items():
        if name in query_options or name in ask_options:
            values[name] = _check_name(name, value)
        elif value is not None:
            raise InvalidOption(f"A server has its own setting for {name}: leave it out.")
    if documents := values.get("documents"):
        values["documents"] = tuple(documents)
    query = {name: value for name, value in values.items() if name in query_options}
    body: dict[str, Any] = to_plain(Query(question=question, **query))
    return body | {name: to_plain(values[name]) for name in ask_options if values.get(name)}


def _check_name(option: str, value: Any) -> Any:
    if option in ("encoder", "generator", "method") and not isinstance(value, str | None):
        raise InvalidOption(f"Pass {option} to a server by name, not as {value!r:.60}.")
    return value


def _password(options: ReadOptions | None, ray: str | None = None) -> str | None:
    """Return the password; raises InvalidOption for other options, which a server sets itself."""
    if ray is not None:
        raise InvalidOption("ray only works with an index, not with a server: leave it out.")
    if options is None:
        return None
    for one in fields(ReadOptions):
        is_default = getattr(options, one.name) == getattr(ReadOptions(), one.name)
        if one.name != "password" and not is_default:
            raise InvalidOption(f"A server has its own setting for {one.name}: leave it out.")
    return options.password


def _read_one(kind: type[T]) -> Callable[[httpx2.Response], T]:
    return lambda response: from_plain(kind, response.json())


def _read_nothing(_: httpx2.Response) -> None:
    return None


def _read_image(response: httpx2.Response) -> Image:
    from PIL import Image

    picture = Image.open(io.BytesIO(response.content))
    picture.load()
    return picture


def event(name: str, data: Any) -> Event:
    """Read an event of a streamed answer; raises the error that a ``problem`` event reports."""
    if name == "problem":
        raise error_from_code(str(data["code"]), str(data["detail"]))
    if name == "text":
        return str(data)
    return from_plain(SearchResult, data) if name == "search" else from_plain(Answer, data)
