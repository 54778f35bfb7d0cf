"""Measure the savings and costs of fewer and smaller vectors.

    python -m benchmarks.reducing [--dimensions] [--save]
    python -m benchmarks.reducing --documents FOLDER --samples samples.json --index FOLDER [--save]

The first command measures a planted document, the example report with the embedded encoder, and,
only for size and speed, the same report with a tiny random ColPali of 1024 patches per page; and
planted documents of other dimensions, which ``--dimensions`` measures alone. The second uses
documents with questions in the format of MMLongBench-Doc, which are added to the index if needed.
Vectors are encoded once and reduced in memory, as by the suffixes of an encoder's name. ``--save``
writes the tables to docs/benchmarks.md.
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
from benchmarks.planted import PATCHES, Example, planted_document
from benchmarks.selection import once
from benchmarks.tables import markdown_table, save_section
from visar.documents import Page, open_document
from visar.encoders.coding import CODINGS
from visar.encoders.encoder import Encoder, PageEmbedding
from visar.encoders.names import parse_name
from visar.encoders.pooling import pool_page
from visar.encoders.registry import get_encoder
from visar.encoders.visual import grid_boxes
from visar.index import Index
from visar.results import Document, EncoderRef
from visar.retrieval.candidates import PageSummaries
from visar.samples import REPORT
from visar.store import Store, open_store

SUFFIXES = ("", "+int8", "+bits", "+pool2", "+pool3", "+pool4", "+pool2+int8")
DIMENSIONS = (96, 128, 320, 768, 2048, 4096)
WIDE_PAGES = 20
REPEATS = 3
PLANTED_PAGES = 50
QUESTIONS = Path(__file__).parents[1] / "examples" / "questions.json"


@dataclass(frozen=True)
class Question:
    vectors: NDArray[Any]
    evidence: frozenset[int]
    """The evidence pages, from 0; empty if unknown."""


@dataclass(frozen=True)
class Subject:
    """A document with questions."""

    pages: list[PageEmbedding]
    questions: list[Question]


@dataclass(frozen=True)
class Found:
    """The result of a question with a suffix."""

    late: float
    select: float
    k_star: int
    pages: frozenset[int]
    ranking: list[int]
    match: float
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
    pages: int = 0
    vectors: int = 0
    bytes_written: int = 0
    seconds: float = 0.0
    """Seconds of CPU time, which is less sensitive to other load than wall time."""


def measure(subjects: Iterator[Subject]) -> dict[str, Sums]:
    sums = {suffix: Sums([]) for suffix in SUFFIXES}
    for subject in subjects:
        prepared = {}
        for suffix, total in sums.items():
            started = time.process_time()
            reduced = [reduce(page, suffix) for page in subject.pages]
            total.seconds += time.process_time() - started
            total.pages += len(reduced)
            total.vectors += sum(len(page.vectors) for page in reduced)
            total.bytes_written += bytes_in_index(reduced, suffix)
            prepared[suffix] = visar.prepare([page.vectors for page in reduced])
            visar.select(subject.questions[0].vectors, prepared[suffix])
        for question in subject.questions:
            for suffix, found in ask(question, prepared).items():
                sums[suffix].found.append(found)
    return sums


def ask(question: Question, prepared: dict[str, visar.PageVectors]) -> dict[str, Found]:
    """Ask a question with each suffix, interleaved so that other load affects all equally."""
    late: dict[str, float] = dict.fromkeys(prepared, math.inf)
    select, selections = late.copy(), {}
    query = question.vectors
    for _ in range(REPEATS):
        for suffix, vectors in prepared.items():
            took, _scores = once(partial(visar.maxsim, query, vectors))
            late[suffix] = min(late[suffix], took)
            took, selections[suffix] = once(partial(visar.select, query, vectors))
            select[suffix] = min(select[suffix], took)
    return {
        suffix: Found(
            late[suffix],
            select[suffix],
            selection.k_star,
            frozenset(selection.pages.tolist()),
            selection.ranking.tolist(),
            float(selection.late_interaction.max() / len(query)),
            question.evidence,
        )
        for suffix, selection in selections.items()
    }


def reduce(page: PageEmbedding, suffix: str) -> PageEmbedding:
    """Reduce a page as an encoder with this suffix does."""
    name = parse_name(f"encoder{suffix}")
    if name.pool is not None:
        page = pool_page(page, name.pool)
    coding = CODINGS[name.coding]
    stored = coding.decode(coding.encode(page.vectors), page.vectors.shape[1])
    return replace(page, vectors=stored)


def bytes_in_index(pages: Sequence[PageEmbedding], suffix: str = "") -> int:
    """Return the size on disk of an index with these vectors, boxes and words."""
    with tempfile.TemporaryDirectory() as folder:
        encoder = EncoderRef(f"encoder{suffix}", "1", pages[0].vectors.shape[1])
        stored(pages, encoder, folder)
        written = Path(folder) / "index" / "vectors"
        return sum(file.stat().st_size for file in written.rglob("*") if file.is_file())


def stored(
    pages: Sequence[PageEmbedding], encoder: EncoderRef, folder: str
) -> tuple[Store, Document]:
    """Return an index in a folder, with one document of these pages."""
    store = open_store(Path(folder) / "index")
    document = Document("one", "one.pdf", len(pages), 0, source="/one.pdf")
    with store.adding(document, encoder) as addition:
        for number, page in enumerate(pages, start=1):
            addition.put(*wordless(number, page))
        return store, addition.commit()


def wordless(number: int, embedding: PageEmbedding) -> tuple[Page, PageEmbedding]:
    """Return a page without words, with vectors of the same size that refer to none."""
    words = np.full_like(embedding.words, -1)
    return Page(number, 595, 842, 0, (), "none"), replace(embedding, words=words)


def rows(name: str, sums: dict[str, Sums]) -> Iterator[list[str]]:
    first = sums[""]
    for suffix, total in sums.items():
        pairs = list(zip(total.found, first.found, strict=True))
        known = [found for found in total.found if found.evidence]
        quality = ["–", "–"]
        if known:
            p, r = (statistics.mean(getattr(f, x) for f in known) for x in ("precision", "recall"))
            f1 = 200 * p * r / (p + r) if p + r else 0.0
            quality = [f"{f1:.1f}", f"{statistics.mean(f.ndcg for f in known):.3f}"]
        yield [
            "" if suffix else name,
            f"`{suffix}`" if suffix else "–",
            f"{total.vectors / total.pages:.0f}",
            f"{total.bytes_written / total.pages:,.0f}",
            f"{total.bytes_written / first.bytes_written:.2f}",
            f"{1000 * total.seconds / total.pages:.0f}" if suffix else "–",
            f"{statistics.median(one.late / other.late for one, other in pairs):.2f}",
            f"{statistics.median(one.select / other.select for one, other in pairs):.2f}",
            f"{statistics.mean(f.k_star for f in total.found):.1f}",
            f"{sum(one.pages == other.pages for one, other in pairs)} of {len(pairs)}",
            *quality,
            f"{statistics.mean(f.match for f in total.found):.3f}",
        ]


HEADER = [
    "document",
    "mark",
    "vectors a page",
    "bytes a page",
    "of all",
    "reducing, CPU ms a page",
    "late interaction, of all",
    "ViSAR, of all",
    "mean k*",
    "same pages",
    "F1@k*",
    "NDCG@5",
    "match",
]


WIDE = [
    "dimension",
    "late interaction, of 128",
    "ViSAR, of 128",
    "loading, of 128",
    "candidates, of 128",
    "ViSAR / late interaction",
    "bytes a page",
    "`+int8`",
    "`+bits`",
    "summaries, bytes a page",
]


def planted() -> Iterator[Subject]:
    example = planted_document(PLANTED_PAGES, 4)
    yield Subject(
        planted_pages(example), [Question(query, frozenset()) for query in example.queries]
    )


def planted_pages(example: Example) -> list[PageEmbedding]:
    """Return pages like ColPali's, with a square of 1024 patches and 6 instruction vectors."""
    boxes = np.concatenate([grid_boxes(32, 32), np.zeros((6, 4), np.float32)])
    words = np.full(len(boxes), -1, np.int32)
    parts = np.split(example.vectors, example.offsets[1:-1])
    return [PageEmbedding(part, boxes, words) for part in parts]


