"""Measure a visual encoder on a CPU: ColModernVBERT with torch, and exported to ONNX.

    python -m benchmarks.visual_cpu [--rounds 2] [--save]

The architecture has the published sizes (250 M parameters, pages of 2048 pixels in tiles of 512)
with random weights. So seconds and memory are realistic, while the cosines with torch's vectors on
the same page only show the effect of rounding.

Variants run interleaved in separate processes on all cores. The cosine is the lowest of a page.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pypdfium2

from benchmarks.tables import markdown_table, save_section
from visar.documents.page import Page
from visar.encoders.registry import get_encoder
from visar.models.devices import usable_cores
from visar.models.loading import import_torchvision
from visar.samples import REPORT

PAGE = 11
VOCABULARY = 50_368
EXPORT = """
import sys, pathlib
from visar.encoders.onnx_export import export_encoder
export_encoder(sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3])
"""
HEADER = ("encoder", "files", "seconds a page", "peak memory", "cosine with torch")


def save_checkpoint(folder: Path) -> None:
    """Save a ColModernVBERT in the published layout, with random weights and another vocabulary."""
    import_torchvision()
    import torch
    from colpali_engine.models import ColModernVBert, ColModernVBertProcessor
    from tests.encoders import tiny
    from transformers import Idefics3ImageProcessor, ModernVBertConfig

    marks = {name: f"[{name.upper()}]" for name in ("unk", "cls", "sep", "pad", "mask")}
    places = [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]
    around = ["<global-img>", "<fake_token_around_image>", "<image>", "<end_of_utterance>"]
    words = tiny.tokenizer(
        [*marks.values(), *around, *places],
        model_input_names=["input_ids", "attention_mask"],
        **dict[str, Any]({f"{name}_token": mark for name, mark in marks.items()}),
    )
    images = Idefics3ImageProcessor(
        size={"longest_edge": 2048},
        max_image_size={"longest_edge": 512},
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )
    config = ModernVBertConfig(
        text_config={
            "model_type": "modernbert",
            "hidden_size": 768,
            "intermediate_size": 1152,
            "num_hidden_layers": 22,
            "num_attention_heads": 12,
            "vocab_size": VOCABULARY,
            "max_position_embeddings": 8192,
            "global_attn_every_n_layers": 3,
            "local_attention": 128,
            **{f"{name}_token_id": words.convert_tokens_to_ids(marks[name]) for name in marks},
            "bos_token_id": words.cls_token_id,
            "eos_token_id": words.sep_token_id,
        },
        vision_config={
            "model_type": "siglip_vision_model",
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "image_size": 512,
            "patch_size": 16,
        },
        image_token_id=words.convert_tokens_to_ids("<image>"),
        pixel_shuffle_factor=4,
    )
    torch.manual_seed(7)
    ColModernVBert(config).save_pretrained(folder)
    processor = ColModernVBertProcessor(image_processor=images, tokenizer=words, image_seq_len=64)
    processor.save_pretrained(folder)


@dataclass(frozen=True)
class Cost:
    """The cost of a process that encodes a page."""

    seconds: float
    megabytes: int


def work(name: str, vectors: Path) -> None:
    """Encode a page with an encoder; print the cost of the second time."""
    encoder = get_encoder(name, device="cpu")
    page = pypdfium2.PdfDocument(REPORT)[PAGE - 1]
    image = page.render(scale=2).to_pil()
    width, height = page.get_size()
    pages = [Page(PAGE, width, height, 0, (), "none")]
    # The second time is like pages in sequence.
    encoder.encode_pages(pages, [image])
    started = time.perf_counter()
    (found,) = encoder.encode_pages(pages, [image])
    taken = Cost(
        time.perf_counter() - started,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1000,
    )
    np.save(vectors, found.vectors)
    print(json.dumps(asdict(taken)))


def call(command: list[str]) -> None:
    subprocess.run(command, check=True)  # noqa: S603 - this file


def environment() -> dict[str, str]:
    cores = str(usable_cores())
    return {**os.environ, "OMP_NUM_THREADS": cores, "OPENBLAS_NUM_THREADS": cores}


def run(name: str, vectors: Path) -> Cost:
    command = [sys.executable, "-m", "benchmarks.visual_cpu", "--work", name, str(vectors)]
    done = subprocess.run(  # noqa: S603 - this file
        command, env=environment(), check=True, stdout=subprocess.PIPE
    )
    return Cost(**json.loads(done.stdout.splitlines()[-1]))


def size_of(folder: Path) -> str:
    return f"{sum(path.stat().st_size for path in folder.iterdir()) / 1e6:.0f} MB"


def cosines(one: Path, other: Path) -> Any:
    a, b = (np.load(path).astype(np.float32) for path in (one, other))
    return (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def measure(folder: Path, rounds: int) -> str:
    names = {"torch float32": folder / "torch-float32"}
    # Use separate processes, because a process inherits the peak memory of its parent.
    call([sys.executable, "-m", "benchmarks.visual_cpu", "--make", str(names["torch float32"])])
    for precision in ("float32", "int8"):
        names[f"ONNX {precision}"] = target = folder / f"onnx-{precision}"
        call([sys.executable, "-c", EXPORT, str(names["torch float32"]), str(target), precision])
    runs: dict[str, list[Cost]] = {name: [] for name in names}
    for _ in range(rounds):
        for name, path in names.items():
            runs[name].append(run(str(path), folder / f"{name}.npy"))
    rows = []
    for name, its in runs.items():
        alike = cosines(folder / "torch float32.npy", folder / f"{name}.npy")
        rows.append(
            (
                name,
                size_of(names[name]),
                f"{statistics.median(one.seconds for one in its):.1f}",
                f"{max(one.megabytes for one in its) / 1000:.1f} GB",
                f"{alike.min():.4f}",
            )
        )
    return markdown_table(HEADER, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--save", action="store_true", help="write the table to the docs")
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.make:
        save_checkpoint(arguments.make)
        return
    if arguments.work:
        work(arguments.work[0], Path(arguments.work[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        table = measure(Path(folder), arguments.rounds)
    print(table)
    if arguments.save:
        save_section("visual encoder on a CPU", table)


if __name__ == "__main__":
    main()
