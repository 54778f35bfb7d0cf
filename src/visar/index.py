"""`Index`: a library in a folder or in object storage."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np

from visar.access import AccessTokens
from visar.documents import Page, ReadOptions
from visar.encoders.encoder import Encoder
from visar.forks import disable_after_fork
from visar.generation import extractive
from visar.generation.answering import USUAL_BUDGET, Budget, quoted_answer, written_answer
from visar.generation.followups import standalone_question
from visar.generation.generator import Generator
from visar.ingest.ocr_processes import OCR_PROCESSES
from visar.ingest.sources import SourcePool, StoredPages
from visar.library import AnswerStream, AskOptions, SearchOptions, limit_pages
from visar.models.devices import check_device
from visar.models.loading import load_ahead
from visar.models.protocols import SharedModels
from visar.query import Query
from visar.quotes.reader import AUTO, Reader, choose_reader
from visar.results import (
    Additions,
    Answer,
    Collection,
    Document,
    EncoderRef,
    Explanation,
    Job,
    Patches,
    PatchPair,
    Refusal,
    SearchResult,
    Thread,
    Turn,
    with_source,
)
from visar.retrieval.candidates import Candidates
from visar.retrieval.corpus import (
    Corpus,
    CorpusCache,
    RecentSearches,
    choose_documents,
    read_remaining,
    split_by_encoder,
)
from visar.retrieval.search import Searcher
from visar.store import Backup, Compaction, DocumentVectors, Problem, Store, open_store
from visar.store.filters import filter_documents
from visar.telemetry import span
from visar.threads import Threads
from visar.trace import PageId

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL.Image import Image

    from visar.ingest.pipeline import Progress

DEFAULT_ENCODER = "embedded"


class Index:
    """A library in a local folder or in object storage. Thread-safe.

    Open one with `Index.open`. A ``with`` block, or `close`, stops its processes and frees models.

    Parameters
    ----------
    store
        Storage of the documents, pages and vectors.
    device
        Device that models run on: "auto", "cpu", "cuda" or "mps".
    options
        Password, OCR and limits for reading documents and for showing their pages later.
    reader
        Model that rereads passages: "auto" (the installed one), "none", a name or a `Reader`.
    """

    def __init__(
        self,
        store: Store,
        *,
        device: str = "auto",
        options: ReadOptions | None = None,
        reader: str | Reader = AUTO,
    ) -> None:
        check_device(device)
        self._store = store
        self.tokens = AccessTokens(store)
        self.storage_options = store.storage_options  # for other processes that open the index
        self._device = device
        self._reader = reader
        self._models = SharedModels()
        self._options = options or ReadOptions()
        self._candidates = Candidates(store)
        self._recent = RecentSearches()
        self.conversations = Threads(store)
        self._sources = SourcePool()
        self._stored_pages = StoredPages(store, self._sources, self._options_for)
        self._corpora = CorpusCache(store, self._stored_pages)
        # For documents that were read with other options: showing a page needs the password again.
        self._document_options: dict[str, ReadOptions] = {}
        disable_after_fork(self)

    @classmethod
    def open(
        cls,
        location: str | os.PathLike[str] | None = None,
        *,
        create: bool = True,
        device: str = "auto",
        options: ReadOptions | None = None,
        reader: str | Reader = AUTO,
        storage_options: Mapping[str, str] | None = None,
    ) -> Index:
        """Open an index. If there is none, create it unless ``create`` is false.

        ``location`` is a folder, or an address such as ``s3://bucket/prefix``; by default it is
        ``VISAR_INDEX``, or a folder in the user's data directory. For other options, see `Index`
        and `visar.store.open_store`. Raises StoreError if there is no index that can be read.
        """
        store = open_store(location, create=create, options=storage_options)
        return cls(store, device=device, options=options, reader=reader)

    def __repr__(self) -> str:
        return f"Index({self.location!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the processes that read documents and run OCR, and free models and vectors."""
        self._sources.close()
        # Shared by all indexes of the program: another one restarts them if it needs them.
        OCR_PROCESSES.close()
        self._corpora.clear()
        self._candidates.clear()
        self._recent.clear()
        self.release()
        self._store.close()

    @property
    def location(self) -> str:
        """Folder or address of the index."""
        return self._store.location

    def documents(
        self, *, where: str | None = None, collection: str | None = None
    ) -> list[Document]:
        """Return all documents, or those that match, in the order they were added."""
        return filter_documents(self._store.documents(collection=collection), where)

    def collections(self) -> list[Collection]:
        """Return the collections, sorted by name."""
        return [Collection(name, count) for name, count in self._store.collections().items()]

    def collect(self, collection: str, documents: Iterable[str]) -> None:
        """Add documents to a collection, and create it if needed."""
        self._store.collect(collection, [self.get(one).id for one in documents])

    def uncollect(self, collection: str, documents: Iterable[str] | None = None) -> None:
        """Remove documents from a collection, by default all; the library keeps them."""
        chosen = None if documents is None else [self.get(one).id for one in documents]
        self._store.uncollect(collection, chosen)

    def original(self, document: str) -> Path | None:
        """Return the original file or folder of a document, if the index keeps it."""
        return self._store.original(self.get(document).id)

    def get(self, document: str) -> Document:
        """Return a document by its id, a prefix of its id, or its name; see `visar.Library.get`."""
        return self._store.get(document)

    def pages(self, document: str) -> tuple[Page, ...]:
        """Return all pages of a document with their words and blocks."""
        return self._stored_pages.read(self.get(document))

    def page(self, document: str, number: int) -> Page:
        """Return a page of a document with its words and blocks. The first page is 1."""
        return self._stored_pages.read(self.get(document), [number])[0]

    def image(self, document: str, number: int, dpi: float = 144) -> Image:
        """Render a page as an image; raises DocumentError if the document's file is gone."""
        stored = self.get(document)
        options = self._options_for(stored.id)
        with self._sources.lease(stored, options, self._store.original(stored.id)) as source:
            return source.image(number, dpi)

    def unlock(self, document: str, password: str) -> None:
        """Keep the password of an encrypted document in memory, so that its pages can be shown.

        Raises EncryptedDocument if the password is wrong.
        """
        stored = self.get(document)
        options = replace(self._options, password=password)
        with self._sources.lease(stored, options, self._store.original(stored.id)):
            self._document_options[stored.id] = options

    def vectors(self, document: str, *, encoder: str | Encoder | None = None) -> DocumentVectors:
        """Return an encoder's vectors for the pages of a document."""
        return self._store.vectors(self.get(document).id, EncoderRef.of(self.encoder(encoder)))

    def encode_question(
        self, question: str, *, encoder: str | Encoder | None = None
    ) -> NDArray[np.float32]:
        """Return an encoder's vectors for a question, as ``visar.select`` takes them."""
        return self.encoder(encoder).encode_query(question)

    def encoder(self, encoder: str | Encoder | None = None) -> Encoder:
        """Return an encoder by name, created once and shared; an `Encoder` is returned as is."""
        if encoder is not None and not isinstance(encoder, str):
            return encoder
        from visar.encoders.registry import get_encoder

        name = encoder or DEFAULT_ENCODER
        return self._models.get(("encoder", name), lambda: get_encoder(name, device=self._device))

    def generator(self, generator: str | Generator, *, base_url: str | None = None) -> Generator:
        """Return a generator by name, created once and shared; a `Generator` is returned as is."""
        if not isinstance(generator, str):
            return generator
        from visar.generation.registry import get_generator

        return self._models.get(
            ("generator", generator, base_url),
            lambda: get_generator(generator, base_url=base_url, device=self._device),
        )

    def reader(self) -> Reader | None:
        """Return the model that rereads passages, created once and shared, or None."""
        return self._models.get("reader", lambda: choose_reader(self._reader, device=self._device))

    def preload(self, encoder: str | Encoder | None = None) -> None:
        """Start loading the encoder and the reader in the background, if they load quickly."""
        load_ahead(self.encoder(encoder))
        load_ahead(self.reader())

    def release(self) -> None:
        """Free the memory of all models. They are loaded again when they are needed."""
        self._models.release()

    def add(
        self,
        path: str | os.PathLike[str],
        *,
        encoder: str | Encoder | None = None,
        options: ReadOptions | None = None,
        progress: Progress | None = None,
        name: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        collection: str | None = None,
    ) -> Document:
        """Add a document, also from a web address. Repeat to resume. See `visar.Library.add`."""
        from visar.ingest.downloads import local_file
        from visar.ingest.pipeline import add_document

        chosen = options or self._options
        with local_file(path, chosen.limits, progress) as (file, source):
            document = add_document(
                self._store,
                file,
                self.encoder(encoder),
                options=chosen,
                progress=progress,
                name=name,
                source=source,
                metadata=metadata,
                collection=collection,
            )
        self._keep_options([document], chosen)
        return document

    def add_all(
        self,
        paths: Iterable[str | os.PathLike[str]],
        *,
        encoder: str | Encoder | None = None,
        options: ReadOptions | None = None,
        progress: Callable[[str], Progress] | None = None,
        each: Callable[[str, Document | Refusal], None] | None = None,
        metadata: Mapping[str, Any] | None = None,
        collection: str | None = None,
        ray: str | None = None,
    ) -> Additions:
        """Add files, folders, web addresses, and objects at addresses such as ``s3://bucket/key``.

        ``each`` is called with the path and result of each document. ``ray`` is the address of a
        Ray cluster that does the work; the encoder must then be given by name.
        """
        from visar.ingest.batch import Batch

        chosen = options or self._options
        requested = encoder or DEFAULT_ENCODER
        loaded = self.encoder(requested)
        batch = Batch(self._store, loaded, requested, self._device, chosen, metadata, collection)
        additions = batch.add_all(paths, progress, each, ray=ray)
        self._keep_options(additions.added, chosen)
        return additions

    def remove(self, document: str) -> Document:
        """Remove a document and everything stored for it. The file it was added from stays."""
        removed = self._store.remove(self.get(document).id)
        self._forget_removed()
        return removed

    def jobs(self) -> list[Job]:
        """Return the upload jobs of servers that share a local index, newest first."""
        from visar.ingest.jobs import read_jobs

        return read_jobs(self.location)

    def _options_for(self, document: str) -> ReadOptions:
        return self._document_options.get(document, self._options)

    def _keep_options(self, documents: Iterable[Document], options: ReadOptions) -> None:
        if options != self._options:
            self._document_options.update((document.id, options) for document in documents)
        self._forget_removed()

    def _forget_removed(self) -> None:
        """Drop the passwords and open files of documents that were removed or replaced."""
        if known := {*self._document_options, *self._sources.documents()}:
            for document in known - {one.id for one in self._store.documents()}:
                self._document_options.pop(document, None)
                self._sources.forget(document)

    def backup(
        self, target: str | os.PathLike[str], progress: Callable[[int, int], None] | None = None
    ) -> Backup:
        """Copy the index to a new folder while it is in use; see `visar.store.Store.backup`."""
        return self._store.backup(target, progress)

    def verify(self) -> list[Problem]:
        """Check all stored data and return the problems found. Changes nothing."""
        return self._store.verify()

    def compact(self) -> Compaction:
        """Clean up after interrupted adds, and merge small files."""
        return self._store.compact()

    def searcher(
        self,
        documents: Sequence[str] | None = None,
        encoder: str | Encoder | None = None,
        *,
        collection: str | None = None,
        where: str | None = None,
    ) -> Searcher:
        """Return a searcher for these documents, or all, to reuse for many questions.

        It skips documents without vectors from the encoder; raises NotInIndex if none is left.
        """
        chosen = self.encoder(encoder)
        reference = EncoderRef.of(chosen)
        # Read once, so that the whole search works on the same state of the catalog.
        matching = choose_documents(
            self._candidates.read_catalog(),
            self.location,
            documents=documents,
            collection=collection,
            where=where,
        )
        searchable, left_out = split_by_encoder(matching, reference)
        return Searcher(
            self._corpora.get(searchable, reference),
            chosen,
            candidates=self._candidates,
            left_out=left_out,
            reader=self.reader(),
            source=self,
        )

    def search(
        self, question: str = "", *, image: Image | None = None, **options: Unpack[SearchOptions]
    ) -> SearchResult:
        """Find the pages a question needs; see `visar.Library.search` for the options.

        To search by image, pass ``image`` instead of a question; the encoder must read page images.
        """
        documents, encoder = options.get("documents"), options.get("encoder")
        method = options.get("method", "visar")
        method_name = method if isinstance(method, str) else "visar"
        names: dict[str, Any] = {
            "documents": None if documents is None else tuple(documents),
            "encoder": encoder if isinstance(encoder, str) else None,
            "method": method_name,
        }
        query = Query(question=question, **{**options, **names})
        searcher = self.searcher(documents, encoder, collection=query.collection, where=query.where)
        if image is not None or method is not method_name:
            return searcher.search(query, method=method, image=image)
        return self._recent.find((*searcher.key, query), lambda: searcher.search(query))

    def ask(self, question: str, **options: Unpack[AskOptions]) -> Answer:
        """Answer a question from the pages it needs; see `visar.Library.ask`."""
        return self.stream(question, **options).answer

    def stream(
        self,
        question: str,
        *,
        generator: str | Generator | None = None,
        budget: Budget | None = None,
        history: Sequence[Turn] = (),
        thread: str | None = None,
        standalone: bool = False,
        **options: Unpack[SearchOptions],
    ) -> AnswerStream:
        """Answer a question and stream the text; the options are those of `ask`."""
        quotes_only = generator is None or generator == extractive.NAME
        writer = None if quotes_only or generator is None else self.generator(generator)
        with span("visar.ask") as ask_span:
            turns = self.conversations.previous_turns(question, history, thread)
            collection = options.get("collection")
            options["collection"] = self.conversations.collection_for(thread, collection)
            text = question if standalone else standalone_question(question, turns, writer)
            result = self.search(text, **limit_pages(options))
            pieces = quoted_answer(result)
            if writer is not None:
                pieces = written_answer(self, result, writer, budget or USUAL_BUDGET)
            if thread is not None:
                pieces = self.conversations.save_answer(thread, question, pieces)
            return AnswerStream(result, ask_span.follow(pieces))

    def threads(self) -> list[Thread]:
        """Return the saved conversations without their exchanges, latest first."""
        return self.conversations.all()

    def thread(self, thread: str) -> Thread:
        """Return a saved conversation by its id."""
        return with_source(self.conversations.get(thread), self)

    def create_thread(self, name: str = "", collection: str | None = None) -> Thread:
        """Save a new conversation. Without a name, it is named after its first question."""
        return self.conversations.create(name, collection)

    def rename_thread(self, thread: str, name: str) -> Thread:
        """Rename a saved conversation."""
        return self.conversations.rename(thread, name)

    def delete_thread(self, thread: str) -> None:
        """Delete a saved conversation."""
        self.conversations.delete(thread)

    def explain(self, found: SearchResult) -> Explanation:
        """Explain a result: weights, similarities, cost, and the choices of other methods."""
        from visar.explain.explanation import explain, trace_of

        def compute() -> Explanation:
            corpus = self._corpus_of(found).only(trace_of(found).pages)
            return read_remaining(
                corpus, lambda rest: explain(found, rest.pages, rest.page_ids, rest.read)
            )

        return self._recent.explain(found, compute)

    def pairs(self, found: SearchResult, first: PageId, second: PageId) -> tuple[PatchPair, ...]:
        """Return the best matching patches of two searched pages."""
        from visar.explain.explanation import patch_pairs

        return patch_pairs(found, self._corpus_of(found), first, second)

    def patches(self, found: SearchResult, document: str, number: int) -> Patches:
        """Return the patches of a searched page with their weights for the question."""
        from visar.explain.explanation import patches

        return patches(found, self._corpus_of(found), document, number)

    def _corpus_of(self, found: SearchResult) -> Corpus:
        """Return all pages of the documents that were searched for a result."""
        return self._corpora.get(found.documents, found.encoder)
