"""Make the sample report: ``python examples/make_report.py [FILE]``."""

from __future__ import annotations

import sys
from pathlib import Path

from harbour_light.document import build

from visar.samples import REPORT


def main(arguments: list[str]) -> None:
    path = Path(arguments[0]) if arguments else REPORT
    content = build()
    path.write_bytes(content)
    print(f"{path}: {len(content):,} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
