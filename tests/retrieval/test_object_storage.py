"""Tests of how much a search reads from an index in object storage."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.retrieval.words import WordEncoder, add_texts, asking, texts
from tests.storage import Reads
from tests.storage import bucket as bucket
from tests.storage import reads as reads
from visar.index import Index
from visar.retrieval import search
from visar.retrieval.candidates import COMPARED
from visar.store import Store, open_store

DOCUMENTS, PAGES, ROWS = 5, 16, 300
CANDIDATES = 3
PAGE_BYTES = ROWS * (128 * 2 + 20)
# What LanceDB reads beside values: lists of versions, and the end of each file, 64 kB at a time.
SMALL = 8 * PAGE_BYTES


class WideEncoder(WordEncoder):
    """An encoder with large page vectors, like those of visual encoders."""

    name = "wide"
    dimension = 128


ENCODER = WideEncoder()


def add_document(store: Store, number: int) -> None:
    pages = [" ".join((text.split() * ROWS)[:ROWS]) for text in texts(number, PAGES)]
    add_texts(store, f"{number}.pdf", pages, encoder=ENCODER)


def test_a_question_reads_summaries_and_candidates_once(
    bucket: str, reads: Reads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(search, "MAX_SCANNED", 10)
    monkeypatch.setattr(search, "CANDIDATES", CANDIDATES)
    compared = CANDIDATES * COMPARED * PAGE_BYTES
    place = f"{bucket}/library"
    writer = open_store(place)
    for number in range(DOCUMENTS):
        add_document(writer, number)

    def ask(index: Index, document: int) -> int:
        """Search for a page, and return the number of bytes read."""
        reads.reset()
        found = index.search(asking(document, 7), encoder=ENCODER)
        assert (found.pages[0].document, found.pages[0].page) == (f"id-{document}.pdf", 7)
        return reads.bytes

    index = Index(open_store(place))
    summaries = ask(index, 3) - compared
    # Not the vectors that they were made from.
    assert 0 < summaries < DOCUMENTS * PAGES * PAGE_BYTES / 3
    # The same again: nothing but whether there is something new.
    assert ask(index, 3) < PAGE_BYTES
    # Another one: its candidates alone.
    assert ask(index, 2) < compared + SMALL
    # A new document: its summaries, and candidates.
    add_document(writer, DOCUMENTS)
    assert ask(index, DOCUMENTS) < summaries / DOCUMENTS + compared + SMALL
    # Another process finds the summaries on this machine; another machine in the storage.
    other = Index(open_store(place))
    assert ask(other, 1) < compared + SMALL
    shutil.rmtree(tmp_path / "cache")
    assert ask(Index(open_store(place)), 1) < 2 * summaries + compared + SMALL
