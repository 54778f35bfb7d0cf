"""The tools and resources of an MCP server, and their output. The server calls each in a thread."""

from __future__ import annotations

import base64
import contextlib
import io
import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from anyio import from_thread
from mcp.server.mcpserver import Context
from mcp_types import CallToolResult, ContentBlock, ImageContent, ResourceLink, TextContent
from pydantic import Field, TypeAdapter

from visar.documents import find_documents
from visar.documents.finding import page_images
from visar.documents.page import Box, Page
from visar.errors import DocumentError, InvalidOption, VisarError
from visar.explain.report import report_data
from visar.generation.answering import page_text, quoted_answer
from visar.generation.generator import Generator
from visar.generation.prompts import fit_pixels
from visar.library import MAX_PAGES, AnswerStream, Library, SearchOptions, public_message
from visar.results import (
    Additions,
    Answer,
    Collection,
    Decision,
    Document,
    QuestionWord,
    Refusal,
    SearchResult,
)
from visar.retrieval.wording import numbers
from visar.serialization import Result, to_plain

REPORT = "visar/report"
"""Key of the app's data in the metadata of a result of ``explain``; models don't get it."""
PIXELS = 1_200_000
"""Default number of pixels of a page's image: models scale larger ones down."""
_QUALITY = 80
_MAX_DPI = 200
_REPORT_DPI = 80
_REPORT_PICTURES = 8
# A page of this many lines, which a result has twice, and bytes of JPEG stays below MAX_RESULT.
_MAX_LINES = 1_000
_MAX_JPEG = 450_000

Question = Annotated[str, Field(min_length=1, max_length=4_000)]
Documents = Annotated[list[str] | None, Field(max_length=1_000, description="Ids or names.")]
CollectionName = Annotated[str | None, Field(description="Only use this collection.")]
MaxPages = Annotated[int, Field(ge=1, le=100, description="Most questions need fewer.")]
DocumentName = Annotated[str, Field(description="Id or name of a document.")]
PageNumber = Annotated[int, Field(ge=1, description="Page number, from 1.")]
MAX_RESULT = 1_000_000
"""Maximum size of a result, in bytes of JSON. Claude Desktop accepts 1 MiB with its envelope."""
MAX_LEFT_OUT = 20
"""Maximum number of documents listed as not searched; a library may have thousands."""
# Models don't need these fields, and they can be long.
_OMITTED: Mapping[type, Sequence[str]] = {
    SearchResult: ("documents", "encoder", "calibration"),
    Decision: ("cost", "timings"),
    Document: ("encoders", "invalid"),
    Answer: ("passages",),  # its search has the same
}
# Every tool takes the beginning of a document's id.
_IDS = ("id", "document")
_ID_LENGTH = 16
_DECIMALS = 4


@dataclass(frozen=True, slots=True)
class DocumentList(Result):
    """Documents in the order they were added."""

    documents: tuple[Document, ...]
    total: int
    """Number of documents, including those before and after these."""


@dataclass(frozen=True, slots=True)
class CollectionList(Result):
    """All collections."""

    collections: tuple[Collection, ...]


@dataclass(frozen=True, slots=True)
class Explained(Result):
    """An answer, and the reasons for its pages."""

    answer: Answer
    words: tuple[QuestionWord, ...]
    """Words of the question with their influence."""
    cuts: Mapping[str, int]
    """Number of pages that each method would take."""
    numbers: tuple[str, ...]
    """Numbers behind the choice of pages, as sentences."""


@dataclass(frozen=True, slots=True)
class Line(Result):
    """A line of a page."""

    text: str
    box: Box
    """Left, top, right, bottom as shares of the page."""


@dataclass(frozen=True, slots=True)
class PageContent(Result):
    """A page with its text."""

    document: Document
    number: int
    """Page number, from 1."""
    label: str
    """Printed page number if it differs, otherwise empty."""
    lines: tuple[Line, ...]
    cut_off: bool
    """Whether the page has more lines than fit in a result."""
    image: str = ""
    """Size of the image in pixels, or the reason why there is none."""


