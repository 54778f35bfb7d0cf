"""Kill processes that change an index in object storage at random moments.

    python -m benchmarks.crash_storage [--trials 100] [--seed 0] [--save]

Like `benchmarks.crash`, with an index in a local S3 storage (moto). Each trial starts new processes
and kills them (SIGKILL) up to `LONGEST_LIFE` seconds after their first change starts.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from tests.storage import BUCKET, object_storage

from benchmarks.crash import Expected, print_trials
from visar.store import open_store

PROCESSES = 2
LONGEST_LIFE = 1.5
LOCATION = f"{BUCKET}/killed"
CHILD = "import sys; from benchmarks.crash import child; child(*{arguments!r}, 1)"


def start(worker: int, seed: int) -> subprocess.Popen[str]:
    """Start a process that changes the index."""
    code = CHILD.format(arguments=(LOCATION, worker, seed))
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def trial(rng: random.Random, expected: Expected) -> Counter[str]:
    """Let processes work and kill them; return counts of what they did."""
    expected.begin()
    processes = [start(worker, rng.getrandbits(32)) for worker in range(rng.randint(1, PROCESSES))]
    counted = Counter[str](trials=1, killed=len(processes))
    begun = []
    for process in processes:
        assert process.stdout is not None  # noqa: S101 - asked for
        begun.append(process.stdout.readline())
    time.sleep(rng.uniform(0, LONGEST_LIFE))
    for process in processes:
        process.kill()
    for process, first in zip(processes, begun, strict=True):
        said, _ = process.communicate()
        lines = f"{first}{said}".splitlines()
        if not lines or lines[-1].startswith("error"):
            raise SystemExit(lines[-1] if lines else "A process did not start.")
        expected.take(lines)
        counted["operations"] += sum(line.startswith("done") for line in lines)
        counted["interrupted"] += lines[-1].startswith("begin")
    return counted


def run(trials: int, seed: int, folder: Path) -> list[str]:
    """Run the trials; return a row of numbers, or exit with an error."""
    rng, expected, counted = random.Random(seed), Expected(), Counter[str]()
    with object_storage() as variables:
        os.environ |= {**variables, "XDG_CACHE_HOME": str(folder)}
        open_store(LOCATION).close()
        for number in range(trials):
            counted += trial(rng, expected)
            store = open_store(LOCATION)
            expected.check(store)
            counted["documents compared"] += len(store.documents())
            store.close()
            if sys.stderr.isatty() or number % 10 == 9:
                print(f"{number + 1} of {trials} trials", file=sys.stderr)
    names = ("trials", "killed", "operations", "interrupted", "documents compared")
    return [*(f"{counted[name]:,}" for name in names), "0"]


if __name__ == "__main__":
    header = (
        *("trials", "processes killed", "operations done", "killed in the middle of one"),
        *("documents compared", "lost or damaged"),
    )
    print_trials(run, header, 100, "crashes in object storage")
