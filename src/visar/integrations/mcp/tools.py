"""The tools: each asks the index, in a thread of its own, and gives a result."""

from __future__ import annotations

import base64
import contextlib
import io
import itertools
import math
from collections.abc import Iterable
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
from visar.retrieval.wording import numbers
from visar.generation.answering import page_text
from visar.generation.prompts import fit_pixels
from visar.generation.protocol import Generator
from visar.index import Index
from visar.integrations.mcp.results import (
    MAX_RESULT,
    Added,
    Answered,
    CollectionList,
    DocumentList,
    Explained,
    FoundPages,
    Line,
    ListedDocument,
    PageContent,
    Refused,
    found_pages,
    make_result,
    page_link,
    page_links,
    page_uri,
    size_of,
)
from visar.retrieval.search import SearchOptions
from visar.server.context import public_message
from visar.server.schemas import MAX_QUESTION, Collection, to_schema

REPORT = "visar/report"
"""Where a result of ``explain`` has the data of the app, which the model is not given."""
PIXELS = 1_200_000
"""Of a page, unless asked otherwise: models scale larger pictures down."""
_QUALITY = 80
_MAX_DPI = 200
_REPORT_DPI = 80
_REPORT_PICTURES = 8
# Of a page's lines, which a result has twice.
_MAX_TEXT = 200_000

Question = Annotated[
    str, Field(min_length=1, max_length=MAX_QUESTION, description="A question in plain words.")
]
Documents = Annotated[
    list[str] | None,
    Field(
        max_length=1_000, description="Ids or names of the documents to search; all if left out."
    ),
]
CollectionName = Annotated[
    str | None, Field(description="Search this collection, instead of naming documents.")
]
MaxPages = Annotated[
    int, Field(ge=1, le=100, description="At most so many pages; usually far fewer are needed.")
]
DocumentName = Annotated[str, Field(description="The id of a document, or its name.")]
PageNumber = Annotated[int, Field(ge=1, description="1 for the first page.")]


