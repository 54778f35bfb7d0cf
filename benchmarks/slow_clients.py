"""Measure how slow clients affect a server's latency for other clients.

    python -m benchmarks.slow_clients [--seconds 60] [--slow 200] [--askers 32] [--save]

Fast clients ask a real ``visar serve``, first alone and then for the same time beside slow
clients: a quarter of these send headers byte by byte, a quarter the body, a quarter never read
their response, and a quarter are idle. Disconnected clients reconnect. All clients are local;
slow ones use the addresses 127.0.0.2 to 127.0.0.6, because the server limits connections per
address. Every 0.1 seconds, /health or /ready is requested on a new connection.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
from PIL import Image
from reportlab.pdfgen.canvas import Canvas

from benchmarks.server import api
from benchmarks.tables import RELIABILITY, markdown_table, save_section
from visar.index import Index

KINDS = ("slow header", "slow body", "never reads", "idle")
ADDRESSES = 5
SECONDS_PER_BYTE = 1.0
SECONDS_PER_CHECK = 0.1
SECONDS_BEFORE_RETURN = 0.1
SECONDS_TO_GATHER = 2.0
SIDE = 2_000
HEADER = (
    "clients", "questions answered", "failed", "median, ms", "99th, ms", "health checks answered",
    "slow clients cut",
)  # fmt: skip


@dataclass
class Measurement:
    """The responses and latencies in one part of the time."""

    seconds: list[float] = field(default_factory=list)
    failed: int = 0
    checks: int = 0
    checks_answered: int = 0
    cuts: int = 0

    def times(self) -> tuple[float, float]:
        """Return the median and 99th percentile of the latency, in milliseconds."""
        times = sorted(1000 * each for each in self.seconds) or [float("nan")]
        return statistics.median(times), times[int(0.99 * (len(times) - 1))]


def written(path: Path) -> Path:
    """Write a document of noise that exceeds the buffers of a connection."""
    noise = path.with_suffix(".png")
    Image.frombytes("L", (SIDE, SIDE), os.urandom(SIDE * SIDE)).save(noise)
    sheet = Canvas(str(path))
    sheet.drawImage(str(noise), 72, 72, 200, 200)
    sheet.drawString(72, 700, "The warranty of the Aurora lantern is seven years.")
    sheet.save()
    return path


@contextlib.contextmanager
def serving(folder: Path, askers: int) -> Iterator[str]:
    """Run ``visar serve`` on an index with a document; yield its address."""
    with Index.open(folder / "index") as index:
        index.add(written(folder / "lantern.pdf"))
    log = folder / "log"
    with (
        log.open("w") as errors,
        subprocess.Popen(  # noqa: S603 - our own program
            [
                *(sys.executable, "-m", "visar", "serve", "--index", str(folder / "index")),
                *("--port", "0", "--max-questions", str(askers)),
                # Disable the rate limit, which isn't measured here.
                *("--requests-per-minute", "1000000"),
            ],
            stderr=errors,
            env=os.environ | {"COLUMNS": "500"},
        ) as process,
    ):
        try:
            while (found := re.search(r"http://localhost(:\d+)\n", log.read_text())) is None:
                if process.poll() is not None:
                    raise SystemExit(f"The server does not start: {log.read_text()}")
                time.sleep(SECONDS_PER_CHECK)
            yield f"http://127.0.0.1{found[1]}"
        finally:
            process.kill()


async def be_slow(kind: str, number: int, address: tuple[str, int], measured: Measurement) -> None:
    """Keep the server waiting repeatedly."""
    source = f"127.0.0.{2 + number % ADDRESSES}"
    host = f"Host: {address[0]}\r\n"
    route, content = (
        ("search", "json") if number % 2 else ("documents?name=slow.pdf", "octet-stream")
    )
    body = f"Content-Type: application/{content}\r\nContent-Length: 10000\r\n"
    begin = {
        "slow header": f"GET /api/v1/health HTTP/1.1\r\n{host}",
        "slow body": f"POST /api/v1/{route} HTTP/1.1\r\n{host}{body}\r\n",
        "never reads": f"GET /api/v1/documents/lantern.pdf/original HTTP/1.1\r\n{host}\r\n",
        "idle": "",
    }[kind]
    loop = asyncio.get_running_loop()
    while True:
        with socket.socket() as line, contextlib.suppress(OSError):
            line.setblocking(False)
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            line.bind((source, 0))
            await loop.sock_connect(line, address)
            await loop.sock_sendall(line, begin.encode())
            if kind in ("slow header", "slow body"):
                while True:
                    await loop.sock_sendall(line, b"x")
                    await asyncio.sleep(SECONDS_PER_BYTE)
            while kind == "never reads" and not line.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                await asyncio.sleep(SECONDS_PER_CHECK)
            if kind == "idle":
                await loop.sock_recv(line, 1)
        measured.cuts += 1
        await asyncio.sleep(SECONDS_BEFORE_RETURN)


def insist(address: str, deadline: float, measured: Measurement) -> None:
    """Ask until the deadline."""
    with api(address) as http:
        while time.monotonic() < deadline:
            started = time.perf_counter()
            try:
                asked = {"question": "How long is the warranty of the Aurora lantern?"}
                http.post("search", json=asked).raise_for_status()
            except httpx2.HTTPError:
                measured.failed += 1
            else:
                measured.seconds.append(time.perf_counter() - started)


def check(address: str, deadline: float, measured: Measurement) -> None:
    """Request the server's state until the deadline, on a new connection each time."""
    for route in itertools.cycle(("health", "ready")):
        if time.monotonic() >= deadline:
            return
        measured.checks += 1
        with contextlib.suppress(httpx2.HTTPError), api(address) as http:
            measured.checks_answered += http.get(route).status_code == 200
        time.sleep(SECONDS_PER_CHECK)


