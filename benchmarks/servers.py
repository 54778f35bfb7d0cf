"""Kill servers of one index at random moments, and check their uploads.

    python -m benchmarks.servers [--trials 100] [--seed 0] [--save]

Two `visar serve` processes handle the uploads of one index. In each trial both get small documents
until one of them is killed (SIGKILL) at a random moment, possibly during startup, and restarted. At
the end, every acknowledged upload must be in the index once. No job may remain or have been done
twice, which a trigger in the queue counts.
"""

from __future__ import annotations

import contextlib
import random
import signal
import sqlite3
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
from tests.conftest import write_pdf
from tests.programs import server_address, start_server
from tests.server.service import FINISHED, client, send, serve_command, wait_until

from benchmarks.crash import print_trials
from visar.index import Index
from visar.ingest.jobs import JobStore

SERVERS = 2
MAX_UPLOADS = 2
MAX_PAGES = 3
LONGEST_LIFE = 4.0
LONGEST_PAUSE = 1.0
SECONDS_TO_START = 120.0
SECONDS_PER_JOB = 20.0
COUNT_CHANGES = """
CREATE TABLE changes (id TEXT, old TEXT, new TEXT);
CREATE TRIGGER changed AFTER UPDATE OF state ON jobs WHEN OLD.state != NEW.state
BEGIN INSERT INTO changes VALUES (NEW.id, OLD.state, NEW.state); END
"""


class Server:
    """A server that is killed and restarted."""

    def __init__(self, index: Path) -> None:
        self._index = index
        self.start()

    def start(self) -> None:
        self.process = start_server(*serve_command(self._index))
        self._address = ""

    def address(self) -> str:
        """Wait until the server runs; raise AssertionError if it exits before."""
        if not self._address:
            too_late = threading.Timer(SECONDS_TO_START, self.process.kill)
            too_late.start()
            try:
                self._address = server_address(self.process)
            finally:
                too_late.cancel()
        return self._address

    def end(self, how: signal.Signals) -> int:
        """Send a signal to its process; return the exit code."""
        with self.process:  # waits for it
            self.process.send_signal(how)
        return self.process.returncode


class Uploads:
    """Documents that were sent to servers, and those that were acknowledged."""

    def __init__(self, folder: Path) -> None:
        self.pages: dict[str, int] = {}
        """The number of pages by document name, including uploads that didn't arrive."""
        self.acknowledged: dict[str, str] = {}
        """The document name by job."""
        self._folder = folder

    def write(self, pages: int) -> Path:
        """Write the next document."""
        name = f"{len(self.pages)}.pdf"
        self.pages[name] = pages
        return write_pdf(self._folder / name, *(f"{name}, part {page}." for page in range(pages)))

    def send(
        self, server: Server, documents: Sequence[tuple[Path, float]], *, may_die: bool
    ) -> None:
        """Send documents, each after a pause, until the server dies."""
        # A server killed during startup closes the pipe with its address, and an incomplete
        # response doesn't acknowledge anything.
        expected = (AssertionError, ValueError, httpx2.TransportError) if may_die else ()
        with contextlib.suppress(*expected), client(server.address()) as http:
            for path, pause in documents:
                time.sleep(pause)
                response = send(http, path.read_bytes(), path.name)
                if response.status_code != 202:
                    raise SystemExit(f"{path.name} was refused: {response.text}")
                self.acknowledged[response.json()["id"]] = path.name


def trial(rng: random.Random, servers: Sequence[Server], uploads: Uploads) -> None:
    """Kill one of the servers while documents are sent to all, and restart it."""
    killed = rng.choice(servers)
    moment = time.monotonic() + rng.uniform(0, LONGEST_LIFE)
    with ThreadPoolExecutor(len(servers)) as pool:
        sending = []
        for server in servers:
            documents = [
                (uploads.write(rng.randint(1, MAX_PAGES)), rng.uniform(0, LONGEST_PAUSE))
                for _ in range(rng.randint(1, MAX_UPLOADS))
            ]
            sending.append(pool.submit(uploads.send, server, documents, may_die=server is killed))
        time.sleep(max(0.0, moment - time.monotonic()))
        killed.end(signal.SIGKILL)
        for one in sending:
            one.result()
    killed.start()


def check(index: Path, uploads: Uploads, changes: Sequence[tuple[str, str, str]]) -> None:
    """Compare jobs and index with the uploads; exit with an error if they differ."""
    done = Counter(job for job, _, new in changes if new == "done")
    if lost := uploads.acknowledged.keys() - done.keys():
        raise SystemExit(
            f"acknowledged, but not done: {[uploads.acknowledged[job] for job in lost]}"
        )
    if twice := [job for job, times in done.items() if times > 1]:
        raise SystemExit(f"done more than once: {twice}")
    with Index.open(index) as opened:
        found = sorted((document.name, document.pages) for document in opened.documents())
        jobs, problems = opened.jobs(), opened.verify()
    names = {name for name, _ in found}
    if len(names) < len(found) or not names >= {*uploads.acknowledged.values()}:
        raise SystemExit(f"the index has {found}")
    if wrong := [one for one in found if uploads.pages[one[0]] != one[1]]:
        raise SystemExit(f"documents with a wrong number of pages: {wrong}")
    if left := [job for job in jobs if job.state != "done"]:
        raise SystemExit(f"jobs that are not done: {left}")
    if problems or (files := [*(index / "jobs" / "uploads").iterdir()]):
        raise SystemExit(f"left in the index: {problems or files}")


def run(trials: int, seed: int, folder: Path) -> list[str]:
    """Run the trials; return a row of numbers, or exit with an error."""
    rng, uploads, index = random.Random(seed), Uploads(folder), folder / "index"
    Index.open(index).close()
    JobStore(index / "jobs").close()
    with contextlib.closing(sqlite3.connect(index / "jobs" / "jobs.sqlite")) as database:
        database.executescript(COUNT_CHANGES)
        servers = [Server(index) for _ in range(SERVERS)]
        try:
            for number in range(trials):
                trial(rng, servers, uploads)
                if sys.stderr.isatty() or number % 10 == 9:
                    print(f"{number + 1} of {trials} trials", file=sys.stderr)
            with client(servers[0].address()) as http:

                def all_ended() -> bool:
                    return all(job["state"] in FINISHED for job in http.get("jobs").json())

                wait_until(all_ended, "all jobs end", SECONDS_PER_JOB * len(uploads.pages))
            servers[1].address()
            codes = [server.end(signal.SIGTERM) for server in servers]
        finally:
            for server in servers:
                server.process.kill()
                server.process.wait()
        if any(codes):
            raise SystemExit(f"servers ended with {codes}")
        changes = database.execute("SELECT id, old, new FROM changes").fetchall()
    check(index, uploads, changes)
    interrupted = sum((old, new) == ("running", "waiting") for _, old, new in changes)
    sent = (trials, trials, len(uploads.pages), len(uploads.acknowledged), interrupted)
    return [*(f"{figure:,}" for figure in sent), "0", "0", "0"]


if __name__ == "__main__":
    header = (
        *("trials", "servers killed", "documents", "acknowledged", "jobs interrupted"),
        *("lost", "done twice", "left over or damaged"),
    )
    print_trials(run, header, 100, "killed servers")