class Roots:
    """Folders that documents may be added from, wherever links in them lead."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self.folders = [folder.expanduser().resolve() for folder in folders]
        for folder in self.folders:
            if not folder.is_dir():
                raise InvalidOption(f"{folder} isn't a folder. Give an existing one with --root.")

    def find(self, path: str) -> Path:
        """Return a file or folder in these folders; a relative path may be in any of them."""
        for folder in self.folders:
            if self._hold(folder / path) and (folder / path).exists():
                return (folder / path).resolve()
        raise InvalidOption(
            f"Can't add {path!r}: no such file in the folders that documents may be added from."
        )

    def hold(self, document: Path) -> bool:
        """Return whether all files of a document are in these folders."""
        files = page_images(document) if document.is_dir() else ()
        return all(map(self._hold, (document, *files)))

    def _hold(self, path: Path) -> bool:
        try:
            resolved = path.resolve()
        except (OSError, RuntimeError, ValueError):  # a loop of links, or not a path at all
            return False
        return any(resolved.is_relative_to(folder) for folder in self.folders)


@dataclass(frozen=True)
class Tools:
    """The tools, as methods. Clients see their docstrings and annotations."""

    library: Library
    encoder: str | None
    generator: str | Generator | None
    roots: Roots

    def is_public(self, error: object) -> bool:
        """Return whether clients may see an error's message; others can reveal local details."""
        # Messages of a server are already safe for clients.
        remote = self.library.location.startswith(("http://", "https://"))
        return isinstance(error, VisarError) and (remote or error.code != VisarError.code)

    def clean(self, error: object) -> str:
        """Return an error's message with local paths removed."""
        message = public_message(error, self.library)
        for root in self.roots.folders:
            if root.name:
                message = message.replace(str(root), root.name)
        return message

    def list_documents(
        self,
        collection: CollectionName = None,
        offset: Annotated[int, Field(ge=0)] = 0,
        limit: Annotated[int, Field(ge=1, le=1_000)] = 100,
    ) -> Annotated[CallToolResult, DocumentList]:
        """List the documents that can be searched, with their ids and numbers of pages."""
        found = self.library.documents(collection=collection)
        return make_result(DocumentList(tuple(found[offset : offset + limit]), len(found)))

    def list_collections(self) -> Annotated[CallToolResult, CollectionList]:
        """List the collections, which are named groups of documents."""
        return make_result(CollectionList(tuple(self.library.collections())))

    def search(
        self,
        question: Question,
        documents: Documents = None,
        collection: CollectionName = None,
        max_pages: MaxPages = MAX_PAGES,
    ) -> Annotated[CallToolResult, SearchResult]:
        """Find the pages that a question needs, each with its best line; see read_page."""
        found = self.library.search(question, **self._options(documents, collection, max_pages))
        return make_result(limit_left_out(found), *page_links(found))

    def ask(
        self,
        question: Question,
        documents: Documents = None,
        collection: CollectionName = None,
        max_pages: MaxPages = MAX_PAGES,
    ) -> Annotated[CallToolResult, Answer]:
        """Answer a question, with the pages it is based on. Empty text means there is no answer."""
        options = self._options(documents, collection, max_pages)
        answer = self.library.ask(question, generator=self.generator, **options)
        found = answer.search
        return make_result(replace(answer, search=limit_left_out(found)), *page_links(found))

    def explain(
        self,
        question: Question,
        documents: Documents = None,
        collection: CollectionName = None,
        max_pages: MaxPages = MAX_PAGES,
    ) -> Annotated[CallToolResult, Explained]:
        """Show the user, in pictures, why a question needs these pages. For answers, use ask."""
        found = self.library.search(question, **self._options(documents, collection, max_pages))
        answer = AnswerStream(found, quoted_answer(found)).answer
        explanation = self.library.explain(found)
        explained = Explained(
            answer=replace(answer, search=limit_left_out(found)),
            words=explanation.words,
            cuts=explanation.cuts,
            numbers=tuple(numbers(found)),
        )
        with contextlib.suppress(DocumentError):  # without the files, there are no images
            report = report_data(
                self.library, answer, explanation, dpi=_REPORT_DPI, max_pictures=_REPORT_PICTURES
            )
            for pictures in range(len(report["pictures"]), -1, -1):
                smaller = {**report, "pictures": report["pictures"][:pictures]}
                with contextlib.suppress(InvalidOption):
                    return make_result(explained, *page_links(found), meta={REPORT: smaller})
        # With very many pages, the report is too long even without images.
        return make_result(explained, *page_links(found))

    def read_page(
        self,
        document: DocumentName,
        page: PageNumber,
        max_pixels: Annotated[int, Field(ge=10_000, le=8_000_000)] = PIXELS,
    ) -> Annotated[CallToolResult, PageContent]:
        """Read a page of a document: its image, and its lines with their positions."""
        stored = self.library.get(document)
        read = self.library.page(stored.id, page)
        lines = tuple(_line(read, indices) for indices in read.lines())
        more = len(lines) > _MAX_LINES
        content = PageContent(stored, page, read.label, lines[:_MAX_LINES], cut_off=more)
        link = page_link(stored.id, stored.name, page)
        try:
            jpeg, size = self._picture(stored.id, page, max_pixels)
        except DocumentError as error:
            # Without an image, the lines are still useful.
            return make_result(replace(content, image=self.clean(error)), link)
        image = ImageContent(data=base64.b64encode(jpeg).decode(), mime_type="image/jpeg")
        return make_result(replace(content, image=size), image, link)

    def page_image(self, document: str, page: int) -> bytes:
        """Return a page as JPEG."""
        return self._picture(self.library.get(document).id, page, PIXELS)[0]

    def page_words(self, document: str, page: int) -> str:
        """Return the lines of a page."""
        return page_text(self.library.page(self.library.get(document).id, page))

    def add(
        self,
        path: Annotated[str, Field(description="A file, or a folder with documents.")],
        ctx: Context[Any, Any],
    ) -> Annotated[CallToolResult, Additions]:
        """Add documents on this machine to the library: files of any supported type, or folders."""
        found = find_documents([self.roots.find(path)])
        inside = [one for one in found.paths if self.roots.hold(one)]
        outside = [one for one in found.paths if one not in inside]
        steps = itertools.count(1)

        def progress(source: str) -> Any:
            def report(stage: str, done: int, pages: int) -> None:
                message = f"{Path(source).name}: {stage}, {done} of {pages} pages"
                from_thread.run(ctx.report_progress, next(steps), None, message)

            return report

        added = self.library.add_all(inside, encoder=self.encoder, progress=progress)
        refused = [
            *(Refusal(str(one), reason) for one, reason in found.refused),
            *added.refused,
            *(Refusal(str(one), f"{one.name} links to a file elsewhere.") for one in outside),
        ]
        cleaned = (Refusal(self.clean(one.path), self.clean(one.reason)) for one in refused)
        skipped = tuple(self.clean(str(one)) for one in found.skipped)
        return make_result(Additions(added.added, tuple(cleaned), skipped))

    def remove(self, document: DocumentName) -> Annotated[CallToolResult, Document]:
        """Remove a document from the library. Its file stays where it is."""
        return make_result(self.library.remove(document))

    def _options(
        self, documents: list[str] | None, collection: str | None, max_k: int
    ) -> SearchOptions:
        return SearchOptions(
            documents=documents, collection=collection, encoder=self.encoder, max_k=max_k
        )

    def _picture(self, document: str, page: int, pixels: int) -> tuple[bytes, str]:
        """Return a page as JPEG of at most these pixels, and its size as text."""
        read = self.library.page(document, page)
        dpi = min(_MAX_DPI, 72 * math.sqrt(pixels / (read.width * read.height)))
        image = self.library.image(document, page, dpi).convert("RGB")
        while True:
            (image,) = fit_pixels([image], pixels)
            encoded = io.BytesIO()
            image.save(encoded, "JPEG", quality=_QUALITY, optimize=True)
            if encoded.tell() <= _MAX_JPEG:
                return encoded.getvalue(), f"{image.width} × {image.height}"
            pixels = int(0.9 * image.width * image.height * _MAX_JPEG / encoded.tell())


