"""A real HTTP server on loopback with scripted responses."""

from __future__ import annotations

import json
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

Step: TypeAlias = "bytes | Callable[[], None]"
"""Step of a stream: bytes to send, or a function to call."""


@dataclass(frozen=True)
class Asked:
    """A request that the server received."""

    method: str
    path: str
    headers: dict[str, str]
    """Headers by lowercase name."""
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Says:
    """A response: status, headers, and a body or the steps of a stream."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    stream: Iterable[Step] | None = None
    cut: bool = False
    """Whether to drop the connection: right away, or after the stream."""


Behaviour: TypeAlias = "Says | Callable[[Asked], Says]"


class Scripted:
    """A running server with its address and its requests."""

    def __init__(self, behaviours: Iterable[Behaviour]) -> None:
        self._behaviours = deque(behaviours)
        self.asked: list[Asked] = []
        self.left_alone = threading.Event()
        """Set when a client disconnects in the middle of a stream."""
        self.closing = threading.Event()
        self._server = ThreadingHTTPServer(
            ("127.0.0.1", 0), type("Scripted", (Handler,), {"script": self})
        )
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def then(self, behaviour: Behaviour) -> None:
        """Add responses to the script that need the server itself."""
        self._behaviours.append(behaviour)

    def pause(self) -> None:
        """Wait for a moment."""
        self.closing.wait(0.02)

    def stay_silent(self) -> None:
        """Send nothing until the end of the test."""
        self.closing.wait(30)

    def run(self) -> None:
        self._server.serve_forever(poll_interval=0.02)

    def stop(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()

    def next_answer(self, asked: Asked) -> Says:
        self.asked.append(asked)
        if not self._behaviours:
            # A status no test expects.
            return Says(418, body=b"the script is over")
        behaviour = self._behaviours.popleft()
        return behaviour if isinstance(behaviour, Says) else behaviour(asked)


class Handler(BaseHTTPRequestHandler):
    """Handler of requests to a scripted server."""

    protocol_version = "HTTP/1.1"
    script: Scripted

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        says = self.script.next_answer(Asked(self.command, self.path, headers, body))
        self.close_connection = True
        if says.cut and says.stream is None:
            return
        try:
            self._say(says)
        except OSError:
            self.script.left_alone.set()

    do_POST = do_GET  # noqa: N815

    def _say(self, says: Says) -> None:
        self.send_response(says.status)
        headers = {"Content-Type": "application/json", "Content-Length": str(len(says.body))}
        if says.stream is not None:
            headers = {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"}
        for name, value in (headers | {"Connection": "close"} | says.headers).items():
            self.send_header(name, value)
        self.end_headers()
        if says.stream is None:
            self.wfile.write(says.body)
            return
        for step in says.stream:
            if isinstance(step, bytes):
                self.wfile.write(b"%x\r\n%b\r\n" % (len(step), step))
                self.wfile.flush()
            else:
                step()
                self._notice_who_left()
        if not says.cut:
            self.wfile.write(b"0\r\n\r\n")

    def _notice_who_left(self) -> None:
        self.connection.setblocking(False)
        with suppress(BlockingIOError):
            if not self.connection.recv(1, socket.MSG_PEEK):
                raise ConnectionResetError
        self.connection.setblocking(True)

    def log_message(self, *_: Any) -> None:
        """Log nothing: requests are recorded."""


@contextmanager
def scripted(*behaviours: Behaviour) -> Iterator[Scripted]:
    """Run a server that answers requests with these responses, in order."""
    server = Scripted(behaviours)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()


def event(content: Any) -> bytes:
    """Return an event of a stream."""
    return b"data: " + json.dumps(content).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def delta(finish: str | None = None, **said: Any) -> bytes:
    """Return the event of a piece of a reply."""
    choice = {"index": 0, "delta": said, "finish_reason": finish}
    return event(
        {"id": "1", "object": "chat.completion.chunk", "model": "m-1", "choices": [choice]}
    )


def usage(read: int, written: int) -> bytes:
    """Return the event with the token counts of a reply."""
    cost = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    return event({"id": "1", "model": "m-1", "choices": [], "usage": cost})


def replies(*pieces: str, finish: str = "stop") -> Says:
    """Return a complete reply of these pieces."""
    begin = delta(role="assistant", content="")
    texts = [delta(content=piece) for piece in pieces]
    return Says(stream=[begin, *texts, delta(finish), usage(7, len(pieces)), DONE])


def streams(*steps: Step, cut: bool = False) -> Says:
    """Return a stream of these steps."""
    return Says(stream=steps, cut=cut)


def refuses(status: int, message: str, headers: dict[str, str] | None = None, **more: Any) -> Says:
    """Return an error in the format of OpenAI's API."""
    error = {"message": message, "type": "invalid_request_error"} | more
    return Says(status, headers or {}, json.dumps({"error": error}).encode())
