"""Measure the speed of the embedded encoder in tokens per second, compared with its base model.

    python benchmarks/encoder.py [--pages 32] [--rounds 3] [--save docs/encoder-speed.md]

The text is random words of the model's vocabulary, 500 words per page. The variants run interleaved
in rounds, so that other load affects all of them equally and ratios are reliable even if absolute
numbers aren't. Tokens per second of CPU time are less affected; multiplied by the number of cores,
they are the maximum on an idle machine. A token counts once, even if several windows read it. Small
batches leave cores idle at their end, which a second thread calling ``encode_pages`` fills.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from visar.documents.page import Page, Word
from visar.encoders.embedded import EmbeddedEncoder
from visar.encoders.minilm import (
    MiniLM,
    load_tokenizer,
    original_model,
    quantized_model,
)
from visar.models.devices import usable_cores

WORDS_PER_PAGE = 500


def random_pages(count: int) -> list[Page]:
    vocabulary = sorted(w for w in load_tokenizer().get_vocab() if w.isalpha() and len(w) > 2)
    chosen = random.Random(0)
    box = (0.1, 0.1, 0.2, 0.2)
    return [
        Page(
            number,
            595,
            842,
            0,
            tuple(Word(w, box, 0) for w in chosen.choices(vocabulary, k=WORDS_PER_PAGE)),
            "text layer",
        )
        for number in range(1, count + 1)
    ]


@dataclass(frozen=True)
class Times:
    """The seconds of one round."""

    clock: float
    processor: float


def time_of(work: Callable[[], object]) -> Times:
    clock, processor = time.perf_counter(), time.process_time()
    work()
    return Times(time.perf_counter() - clock, time.process_time() - processor)


def encode(encoder: EmbeddedEncoder, pages: list[Page], size: int, threads: int = 1) -> None:
    batches = [pages[start : start + size] for start in range(0, len(pages), size)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(encoder.encode_pages, batches))


def measure(pages: list[Page], rounds: int) -> tuple[int, dict[str, list[Times]]]:
    """Count the tokens of all pages, and time each round of each variant."""
    with tempfile.TemporaryDirectory() as folder:
        quantized = MiniLM(quantized_model(Path(folder)))
    original = MiniLM(original_model())
    encoder = EmbeddedEncoder()
    texts = [original.tokenize([word.text for word in page.words]).ids for page in pages]
    ways: dict[str, Callable[[], object]] = {
        "model as packaged": lambda: list(original.token_vectors(texts)),
        "quantized model": lambda: list(quantized.token_vectors(texts)),
        "`encode_pages`": lambda: encoder.encode_pages(pages),
        "`encode_pages`, batches of 1": lambda: encode(encoder, pages, 1),
        "`encode_pages`, batches of 8": lambda: encode(encoder, pages, 8),
        "`encode_pages`, batches of 8, two threads": lambda: encode(encoder, pages, 8, threads=2),
    }
    for work in ways.values():
        work()
    times: dict[str, list[Times]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, work in ways.items():
            times[name].append(time_of(work))
    return sum(len(ids) for ids in texts), times


def table(tokens: int, times: dict[str, list[Times]]) -> str:
    first = next(iter(times.values()))
    lines = [
        "| | tokens/s | ratio | tokens per second of processor time | ratio |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name, taken in times.items():
        pairs = list(zip(first, taken, strict=True))
        clock = statistics.median(a.clock / b.clock for a, b in pairs)
        processor = statistics.median(a.processor / b.processor for a, b in pairs)
        lines.append(
            f"| {name} | {tokens / min(t.clock for t in taken):,.0f} | {clock:.2f} "
            f"| {tokens / min(t.processor for t in taken):,.0f} | {processor:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pages", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    tokens, times = measure(random_pages(options.pages), options.rounds)
    report = (
        f"{options.pages} pages, {tokens:,} tokens, {usable_cores()} cores, "
        f"{options.rounds} rounds (best speed, median ratio)\n\n{table(tokens, times)}\n"
    )
    print(report)
    if options.save:
        options.save.write_text(report)


if __name__ == "__main__":
    main()
