"""Reproduce the paper as docs/evaluation.md does, on tiny checkpoints and a made-up benchmark."""

from __future__ import annotations

import gc
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.cli.conftest import visar as visar
from tests.cli.typed import Visar
from tests.docs.shown import read
from tests.documents.conftest import text_at, write_pdf
from tests.encoders import tiny, tiny_published
from tests.encoders.servers import serving
from tests.evaluation.datasets.layouts import MMLONGBENCH
from tests.generation import tiny_models
from tests.generation.scripted import replies, scripted
from visar.evaluation.authors import paper_encoder
from visar.evaluation.records import AnswerRecord, RetrievalRecord, read_by_key
from visar.generation.local import LocalGenerator

PAGE = read("evaluation.md").partition("## Reproduce the paper")[2]
ENCODERS = ("colqwen2.5", "colpali", "colmodernvbert")
GENERATORS = ("qwen2.5-vl", "qwen3-vl", "idefics3", "llava-onevision", "qwen2.5-7b")
JUDGE = "qwen2.5-14b"
# An answer and a verdict at once, in every form that is asked for.
SAID = json.dumps({"Answer": "14", "answer": "14", "correctness": "CORRECT", "choice": "correct"})


def commands() -> list[list[str]]:
    """The ``visar eval`` commands of the page, in their order."""
    shown = "\n".join(re.findall(r"```console\n(.*?)```", PAGE, flags=re.S))
    lines = re.findall(r"^\$ (?:\w+=\S+ )?visar (eval .*)$", shown.replace("\\\n", " "), flags=re.M)
    return [shlex.split(line.removesuffix(" &")) for line in lines]


def write_benchmarks(folder: Path) -> None:
    """Both benchmarks as in the collection: documents of three pages, with a question each."""
    for benchmark in ("MMLongBench", "LongDocURL"):
        documents = folder / benchmark / "documents"
        documents.mkdir(parents=True)
        for name in ("ferries.pdf", "harbours.pdf")[: 1 + (benchmark == "MMLongBench")]:
            words = (f"{benchmark} {name} page {number}" for number in ("one", "two", "three"))
            write_pdf(documents / name, *(text_at(20, 300, word) for word in words))
        asked = [MMLONGBENCH[0] | {"doc_id": path.name} for path in sorted(documents.iterdir())]
        (folder / benchmark / "samples.json").write_text(json.dumps(asked))


@pytest.fixture
def cheap() -> Iterator[None]:
    """Spare a process full of other tests' objects the time of tiny models."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    # Whenever a model is released, garbage is collected: not among what was there before.
    gc.freeze()
    yield
    gc.unfreeze()
    torch.set_num_threads(threads)


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Replacements for names in the page: folders of checkpoints, addresses of servers."""
    from visar.encoders.visrag import VisRagEncoder

    monkeypatch.chdir(tmp_path)
    for family in ENCODERS:
        tiny.save(family, tmp_path)
    tiny_published.save_colbert(tmp_path / "colbertv2")
    for name in GENERATORS:
        tiny_models.save(name, tmp_path / name)
    tiny_models.save("qwen2.5-7b", tmp_path / JUDGE)
    write_benchmarks(tmp_path / "collection")
    folder = str(tiny_published.save_visrag(tmp_path / "visrag-ret"))
    visrag = VisRagEncoder(folder, device="cpu", trust_remote_code=True)
    with serving(visrag) as encoder, scripted(*[replies(SAID)] * 200) as server:
        yield {
            **{name: f"{name}=./{name}" for name in (*ENCODERS, "colbertv2", *GENERATORS)},
            "Lillianwei/Mdocagent-dataset/MMLongBench": "MMLongBench=collection",
            "Lillianwei/Mdocagent-dataset/LongDocURL": "LongDocURL=collection",
            "http://127.0.0.1:8765": encoder,
            "http://127.0.0.1:8000/v1": server.url,
            "tesseract": "tesseract" if shutil.which("tesseract") else "rapidocr",
        }


@pytest.mark.usefixtures("cheap")
def test_every_command_runs_and_the_report_has_every_table(
    visar: Visar, names: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate = LocalGenerator.generate

    def generate_little(self: LocalGenerator, *given: Any, max_tokens: int, **options: Any) -> Any:
        # What random weights write does not end by itself.
        return generate(self, *given, max_tokens=min(max_tokens, 4), **options)

    monkeypatch.setattr(LocalGenerator, "generate", generate_little)
    (settings,) = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.S)
    for name in names:
        settings = settings.replace(f'"{name}"', f'"{names[name]}"')
    # The paper's judge, with the tiny checkpoint as its model.
    (tmp_path / "paper.toml").write_text(f'{settings}judges = ["paper:./{JUDGE}"]\n')
    for command in commands():
        typed = [names.get(word, word) for word in command]
        ran = visar(*typed)
        # Random weights cannot be verified: that differences are found is tested elsewhere.
        assert ran.code == int(command[1] == "verify"), (command, ran.err)
    found = read_by_key(Path("results"), RetrievalRecord)
    assert {paper_encoder(Path(encoder).name) for _, _, encoder, _ in found} == {
        *(*ENCODERS, "colbertv2", "visrag-ret"),
    }
    assert {record.method for record in found.values() if record.alone} >= {"visar", "top-k"}
    answers = read_by_key(Path("results"), AnswerRecord).values()
    assert {answer.generator for answer in answers} == {names[name] for name in GENERATORS}
    assert {answer.max_k for answer in answers} == {*range(1, 11)}
    assert {
        answer.concurrency for answer in read_by_key(Path("served"), AnswerRecord).values()
    } == {16}
    report = Path("report/report.md").read_text(encoding="utf-8")
    # Such as "### Tables 2 and S1. …" and "### Figures 3 (a) and S3. …".
    titles = re.findall(r"^### (Table|Figure)s? ([^.]*)\.", report, flags=re.M)
    shown = {f"{kind} {n}" for kind, title in titles for n in re.findall(r"S?\d+", title)}
    tables = ("1", "2", "3", "4", "S1", "S2", "S3", "S4", "S6", "S7", "S8", "S9", "S10")
    figures = ("3", "4", "S1", "S2", "S7", "S8", "S9", "S10", "S11", "S12", "S13", "S14")
    assert {f"Table {n}" for n in tables} | {f"Figure {n}" for n in figures} <= shown
