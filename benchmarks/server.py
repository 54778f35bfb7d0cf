"""A server under load: many clients ask while documents are added and removed.

    python -m benchmarks.server [--clients 32] [--seconds 60] [--questions 100] [--save]

Every client asks about a document that it knows, whose pages alone hold its name: a page of another
document is a fault, as is every answer of 500 and above. Then one client asks alone, and again
while a document of 500 pages is being added. The server is a process of its own, with the settings
of ``visar serve`` but for the rate of requests.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from socket import socket

import httpx2
from reportlab.pdfgen.canvas import Canvas

from benchmarks.ingest import made_text
from benchmarks.tables import markdown_table, save_section
from visar.client import Client
from visar.errors import ServiceError

DOCUMENTS = 8
PAGES = 6
LARGE_PAGES = 500
SECONDS_PER_ANSWER = 120.0
UNDER_LOAD = (
    "clients", "questions", "turned away", "faults", "pages of wrong documents",
    "documents added and removed", "median, ms", "95th, ms", "memory before, MB", "after, MB",
)  # fmt: skip
WHILE_ADDING = ("questions each", "median alone, ms", "median while adding, ms", "ratio")


@dataclass
class Told:
    """What the clients have been told."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    wrong_pages: int = 0


def serve(folder: str, listener: socket) -> None:
    from visar.index import Index
    from visar.server import Settings, create_app
    from visar.serving import http_server

    with Index.open(folder) as index:
        app = create_app(index, Settings(requests_per_minute=10_000_000))
        http_server(app).run(sockets=[listener])


@contextmanager
def running(folder: Path) -> Iterator[tuple[str, int]]:
    """A server in a process of its own; gives its address and process id."""
    from visar.serving import listen

    context = multiprocessing.get_context("spawn")
    with listen("127.0.0.1", 0, token=None) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        process = context.Process(target=serve, args=(str(folder), listener))
        process.start()
    try:
        yield address, process.pid or 0
    finally:
        process.terminate()
        process.join()


def resident(process: int) -> float:
    """The memory of a process in megabytes."""
    for line in Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1000
    raise SystemExit("The memory of a process is only told by Linux.")


def written(path: Path, name: str) -> Path:
    """A document whose every page says its name."""
    sheet = Canvas(str(path), invariant=True)
    for number in range(1, PAGES + 1):
        sheet.drawString(72, 700, f"The station {name} measures {number * 7} tons of salt a day.")
        sheet.drawString(72, 680, f"Report of {name}, part {number}, on wind, tide and repairs.")
        sheet.showPage()
    sheet.save()
    return path


def ask(http: httpx2.Client, document: str, name: str, told: Told) -> None:
    asked = {"question": f"How much salt does {name} measure?", "documents": [document]}
    started = time.perf_counter()
    response = http.post("search", json=asked)
    told.statuses[response.status_code] += 1
    if response.status_code == 429:
        time.sleep(float(response.headers["Retry-After"]) / 4)
    elif response.is_success:
        told.seconds.append(time.perf_counter() - started)
        pages = response.json()["pages"]
        told.wrong_pages += sum(
            hit["document"] != document or name not in hit["snippet"] for hit in pages
        )


def api(address: str) -> httpx2.Client:
    return httpx2.Client(base_url=f"{address}/api/v1/", timeout=SECONDS_PER_ANSWER, trust_env=False)


def under_load(folder: Path, clients: int, seconds: float) -> tuple[str, ...]:
    told = [Told() for _ in range(clients)]
    changes = 0
    with running(folder / "load") as (address, process), Client(address) as client:
        wait_for(client)
        names = [f"Kestrel{number}" for number in range(DOCUMENTS)]
        documents = [client.add(written(folder / f"{name}.pdf", name)).id for name in names]
        with api(address) as http:
            ask(http, documents[0], names[0], Told())
        before = resident(process)
        deadline = time.monotonic() + seconds

        def insist(number: int) -> None:
            with api(address) as http:
                for turn in itertools.count(number):
                    if time.monotonic() >= deadline:
                        return
                    place = turn % DOCUMENTS
                    ask(http, documents[place], names[place], told[number])

        threads = [threading.Thread(target=insist, args=(number,)) for number in range(clients)]
        for thread in threads:
            thread.start()
        while time.monotonic() < deadline:
            added = client.add(written(folder / "passing.pdf", f"Passing{changes}"))
            client.remove(added.id)
            changes += 1
        for thread in threads:
            thread.join()
        after = resident(process)
    times = sorted(1000 * each for one in told for each in one.seconds)
    statuses = sum((one.statuses for one in told), Counter[int]())
    faults = sum(count for status, count in statuses.items() if status not in (200, 429))
    return (
        str(clients),
        str(len(times)),
        str(statuses[429]),
        str(faults),
        str(sum(one.wrong_pages for one in told)),
        str(changes),
        f"{statistics.median(times):.0f}",
        f"{times[int(0.95 * (len(times) - 1))]:.0f}",
        f"{before:.0f}",
        f"{after:.0f}",
    )


def while_adding(folder: Path, questions: int) -> tuple[str, ...]:
    large = made_text(folder / "large.pdf", LARGE_PAGES)
    alone, beside = Told(), Told()
    with running(folder / "adding") as (address, _), Client(address) as client:
        wait_for(client)
        known = client.add(written(folder / "known.pdf", "Kestrel")).id
        with api(address) as http:
            ask(http, known, "Kestrel", Told())
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
    medians = [1000 * statistics.median(told.seconds) for told in (alone, beside)]
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
    parser.add_argument(
        "--save", action="store_true", help="write the tables to docs/benchmarks.md"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        measured = {
            "server under load": (
                UNDER_LOAD,
                under_load(Path(made), arguments.clients, arguments.seconds),
            ),
            "server while adding": (WHILE_ADDING, while_adding(Path(made), arguments.questions)),
        }
    for name, (header, row) in measured.items():
        table = markdown_table(header, [row])
        print(f"\n{name}\n\n{table}", flush=True)
        if arguments.save:
            save_section(name, table)


if __name__ == "__main__":
    main()
