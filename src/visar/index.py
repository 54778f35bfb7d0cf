"""A library on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np

from visar.documents import Page, ReadOptions
from visar.encoders.protocol import Encoder
from visar.generation import extractive
from visar.generation.answering import USUAL_BUDGET, Budget, quoted_answer, written_answer
from visar.generation.protocol import Generator
from visar.ingest.sources import SourcePool
from visar.ingest.stored_pages import StoredPages
from visar.library import AnswerStream, AskOptions, SearchOptions, limit_pages
from visar.models.devices import check_device
from visar.models.loading import load_ahead
from visar.models.shared import SharedModels
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
)
from visar.retrieval.candidates import Candidates
from visar.retrieval.corpus import (
    Corpus,
    CorpusCache,
    choose_documents,
    read_remaining,
    split_by_encoder,
)
from visar.retrieval.methods import Method, MethodFunction
from visar.retrieval.recent import RecentSearches
from visar.retrieval.search import Searcher
from visar.store import Compaction, DocumentVectors, Problem, Store, open_store
from visar.store.filters import filtered
from visar.trace import PageId

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL.Image import Image

    from visar.ingest.pipeline import Progress

DEFAULT_ENCODER = "embedded"


class Index:
    """A library in a folder or in object storage. One object serves many threads.

    Open it with `Index.open`; close it, or use it in a ``with`` block, to end the processes
    that read documents and to free models.

    Parameters
    ----------
    store
        Store of the documents, pages and vectors.
    device
        Device that models run on: "auto", "cpu", "cuda" or "mps".
    options
        Password, OCR and limits for reading documents, also when their pages are shown later.
    reader
        Model that re-reads passages: "auto" (the installed one), "none", a name or a reader.
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
        # Other processes open the index with these, beside its location.
        self.storage_options = store.storage_options
        self._device = device
        self._reader = reader
        self._models = SharedModels()
        self._options = options or ReadOptions()
        self._candidates = Candidates(store)
        self._recent = RecentSearches()
        self._sources = SourcePool()
        self._stored_pages = StoredPages(store, self._sources, self._options_for)
        self._corpora = CorpusCache(store, self._stored_pages)
        # Of documents with other options: a password opens them again when pages are shown.
        self._options_of: dict[str, ReadOptions] = {}

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
        """Open the index at a location, making it where there is none.

        Parameters
        ----------
        location
            A folder, or an address such as ``s3://bucket/prefix``; by default ``VISAR_INDEX``, or
            a folder of the user's.
        create
            Whether a missing index is made; otherwise it is an error.
        device, options, reader, storage_options
            See `Index` and `visar.store.open_store`.

        Raises
        ------
        StoreError
            If there is no index that this version can read.
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
        """End the processes that read documents, and free models and vectors."""
        self._sources.close()
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
        """Return documents in the order they were added: all, or those of a filter or collection.

        ``where`` is a filter of their metadata, such as ``'year >= 2020 and kind = "report"'``.
        """
        return filtered(self._store.documents(collection=collection), where)

    def collections(self) -> list[Collection]:
        """Return the collections by name."""
        return [Collection(name, count) for name, count in self._store.collections().items()]

    def collect(self, collection: str, documents: Iterable[str]) -> None:
        """Put documents into a collection, which begins with its first document."""
        self._store.collect(collection, [self.get(one).id for one in documents])

    def uncollect(self, collection: str, documents: Iterable[str] | None = None) -> None:
        """Take documents, or all, out of a collection; the documents stay."""
        chosen = None if documents is None else [self.get(one).id for one in documents]
        self._store.uncollect(collection, chosen)

    def original(self, document: str) -> Path | None:
        """Return the file or folder that the index keeps of a document, if it keeps one."""
        return self._store.original(self.get(document).id)

    def get(self, document: str) -> Document:
        """Return a document by its id, the beginning of its id, or its name.

        Raises NotInIndex if no document, or more than one, is meant.
        """
        return self._store.get(document)

    def pages(self, document: str) -> tuple[Page, ...]:
        """Return the pages of a document with their words and blocks."""
        return self._stored_pages.read(self.get(document))

    def page(self, document: str, number: int) -> Page:
        """Return one page of a document with its words and blocks; 1 is the first."""
        return self._stored_pages.read(self.get(document), [number])[0]

    def image(self, document: str, number: int, dpi: float = 144) -> Image:
        """Return one page of a document as a picture, drawn from the file it was added from.

        Raises DocumentError if the file is gone, has changed, or needs a password (`unlock`).
        """
        stored = self.get(document)
        options = self._options_for(stored.id)
        with self._sources.lease(stored, options, self._store.original(stored.id)) as source:
            return source.image(number, dpi)

    def unlock(self, document: str, password: str) -> None:
        """Keep the password of a document, to draw its pages with.

        Raises EncryptedDocument, and keeps nothing, if it is not the right one.
        """
        stored = self.get(document)
        options = replace(self._options, password=password)
        with self._sources.lease(stored, options, self._store.original(stored.id)):
            self._options_of[stored.id] = options

    def vectors(self, document: str, *, encoder: str | Encoder | None = None) -> DocumentVectors:
        """Return the vectors that an encoder gave the pages of a document."""
        return self._store.vectors(self.get(document).id, EncoderRef.of(self.encoder(encoder)))

    def encode_question(
        self, question: str, *, encoder: str | Encoder | None = None
    ) -> NDArray[np.float32]:
        """Return the vectors of a question: what ``visar.select`` takes with those of pages."""
        return self.encoder(encoder).encode_query(question)

    def encoder(self, encoder: str | Encoder | None = None) -> Encoder:
        """Return the encoder of that name, made once and shared; an encoder is returned as is."""
        if encoder is not None and not isinstance(encoder, str):
            return encoder
        from visar.encoders.registry import get_encoder

        name = encoder or DEFAULT_ENCODER
        return self._models.get(("encoder", name), lambda: get_encoder(name, device=self._device))

    def generator(self, generator: str | Generator, *, base_url: str | None = None) -> Generator:
        """Return the generator of that name, made once and shared; a generator as is."""
        if not isinstance(generator, str):
            return generator
        from visar.generation.registry import get_generator

        return self._models.get(
            ("generator", generator, base_url),
            lambda: get_generator(generator, base_url=base_url, device=self._device),
        )

    def reader(self) -> Reader | None:
        """Return the model that re-reads passages, made once and shared; None if there is none."""
        return self._models.get("reader", lambda: choose_reader(self._reader, device=self._device))

    def preload(self, encoder: str | Encoder | None = None) -> None:
        """Begin to load models that load quickly, while this thread does something else."""
        load_ahead(self.encoder(encoder))
        load_ahead(self.reader())

    def release(self) -> None:
        """Free the memory of all loaded models; the next use loads them again."""
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
        """Add a document; see `visar.Library.add`.

        An interrupted call resumes where it stopped. Words read by OCR are kept: another encoder
        takes them from the index.
        """
        from visar.ingest.pipeline import add_document

        chosen = options or self._options
        added = add_document(
            self._store,
            path,
            self.encoder(encoder),
            options=chosen,
            progress=progress,
            name=name,
            metadata=metadata,
            collection=collection,
        )
        self._keep_options([added], chosen)
        return added

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
        """Add files, the documents of folders, and objects at addresses such as ``s3://bucket/key``.

        One that is refused does not stop the others. ``each`` is called with each document that is
        added or refused, before a later error of the index ends the call. ``metadata`` and
        ``collection`` hold for all. ``ray`` is the address of a Ray cluster that does the work; it
        needs the name of an encoder.
        """
        from visar.ingest.batch import Batch

        chosen = options or self._options
        named = encoder or DEFAULT_ENCODER
        made = self.encoder(named)
        batch = Batch(self._store, made, named, self._device, chosen, metadata, collection)
        additions = batch.add_all(paths, progress, each, ray=ray)
        self._keep_options(additions.added, chosen)
        return additions

    def remove(self, document: str) -> Document:
        """Remove a document with everything that belongs to it; its file stays."""
        removed = self._store.remove(self.get(document).id)
        self._forget_removed()
        return removed

    def jobs(self) -> list[Job]:
        """Return the jobs of the servers of a local index, the newest first."""
        from visar.ingest.jobs import read_jobs

        return read_jobs(self.location)

    def _options_for(self, document: str) -> ReadOptions:
        return self._options_of.get(document, self._options)

    def _keep_options(self, documents: Iterable[Document], options: ReadOptions) -> None:
        if options != self._options:
            self._options_of.update((document.id, options) for document in documents)
        self._forget_removed()

    def _forget_removed(self) -> None:
        """Keep no password and no open file of documents that are gone or were replaced."""
        if kept := {*self._options_of, *self._sources.documents()}:
            for document in kept - {one.id for one in self._store.documents()}:
                self._options_of.pop(document, None)
                self._sources.forget(document)

    def verify(self) -> list[Problem]:
        """Read everything and report what is wrong. Changes nothing."""
        return self._store.verify()

    def compact(self) -> Compaction:
        """Drop what interrupted additions have left behind and merge small files."""
        return self._store.compact()

    def searcher(
        self,
        documents: Sequence[str] | None = None,
        encoder: str | Encoder | None = None,
        *,
        collection: str | None = None,
        where: str | None = None,
    ) -> Searcher:
        """Return what searches these documents, or all: loaded once for many questions.

        Documents without vectors of the encoder are left out, and named in every result.

        Raises
        ------
        NotInIndex
            If there are no such documents, or none has vectors of the encoder.
        """
        chosen = self.encoder(encoder)
        reference = EncoderRef.of(chosen)
        # The whole search works on this one reading of the catalog.
        asked = choose_documents(
            self._candidates.read_catalog(),
            self.location,
            documents=documents,
            collection=collection,
            where=where,
        )
        able, left_out = split_by_encoder(asked, reference)
        return Searcher(
            self._corpora.get(able, reference),
            chosen,
            candidates=self._candidates,
            left_out=left_out,
            reader=self.reader(),
            source=self,
        )

    def search(
        self,
        question: str = "",
        *,
        documents: Sequence[str] | None = None,
        collection: str | None = None,
        where: str | None = None,
        exact: bool = False,
        encoder: str | Encoder | None = None,
        method: str | Method | MethodFunction = "visar",
        k: int | None = None,
        max_k: int | None = None,
        neighbors: int = 0,
        image: Image | None = None,
    ) -> SearchResult:
        """Find the pages a question needs; see `visar.Library.search`.

        Instead of a question, ``image`` is a picture to look for, such as a cut-out of a page, if
        the encoder reads page images. Encoders, methods and functions may be given themselves.

        The results of the latest questions are kept: asking the same again, while neither the
        documents nor an option has changed, returns the same result.
        """
        named = method if isinstance(method, str) else "visar"
        query = Query(
            question=question,
            documents=None if documents is None else tuple(documents),
            collection=collection,
            where=where,
            exact=exact,
            encoder=encoder if isinstance(encoder, str) else None,
            method=named,
            k=k,
            max_k=max_k,
            neighbors=neighbors,
        )
        searcher = self.searcher(documents, encoder, collection=collection, where=where)
        if image is not None or method is not named:
            return searcher.search(query, method=method, image=image)
        options = (question, exact, method, k, max_k, neighbors)
        return self._recent.find((*searcher.key, *options), lambda: searcher.search(query))

    def ask(self, question: str, **options: Unpack[AskOptions]) -> Answer:
        """Answer a question from the pages it needs.

        Parameters
        ----------
        question
            Question in plain words.
        **options
            Those of `search`, and ``generator``: without one, the answer quotes the best
            passages; with one, a language model writes it from these pages, within ``budget``.
            Without ``k`` or ``max_k`` an answer takes at most 10 pages.

        Raises
        ------
        GenerationError
            If the generator gives no answer.
        """
        return self.stream(question, **options).answer

    def stream(
        self,
        question: str,
        *,
        generator: str | Generator | None = None,
        budget: Budget | None = None,
        **options: Unpack[SearchOptions],
    ) -> AnswerStream:
        """Answer a question piece by piece; the options are those of `ask`."""
        quoted = generator is None or generator == extractive.NAME
        writer = None if quoted or generator is None else self.generator(generator)
        found = self.search(question, **limit_pages(options))
        pieces = quoted_answer(found)
        if writer is not None:
            pieces = written_answer(self, found, writer, budget or USUAL_BUDGET)
        return AnswerStream(found, pieces)

    def explain(self, found: SearchResult) -> Explanation:
        """Explain a result: weights, matrix, cost, and what other methods would take."""
        from visar.explain.explanation import explain, trace_of

        def make() -> Explanation:
            corpus = self._searched(found).only(trace_of(found).pages)
            return read_remaining(
                corpus, lambda rest: explain(found, rest.pages, rest.page_ids, rest.read)
            )

        return self._recent.explain(found, make)

    def pairs(self, found: SearchResult, first: PageId, second: PageId) -> tuple[PatchPair, ...]:
        """Return the best matching patches of two searched pages, by ids and page numbers."""
        from visar.explain.explanation import patch_pairs

        return patch_pairs(found, self._searched(found), first, second)

    def patches(self, found: SearchResult, document: str, number: int) -> Patches:
        """Return the patches of a searched page with their weights for the question."""
        from visar.explain.heat import patches

        return patches(found, self._searched(found), document, number)

    def _searched(self, found: SearchResult) -> Corpus:
        """Return all pages of the documents that a result was searched in."""
        return self._corpora.get(found.documents, found.encoder)
