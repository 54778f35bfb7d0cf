"""Read hostile documents, and count the outcomes.

    python -m benchmarks.hostile [--files 500] [--seed 0] [--save]

The documents are those of the fuzzer (`make fuzz`) and decompression bombs: small files that expand
to huge numbers of pages, pixels or bytes. Each must be read or raise a DocumentError.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from tests.documents.test_hostile import exponential_pdf, flate_bomb, pixel_bomb
from tests.documents.test_office import directory_bomb, xml_bomb
from tests.fuzz.reading import Case, Outcome, adopt_orphans, attempt

from benchmarks.tables import RELIABILITY, markdown_table, save_section

BOMBS: dict[str, Callable[[Path], Path]] = {
    "flate.pdf": flate_bomb,
    "exponential.pdf": exponential_pdf,
    "pixels.png": pixel_bomb,
    "directory.docx": directory_bomb,
    "paragraphs.docx": xml_bomb,
}
KINDS = {".pdf": "PDF", ".docx": "office", ".odt": "office", ".xlsx": "office", ".rtf": "office"}
SAVE = Path("build/hostile")


def main() -> None:
    parser = argparse.ArgumentParser(description="Read hostile documents.")
    parser.add_argument("--files", type=int, default=500, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", action="store_true", help="save to docs/reliability.md")
    options = parser.parse_args()
    adopt_orphans()
    outcomes: defaultdict[str, list[Outcome | None]] = defaultdict(list)
    for name, make in BOMBS.items():
        with tempfile.TemporaryDirectory() as folder:
            outcomes["bombs"].append(attempt(make(Path(folder) / name), SAVE / name))
    for number in range(options.files - len(BOMBS)):
        case = Case(options.seed, number)
        outcomes[KINDS.get(case.suffix, "images")].append(case.read(SAVE))
        if number % 25 == 0:
            print(f"{number} of {options.files}", file=sys.stderr, flush=True)
    outcomes["all"] = [outcome for kind in outcomes.values() for outcome in kind]
    table = markdown_table(
        ["documents", "files", "read", "refused", "anything else", "slowest"],
        [_row(kind, outcomes[kind]) for kind in ("PDF", "images", "office", "bombs", "all")],
    )
    print(table)
    if options.save:
        save_section("hostile", table, RELIABILITY)
    sys.exit(1 if None in outcomes["all"] else 0)


def _row(kind: str, outcomes: list[Outcome | None]) -> list[str]:
    done = [outcome for outcome in outcomes if outcome is not None]
    refused = sum(outcome.refused is not None for outcome in done)
    slowest = max((outcome.seconds for outcome in done), default=0.0)
    counts = len(outcomes), len(done) - refused, refused, len(outcomes) - len(done)
    return [kind, *map(str, counts), f"{slowest:.1f} s"]


if __name__ == "__main__":
    main()
