"""Run folders with seeded random records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from visar.evaluation.inputs import Definitions
from visar.evaluation.manifest import read_manifests
from visar.evaluation.methods import METHODS
from visar.evaluation.records import (
    RESULTS,
    AnswerRecord,
    QuestionRecord,
    RetrievalRecord,
    VerdictRecord,
    read_by_key,
)
from visar.evaluation.state import RunState
from visar.retrieval.methods import Method

DATASETS = ("MMLongBench", "MMLongBench, corrected", "Own <papers> & more")
ENCODERS = ("colpali", "embedded")
GENERATORS = ("extractive", "qwen2.5-vl")
BUDGETS = (5, 10)
JUDGE = "rules"
STAGES = ("query to page", "page to query", "self-similarity", "page to page")
PRIVATE = "what nobody may read in a report"


def write_run(
    folder: Path,
    *,
    seed: int = 7,
    questions: int = 40,
    datasets: Sequence[str] = DATASETS,
    encoders: Sequence[str] = ENCODERS,
    generators: Sequence[str] = GENERATORS,
    groups: Sequence[str] = ("main", "others", "ablation", "T", "gamma", "acceleration"),
) -> Path:
    """Write a run of all methods in groups; a fifth of the questions have no evidence."""
    generator = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for dataset in datasets:
        asked = make_asked(generator, dataset, questions)
        write_records(folder / "asked.jsonl", asked)
        for encoder in encoders:
            _write_results(folder, generator, asked, encoder, generators, groups)
    write_details(folder / "details", generator)
    for number, manifest in enumerate(make_manifests(datasets), start=1):
        (folder / f"manifest.{number}.json").write_text(json.dumps(manifest))
    return stamp(folder)


def stamp(folder: Path) -> Path:
    """Set the digests of inputs of a folder's records, as the runner does."""
    definitions = Definitions()
    for manifest in read_manifests(folder):
        definitions = definitions.updated(
            Definitions.model_validate(manifest.get("definitions", {}))
        )
    state = RunState(read_by_key(folder, QuestionRecord), (), definitions)
    for kind in RESULTS:
        schema: TypeAdapter[Any] = TypeAdapter(kind)
        for path in sorted(folder.glob(f"{kind.FILE}*.jsonl")):
            records = []
            for line in path.read_text(encoding="utf-8").splitlines():
                record = schema.validate_json(line)
                records.append(replace(record, inputs=state.inputs(kind, record.key) or ""))
                state.keep(records[-1:])
            path.unlink()
            write_records(path, records)
    return folder


def make_manifests(datasets: Sequence[str]) -> list[dict[str, Any]]:
    """Return manifests of two calls; the second found a document that the first one missed."""
    machine = {"cpu": "<script>alert(1)</script>", "cores": 2}
    first, second = (
        {
            "started": started,
            "finished": started,
            "machine": machine,
            "skipped": {
                "missing": {datasets[0]: missing},
                "refused": {datasets[0]: {"locked.pdf": "locked.pdf is encrypted"}},
                "pages_outside": {datasets[0]: ["q1"]},
                "invalid_pages": {"colpali": 2},
            },
            "failures": {},
        }
        for started, missing in (
            ("2026-01-02T03:04:05Z", ["gone.pdf", "document-0.pdf"]),
            ("2026-01-03T03:04:05Z", ["gone.pdf"]),
        )
    )
    return [first, second]


def make_asked(
    generator: np.random.Generator, dataset: str, questions: int
) -> list[QuestionRecord]:
    asked = []
    for number in range(questions):
        document = number % 9
        pages = 6 + 12 * document
        count = min(int(generator.geometric(0.55)), 5) if number % 5 else 0
        evidence = generator.choice(np.arange(1, pages + 1), count, replace=False)
        asked.append(
            QuestionRecord(
                f"q{number}",
                dataset,
                f"document-{document}.pdf",
                pages,
                tuple(sorted(int(page) for page in evidence)),
                answerable=number % 5 > 0,
                corrected=dataset.endswith(", corrected") and number % 5 == 1,
            )
        )
    return asked


