"""What token pooling saves, and what it costs, by the number of vectors that become one.

    python -m benchmarks.pooling [--save]
    python -m benchmarks.pooling --documents FOLDER --samples samples.json --index FOLDER [--save]

The first measures a planted document, the example report by the embedded encoder, and the same
report by a tiny ColPali of random weights whose pages have 1024 patches, for size and speed alone.
The second takes documents with questions in the format of MMLongBench-Doc: those of the folder are
added to the index given, unless they are in it. The vectors are encoded once and pooled in memory,
as ``NAME+poolN`` does it. ``--save`` writes the table into docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import visar
from benchmarks.planted import planted_document
from benchmarks.selection import once
from benchmarks.tables import markdown_table, save_section
from visar.documents import Page, open_document
from visar.encoders.pooling import pool_page
from visar.encoders.protocol import Encoder, PageEmbedding
from visar.encoders.registry import get_encoder
from visar.encoders.visual import grid_boxes
from visar.index import Index
from visar.results import Document, EncoderRef
from visar.samples import REPORT
from visar.store import open_store

FACTORS = (1, 2, 3, 4)
REPEATS = 3
PLANTED_PAGES = 50
QUESTIONS = Path(__file__).parents[1] / "examples" / "questions.json"


@dataclass(frozen=True)
class Question:
    vectors: NDArray[Any]
    evidence: frozenset[int]
    """Pages from 0; empty where they are not known."""


@dataclass(frozen=True)
class Subject:
    """A document with questions."""

    pages: list[PageEmbedding]
    questions: list[Question]


@dataclass(frozen=True)
class Found:
    """What one question found at one factor."""

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
        """At 5, with the pages of the evidence equally relevant."""
        gains = [1 / math.log2(rank + 2) for rank in range(5)]
        hits = [page in self.evidence for page in self.ranking[:5]]
        ideal = sum(gains[: len(self.evidence)])
        return sum(gain for gain, hit in zip(gains, hits, strict=False) if hit) / ideal


@dataclass
class Sums:
    """One factor over all documents of a set."""

    found: list[Found]
    pages: int = 0
    vectors: int = 0
    bytes_written: int = 0
    seconds: float = 0.0
    """Of processor time, which other work on the machine disturbs less than the clock."""


def measure(subjects: Iterator[Subject]) -> dict[int, Sums]:
    sums = {factor: Sums([]) for factor in FACTORS}
    for subject in subjects:
        prepared = {}
        for factor, total in sums.items():
            started = time.process_time()
            pooled = [pool_page(p, factor) if factor > 1 else p for p in subject.pages]
            total.seconds += time.process_time() - started
            total.pages += len(pooled)
            total.vectors += sum(len(page.vectors) for page in pooled)
            total.bytes_written += bytes_in_index(pooled)
            prepared[factor] = visar.prepare([page.vectors for page in pooled])
            visar.select(subject.questions[0].vectors, prepared[factor])
        for question in subject.questions:
            for factor, found in ask(question, prepared).items():
                sums[factor].found.append(found)
    return sums


def ask(question: Question, prepared: dict[int, visar.PageVectors]) -> dict[int, Found]:
    """The question at each factor, timed in turns so that other work hits all alike."""
    late: dict[int, float] = dict.fromkeys(prepared, math.inf)
    select, selections = late.copy(), {}
    query = question.vectors
    for _ in range(REPEATS):
        for factor, vectors in prepared.items():
            took, _scores = once(partial(visar.maxsim, query, vectors))
            late[factor] = min(late[factor], took)
            took, selections[factor] = once(partial(visar.select, query, vectors))
            select[factor] = min(select[factor], took)
    return {
        factor: Found(
            late[factor],
            select[factor],
            selection.k_star,
            frozenset(selection.pages.tolist()),
            selection.ranking.tolist(),
            float(selection.late_interaction.max() / len(query)),
            question.evidence,
        )
        for factor, selection in selections.items()
    }


def bytes_in_index(pages: Sequence[PageEmbedding]) -> int:
    """What the vectors with their boxes and words take on disk in an index of their own."""
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder) / "index")
        encoder = EncoderRef("pooling", "1", pages[0].vectors.shape[1])
        document = Document("one", "one.pdf", len(pages), 0, source="/one.pdf")
        with store.adding(document, encoder) as addition:
            for number, page in enumerate(pages, start=1):
                addition.put(*wordless(number, page))
            addition.commit()
        written = Path(folder) / "index" / "vectors"
        return sum(file.stat().st_size for file in written.rglob("*") if file.is_file())


def wordless(number: int, embedding: PageEmbedding) -> tuple[Page, PageEmbedding]:
    """A page without words: its vectors refer to none, in as many bytes."""
    words = np.full_like(embedding.words, -1)
    return Page(number, 595, 842, 0, (), "none"), replace(embedding, words=words)


def rows(name: str, sums: dict[int, Sums]) -> Iterator[list[str]]:
    first = sums[1]
    for factor, total in sums.items():
        pairs = list(zip(total.found, first.found, strict=True))
        known = [found for found in total.found if found.evidence]
        quality = ["–", "–"]
        if known:
            p, r = (statistics.mean(getattr(f, x) for f in known) for x in ("precision", "recall"))
            f1 = 200 * p * r / (p + r) if p + r else 0.0
            quality = [f"{f1:.1f}", f"{statistics.mean(f.ndcg for f in known):.3f}"]
        yield [
            name if factor == 1 else "",
            str(factor),
            f"{total.vectors / total.pages:.0f}",
            f"{total.bytes_written / total.pages:,.0f}",
            f"{total.bytes_written / first.bytes_written:.2f}",
            "–" if factor == 1 else f"{1000 * total.seconds / total.pages:.0f}",
            f"{statistics.median(one.late / other.late for one, other in pairs):.2f}",
            f"{statistics.median(one.select / other.select for one, other in pairs):.2f}",
            f"{statistics.mean(f.k_star for f in total.found):.1f}",
            f"{sum(one.pages == other.pages for one, other in pairs)} of {len(pairs)}",
            *quality,
            f"{statistics.mean(f.match for f in total.found):.3f}",
        ]


HEADER = [
    "document",
    "factor",
    "vectors a page",
    "bytes a page",
    "of unpooled",
    "pooling, CPU ms a page",
    "late interaction, of unpooled",
    "ViSAR, of unpooled",
    "mean k*",
    "same pages as unpooled",
    "F1@k*",
    "NDCG@5",
    "match",
]


def planted() -> Iterator[Subject]:
    """1024 patches in a square and 6 vectors of an instruction, as a page of ColPali has."""
    example = planted_document(PLANTED_PAGES, 4)
    boxes = np.concatenate([grid_boxes(32, 32), np.zeros((6, 4), np.float32)])
    words = np.full(len(boxes), -1, np.int32)
    parts = np.split(example.vectors, example.offsets[1:-1])
    pages = [PageEmbedding(part, boxes, words) for part in parts]
    yield Subject(pages, [Question(query, frozenset()) for query in example.queries])


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
    """ColPali as published in shape, of random weights: its pages have 32 × 32 patches."""
    from tests.encoders import tiny

    tiny.IMAGE_SIDE = 448
    return get_encoder(str(tiny.save("colpali", folder)), device="cpu")


def sampled(options: argparse.Namespace) -> Iterator[Subject]:
    """Documents that have questions with evidence, from the index, or added to it."""
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


def from_the_repository() -> Iterator[tuple[str, Iterator[Subject]]]:
    yield f"planted, {PLANTED_PAGES} pages", planted()
    yield "example report, embedded", report(get_encoder("embedded"))
    with tempfile.TemporaryDirectory() as folder:
        # What random weights find is no evidence for anything.
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
    options = parser.parse_args()
    given = [options.documents, options.samples, options.index]
    if any(given) and not all(given):
        parser.error("--documents, --samples and --index go together")
    sets = [(options.encoder, sampled(options))] if all(given) else from_the_repository()
    lines = []
    for name, subjects in sets:
        lines += list(rows(name, measure(subjects)))
        print(markdown_table(HEADER, lines), flush=True)
    if options.save:
        save_section(
            f"pooling, {'real' if all(given) else 'own'} documents", markdown_table(HEADER, lines)
        )


if __name__ == "__main__":
    main()
