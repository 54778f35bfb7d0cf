"""Mutate documents and read them: each must be read or refused with a DocumentError.

    python -m tests.fuzz [--seconds 60] [--seed N] [--save build/fuzz]
    python -m tests.fuzz FILE ...

A file that fails is saved, with its seed and what happened; the second form reads it again.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from collections import Counter
from pathlib import Path

from tests.fuzz.reading import Case, adopt_orphans, read


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("files", nargs="*", type=Path, help="read these instead")
    parser.add_argument("--seconds", type=float, default=60, help="default: %(default)s")
    parser.add_argument("--seed", type=int, help="default: another one each time")
    parser.add_argument("--save", type=Path, default=Path("build/fuzz"), help="for files that fail")
    given = parser.parse_args()
    adopt_orphans()
    for path in given.files:
        print(f"{path}: {read(path)}")
    if given.files:
        return
    seed = random.SystemRandom().randrange(10**6) if given.seed is None else given.seed
    begin = told = time.monotonic()
    counts: Counter[str] = Counter()
    print(f"seed {seed}, {given.seconds:g} seconds", flush=True)
    for number in itertools.count():
        now = time.monotonic()
        if now - told > 10:
            told = now
            print(f"{now - begin:4.0f} s: {_told(counts)}", flush=True)
        if now - begin > given.seconds:
            break
        outcome = Case(seed, number).read(given.save)
        counts["failed" if outcome is None else "refused" if outcome.refused else "read"] += 1
    print(f"seed {seed}: {_told(counts)}")
    sys.exit(1 if counts["failed"] else 0)


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{counts[name]} {name}" for name in ("read", "refused", "failed"))


if __name__ == "__main__":
    main()
