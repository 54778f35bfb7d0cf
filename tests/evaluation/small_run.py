"""Questions about two small documents, and runs with plugin models."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from visar.encoders import registry as encoder_registry
from visar.evaluation.plan import open_question_sets, read_plan
from visar.evaluation.run import Outcome, run
from visar.generation import registry as generator_registry
from visar.index import Index

MakePdf = Callable[..., Path]
PAGES = (
    "Sailing boats need wind to leave the harbour.",
    "Income tax is due in April.",
    "The lighthouse was built in 1898.",
    "Nets are mended in winter.",
)
QUESTIONS: tuple[tuple[str, str, list[int], list[str]], ...] = (
    ("When is income tax due?", "notes.pdf", [2], ["April"]),
    ("What do sailing boats need?", "notes.pdf", [1, 9], ["wind"]),
    ("Who owns the harbour?", "notes.pdf", [], ["Not answerable"]),
    ("When was the lighthouse built?", "gone.pdf", [3], ["1898"]),
    ("When are nets mended?", "more.pdf", [4], ["winter"]),
)


@pytest.fixture
def data(make_pdf: MakePdf, tmp_path: Path) -> Path:
    make_pdf("notes.pdf", *PAGES)
    make_pdf("more.pdf", *PAGES[::-1][:2], *PAGES[:2], "An empty quay.")
    return write_questions(tmp_path / "questions.jsonl", QUESTIONS)


def write_questions(file: Path, questions: Iterable[tuple[str, str, list[int], list[str]]]) -> Path:
    lines = [
        json.dumps({"id": f"q{n}", "question": q, "document": d, "evidence_pages": e, "answers": a})
        for n, (q, d, e, a) in enumerate(questions)
    ]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def evaluate(
    folder: Path, step: Callable[[str, int, int], None] = lambda *_: None, **settings: Any
) -> Outcome:
    """Run a call as on the command line, with plugin models."""
    plan = read_plan(None, settings)
    index = Index.open(folder / "index")
    return run(folder, plan, open_question_sets(plan), index, step)


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A dict of plugin encoders and generators by name, created per index."""
    known: dict[str, Callable[[str], Any]] = {}
    for kind, registry in (("encoder", encoder_registry), ("generator", generator_registry)):
        real = getattr(registry, f"get_{kind}")

        def get(name: str, *, real: Any = real, **options: Any) -> Any:
            return known[name](name) if name in known else real(name, **options)

        monkeypatch.setattr(registry, f"get_{kind}", get)
    return known


def until(happens: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end
        time.sleep(0.1)
