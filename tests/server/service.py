"""Real servers on localhost, in a thread or as a program, and helpers for requests to them."""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import uvicorn

from tests.programs import server_program
from visar.index import Index
from visar.server import Settings, create_app
from visar.serving import http_server, listen

SECONDS = 120.0
QUESTION = "How long is the warranty of the Aurora lantern?"
TOKEN = "correct-horse-battery-staple"  # noqa: S105
FINISHED = ("done", "failed", "cancelled")


def serving(
    index: Index, settings: Settings | None = None
) -> contextlib.AbstractContextManager[str]:
    """Serve an index from a thread; yields the server's address."""
    settings = settings or Settings(requests_per_minute=1_000_000)
    return running(http_server(create_app(index, settings)))


@contextlib.contextmanager
def running(server: uvicorn.Server) -> Iterator[str]:
    """Run a server in a thread; yields its address."""
    listener = listen("127.0.0.1", 0, token=None)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive(), "the server starts")
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def client(address: str, **options: Any) -> httpx2.Client:
    """Return an HTTP client for the API of a server."""
    options = {"timeout": SECONDS, "trust_env": False} | options
    return httpx2.Client(base_url=f"{address}/api/v1/", **options)


def upload(http: httpx2.Client, path: Path, name: str | None = None, **params: str) -> Any:
    """Upload a file and return the job."""
    response = send(http, path.read_bytes(), name or path.name, **params)
    assert response.status_code == 202, response.text
    return response.json()


def send(http: httpx2.Client, content: Any, name: str, **params: str) -> httpx2.Response:
    """Upload bytes under a name and return the response, successful or not."""
    headers = {"Content-Type": "application/octet-stream"}
    return http.post("documents", params={"name": name, **params}, content=content, headers=headers)


def ask(http: httpx2.Client, route: str, **body: Any) -> Any:
    """Send the default question to a route and return the body of the response."""
    response = http.post(route, json={"question": QUESTION, **body})
    assert response.status_code == 200, response.text
    return response.json()


def assert_problem(response: httpx2.Response, status: int, code: str) -> str:
    """Check that a response is an RFC 9457 problem without local paths, and return its detail."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert set(problem) == {"type", "title", "status", "detail", "code"}
    assert (problem["type"], problem["status"], problem["code"]) == ("about:blank", status, code)
    for secret in ("Traceback", "/tmp", "/home", "site-packages", TOKEN):  # noqa: S108
        assert secret not in response.text
    return str(problem["detail"])


def finished(http: httpx2.Client, id_: str) -> Any:
    """Wait until a job is finished, and return it."""
    job: Any = None

    def is_finished() -> bool:
        nonlocal job
        job = http.get(f"jobs/{id_}").json()
        return job["state"] in FINISHED

    wait_until(is_finished, "the job ends")
    return job


def wait_until(condition: Any, what: str, seconds: float = SECONDS) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    pause = 0.05
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"Waited for {seconds:.0f} s until {what}.")
        time.sleep(pause)
        # Wait longer each time, because of the server's rate limit.
        pause = min(0.5, 1.1 * pause)


def events(response: httpx2.Response) -> Iterator[tuple[str, str]]:
    """Yield the names and data of the server-sent events in a response."""
    return ((one.event, one.data) for one in httpx2.EventSource(response, max_event_size=None))


def serve_command(index: Path | str, *options: str) -> tuple[str, ...]:
    """Return the arguments of ``visar serve``, with a free port and without a rate limit."""
    usual = ("--index", str(index), "--port", "0", "--requests-per-minute", "1000000")
    return ("serve", *usual, *options)


def program(
    index: Path | str, *options: str, **variables: str
) -> contextlib.AbstractContextManager[tuple[str, subprocess.Popen[str]]]:
    """Run ``visar serve``; yields its address and process, and kills it at the end."""
    return server_program(*serve_command(index, *options), **variables)
