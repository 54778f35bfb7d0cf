"""Measure questions about many documents: which pages are chosen, and at what cost.

``python -m benchmarks.library --index DIR --samples FILE [--save]``: the index has documents of
MMLongBench-Doc, the file its questions. Without them, only synthetic pages are measured.
"""

from __future__ import annotations

import argparse
import ast
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks import planted
from benchmarks.tables import markdown_table, save_section
from visar.core import PageVectors, maxsim, select
from visar.encoders.registry import get_encoder
from visar.results import Document, EncoderRef
from visar.retrieval import candidates
from visar.retrieval.calibration import find_calibration
from visar.retrieval.candidates import PageSummaries, document_key
from visar.retrieval.methods import METHODS, ScoredPages
from visar.retrieval.search import CANDIDATES
from visar.store import DocumentVectors

SIZES = (10_000, 100_000)
TOP = 10

Scores = NDArray[np.float64]
Float32 = NDArray[np.float32]


@dataclass(frozen=True)
class Asked:
    """A question with its vectors, and the positions of its evidence if known."""

    query: Float32
    evidence: frozenset[int] = frozenset()
    document: int = -1


@dataclass(frozen=True)
class Pages:
    """All pages of a library in one array."""

    vectors: NDArray[np.float16]
    offsets: NDArray[np.int64]
    document: NDArray[np.int64]
    """The document of each page."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def of(self, pages: Iterable[int]) -> list[NDArray[np.float16]]:
        return [self.vectors[self.offsets[page] : self.offsets[page + 1]] for page in pages]

    def stored(self, page: slice | None = None) -> tuple[Document, DocumentVectors]:
        """Return the pages as one stored document."""
        chosen = page or slice(0, len(self))
        first, last = self.offsets[chosen.start], self.offsets[chosen.stop]
        return stored_document(
            self.vectors[first:last], self.offsets[chosen.start : chosen.stop + 1] - first
        )


def stored_document(
    vectors: NDArray[np.float16], offsets: NDArray[np.int64], name: str = "library"
) -> tuple[Document, DocumentVectors]:
    encoder = EncoderRef("benchmark", "1", vectors.shape[1])
    now = datetime.now(UTC)
    document = Document(name, name, len(offsets) - 1, 0, now, (encoder,))
    places = np.zeros((len(vectors), 4), np.float32), np.zeros(len(vectors), np.int32)
    return document, DocumentVectors(vectors, offsets, *places)


def read_library(index: str, samples: Path, every: int) -> tuple[Pages, list[Asked]]:
    """Return the pages of an index, and the questions with evidence on them."""
    from visar.index import Index

    with Index.open(index, create=False) as library:
        documents = library.documents()
        parts = [library.vectors(document.id) for document in documents]
        starts = np.cumsum([0, *(document.pages for document in documents)])
        numbers = {document.name: place for place, document in enumerate(documents)}
        lengths = np.concatenate([np.diff(part.offsets) for part in parts])
        pages = Pages(
            np.concatenate([part.vectors for part in parts]),
            np.concatenate([[0], np.cumsum(lengths)]),
            np.repeat(np.arange(len(documents)), np.diff(starts)),
        )
        asked = []
        for sample in json.loads(samples.read_text(encoding="utf-8")):
            place = numbers.get(sample["doc_id"])
            if place is None:
                continue
            known = range(1, documents[place].pages + 1)
            named = [page for page in ast.literal_eval(sample["evidence_pages"]) if page in known]
            evidence = frozenset(int(starts[place]) + page - 1 for page in named)
            if evidence:
                query = library.encode_question(sample["question"])
                asked.append(Asked(query, evidence, place))
    return pages, asked[::every]


def exact_scores(pages: Pages, asked: Sequence[Asked]) -> list[Scores]:
    prepared = PageVectors(pages.vectors, pages.offsets)
    return [maxsim(each.query, prepared) for each in asked]


def rule_table(pages: Pages, asked: Sequence[Asked], exact: Sequence[Scores]) -> str:
    """Return a table of the chosen pages by number of candidates."""

    def by_late_interaction(k: int) -> Callable[[Asked, Scores], list[int]]:
        return lambda _, scores: np.argsort(-scores, kind="stable")[:k].tolist()

    def among(n: int) -> Callable[[Asked, Scores], list[int]]:
        def choose(each: Asked, scores: Scores) -> list[int]:
            best = np.argsort(-scores, kind="stable")[:n]
            return _selected(each, pages, np.sort(best).tolist())

        return choose

    def within_document(each: Asked, _scores: Scores) -> list[int]:
        return _selected(each, pages, np.flatnonzero(pages.document == each.document).tolist())

    calibration = find_calibration(EncoderRef.of(get_encoder("embedded")))

    def calibrated(each: Asked, scores: Scores) -> list[int]:
        best = np.sort(np.argsort(-scores, kind="stable")[:CANDIDATES]).tolist()
        scored = ScoredPages(each.query, PageVectors(pages.of(best)), calibration=calibration)
        return [best[page] for page in METHODS["calibrated"].choose(scored).pages.tolist()]

    rules = {
        "late interaction, first page": by_late_interaction(1),
        **{f"ViSAR over the {n} best": among(n) for n in (50, 200)},
        "`--method calibrated` over the 50 best": calibrated,
        "ViSAR within the right document": within_document,
    }
    rows = []
    for name, choose in rules.items():
        chosen = [choose(each, scores) for each, scores in zip(asked, exact, strict=True)]
        rows.append([name, *_quality(asked, chosen)])
    heads = ["pages chosen by", "recall", "precision", "F1", "mean k"]
    return markdown_table(heads, rows)


def _selected(each: Asked, pages: Pages, considered: Sequence[int]) -> list[int]:
    chosen = select(each.query, pages.of(considered))
    return [considered[page] for page in chosen.pages.tolist()]


def _quality(asked: Sequence[Asked], chosen: Sequence[Sequence[int]]) -> list[str]:
    recall = np.mean(
        [len(a.evidence & set(c)) / len(a.evidence) for a, c in zip(asked, chosen, strict=True)]
    )
    precision = np.mean(
        [len(a.evidence & set(c)) / len(c) for a, c in zip(asked, chosen, strict=True)]
    )
    shares = recall, precision, 2 * recall * precision / (recall + precision + 1e-9)
    return [
        *(f"{100 * share:.1f}" for share in shares),
        f"{np.mean([len(c) for c in chosen]):.1f}",
    ]


def agreement(pages: Pages, asked: Sequence[Asked], exact: Sequence[Scores]) -> str:
    """Return how often summaries lead to the same choice as comparing every page."""
    document, vectors = pages.stored()
    same, held = [], []
    with tempfile.TemporaryDirectory() as folder:
        index = PageSummaries(Path(folder), vectors.vectors.shape[1])
        index.add(document, lambda: vectors)
        for each, scores in zip(asked, exact, strict=True):
            best = np.argsort(-scores, kind="stable")[:CANDIDATES]
            n = candidates.COMPARED * CANDIDATES
            found = [one.page - 1 for one in index.candidates(each.query, n, [document])]
            narrowed = sorted(found, key=lambda page: -scores[page])[:CANDIDATES]
            held.append(len(set(narrowed[:TOP]) & set(best[:TOP].tolist())) / TOP)
            same.append(
                set(_selected(each, pages, sorted(narrowed)))
                == set(_selected(each, pages, np.sort(best).tolist()))
            )
    return (
        f"Of {len(asked)} questions over {len(pages):,} pages the two stages choose the same pages "
        f"as `--exact` for {100 * np.mean(same):.0f} %, and compare {100 * np.mean(held):.1f} % of "
        "the ten best pages exactly."
    )


class _Repeated(PageSummaries):
    """Summaries of few documents under many names, to simulate a large library without the disk."""

    def repeat(self, documents: Sequence[Document], like: Sequence[Document]) -> None:
        for number, document in enumerate(documents):
            one = self._summaries[document_key(like[number % len(like)])]
            self._summaries[document_key(document)] = one
        self._stacked = None


def growth_table(kind: str, document: Pages, queries: Sequence[Float32]) -> list[list[str]]:
    """Return the cost of a question by size of the library, relative to a 100-page document."""
    single = PageVectors(document.vectors, document.offsets)
    parts = [document.stored(slice(first, first + 20)) for first in range(0, len(document), 20)]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        index = _Repeated(Path(folder), document.vectors.shape[1])
        for number, (_, vectors) in enumerate(parts):
            named = stored_document(vectors.vectors, vectors.offsets, f"{kind}-{number}")
            parts[number] = named
            index.add(named[0], partial(_same, vectors))
        like = [stored for stored, _ in parts]
        for size in SIZES:
            library = [
                Document(f"{kind}-{n}", "", 20, 0, like[0].added, ()) for n in range(size // 20)
            ]
            for n, stored in enumerate(library[: len(like)]):
                library[n] = like[n] if stored.id == like[n].id else stored
            index.repeat(library[len(like) :], like)
            index.candidates(queries[0], 1, library)  # stacks them, as the first question does
            find = _fastest(partial(_find, index, library), queries)
            compared = PageVectors(document.of(np.arange(200) % len(document)))
            chosen = PageVectors(document.of(range(50)))

            def choose(
                query: Float32, compared: PageVectors = compared, chosen: PageVectors = chosen
            ) -> None:
                maxsim(query, compared)
                select(query, chosen)

            whole = find + _fastest(choose, queries)
            # Measured next to the others, because the machine's load changes.
            alone = _fastest(lambda query: select(query, single), queries)
            means = candidates._stack(index._summaries).means.nbytes
            rows.append(
                [
                    kind,
                    f"{size:,}",
                    f"{whole / alone:.1f}×",
                    f"{means / 1e6:,.0f}",
                ]
            )
    return rows


def _same(vectors: DocumentVectors) -> DocumentVectors:
    return vectors


def _find(
    index: PageSummaries, library: Sequence[Document], query: Float32
) -> list[candidates.Candidate]:
    return index.candidates(query, 200, library)


def _fastest(ask: Callable[[Float32], object], queries: Sequence[Float32]) -> float:
    """Return the mean over questions of the minimum seconds in three rounds, after a warm-up."""
    ask(queries[0])
    seconds = []
    for query in queries:
        rounds = []
        for _ in range(3):
            started = time.perf_counter()
            ask(query)
            rounds.append(time.perf_counter() - started)
        seconds.append(min(rounds))
    return float(np.mean(seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--index", help="of documents of MMLongBench-Doc, embedded encoder")
    parser.add_argument("--samples", type=Path, help="their questions: samples.json")
    parser.add_argument("--every", type=int, default=1, help="only every n-th question")
    parser.add_argument("--save", action="store_true", help="save to docs/benchmarks.md")
    chosen = parser.parse_args()

    def show(name: str, text: str) -> None:
        print(f"\n## {name}\n\n{text}", flush=True)
        if chosen.save:
            save_section(name, text)

    growth = growth_table("1030 × 128 a page", *_growth_document(planted.planted_document(100, 3)))
    if chosen.index and chosen.samples:
        pages, asked = read_library(chosen.index, chosen.samples, chosen.every)
        exact = exact_scores(pages, asked)
        show("agreement", agreement(pages, asked, exact))
        show("rules", rule_table(pages, asked, exact))
        longest = np.bincount(pages.document).argmax()
        first = int(np.flatnonzero(pages.document == longest)[0])
        part = pages.stored(slice(first, first + 100))[1]
        text = Pages(part.vectors, part.offsets, np.zeros(100, np.int64))
        growth += growth_table("embedded encoder", text, [each.query for each in asked[:3]])
    heads = ["vectors", "pages", "of one document", "memory, MB"]
    show("growth", markdown_table(heads, growth))


def _growth_document(example: planted.Example) -> tuple[Pages, list[Float32]]:
    zeros = np.zeros(len(example.offsets) - 1, np.int64)
    pages = Pages(example.vectors, example.offsets, zeros)
    return pages, [query.astype(np.float32) for query in example.queries]


if __name__ == "__main__":
    main()
