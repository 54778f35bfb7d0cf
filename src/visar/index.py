"""The library of a person: documents in, the pages and passages a question needs out."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from visar.documents import (
    Document,
    Limits,
    Ocr,
    OcrEngine,
    Page,
    ReadOptions,
    find_documents,
    open_document,
)
from visar.encoders.protocol import Encoder, PageEmbedding
from visar.encoders.registry import get_encoder
from visar.errors import DocumentError, NotInIndex, VisarError
from visar.generation import extractive
from visar.generation.answering import USUAL_BUDGET, Budget, answer_from, page_text
from visar.generation.prompts import GivenPage, page_label
from visar.generation.protocol import Generator, OnText, ignore_text
from visar.generation.registry import get_generator
from visar.models.devices import check_device
from visar.models.protocols import Downloadable, Releasable
from visar.results import Answer, Method, SearchResult
from visar.retrieval.passages import best_passages
from visar.retrieval.search import Library, Searcher
from visar.store import (
    Compaction,
    DocumentVectors,
    EncoderRef,
    NewDocument,
    Problem,
    Store,
    StoredDocument,
)

if TYPE_CHECKING:
    from PIL.Image import Image

Stage: TypeAlias = Literal["reading", "ocr", "encoding"]
Progress: TypeAlias = Callable[[Stage, int, int], None]
"""Called with a stage, how many pages it has done, and how many there are."""

PAGES_AT_A_TIME = 8


@dataclass(frozen=True, slots=True)
class Refusal:
    """A document that was not added, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Additions:
    """What came of adding several documents."""

    added: tuple[StoredDocument, ...]
    refused: tuple[Refusal, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How documents are read."""

    password: str | None = None
    ocr: Ocr = "auto"
    ocr_engine: OcrEngine = "rapidocr"
    limits: Limits = field(default_factory=Limits)


_USUAL_READING = Reading()


def default_location() -> Path:
    """``VISAR_INDEX``, or a folder under the user's data directory."""
    from platformdirs import user_data_path

    chosen = os.environ.get("VISAR_INDEX")
    return Path(chosen) if chosen else user_data_path("visar") / "index"


class Index:
    """Documents that questions can be asked about. The README shows how it is used."""

    def __init__(self, store: Store, device: str = "auto") -> None:
        check_device(device)
        self._store = store
        self._device = device
        self._encoders: dict[str, Encoder] = {}
        self._generators: dict[tuple[str, str | None], Generator] = {}
        self._lock = threading.Lock()
        self._library: Library | None = None

    @classmethod
    def open(
        cls,
        location: str | os.PathLike[str] | None = None,
        *,
        create: bool = True,
        device: str = "auto",
    ) -> Index:
        """Open the index in a folder (by default the user's own), making it where there is none.

        ``device`` is where encoders run: "auto", "cpu", "cuda" or "mps".
        """
        return cls(Store.open(location or default_location(), create=create), device)

    def __repr__(self) -> str:
        return f"Index({self.location!r})"

    @property
    def location(self) -> str:
        return self._store.location

    def documents(self) -> list[StoredDocument]:
        """All documents, in the order they were added."""
        return self._store.documents()

    def get(self, document: str) -> StoredDocument:
        """A document by its id, the beginning of its id, or its name."""
        named = [known for known in self.documents() if known.name == document]
        return named[0] if len(named) == 1 else self._store.get(document)

    def pages(self, document: str) -> tuple[Page, ...]:
        """The pages of a document with their words."""
        return self._store.pages(self.get(document).id)

    def vectors(self, document: str, *, encoder: str = "embedded") -> DocumentVectors:
        """The vectors that an encoder gave the pages of a document."""
        return self._store.vectors(self.get(document).id, _reference(self.encoder(encoder)))

    def encode_question(self, question: str, *, encoder: str = "embedded") -> NDArray[np.float32]:
        """The vectors of a question: what ``visar.select`` takes with those of pages."""
        return self.encoder(encoder).encode_query(question)

    def fetch(self, encoder: str) -> None:
        """Download the weights of an encoder that are not here yet, as its first use would."""
        chosen = self.encoder(encoder)
        if isinstance(chosen, Downloadable):
            chosen.fetch()

    def add(
        self,
        path: str | os.PathLike[str],
        *,
        encoder: str = "embedded",
        reading: Reading = _USUAL_READING,
        progress: Progress | None = None,
    ) -> StoredDocument:
        """Add a document; the same content again changes nothing.

        An interrupted call goes on where it stopped. Words read by OCR are kept: another encoder
        takes them from the index.
        """
        chosen = self.encoder(encoder)
        options = ReadOptions(
            password=reading.password,
            ocr=reading.ocr,
            ocr_engine=reading.ocr_engine,
            limits=reading.limits,
        )
        with open_document(Path(path), options) as document:
            new = NewDocument(
                id=document.id,
                name=document.name,
                source=str(Path(path).resolve()),
                pages=len(document),
                size=_size(document.path),
            )
            encoded = self._encoded(document, chosen, progress or _silently)
            return self._store.add(new, _reference(chosen), encoded)

    def add_all(
        self,
        paths: Iterable[str | os.PathLike[str]],
        *,
        encoder: str = "embedded",
        reading: Reading = _USUAL_READING,
        progress: Callable[[Path], Progress] | None = None,
    ) -> Additions:
        """Add files and the documents of folders; one that is refused does not stop the others."""
        found = find_documents(paths)
        added: list[StoredDocument] = []
        refused = [Refusal(str(path), reason) for path, reason in found.refused]
        for path in found.paths:
            try:
                report = progress(path) if progress else None
                added.append(self.add(path, encoder=encoder, reading=reading, progress=report))
            except DocumentError as error:
                refused.append(Refusal(str(path), str(error)))
        return Additions(tuple(added), tuple(refused))

    def remove(self, document: str) -> StoredDocument:
        """Remove a document with everything that belongs to it."""
        return self._store.remove(self.get(document).id)

    def verify(self) -> list[Problem]:
        """Read everything and report what is wrong. Changes nothing."""
        return self._store.verify()

    def compact(self) -> Compaction:
        """Drop what interrupted additions have left behind and merge small files."""
        return self._store.compact()

    def search(
        self,
        question: str,
        *,
        documents: Sequence[str] | None = None,
        encoder: str = "embedded",
        method: Method = "visar",
        k: int | None = None,
        max_k: int | None = None,
        neighbors: int = 0,
    ) -> SearchResult:
        """The pages a question needs, among all documents or those named.

        ``method`` decides how many: ``"visar"``, or for comparison ``"top-k"`` (with ``k``),
        ``"largest-gap"`` or ``"score-cluster"``. ``max_k`` caps them. ``neighbors`` takes as many
        pages before and after each along, for tables that continue.
        """
        return self.searcher(documents, encoder).search(
            question, method=method, k=k, max_k=max_k, neighbors=neighbors
        )

    def ask(
        self,
        question: str,
        *,
        documents: Sequence[str] | None = None,
        encoder: str = "embedded",
        method: Method = "visar",
        k: int | None = None,
        max_k: int | None = None,
        neighbors: int = 0,
        generator: str | Generator = extractive.NAME,
        budget: Budget = USUAL_BUDGET,
        on_text: OnText = ignore_text,
    ) -> Answer:
        """Answer a question from the pages it needs.

        Without a ``generator`` the answer quotes what matches best. With one, it is written by a
        language model that is given these pages, within ``budget``; ``on_text`` is called with
        each piece of its reply.
        """
        writer = None if generator == extractive.NAME else self.generator(generator)
        searcher = self.searcher(documents, encoder)
        found = searcher.search(question, method=method, k=k, max_k=max_k, neighbors=neighbors)
        passages = best_passages(searcher.weighed(found))
        if writer is None:
            text = extractive.quote(passages) if found.strength != "none" else ""
            return Answer(question, text, extractive.NAME, passages, found)
        given = self.given_pages(
            writer,
            [(hit.document, hit.page) for hit in found.pages],
            [document.id for document in found.documents],
        )
        written = answer_from(question, given, writer, budget, on_text)
        return Answer(
            question,
            written.text,
            writer.name,
            passages,
            found,
            written.citations,
            written.generation,
        )

    def heat(self, found: SearchResult, dpi: float = 144) -> Iterator[tuple[str, Image]]:
        """Each found page as a picture with the question's heat on it, and a name for it."""
        from visar.explain.heat import with_heat

        # The encoder itself is not needed, and may not run here.
        library = Library(self._store, found.documents, found.encoder)
        for rank, hit in enumerate(found.pages, start=1):
            document = self.get(hit.document)
            with self._open_source(document) as source:
                image = source.image(hit.page, dpi)
            position = library.position(hit)
            boxes, _ = library.patches(position)
            weights = found.selection.patch_weights[position]
            stem = Path(document.name).stem
            yield f"{rank:02d}-{stem}-page-{hit.page}.png", with_heat(image, boxes, weights)

    def searcher(self, documents: Sequence[str] | None, encoder: str = "embedded") -> Searcher:
        """What searches these documents, or all: loaded once for many questions."""
        chosen = self.encoder(encoder)
        wanted = self.documents() if documents is None else [self.get(d) for d in documents]
        if not wanted:
            raise NotInIndex(f"The index {self.location} is empty: add a document first.")
        library = Library(self._store, tuple(wanted), _reference(chosen))
        if library != self._library:
            # The next question is mostly about the same documents: what is loaded for one is kept.
            self._library = library
        return Searcher(self._library, chosen)

    def given_pages(
        self, generator: Generator, pages: Sequence[tuple[str, int]], documents: Sequence[str]
    ) -> list[GivenPage]:
        """Pages, as (document's id, number), in the form that a generator reads.

        ``documents`` are the ids of all that were searched: labels count them.
        """
        with ExitStack() as sources:
            opened: dict[str, Document] = {}

            def content(document: str, number: int) -> Image | str:
                if generator.reads == "text":
                    return page_text(self._store.pages(document, [number])[0])
                if document not in opened:
                    source = self._open_source(self._store.get(document))
                    opened[document] = sources.enter_context(source)
                return opened[document].image(number)

            return [
                GivenPage(
                    label=page_label(number, documents.index(document) + 1, len(documents)),
                    document=document,
                    number=number,
                    content=content(document, number),
                )
                for document, number in pages
            ]

    def encoder(self, encoder: str | Encoder) -> Encoder:
        """Return the encoder of that name, made once and shared; an encoder is given back."""
        if not isinstance(encoder, str):
            return encoder
        with self._lock:
            if encoder not in self._encoders:
                self._encoders[encoder] = get_encoder(encoder, device=self._device)
            return self._encoders[encoder]

    def generator(self, generator: str | Generator, *, base_url: str | None = None) -> Generator:
        """Return the generator of that name, made once and shared; a generator is given back."""
        if not isinstance(generator, str):
            return generator
        key = generator, base_url
        with self._lock:
            if key not in self._generators:
                self._generators[key] = get_generator(
                    generator, base_url=base_url, device=self._device
                )
            return self._generators[key]

    def release(self) -> None:
        """Free the memory of all loaded models; the next use loads them again."""
        with self._lock:
            models = [*self._encoders.values(), *self._generators.values()]
        for model in models:
            if isinstance(model, Releasable):
                model.release()

    def _encoded(
        self, document: Document, encoder: Encoder, progress: Progress
    ) -> Iterator[tuple[Page, PageEmbedding]]:
        """Pages with their vectors, as far as an interrupted addition has not written them."""
        total = len(document)
        written = self._store.unfinished(document.id, _reference(encoder))
        missing = [number for number in range(1, total + 1) if number not in written]
        pages = self._pages(document, missing, progress)
        done = len(written)
        while batch := list(islice(pages, PAGES_AT_A_TIME)):
            images = []
            if encoder.reads == "image":
                images = [document.image(page.number) for page in batch]
            yield from zip(batch, encoder.encode_pages(batch, images), strict=True)
            done += len(batch)
            progress("encoding", done, total)

    def _pages(
        self, document: Document, numbers: Sequence[int], progress: Progress
    ) -> Iterator[Page]:
        """Pages of a document: those the index has from there, the others from the file."""
        try:
            yield from self._store.pages(document.id, numbers)
        except NotInIndex:
            total = len(document)
            done = total - len(numbers)
            for number in numbers:
                stage: Stage = "ocr" if document.needs_ocr(number) else "reading"
                page = document.page(number)
                done += 1
                progress(stage, done, total)
                yield page

    def _open_source(self, document: StoredDocument) -> Document:
        """The file a document came from, if it is still there and still the same."""
        try:
            source = open_document(document.source, ReadOptions(ocr="never"))
        except VisarError as error:
            raise DocumentError(
                document.name, f"cannot be shown, its file {document.source} is gone: {error}"
            ) from error
        if source.id != document.id:
            source.close()
            raise DocumentError(document.name, "was changed since it was added: add it again")
        return source


def _reference(encoder: Encoder) -> EncoderRef:
    return EncoderRef(encoder.name, encoder.version, encoder.dimension)


def _size(path: Path) -> int:
    files = path.iterdir() if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files)


def _silently(stage: Stage, done: int, total: int) -> None:
    """Report no progress."""
