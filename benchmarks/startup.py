"""Measure the startup time of commands, compared with their essential imports.

    python -m benchmarks.startup [--rounds 7]

Each command and its reference run interleaved in separate processes, with a warm page cache. The
ratio is that of the medians.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.tables import markdown_table
from visar.samples import REPORT

QUESTION = "How long is the warranty on the Aurora 4 lantern?"
VISAR = [sys.executable, "-m", "visar"]
ENCODE = f"""
from visar.encoders.embedded import EmbeddedEncoder
EmbeddedEncoder().encode_query({QUESTION!r})
"""
# A command, its reference, and the maximum ratio.
CASES = (
    ("visar --version", ["--version"], "import typer, rich", 2.0),
    ("visar --help", ["--help"], "import typer, rich", 2.0),
    ("visar list", ["list"], "import numpy", 3.0),
    ("visar ask", ["ask", QUESTION], ENCODE, 1.5),
)


def seconds(command: list[str], environment: dict[str, str]) -> float:
    started = time.perf_counter()
    subprocess.run(  # noqa: S603 - commands of this file
        command, env=environment, check=True, stdout=subprocess.DEVNULL
    )
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "VISAR_INDEX": str(Path(folder) / "index")}
        # Compile first, because installed packages are compiled.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        seconds([*VISAR, "add", "--quiet", "--ocr", "never", str(REPORT)], environment)
        for name, command, script, bar in CASES:
            pairs = [
                (
                    seconds([*VISAR, *command], environment),
                    seconds([sys.executable, "-c", script], environment),
                )
                # The first round fills the caches.
                for _ in range(arguments.rounds + 1)
            ][1:]
            ours, theirs = (statistics.median(times) for times in zip(*pairs, strict=True))
            compared = "one question encoded" if script is ENCODE else script
            rows.append(
                [
                    *(name, f"{ours:.2f} s", compared, f"{theirs:.2f} s"),
                    *(f"{ours / theirs:.2f}", f"≤ {bar:g}"),
                ]
            )
    print(markdown_table(("command", "takes", "beside", "takes", "ratio", "aim"), rows))


if __name__ == "__main__":
    main()
