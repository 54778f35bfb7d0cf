"""Measure how often quotes contain the answer, with and without a reader.

    python -m benchmarks.quotes QUESTIONS.jsonl --index INDEX [--samples samples.json]
        [--cells CELLS.jsonl] [--misses] [--save]

A line of QUESTIONS.jsonl has ``document`` (a name in the index), ``pages``, ``question`` and
``answers`` (strings, one of which must be in a quote). ``--samples`` adds the questions of
MMLongBench-Doc whose answer is on one of their evidence pages. A question counts if one of its
pages was chosen. A quote contains an answer if it has the same words, ignoring case, spaces and
types of dashes and quotation marks. Nothing is fitted on these documents.

A line of CELLS.jsonl has ``document``, ``pages``, ``question``, ``row``, ``column`` and ``cell``,
to measure how often the marked cell of a quoted table is correct.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.tables import markdown_table, save_section
from visar import Index
from visar.quotes.choice import WeightedPage, find_quotes
from visar.results import Passage, SearchResult
from visar.retrieval.search import Searcher
from visar.trace import PageId

SECTION = "quotes"
SHORTEST_ANSWER = 3


@dataclass(frozen=True)
class Asked:
    """A question with its answers and their pages."""

    document: str
    pages: list[int]
    text: str
    answers: list[str]
    source: str

    def contains_answer(self, text: str) -> bool:
        """Return whether a text contains one of the answers."""
        return any(contains_answer(answer, text) for answer in self.answers)


def normalized(text: str) -> str:
    text = re.sub(r"[‐‑–—−]", "-", text.casefold())
    text = re.sub(r"[“”„]", '"', re.sub(r"[‘’]", "'", text))
    return " ".join(text.split())


def contains_answer(answer: str, text: str) -> bool:
    """Return whether a text contains an answer, but not as part of a longer number or word."""
    pattern = re.escape(normalized(answer)).replace(r"\ ", r"\s")
    return bool(re.search(rf"(?<!\w)(?<!\d[.,]){pattern}(?![.,]?\d)(?!\w)", normalized(text)))


def read_questions(path: Path) -> list[Asked]:
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [
        Asked(q["document"], q["pages"], q["question"], q["answers"], "sample report")
        for q in lines
    ]


def read_samples(path: Path, index: Index) -> list[Asked]:
    """Read questions of MMLongBench-Doc whose answer is on an evidence page."""
    known = {document.name: document for document in index.documents()}
    asked = []
    for sample in json.loads(path.read_text(encoding="utf-8")):
        document, answer = known.get(sample["doc_id"]), str(sample["answer"])
        pages = ast.literal_eval(sample["evidence_pages"] or "[]")
        if document is None or len(answer) < SHORTEST_ANSWER:
            continue
        texts = [index.page(document.id, n).words for n in pages if 1 <= n <= document.pages]
        if any(contains_answer(answer, " ".join(word.text for word in words)) for words in texts):
            source = "MMLongBench-Doc"
            asked.append(Asked(sample["doc_id"], pages, sample["question"], [answer], source))
    return asked


@dataclass
class Count:
    """The quality of one way of choosing quotes."""

    chosen: int = 0
    first: int = 0
    quoted: int = 0

    def add(self, asked: Asked, quotes: Sequence[Passage]) -> None:
        held = [asked.contains_answer(quote.text) for quote in quotes]
        self.chosen += 1
        self.first += bool(held and held[0])
        self.quoted += any(held)


def weigh(searcher: Searcher, found: SearchResult, pages: Sequence[PageId]) -> list[WeightedPage]:
    """Read pages with the weights from a search."""
    trace = found.trace
    assert trace is not None  # noqa: S101 - local searches have a trace
    return searcher.weigh(trace.question, trace.relevance.token_weights, pages)


def count_quotes(
    asked: Iterable[Asked], index: Index, misses: bool
) -> dict[tuple[str, str], Count]:
    """Ask each question about its document, with and without the index's reader."""
    counts: dict[tuple[str, str], Count] = {}
    reader = index.reader()
    known = {document.name: document.id for document in index.documents()}
    for one in asked:
        if one.document not in known:
            continue
        read = index.searcher([known[one.document]])
        plain = Searcher(read._corpus, read._encoder, source=index)
        found = plain.search(one.text)
        pages = [(hit.document, hit.page) for hit in found.pages]
        quotes = find_quotes(one.text, weigh(plain, found, pages))
        if {page for _, page in pages} & set(one.pages):
            counts.setdefault((one.source, "none"), Count()).add(one, quotes.quotes(pages))
        if reader is not None:
            found = read.search(one.text)
            if {hit.page for hit in found.pages} & set(one.pages):
                name = f"`{reader.name}`"
                counts.setdefault((one.source, name), Count()).add(one, found.passages)
        if misses:
            _print_miss(one, found)
    return counts


def _print_miss(asked: Asked, found: SearchResult) -> None:
    if not any(asked.contains_answer(quote.text) for quote in found.passages[:1]):
        print(f"\n{asked.document[:30]} {asked.pages} {asked.text} {asked.answers}")
        for quote in found.passages:
            mark = "*" if asked.contains_answer(quote.text) else " "
            print(f"  {mark} {quote.page}: {quote.text!r:.200}")


def count_cells(path: Path, index: Index) -> str:
    """Return a sentence with the numbers of correct and incorrect marked cells."""
    known = {document.name: document.id for document in index.documents()}
    asked = found = quoted = marked = right = 0
    for line in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        if line["document"] not in known:
            continue
        asked += 1
        result = index.search(line["question"], documents=[line["document"]])
        found += bool(set(line["pages"]) & {hit.page for hit in result.pages})
        cells = [cell for passage in result.passages for cell in passage.cells]
        quoted += any(contains_answer(line["cell"], passage.text) for passage in result.passages)
        answers = [cell for cell in cells if cell.answer]
        marked += bool(answers)
        right += bool(answers) and normalized(answers[0].text) == normalized(line["cell"])
        if answers and normalized(answers[0].text) != normalized(line["cell"]):
            print(f"marked {answers[0].text!r}, not {line['cell']!r}: {line['question']}")
    return (
        f"Of {asked} questions about a cell of a table, the right page was chosen for {found}, and "
        f"the cell was quoted for {quoted} and marked for {marked}, correctly for {right}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("questions", type=Path)
    parser.add_argument("--index", required=True)
    parser.add_argument("--samples", type=Path, help="questions of MMLongBench-Doc: samples.json")
    parser.add_argument("--cells", type=Path, help="questions about tables with the right cell")
    parser.add_argument("--misses", action="store_true", help="print what the first quote misses")
    parser.add_argument("--save", action="store_true")
    given = parser.parse_args()
    with Index.open(given.index, create=False) as index:
        asked = read_questions(given.questions)
        if given.samples is not None:
            asked += read_samples(given.samples, index)
        counts = count_quotes(asked, index, given.misses)
        rows = [
            [source, ranking, str(one.chosen), str(one.first), str(one.quoted)]
            for (source, ranking), one in counts.items()
        ]
        header = ["questions", "reader", "page chosen", "in the first quote", "in three"]
        report = markdown_table(header, rows)
        if given.cells is not None:
            report += f"\n\n{count_cells(given.cells, index)}"
    print(report)
    if given.save:
        save_section(SECTION, report)


if __name__ == "__main__":
    main()