async def measure(
    address: str, seconds: float, slow: int, askers: int, kinds: Sequence[str] = KINDS
) -> Measurement:
    """Ask for some time, together with a number of slow clients."""
    measured = Measurement()
    place = address.removeprefix("http://").split(":")
    crowd = [
        asyncio.create_task(be_slow(kind, number, (place[0], int(place[1])), measured))
        for number, kind in zip(range(slow), itertools.cycle(kinds), strict=False)
    ]
    await asyncio.sleep(SECONDS_TO_GATHER if slow else 0)
    deadline = time.monotonic() + seconds
    clients = [threading.Thread(target=check, args=(address, deadline, measured))]
    clients += [
        threading.Thread(target=insist, args=(address, deadline, measured)) for _ in range(askers)
    ]
    for client in clients:
        client.start()
    while any(client.is_alive() for client in clients):
        await asyncio.sleep(SECONDS_PER_CHECK)
    for task in crowd:
        task.cancel()
    await asyncio.gather(*crowd, return_exceptions=True)
    return measured


def rows(alone: Measurement, beside: Measurement, slow: int) -> Iterator[tuple[str, ...]]:
    for name, one in (("alone", alone), (f"beside {slow} slow ones", beside)):
        yield (
            name,
            str(len(one.seconds)),
            str(one.failed),
            *(f"{time:.0f}" for time in one.times()),
            f"{one.checks_answered} of {one.checks}",
            str(one.cuts),
        )
    ratios = (b / a for a, b in zip(alone.times(), beside.times(), strict=True))
    yield ("ratio", "", "", *(f"{ratio:.1f}×" for ratio in ratios), "", "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60, help="of each part")
    parser.add_argument("--slow", type=int, default=200)
    parser.add_argument("--askers", type=int, default=32)
    parser.add_argument("--save", action="store_true", help="save to docs/reliability.md")
    arguments = parser.parse_args()
    seconds = arguments.seconds
    with tempfile.TemporaryDirectory() as made, serving(Path(made), arguments.askers) as address:
        asyncio.run(measure(address, 1, 0, arguments.askers))  # models are loaded
        alone = asyncio.run(measure(address, seconds, 0, arguments.askers))
        beside = asyncio.run(measure(address, seconds, arguments.slow, arguments.askers))
    table = markdown_table(HEADER, rows(alone, beside, arguments.slow))
    print(table, flush=True)
    if arguments.save:
        save_section("slow clients", table, RELIABILITY)


if __name__ == "__main__":
    main()
