"""Measure writing, reading and searching an index in object storage.

    python -m benchmarks.object_storage [--save]

The storage is a local moto server, which responds in milliseconds while S3 takes tens of them.
Bytes and requests are the same as with S3, but seconds aren't. ``--location s3://bucket/prefix``
uses another storage, with credentials from the environment.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from tests.storage import BUCKET, Reads, counted, object_storage

from benchmarks.store import ENCODER, VECTORS, WORDS, add, embedding_of, page_of
from benchmarks.tables import markdown_table, save_section
from visar.documents.page import Page
from visar.encoders.encoder import PageEmbedding
from visar.index import Index
from visar.store import Store, open_store

PAGES, DOCUMENTS = 40, 8
DOCS = Path(__file__).parents[1] / "docs" / "scaling.md"


class Questions:
    """An encoder that uses questions as random seeds."""

    name, version, dimension = ENCODER.name, ENCODER.version, ENCODER.dimension
    reads: Literal["words", "image"] = "words"
    weak_match = 0.0

    def encode_query(self, question: str) -> NDArray[np.float32]:
        return embedding_of(np.random.default_rng(int(question)), 20, 0).vectors.astype(np.float32)

    def encode_pages(self, pages: Sequence[Page], images: Sequence[Any]) -> list[PageEmbedding]:
        raise NotImplementedError


@contextlib.contextmanager
def storage(location: str | None) -> Iterator[tuple[str, Reads]]:
    """Yield the location of an index and its read counter, which only works locally."""
    if location is not None:
        yield f"{location.rstrip('/')}/{uuid.uuid4().hex}", Reads()
        return
    with object_storage() as given, counted(given["AWS_ENDPOINT_URL"]) as (address, reads):
        os.environ.update({**given, "AWS_ENDPOINT_URL": address})
        yield f"{BUCKET}/benchmark", reads


def seconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def fill(store: Store) -> tuple[float, int]:
    """Add the documents; return the seconds and the bytes of their vectors."""
    rng = np.random.default_rng(0)
    pages = [(page_of(n, WORDS), embedding_of(rng, VECTORS, WORDS)) for n in range(1, PAGES + 1)]
    taken = sum(add(store, f"document-{number}", pages) for number in range(DOCUMENTS))
    return taken, sum(embedding.vectors.nbytes for _, embedding in pages) * DOCUMENTS


def rows_of(location: str, folder: Path) -> list[list[str]]:
    here = open_store(folder)
    local, size = fill(here)
    remote = open_store(location)
    written, _ = fill(remote)
    pages = PAGES * DOCUMENTS
    cold = seconds(lambda: open_store(location).vectors("document-1", ENCODER))
    return [
        [
            "write, vectors of 1030 × 128",
            f"{pages / written:,.0f} pages/s",
            f"{pages / local:,.0f} pages/s in a folder",
        ],
        [
            f"load {PAGES} pages, cold",
            f"{cold * 1000:,.0f} ms",
            f"{size / DOCUMENTS / cold / 1e6:,.0f} MB/s",
        ],
    ]


def questions(location: str, reads: Reads) -> list[list[str]]:
    """Measure questions about all documents, from a new machine on."""
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp()
    rows = []
    with Index(open_store(location)) as index:
        for what, question in (
            ("the first of a machine", "1"),
            ("the same again", "1"),
            ("another one", "2"),
        ):
            reads.reset()
            taken = seconds(lambda q=question: index.search(q, encoder=Questions()))  # type: ignore[misc]
            beside = f"{reads.requests} requests, {reads.bytes / 1e6:,.1f} MB"
            rows.append([f"a question, {what}", f"{taken * 1000:,.0f} ms", beside])
    return rows


def commits(location: str) -> list[str]:
    """Measure the cost of a commit, by adding documents of one page one by one."""
    store, rng = open_store(location), np.random.default_rng(0)
    page = [(page_of(1, WORDS), embedding_of(rng, VECTORS, WORDS))]
    taken = [add(store, f"single-{number}", page) for number in range(10)]
    return ["commit a document", f"{np.median(taken) * 1000:,.0f} ms", "median of 10"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--location", help="s3://bucket/prefix of a real storage")
    arguments = parser.parse_args()
    with storage(arguments.location) as (location, reads), tempfile.TemporaryDirectory() as folder:
        rows = rows_of(location, Path(folder) / "index")
        rows += [*questions(location, reads), commits(location)]
    table = markdown_table(["what", "takes", "beside"], rows)
    print(table)
    if arguments.save:
        save_section("object storage", table, DOCS)


if __name__ == "__main__":
    main()
