"""The tools and resources of an MCP server. The server calls each in a thread."""

from __future__ import annotations

import base64
import contextlib
import io
import itertools
import json
import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from anyio import from_thread
from mcp.server.mcpserver import Context
from mcp_types import CallToolResult, ImageContent
from pydantic import Field

from visar.documents import find_documents
from visar.documents.finding import page_images
from visar.documents.page import Page
from visar.errors import DocumentError, InvalidOption
from visar.explain.report import report_data
from visar.generation.answering import page_text, quoted_answer
from visar.generation.prompts import fit_pixels
from visar.generation.protocol import Generator
from visar.integrations.mcp.output import (
    MAX_RESULT,
    CollectionList,
    DocumentList,
    Explained,
    Line,
    PageContent,
    limit_left_out,
    make_result,
    page_link,
    page_links,
    shorten,
    size_of,
)
from visar.library import AnswerStream, Library, SearchOptions
from visar.public import MAX_QUESTION, public_message
from visar.results import Additions, Answer, Document, Refusal, SearchResult
from visar.retrieval.wording import numbers

REPORT = "visar/report"
"""Key of the app's data in the metadata of a result of ``explain``; models don't get it."""
PIXELS = 1_200_000
"""Default number of pixels of a page's image: models scale larger ones down."""
_QUALITY = 80
_MAX_DPI = 200
_REPORT_DPI = 80
_REPORT_PICTURES = 8
# Bytes of a page's lines, which a result has twice.
_MAX_TEXT = 200_000

Question = Annotated[
    str, Field(min_length=1, max_length=MAX_QUESTION, description="Question in plain words.")
]
Documents = Annotated[
    list[str] | None,
    Field(max_length=1_000, description="Ids or names of documents to search; default: all."),
]
CollectionName = Annotated[str | None, Field(description="Only use this collection.")]
MaxPages = Annotated[
    int, Field(ge=1, le=100, description="Maximum number of pages; most questions need fewer.")
]
DocumentName = Annotated[str, Field(description="Id or name of a document.")]
PageNumber = Annotated[int, Field(ge=1, description="Page number, from 1.")]