def _write_results(
    folder: Path,
    generator: np.random.Generator,
    asked: Iterable[QuestionRecord],
    encoder: str,
    generators: Sequence[str],
    groups: Sequence[str],
) -> None:
    retrieved, answered, judged = [], [], []
    for one in asked:
        sparsity = float(generator.beta(3, 2))
        for method in [one for one in METHODS.values() if one.group in groups]:
            if method.needs_evidence and not one.evidence_pages:
                continue
            chosen = _choose(generator, one, encoder, method, sparsity)
            retrieved.append(chosen)
            if method.group not in ("main", "ablation"):
                continue
            for name in generators:
                for max_k in BUDGETS:
                    setting = (one.dataset, one.question, encoder, method.name, name, max_k)
                    given = chosen.pages[:max_k]
                    seconds = float(0.2 + 0.4 * len(given) + generator.exponential(0.1))
                    answered.append(
                        AnswerRecord(*setting, given, PRIVATE, PRIVATE, None, 9, seconds)
                    )
                    chance = 0.2 + 0.5 * sparsity
                    judged.append(VerdictRecord(*setting, JUDGE, bool(generator.random() < chance)))
    write_records(folder / f"retrieved-{encoder}.jsonl", retrieved)
    if generators:
        write_records(folder / "answered.jsonl", answered)
        write_records(folder / "judged.jsonl", judged)


def _choose(
    generator: np.random.Generator,
    asked: QuestionRecord,
    encoder: str,
    method: Method,
    sparsity: float,
) -> RetrievalRecord:
    """Choose pages with evidence near the top; k depends slightly on the rule and on γ."""
    noise = generator.normal(size=asked.pages)
    noise[[page - 1 for page in asked.evidence_pages]] += 2.5
    ranking = [int(page) + 1 for page in np.argsort(-noise)]
    k = 10
    rules = ("largest-gap", "score-cluster", "top-k", "single-vector", "oracle")
    rule = next((rule for rule in rules if rule in method.name), "visar")
    if method.needs_evidence:
        k = max(ranking.index(page) + 1 for page in asked.evidence_pages)
    elif method.adaptive:
        wide = {"visar": 0.3, "largest-gap": 0.15, "score-cluster": 0.1}[rule]
        gamma = float(method.options.get("gamma", 1e5))
        k = int(generator.geometric(wide)) + int(max(0, 3 - np.log10(gamma)) * 4)
    k = min(k, asked.pages)
    speed = 0.3 if method.name == "visar-approx" else 1.0
    stages = STAGES if rule == "visar" else ("scores", "cut")
    seconds = {
        stage: float(speed * asked.pages * generator.uniform(1, 3) * 1e-4) for stage in stages
    }
    return RetrievalRecord(
        asked.dataset,
        asked.question,
        encoder,
        method.name,
        k,
        tuple(ranking[:k]),
        tuple(ranking[:10]),
        sparsity if rule == "visar" else None,
        seconds,
        paper_sparsity=min(1.0, sparsity + 0.1) if rule == "visar" else None,
    )


def write_details(folder: Path, generator: np.random.Generator) -> None:
    """Write similarity matrices of two questions, one sparse and one dense."""
    folder.mkdir(exist_ok=True)
    for name, pages, active in (("sparse", 30, 6), ("dense", 48, 40)):
        weights = np.zeros(pages)
        weights[generator.choice(pages, active, replace=False)] = generator.uniform(0.3, 1, active)
        similarity = np.sqrt(np.outer(weights, weights)) * generator.uniform(0.5, 1, (pages, pages))
        cost = -np.exp(-((np.arange(1, pages + 1) - 4) ** 2) / 20)
        cost[-5:] = np.nan
        np.savez(
            folder / f"{name}.npz",
            similarity=similarity,
            cost=cost,
            k_star=np.int64(4),
            k_oracle=np.int64(6),
            id=np.str_(f"{name} <&>"),
            dataset=np.str_("MMLongBench"),
        )


def write_records(path: Path, records: Iterable[Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(asdict(record)) + "\n" for record in records)