def report(encoder: Encoder, *, evidence: bool = True) -> Iterator[Subject]:
    asked = json.loads(QUESTIONS.read_text())
    with open_document(REPORT) as document:
        pages = [document.page(number) for number in range(1, len(document) + 1)]
        images = []
        if encoder.reads == "image":
            images = [document.image(number) for number in range(1, len(document) + 1)]
        embeddings = encoder.encode_pages(pages, images)
    yield Subject(
        embeddings,
        [
            Question(
                encoder.encode_query(entry["question"]),
                frozenset(page - 1 for page in entry["evidence_pages"] if evidence),
            )
            for entry in asked["questions"]
            if entry["evidence_pages"]
        ],
    )


def tiny_colpali(folder: Path) -> Encoder:
    """Return a random ColPali with the published layout, whose pages have 32 × 32 patches."""
    from tests.encoders import tiny

    tiny.IMAGE_SIDE = 448
    return get_encoder(str(tiny.save("colpali", folder)), device="cpu")


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
    times: dict[int, list[float]] = {}
    sizes = {}
    for dimension in DIMENSIONS:
        example = planted_document(WIDE_PAGES, 2, dimension=dimension)
        embeddings = planted_pages(example)
        pages = visar.prepare([page.vectors for page in embeddings])
        with tempfile.TemporaryDirectory() as folder:
            encoder = EncoderRef("encoder", "1", dimension)
            store, document = stored(embeddings, encoder, folder)
            summaries = PageSummaries(Path(folder) / "summaries", dimension)
            summaries.add(document, partial(store.vectors, document.id, encoder))
            jobs: list[Callable[[NDArray[Any]], Any]] = [
                partial(visar.maxsim, pages=pages),
                partial(visar.select, pages=pages),
                partial(load, store, document, encoder),
                partial(summaries.candidates, n=5, documents=[document]),
            ]
            times[dimension] = [
                min(processor_time(partial(job, query)) for query in example.queries * REPEATS)
                for job in jobs
            ]
            summary = next((Path(folder) / "summaries").iterdir()).stat().st_size // WIDE_PAGES
        sizes[dimension] = [
            *(PATCHES * coding.row_bytes(dimension) for coding in CODINGS.values()),
            summary,
        ]
    for dimension, taken in times.items():
        yield [
            str(dimension),
            *(f"{one / base:.2f}" for one, base in zip(taken, times[128], strict=True)),
            f"{taken[1] / taken[0]:.1f}",
            *(f"{size:,}" for size in sizes[dimension]),
        ]