def _line(page: Page, indices: Iterable[int]) -> Line:
    words = [page.words[index] for index in indices]
    left, top, right, bottom = zip(*(word.box for word in words), strict=True)
    box = (min(left), min(top), max(right), max(bottom))
    return Line(" ".join(word.text for word in words), box)


def output_schema(kind: type) -> dict[str, Any]:
    """Return the JSON schema of a result, without the fields that `shorten` omits."""
    schema = TypeAdapter(kind).json_schema(mode="serialization")
    omitted = {one.__name__: names for one, names in _OMITTED.items()}
    for described in (schema, *schema.get("$defs", {}).values()):
        for name in omitted.get(described.get("title"), ()):
            described["properties"].pop(name)
            described["required"] = [one for one in described["required"] if one != name]
    return schema


def shorten(value: Any) -> Any:
    """Convert a result to JSON values, with short ids and numbers and without long details."""
    return _shorten(value, to_plain(value, public=True))


def _shorten(value: Any, plain: Any) -> Any:
    if isinstance(plain, dict) and not isinstance(value, Mapping):
        shown = {name: plain[name] for name in plain if name not in _OMITTED.get(type(value), ())}
        short = {name: _shorten(getattr(value, name), item) for name, item in shown.items()}
        ids = {name: short[name][:_ID_LENGTH] for name in _IDS if isinstance(short.get(name), str)}
        return short | ids
    if isinstance(plain, list):
        return [_shorten(one, item) for one, item in zip(value, plain, strict=True)]
    return round(plain, _DECIMALS) if isinstance(plain, float) else plain


def limit_left_out(found: SearchResult) -> SearchResult:
    """Return a result that lists few of the documents left out, and counts them in its summary."""
    if not found.left_out:
        return found
    documents = "1 document" if len(found.left_out) == 1 else f"{len(found.left_out):,} documents"
    summary = f"{found.summary} · {documents} not searched: no vectors of this encoder"
    return replace(found, left_out=found.left_out[:MAX_LEFT_OUT], summary=summary)


def page_link(document: str, name: str, page: int) -> ResourceLink:
    """Return the resource of a page's image."""
    uri = f"visar://{document[:_ID_LENGTH]}/{page}"
    return ResourceLink(uri=uri, name=f"{name}, page {page}", mime_type="image/jpeg")


def page_links(found: SearchResult) -> list[ResourceLink]:
    """Return the pages of a search as resources."""
    return [page_link(hit.document, hit.name, hit.page) for hit in found.pages]


def make_result(
    value: Result, *more: ContentBlock, meta: dict[str, Any] | None = None
) -> CallToolResult:
    """Return a tool's result: data, the same as text, then other content; ``meta`` is for an app.

    Raises InvalidOption if it has more than `MAX_RESULT` bytes.
    """
    data = shorten(value)
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    result = CallToolResult(
        content=[TextContent(text=text), *more], structured_content=data, _meta=meta
    )
    if len(result.model_dump_json(by_alias=True).encode()) > MAX_RESULT:
        raise InvalidOption("The result is too long to send. Ask for fewer pages or documents.")
    return result
