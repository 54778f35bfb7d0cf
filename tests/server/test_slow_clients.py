"""Slow clients don't block others: a small version of the benchmark."""

from __future__ import annotations

import asyncio
from pathlib import Path

from benchmarks.slow_clients import measure, serving

ASKERS = 4
# Half of them ask questions, which is more than the server has slots for.
SLOW = 180


def test_clients_that_send_a_byte_per_second_do_not_block_others(tmp_path: Path) -> None:
    with serving(tmp_path, ASKERS) as address:
        measured = asyncio.run(measure(address, 1, SLOW, ASKERS, ["slow body"]))
    assert measured.failed == 0
    assert len(measured.seconds) > 0
    assert measured.checks_answered == measured.checks > 0
