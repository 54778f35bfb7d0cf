"""Measure a server under load, while documents are added and removed.

    python -m benchmarks.server [--clients 32] [--seconds 60] [--questions 100] [--storage] [--save]

Each client in turn asks about a document, about all documents, and for an explanation. Only a
document's own pages contain its name, so pages of other documents are faults. So are all statuses
except 200 and 429, because documents that clients ask about are never removed. Then a single client
asks, first undisturbed and then while a document of 500 pages is added. The server is a separate
process with the settings of ``visar serve``, except the rate limit.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from socket import socket

import httpx2
from reportlab.pdfgen.canvas import Canvas
from tests.storage import BUCKET, object_storage

from benchmarks.ingest import create_text
from benchmarks.tables import RELIABILITY, markdown_line, save_section
from visar.client import Client
from visar.errors import ServiceError
from visar.index import Index

DOCUMENTS = 8
PAGES = 6
LARGE_PAGES = 500
SECONDS_PER_ANSWER = 120.0
KINDS = ("one document", "everything", "explanation")
UNDER_LOAD = (
    "index", "clients", "about one document", "about everything", "explanations", "turned away",
    "faults", "documents added and removed", "median, ms", "95th, ms", "memory before, MB",
    "after, MB",
)  # fmt: skip
WHILE_ADDING = ("questions each", "median alone, ms", "median while adding, ms", "ratio")


@dataclass
class Responses:
    """The responses that clients received."""

    seconds: list[float] = field(default_factory=list)
    answered: Counter[str] = field(default_factory=Counter)
    turned_away: int = 0
    faults: int = 0


def serve(location: str, listener: socket) -> None:
    from visar.server import Settings, create_app
    from visar.serving import http_server

    with Index.open(location) as index:
        app = create_app(index, Settings(requests_per_minute=10_000_000))
        http_server(app).run(sockets=[listener])


@contextlib.contextmanager
def running(location: str) -> Iterator[tuple[str, int]]:
    """Run a server in another process; yield its address and process id."""
    from visar.serving import listen

    context = multiprocessing.get_context("spawn")
    with listen("127.0.0.1", 0, token=None) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        process = context.Process(target=serve, args=(location, listener))
        process.start()
    try:
        yield address, process.pid or 0
    finally:
        process.terminate()
        process.join()


def resident(process: int) -> float:
    """Return the memory of a process in megabytes."""
    for line in Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1000
    raise SystemExit("Can't measure memory: /proc is missing. Run this on Linux.")


def written(path: Path, name: str) -> Path:
    """Write a document with its name on each page."""
    sheet = Canvas(str(path), invariant=True)
    for number in range(1, PAGES + 1):
        sheet.drawString(72, 700, f"The station {name} measures {number * 7} tons of salt a day.")
        sheet.drawString(72, 680, f"Report of {name}, part {number}, on wind, tide and repairs.")
        sheet.showPage()
    sheet.save()
    return path


def ask(
    http: httpx2.Client, document: str, name: str, responses: Responses, kind: str = KINDS[0]
) -> None:
    asked: dict[str, object] = {"question": f"How much salt does {name} measure?"}
    if kind == "one document":
        asked["documents"] = [document]
    started = time.perf_counter()
    response = http.post("explain" if kind == "explanation" else "search", json=asked)
    if response.status_code == 429:
        responses.turned_away += 1
        time.sleep(float(response.headers["Retry-After"]) / 4)
    elif not response.is_success:
        responses.faults += 1
        print(f"{kind}: {response.status_code} {response.text}", file=sys.stderr)
    else:
        responses.answered[kind] += 1
        responses.seconds.append(time.perf_counter() - started)
        if kind == "one document":
            hits = response.json()["pages"]
            responses.faults += any(
                hit["document"] != document or name not in hit["snippet"] for hit in hits
            )


def api(address: str) -> httpx2.Client:
    return httpx2.Client(base_url=f"{address}/api/v1/", timeout=SECONDS_PER_ANSWER, trust_env=False)


def under_load(folder: Path, location: str, clients: int, seconds: float) -> tuple[str, ...]:
    responses = [Responses() for _ in range(clients)]
    changes = 0
    with running(location) as (address, process), Client(address) as client:
        wait_for(client)
        names = [f"Kestrel{number}" for number in range(DOCUMENTS)]
        documents = [client.add(written(folder / f"{name}.pdf", name)).id for name in names]
        with api(address) as http:
            ask(http, documents[0], names[0], Responses())
        before = resident(process)
        deadline = time.monotonic() + seconds

        def insist(number: int) -> None:
            with api(address) as http:
                for turn in itertools.count(number):
                    if time.monotonic() >= deadline:
                        return
                    n, kind = turn % DOCUMENTS, KINDS[turn % len(KINDS)]
                    ask(http, documents[n], names[n], responses[number], kind)

        threads = [threading.Thread(target=insist, args=(number,)) for number in range(clients)]
        for thread in threads:
            thread.start()
        # Another process uploads documents as fast as possible, through the server.
        with Index.open(location) as index:
            while time.monotonic() < deadline:
                added = index.add(written(folder / "passing.pdf", f"Passing{changes}"))
                client.remove(added.id)
                changes += 1
        for thread in threads:
            thread.join()
        after = resident(process)
    times = sorted(1000 * each for one in responses for each in one.seconds)
    answered = sum((one.answered for one in responses), Counter[str]())
    return (
        "object storage" if "://" in location else "a folder",
        str(clients),
        *(str(answered[kind]) for kind in KINDS),
        str(sum(one.turned_away for one in responses)),
        str(sum(one.faults for one in responses)),
        str(changes),
        f"{statistics.median(times):.0f}",
        f"{times[int(0.95 * (len(times) - 1))]:.0f}",
        f"{before:.0f}",
        f"{after:.0f}",
    )


def while_adding(folder: Path, questions: int) -> tuple[str, ...]:
    large = create_text(folder / "large.pdf", LARGE_PAGES)
    alone, beside = Responses(), Responses()
    with running(str(folder / "adding")) as (address, _), Client(address) as client:
        wait_for(client)
        known = client.add(written(folder / "known.pdf", "Kestrel")).id
        with api(address) as http:
            ask(http, known, "Kestrel", Responses())
            for _ in range(questions):
                ask(http, known, "Kestrel", alone)
            job = http.post(
                "documents",
                params={"name": "large.pdf"},
                content=large.read_bytes(),
                headers={"Content-Type": "application/octet-stream"},
            ).json()["id"]
            while not (state := http.get(f"jobs/{job}").json())["pages_done"]:
                if state["state"] not in ("waiting", "running"):
                    raise SystemExit(f"The large document was not added: {state['reason']}")
                time.sleep(0.1)
            for _ in range(questions):
                ask(http, known, "Kestrel", beside)
            if http.get(f"jobs/{job}").json()["state"] != "running":
                raise SystemExit("The large document was added too soon: fewer --questions.")
            http.post(f"jobs/{job}/cancel", json={})
    medians = [1000 * statistics.median(responses.seconds) for responses in (alone, beside)]
    return (
        str(questions),
        f"{medians[0]:.0f}",
        f"{medians[1]:.0f}",
        f"{medians[1] / medians[0]:.1f}×",
    )


def wait_for(client: Client) -> None:
    for _ in range(300):
        try:
            client.documents()
        except ServiceError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit("The server does not start.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--storage", action="store_true", help="also with an index in S3 (moto)")
    parser.add_argument(
        "--save", action="store_true", help="write the numbers to docs/reliability.md"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made, contextlib.ExitStack() as stack:
        folder, locations = Path(made), [str(Path(made, "load"))]
        if arguments.storage:
            os.environ |= stack.enter_context(object_storage())
            os.environ["XDG_CACHE_HOME"] = os.environ["XDG_DATA_HOME"] = made
            locations.append(f"{BUCKET}/load")
        loads = [
            under_load(folder, location, arguments.clients, arguments.seconds)
            for location in locations
        ]
        measured = {
            "server under load": (UNDER_LOAD, loads),
            "server while adding": (WHILE_ADDING, [while_adding(folder, arguments.questions)]),
        }
    for name, (header, rows) in measured.items():
        lines = "\n\n".join(markdown_line(header, row) for row in rows)
        print(f"\n{name}\n\n{lines}", flush=True)
        if arguments.save:
            save_section(name, lines, RELIABILITY)


if __name__ == "__main__":
    main()
