"""How often the quotes hold the answer, and the weights by which quotes are chosen.

    python -m benchmarks.quotes QUESTIONS.jsonl --index INDEX [--fit] [--misses] [--save]

A line of QUESTIONS.jsonl has ``document`` (a name in the index), ``pages``, ``question``,
``answers`` (texts of which one must stand in a quote) and ``split``. A question counts if one of
its pages was chosen. An answer stands in a quote if the quote has its words, without regard to
case, spaces and the kind of dash or quotation mark.

``--fit`` fits the weights to the split "looked at" alone: the probability of a passage is the
softmax of the scores over all passages of the question, and the probability that one with an
answer is taken is maximised, with a quadratic penalty. It prints them, and what they give on
documents of that split when each is left out of the fit in turn.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.tables import markdown_table, save_section
from visar import Index
from visar.retrieval.front_page import about_document
from visar.retrieval.quotes import FEATURES, MOST_QUOTES, WEIGHTS, Candidate, candidates, distinct

SECTION = "quotes"
FITTED = "looked at"
PENALTY = 0.2


@dataclass(frozen=True)
class Question:
    """A question with its answers and the pages they stand on."""

    document: str
    pages: list[int]
    text: str
    answers: list[str]
    split: str

    def stands_in(self, text: str) -> bool:
        """Whether a text has one of the answers."""
        return any(stands_in(answer, text) for answer in self.answers)


@dataclass(frozen=True)
class Case:
    """A question, and the passages of the pages that were chosen for it."""

    question: Question
    page_numbers: list[int]
    """Of the pages chosen."""
    passages: list[Candidate]
    features: NDArray[np.float64]
    """(passages, features)."""
    holds: NDArray[np.bool_]
    """Which passages have an answer."""

    @property
    def document(self) -> str:
        return self.question.document

    @property
    def page_chosen(self) -> bool:
        return bool(set(self.question.pages) & set(self.page_numbers))

    def quotes(self, weights: NDArray[np.float64]) -> list[int]:
        """The passages quoted with these weights, best first."""
        order = np.argsort(-self.features @ weights, kind="stable")
        taken = distinct([self.passages[i] for i in order], MOST_QUOTES)
        places = {id(passage): place for place, passage in enumerate(self.passages)}
        return [places[id(passage)] for passage in taken]

    def found_at(self, weights: NDArray[np.float64]) -> int | None:
        """Which quote has the answer, from 1."""
        held = [rank for rank, i in enumerate(self.quotes(weights), 1) if self.holds[i]]
        return held[0] if held else None


def normalised(text: str) -> str:
    text = re.sub(r"[‐‑–—−]", "-", text.casefold())
    text = re.sub(r"[“”„]", '"', re.sub(r"[‘’]", "'", text))
    return " ".join(text.split())


def stands_in(answer: str, text: str) -> bool:
    """Whether a text has an answer, not as a part of a longer number or word."""
    wanted = re.escape(normalised(answer)).replace(r"\ ", r"\s")
    return bool(re.search(rf"(?<!\w)(?<!\d[.,]){wanted}(?![.,]?\d)(?!\w)", normalised(text)))


def read_questions(path: Path) -> list[Question]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [
        Question(q["document"], q["pages"], q["question"], q["answers"], q["split"])
        for q in map(json.loads, lines)
    ]


def ask(questions: list[Question], location: str) -> list[Case]:
    """Search for each question in its document; questions about others are left out."""
    cases = []
    with Index.open(location, create=False) as index:
        known = {document.name: document.id for document in index.documents()}
        for question in questions:
            if question.document not in known:
                continue
            searcher = index.searcher([known[question.document]])
            found = searcher.search(question.text)
            numbers = [hit.page for hit in found.pages]
            if about_document(question.text) and 1 not in numbers:
                # The first page may be quoted then, though it was not chosen.
                numbers.append(1)
            document = known[question.document]
            pages = searcher.weigh(found, [(document, number) for number in numbers])
            passages = candidates(question.text, pages)
            features = np.array([passage.features for passage in passages])
            holds = np.array([question.stands_in(p.span.text) for p in passages], bool)
            shaped = features.reshape(-1, len(FEATURES))
            cases.append(Case(question, numbers, passages, shaped, holds))
    return cases


def fit(cases: list[Case]) -> NDArray[np.float64]:
    """Maximise the probability of the passages that hold an answer, by gradient ascent."""
    useful = [case for case in cases if case.page_chosen and case.holds.any()]
    # Steps are taken in units of each feature's spread.
    scale = np.concatenate([case.features for case in useful]).std(axis=0) + 1e-6
    parts = [(case.features / scale, case.holds) for case in useful]
    weights = np.zeros(len(FEATURES))
    moment, spread = np.zeros_like(weights), np.zeros_like(weights)
    for step in range(1, 301):
        gradient = -PENALTY * weights * len(parts)
        for features, holds in parts:
            scores = features @ weights
            shares = np.exp(scores - scores.max())
            shares /= shares.sum()
            held = shares * holds
            gradient += (held / max(held.sum(), 1e-12) - shares) @ features
        moment = 0.9 * moment + 0.1 * gradient
        spread = 0.999 * spread + 0.001 * gradient**2
        unbiased = moment / (1 - 0.9**step), spread / (1 - 0.999**step)
        weights += 0.05 * unbiased[0] / (np.sqrt(unbiased[1]) + 1e-9)
    return np.asarray(weights / scale)


def summary(name: str, cases: list[Case], weights: NDArray[np.float64]) -> list[str]:
    chosen = [case for case in cases if case.page_chosen]
    ranks = [case.found_at(weights) for case in chosen]
    first, any_of = sum(rank == 1 for rank in ranks), sum(rank is not None for rank in ranks)
    cut = sum(bool(case.holds.any()) for case in chosen)
    documents = len({case.document for case in cases})
    share = 100 / max(len(chosen), 1)
    return [
        name,
        str(documents),
        str(len(cases)),
        str(len(chosen)),
        f"{cut} ({cut * share:.0f} %)",
        f"{first} ({first * share:.0f} %)",
        f"{any_of} ({any_of * share:.0f} %)",
    ]


def left_out(cases: list[Case]) -> list[tuple[Case, NDArray[np.float64]]]:
    """Each case with weights that its document took no part in."""
    by_document: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        by_document[case.document].append(case)
    names = sorted(by_document)
    folds = [names[start::6] for start in range(6)]
    result = []
    for fold in folds:
        weights = fit([case for case in cases if case.document not in fold])
        result += [(case, weights) for name in fold for case in by_document[name]]
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("questions", type=Path)
    parser.add_argument("--index", required=True)
    parser.add_argument("--split", action="append", help="only this one; several may be given")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--misses", action="store_true", help=f'of "{FITTED}" alone')
    parser.add_argument("--save", action="store_true")
    given = parser.parse_args()
    cases = ask(read_questions(given.questions), given.index)
    weights = np.array(list(WEIGHTS.values()))
    looked_at = [case for case in cases if case.question.split == FITTED]
    if given.fit:
        pairs = left_out(looked_at)
        ranks = [case.found_at(without) for case, without in pairs if case.page_chosen]
        first, held = sum(rank == 1 for rank in ranks), sum(rank is not None for rank in ranks)
        print(f"left out in turn: {first} first, {held} in all of {len(ranks)}")
        weights = fit(looked_at)
        print("\n".join(f'    "{n}": {w:.2f},' for n, w in zip(FEATURES, weights, strict=True)))
    splits = given.split or sorted({case.question.split for case in cases})
    rows = [
        summary(s, [case for case in cases if case.question.split == s], weights) for s in splits
    ]
    header = ["questions", "documents", "asked", "page chosen", "in some passage"]
    header += ["in the first quote", f"in {MOST_QUOTES} quotes"]
    table = markdown_table(header, rows)
    print(table)
    if given.save:
        save_section(SECTION, table)
    if given.misses:
        for case in looked_at:
            if case.page_chosen and (case.found_at(weights) or 9) > 1:
                _print_miss(case, weights)


def _print_miss(case: Case, weights: NDArray[np.float64]) -> None:
    asked = case.question
    print(f"\n{asked.document[:24]} {asked.text} {asked.answers} {case.found_at(weights)}")
    quotes = case.quotes(weights)
    held = [i for i in np.argsort(-case.features @ weights) if case.holds[i]][:1]
    for place in [*quotes, *(i for i in held if i not in quotes)]:
        passage = case.passages[place]
        marks = "*" if case.holds[place] else " "
        score = float(passage.features @ weights)
        print(f"  {marks} {score:6.2f} p{case.page_numbers[passage.page]} [{passage.span.kind}]"
              f" {passage.span.text[:300]}")  # fmt: skip
        print(
            "      ",
            {n: round(float(v), 2) for n, v in zip(FEATURES, passage.features, strict=True) if v},
        )


if __name__ == "__main__":
    main()