class Roots:
    """Folders that documents may be added from, whatever links in them point to."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self.folders = [folder.expanduser().resolve() for folder in folders]
        for folder in self.folders:
            if not folder.is_dir():
                raise InvalidOption(f"{folder} isn't a folder. Give an existing one with --root.")

    def find(self, path: str) -> Path:
        """Return a file or folder in one of the folders; a relative path may be in any of them."""
        for folder in self.folders:
            found = _resolve(folder / path)
            if found is not None and found.is_relative_to(folder) and found.exists():
                return found
        raise InvalidOption(
            f"Can't add {path!r}: no such file in the folders that documents may be added from."
        )

    def hold(self, document: Path) -> bool:
        """Return whether all files of a document are in these folders."""
        files = [document, *(page_images(document) if document.is_dir() else ())]
        return all(
            path is not None and any(path.is_relative_to(folder) for folder in self.folders)
            for path in map(_resolve, files)
        )


def _resolve(path: Path) -> Path | None:
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):  # a loop of links, or not a path at all
        return None


class Tools:
    """The tools, as methods. Their docstrings and annotations are what clients see of them."""

    def __init__(
        self,
        library: Library,
        encoder: str | None,
        generator: str | Generator | None,
        roots: Roots,
    ) -> None:
        self._library = library
        self._encoder = encoder
        self._generator = generator
        self._roots = roots

    def clean(self, error: object) -> str:
        """Return an error's message with local paths removed."""
        message = public_message(error, self._library)
        for root in self._roots.folders:
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
        found = self._library.documents(collection=collection)
        return make_result(DocumentList(tuple(found[offset : offset + limit]), len(found)))

    def list_collections(self) -> Annotated[CallToolResult, CollectionList]:
        """List the collections, which are named groups of documents."""
        return make_result(CollectionList(tuple(self._library.collections())))

    def search(
        self,
        question: Question,
        documents: Documents = None,
        collection: CollectionName = None,
        max_pages: MaxPages = 20,
    ) -> Annotated[CallToolResult, SearchResult]:
        """Find the pages that a question needs, each with the line that matches best.

        The number of pages depends on the question. Read them with read_page.
        """
        found = self._library.search(question, **self._options(documents, collection, max_pages))
        return make_result(limit_left_out(found), links=page_links(found))

    def ask(
        self,
        question: Question,
        documents: Documents = None,
        collection: CollectionName = None,
        max_pages: MaxPages = 20,
    ) -> Annotated[CallToolResult, Answer]:
        """Answer a question from the documents, with the passages and pages it is based on.

        The text is empty if the documents don't hold an answer.
        """
        options = self._options(documents, collection, max_pages)
        answer = self._library.ask(question, generator=self._generator, **options)
        answer = replace(answer, search=limit_left_out(answer.search))
        return make_result(answer, links=page_links(answer.search))

    def explain(
        self,
        question: Question,
        documents: Documents = None,
        collection: CollectionName = None,
        max_pages: MaxPages = 20,
    ) -> Annotated[CallToolResult, Explained]:
        """Show the user why a question needs these pages and this many, with pictures.

        For people who want to see the reasons; use ask or search to get an answer.
        """
        found = self._library.search(question, **self._options(documents, collection, max_pages))
        answer = AnswerStream(found, quoted_answer(found)).answer
        explanation = self._library.explain(found)
        explained = Explained(
            replace(answer, search=limit_left_out(found)),
            explanation.words,
            explanation.cuts,
            tuple(numbers(found)),
        )
        links = page_links(found)
        with contextlib.suppress(DocumentError):  # there is no file to draw pages from
            report = report_data(
                self._library, answer, explanation, dpi=_REPORT_DPI, most_pictures=_REPORT_PICTURES
            )
            for pictures in range(len(report["pictures"]), -1, -1):
                smaller = {**report, "pictures": report["pictures"][:pictures]}
                with contextlib.suppress(InvalidOption):
                    return make_result(explained, links=links, meta={REPORT: smaller})
        # Of very many pages even the matrix is too long; the data has the best pages.
        return make_result(explained, links=links)

    def read_page(
        self,
        document: DocumentName,
        page: PageNumber,
        max_pixels: Annotated[
            int, Field(ge=10_000, le=8_000_000, description="Maximum number of pixels.")
        ] = PIXELS,
    ) -> Annotated[CallToolResult, PageContent]:
        """Read a page of a document: its image, and its lines with their positions.

        Boxes are left, top, right, bottom as shares of the page.
        """
        stored = self._library.get(document)
        read = self._library.page(stored.id, page)
        content = PageContent(stored, page, read.label, *_lines(read))
        link = page_link(stored.id, stored.name, page)
        # Base64 makes four bytes of three.
        room = (MAX_RESULT - size_of(make_result(content, links=[link])) - 1_000) * 3 // 4
        try:
            picture, size = self._picture(stored.id, page, max_pixels, room)
        except DocumentError as error:
            # The words are in the library all the same.
            return make_result(replace(content, image=self.clean(error)), links=[link])
        image = ImageContent(data=base64.b64encode(picture).decode(), mime_type="image/jpeg")
        return make_result(replace(content, image=size), image, links=[link])

    def page_image(self, document: str, page: int) -> bytes:
        """Return a page as JPEG."""
        return self._picture(self._library.get(document).id, page, PIXELS, MAX_RESULT * 3 // 4)[0]

    def page_words(self, document: str, page: int) -> str:
        """Return the lines of a page."""
        return page_text(self._library.page(self._library.get(document).id, page))

    def add(
        self,
        path: Annotated[str, Field(description="A file, or a folder with documents.")],
        ctx: Context[Any, Any],
    ) -> Annotated[CallToolResult, Additions]:
        """Add documents on this machine to the library: PDFs, images, Office files, or folders.

        Documents that are there already are not read again.
        """
        found = find_documents([self._roots.find(path)])
        inside = [one for one in found.paths if self._roots.hold(one)]
        outside = [one for one in found.paths if one not in inside]
        steps = itertools.count(1)

        def progress(source: str) -> Any:
            def report(stage: str, done: int, pages: int) -> None:
                message = f"{Path(source).name}: {stage}, {done} of {pages} pages"
                from_thread.run(ctx.report_progress, next(steps), None, message)

            return report

        added = self._library.add_all(inside, encoder=self._encoder, progress=progress)
        refused = [
            *(Refusal(str(one), reason) for one, reason in found.refused),
            *added.refused,
            *(Refusal(str(one), f"{one.name} links to a file elsewhere.") for one in outside),
        ]
        cleaned = (Refusal(self.clean(one.path), self.clean(one.reason)) for one in refused)
        return make_result(Additions(added.added, tuple(cleaned)))

    def remove(self, document: DocumentName) -> Annotated[CallToolResult, Document]:
        """Remove a document from the library. Its file stays where it is."""
        return make_result(self._library.remove(document))

    def _options(
        self, documents: list[str] | None, collection: str | None, max_pages: int
    ) -> SearchOptions:
        return {
            "documents": documents,
            "collection": collection,
            "encoder": self._encoder,
            "max_k": max_pages,
        }

    def _picture(
        self, document: str, page: int, max_pixels: int, max_bytes: int
    ) -> tuple[bytes, str]:
        """Return a page as JPEG within these limits, and its size as text."""
        read = self._library.page(document, page)
        dpi = min(_MAX_DPI, 72 * math.sqrt(max_pixels / (read.width * read.height)))
        image = self._library.image(document, page, dpi).convert("RGB")
        pixels = max_pixels
        while True:
            (image,) = fit_pixels([image], pixels)
            encoded = io.BytesIO()
            image.save(encoded, "JPEG", quality=_QUALITY, optimize=True)
            if encoded.tell() <= max_bytes:
                return encoded.getvalue(), f"{image.width} × {image.height}"
            pixels = int(0.9 * image.width * image.height * max_bytes / encoded.tell())


def _lines(page: Page) -> tuple[tuple[Line, ...], bool]:
    """Return the lines of a page, and whether there are more than fit in a result."""
    lines: list[Line] = []
    size = 0
    for indices in page.lines():
        words = [page.words[one] for one in indices]
        lefts, tops, rights, bottoms = zip(*(word.box for word in words), strict=True)
        box = (min(lefts), min(tops), max(rights), max(bottoms))
        line = Line(" ".join(word.text for word in words), box)
        size += len(json.dumps(shorten(line), ensure_ascii=False).encode())
        if size > _MAX_TEXT:
            return tuple(lines), True
        lines.append(line)
    return tuple(lines), False
