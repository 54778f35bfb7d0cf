"""Measure the savings and costs of fewer and smaller vectors.

    python -m benchmarks.reducing [--save]
    python -m benchmarks.reducing --documents FOLDER --samples samples.json --index FOLDER [--save]

The first command measures planted documents of several dimensions. The second uses documents with
questions in the format of MMLongBench-Doc, which are added to the index if needed. Their vectors
are encoded once and reduced in memory, as by the suffixes of an encoder's name. ``--save`` writes
the table to docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import visar
from benchmarks.planted import PATCHES, planted_document
from benchmarks.tables import markdown_table, save_section
from visar.documents import Page
from visar.encoders.coding import CODINGS
from visar.encoders.encoder import PageEmbedding
from visar.encoders.names import parse_name
from visar.encoders.pooling import pool_page
from visar.encoders.registry import get_encoder
from visar.index import Index
from visar.results import Document, EncoderRef
from visar.store import open_store

SUFFIXES = ("", "+int8", "+bits", "+pool2", "+pool4")
DIMENSIONS = (96, 128, 320, 768, 2048, 4096)
WIDE_PAGES = 20
REPEATS = 3


@dataclass(frozen=True)
class Question:
    vectors: NDArray[Any]
    evidence: frozenset[int]
    """The evidence pages, from 0."""


@dataclass(frozen=True)
class Subject:
    """A document with questions."""

    pages: list[PageEmbedding]
    questions: list[Question]


@dataclass(frozen=True)
class Found:
    """The result of a question with a suffix."""

    pages: frozenset[int]
    ranking: list[int]
    evidence: frozenset[int]

    @property
    def precision(self) -> float:
        return len(self.pages & self.evidence) / len(self.pages)

    @property
    def recall(self) -> float:
        return len(self.pages & self.evidence) / len(self.evidence)

    @property
    def ndcg(self) -> float:
        """NDCG@5 with binary relevance."""
        gains = [1 / math.log2(rank + 2) for rank in range(5)]
        hits = [page in self.evidence for page in self.ranking[:5]]
        ideal = sum(gains[: len(self.evidence)])
        return sum(gain for gain, hit in zip(gains, hits, strict=False) if hit) / ideal


@dataclass
class Sums:
    """The results of a suffix over all documents of a set."""

    found: list[Found]
    bytes_written: int = 0


def measure(subjects: Iterator[Subject]) -> dict[str, Sums]:
    sums = {suffix: Sums([]) for suffix in SUFFIXES}
    for subject in subjects:
        for suffix, total in sums.items():
            reduced = [reduce(page, suffix) for page in subject.pages]
            total.bytes_written += bytes_in_index(reduced, suffix)
            vectors = visar.prepare([page.vectors for page in reduced])
            for question in subject.questions:
                selection = visar.select(question.vectors, vectors)
                pages, ranking = selection.pages.tolist(), selection.ranking.tolist()
                total.found.append(Found(frozenset(pages), ranking, question.evidence))
    return sums


def reduce(page: PageEmbedding, suffix: str) -> PageEmbedding:
    """Reduce a page as an encoder with this suffix does."""
    name = parse_name(f"encoder{suffix}")
    if name.pool is not None:
        page = pool_page(page, name.pool)
    coding = CODINGS[name.coding]
    stored = coding.decode(coding.encode(page.vectors), page.vectors.shape[1])
    return replace(page, vectors=stored)


def bytes_in_index(pages: Sequence[PageEmbedding], suffix: str) -> int:
    """Return the size on disk of an index with these vectors, boxes and words."""
    encoder = EncoderRef(f"encoder{suffix}", "1", pages[0].vectors.shape[1])
    document = Document("one", "one.pdf", len(pages), 0, source="/one.pdf")
    with tempfile.TemporaryDirectory() as folder:
        with open_store(Path(folder) / "index").adding(document, encoder) as addition:
            for number, page in enumerate(pages, start=1):
                addition.put(*wordless(number, page))
            addition.commit()
        written = Path(folder) / "index" / "vectors"
        return sum(file.stat().st_size for file in written.rglob("*") if file.is_file())


def wordless(number: int, embedding: PageEmbedding) -> tuple[Page, PageEmbedding]:
    """Return a page without words, with vectors of the same size that refer to none."""
    words = np.full_like(embedding.words, -1)
    return Page(number, 595, 842, 0, (), "none"), replace(embedding, words=words)


def rows(sums: dict[str, Sums]) -> Iterator[list[str]]:
    first = sums[""]
    for suffix, total in sums.items():
        same = [
            one.pages == other.pages for one, other in zip(total.found, first.found, strict=True)
        ]
        p, r = (
            statistics.mean(getattr(f, x) for f in total.found) for x in ("precision", "recall")
        )
        yield [
            f"`{suffix}`" if suffix else "–",
            f"{total.bytes_written / first.bytes_written:.2f}",
            f"{200 * p * r / (p + r) if p + r else 0.0:.1f}",
            f"{statistics.mean(f.ndcg for f in total.found):.3f}",
            f"{sum(same)} of {len(same)}",
        ]


HEADER = ["mark", "index size", "F1@k*", "NDCG@5", "same pages"]
WIDE = ["dimension", "late interaction", "ViSAR", "bytes a page"]


def sampled(options: argparse.Namespace) -> Iterator[Subject]:
    """Yield documents with questions that have evidence, adding them to the index if needed."""
    samples = json.loads(options.samples.read_text())
    index, store = Index.open(options.index), open_store(options.index)
    encoder = get_encoder(options.encoder)
    reference = EncoderRef(encoder.name, encoder.version, encoder.dimension)
    for path in sorted(options.documents.glob("*.pdf")):
        document = index.add(path, encoder=options.encoder)
        questions = []
        for sample in (sample for sample in samples if sample["doc_id"] == path.name):
            named = ast.literal_eval(sample["evidence_pages"])
            evidence = frozenset(page - 1 for page in named if 1 <= page <= document.pages)
            if evidence:
                questions.append(Question(encoder.encode_query(sample["question"]), evidence))
        if not questions:
            continue
        held = store.vectors(document.id, reference)
        cuts = held.offsets[1:-1]
        parts = zip(
            *(np.split(a, cuts) for a in (held.vectors, held.boxes, held.words)), strict=True
        )
        print(f"{path.name}: {document.pages} pages, {len(questions)} questions", flush=True)
        yield Subject([PageEmbedding(*part) for part in parts], questions)


def dimensions() -> Iterator[list[str]]:
    """Yield rows for planted documents that only differ in their dimension."""
    row_bytes = CODINGS["float16"].row_bytes
    times: dict[int, list[float]] = {}
    for dimension in DIMENSIONS:
        example = planted_document(WIDE_PAGES, 2, dimension=dimension)
        pages = visar.prepare(example.vectors, example.offsets)
        times[dimension] = [
            min(processor_time(partial(job, query, pages)) for query in example.queries * REPEATS)
            for job in (visar.maxsim, visar.select)
        ]
    for dimension, taken in times.items():
        yield [
            str(dimension),
            *(f"{one / base:.2f}" for one, base in zip(taken, times[128], strict=True)),
            f"{PATCHES * row_bytes(dimension):,}",
        ]


def processor_time(call: Callable[[], Any]) -> float:
    """Return the CPU time of a call, which is less sensitive to other load than wall time."""
    started = time.process_time()
    call()
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--documents", type=Path, help="a folder of PDFs")
    parser.add_argument("--samples", type=Path, help="their questions, as MMLongBench-Doc has them")
    parser.add_argument("--index", type=Path, help="where they are, or are added")
    parser.add_argument("--encoder", default="embedded", help="by which encoder")
    parser.add_argument("--save", action="store_true", help="write to docs/benchmarks.md")
    options = parser.parse_args()
    given = [options.documents, options.samples, options.index]
    if any(given) and not all(given):
        parser.error("--documents, --samples and --index go together")
    if all(given):
        section = "reducing, real documents"
        table = markdown_table(HEADER, rows(measure(sampled(options))))
    else:
        section, table = "dimensions", markdown_table(WIDE, dimensions())
    print(table)
    if options.save:
        save_section(section, table)


if __name__ == "__main__":
    main()