def processor_time(call: Callable[[], Any]) -> float:
    """Return the CPU time of a call, which is less sensitive to other load than wall time."""
    started = time.process_time()
    call()
    return time.process_time() - started


def load(store: Store, document: Document, encoder: EncoderRef, _query: NDArray[Any]) -> None:
    """Load the vectors of a document and read them all."""
    store.vectors(document.id, encoder).vectors.view(np.int16).max()


def from_the_repository() -> Iterator[tuple[str, Iterator[Subject]]]:
    yield f"planted, {PLANTED_PAGES} pages", planted()
    yield "example report, embedded", report(get_encoder("embedded"))
    with tempfile.TemporaryDirectory() as folder:
        # Results of random weights say nothing about quality.
        yield (
            "example report, ColPali of random weights",
            report(tiny_colpali(Path(folder)), evidence=False),
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--documents", type=Path, help="a folder of PDFs")
    parser.add_argument("--samples", type=Path, help="their questions, as MMLongBench-Doc has them")
    parser.add_argument("--index", type=Path, help="where they are, or are added")
    parser.add_argument("--encoder", default="embedded", help="by which encoder")
    parser.add_argument("--save", action="store_true", help="write to docs/benchmarks.md")
    parser.add_argument("--dimensions", action="store_true", help="only compare dimensions")
    options = parser.parse_args()
    given = [options.documents, options.samples, options.index]
    if any(given) and not all(given):
        parser.error("--documents, --samples and --index go together")
    sets = [(options.encoder, sampled(options))] if all(given) else from_the_repository()
    if not all(given):
        table = markdown_table(WIDE, list(dimensions()))
        print(table, flush=True)
        if options.save:
            save_section("dimensions", table)
    if options.dimensions:
        return
    lines = []
    for name, subjects in sets:
        lines += list(rows(name, measure(subjects)))
        print(markdown_table(HEADER, lines), flush=True)
    if options.save:
        save_section(
            f"reducing, {'real' if all(given) else 'own'} documents", markdown_table(HEADER, lines)
        )


if __name__ == "__main__":
    main()