class Roots:
    """The folders that documents may be added from; links are followed before it is decided."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self.folders = [folder.expanduser().resolve() for folder in folders]
        for folder in self.folders:
            if not folder.is_dir():
                raise InvalidOption(f"{folder} is no folder: name one with --root.")

    def find(self, path: str) -> Path:
        """Return a file or folder in one of the folders; a relative path is of each of them."""
        for folder in self.folders:
            found = _resolved(folder / path)
            if found is not None and found.is_relative_to(folder) and found.exists():
                return found
        raise InvalidOption(
            f"{path!r} is not there, or not in a folder that documents may be added from."
        )

    def hold(self, document: Path) -> bool:
        """Whether all files of a document are in these folders."""
        files = [document, *(page_images(document) if document.is_dir() else ())]
        places = [_resolved(file) for file in files]
        return all(
            place is not None and any(place.is_relative_to(folder) for folder in self.folders)
            for place in places
        )


def _resolved(path: Path) -> Path | None:
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):  # links in a circle, or no path at all
        return None


class Tools:
    """What the tools do. Each is called in a thread of its own."""

    def __init__(
        self, index: Index, encoder: str, generator: str | Generator, roots: Roots
    ) -> None:
        self._index = index
        self._encoder = encoder
        self._generator = generator
        self._roots = roots

    def clean(self, error: object) -> str:
        """What an error says, without telling where on this machine anything is kept."""
        said = public_message(error, self._index)
        for root in self._roots.folders:
            if root.name:
                said = said.replace(str(root), root.name)
        return said

    def list_documents(
        self,
        collection: Annotated[str | None, Field(description="Only those of a collection.")] = None,
        offset: Annotated[int, Field(ge=0)] = 0,
        limit: Annotated[int, Field(ge=1, le=1_000)] = 100,
    ) -> Annotated[CallToolResult, DocumentList]:
        """List the documents that can be asked about, with their ids and numbers of pages."""
        found = self._index.documents(collection=collection)
        shown = [to_schema(ListedDocument, one) for one in found[offset : offset + limit]]
        return make_result(DocumentList(documents=shown, total=len(found)))

    def list_collections(self) -> Annotated[CallToolResult, CollectionList]:
        """List the collections, which are named groups of documents."""
        found = self._index.collections().items()
        return make_result(
            CollectionList(collections=[Collection(name=one, documents=n) for one, n in found])
        )

    def search(
        self,
        question: Question,
        documents: Documents = None,
        collection: CollectionName = None,
        max_pages: MaxPages = 20,
    ) -> Annotated[CallToolResult, FoundPages]:
        """Find the pages of the documents that a question needs, with the line that matches best.

        How many pages is decided for each question. Read them with read_page.
        """
        found = self._index.search(question, **self._options(documents, collection, max_pages))
        return make_result(
            to_schema(FoundPages, found, **found_pages(found)), links=page_links(found)
        )

    def ask(
        self,
        question: Question,
        documents: Documents = None,
        collection: CollectionName = None,
        max_pages: MaxPages = 20,
    ) -> Annotated[CallToolResult, Answered]:
        """Answer a question from the documents, with the passages and pages the answer rests on.

        Says so if the documents do not hold an answer.
        """
        answer = self._index.ask(
            question,
            generator=self._generator,
            **self._options(documents, collection, max_pages),
        )
        answered = to_schema(Answered, answer, **found_pages(answer.search))
        return make_result(answered, links=page_links(answer.search))

    def explain(
        self,
        question: Question,
        documents: Documents = None,
        collection: CollectionName = None,
        max_pages: MaxPages = 20,
    ) -> Annotated[CallToolResult, Explained]:
        """Show the user why a question needs these pages and so many of them, with pictures.

        For people who want to see the reasons; use ask or search for an answer.
        """
        answer = self._index.ask(question, **self._options(documents, collection, max_pages))
        found = answer.search
        explanation = self._index.explain(found)
        explained = to_schema(
            Explained,
            answer,
            **found_pages(found),
            words=explanation.words,
            cuts=explanation.cuts,
            numbers=list(numbers(found)),
        )
        links = page_links(found)
        with contextlib.suppress(DocumentError):  # no file to draw pages from
            report = report_data(
                self._index, answer, explanation, dpi=_REPORT_DPI, most_pictures=_REPORT_PICTURES
            )
            for pictures in range(len(report["pictures"]), -1, -1):
                smaller = {**report, "pictures": report["pictures"][:pictures]}
                with contextlib.suppress(InvalidOption):
                    return make_result(explained, links=links, meta={REPORT: smaller})
        # Or so many pages that their matrix alone is too much: the text tells of the best.
        return make_result(explained, links=links)

    def read_page(
        self,
        document: DocumentName,
        page: PageNumber,
        max_pixels: Annotated[
            int, Field(ge=10_000, le=8_000_000, description="The most pixels of the picture.")
        ] = PIXELS,
    ) -> Annotated[CallToolResult, PageContent]:
        """Look at a page of a document: its picture, and its words with their places.

        Boxes are left, top, right, bottom as shares of the page.
        """
        stored = self._index.get(document)
        read = self._index.page(stored.id, page)
        lines, cut_off = _lines(read)
        content = PageContent(
            document=stored.id,
            name=stored.name,
            page=page,
            pages=stored.pages,
            label=read.label,
            lines=lines,
            cut_off=cut_off,
            image="",
            uri=page_uri(stored.id, page),
        )
        link = page_link(stored.id, stored.name, page)
        # What is left for the picture, before base64 makes four bytes of three.
        room = (MAX_RESULT - size_of(make_result(content, links=[link])) - 1_000) * 3 // 4
        try:
            picture, content.image = self._picture(stored.id, page, max_pixels, room)
        except DocumentError as error:
            content.image = self.clean(error)  # its words are in the index all the same
            return make_result(content, links=[link])
        data = base64.b64encode(picture).decode("ascii")
        return make_result(content, ImageContent(data=data, mime_type="image/jpeg"), links=[link])

    def page_image(self, document: str, page: int) -> bytes:
        """A page as JPEG."""
        return self._picture(self._index.get(document).id, page, PIXELS, MAX_RESULT * 3 // 4)[0]

    def page_words(self, document: str, page: int) -> str:
        """The lines of a page."""
        return page_text(self._index.page(document, page))

    def add(
        self,
        path: Annotated[str, Field(description="A file, or a folder with documents.")],
        ctx: Context[Any, Any],
    ) -> Annotated[CallToolResult, Added]:
        """Add documents of this machine to the index: PDFs, images, office files, or folders.

        What is there already is not read again.
        """
        found = find_documents([self._roots.find(path)])
        inside = [one for one in found.paths if self._roots.hold(one)]
        outside = [one for one in found.paths if one not in inside]
        steps = itertools.count(1)

        def progress(place: str) -> Any:
            def report(stage: str, done: int, pages: int) -> None:
                said = f"{Path(place).name}: {stage}, {done} of {pages} pages"
                from_thread.run(ctx.report_progress, next(steps), None, said)

            return report

        made = self._index.add_all(inside, encoder=self._encoder, progress=progress)
        refused = [(str(place), reason) for place, reason in found.refused]
        refused += [(one.path, one.reason) for one in made.refused]
        refused += [(str(one), f"{one.name} is a link to elsewhere.") for one in outside]
        return make_result(
            Added(
                added=[to_schema(ListedDocument, one) for one in made.added],
                refused=[
                    Refused(path=self.clean(one), reason=self.clean(why)) for one, why in refused
                ],
            )
        )

    def remove(self, document: DocumentName) -> Annotated[CallToolResult, ListedDocument]:
        """Remove a document from the index. Its file stays where it is."""
        return make_result(to_schema(ListedDocument, self._index.remove(document)))

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
        """A page as JPEG within these limits, and its size in words."""
        read = self._index.page(document, page)
        dpi = min(_MAX_DPI, 72 * math.sqrt(max_pixels / (read.width * read.height)))
        image = self._index.image(document, page, dpi).convert("RGB")
        pixels = max_pixels
        while True:
            (image,) = fit_pixels([image], pixels)
            encoded = io.BytesIO()
            image.save(encoded, "JPEG", quality=_QUALITY, optimize=True)
            if encoded.tell() <= max_bytes:
                return encoded.getvalue(), f"{image.width} × {image.height}"
            pixels = int(0.9 * image.width * image.height * max_bytes / encoded.tell())


def _lines(page: Page) -> tuple[list[Line], bool]:
    """The lines of a page, and whether there are more than a result can hold."""
    lines: list[Line] = []
    size = 0
    for indices in page.lines():
        words = [page.words[one] for one in indices]
        lefts, tops, rights, bottoms = zip(*(word.box for word in words), strict=True)
        line = Line(
            text=" ".join(word.text for word in words),
            box=(min(lefts), min(tops), max(rights), max(bottoms)),
        )
        size += len(line.model_dump_json().encode())
        if size > _MAX_TEXT:
            return lines, True
        lines.append(line)
    return lines, False
