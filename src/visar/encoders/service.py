"""Any encoder as a small HTTP service.

``GET /v1/encoder`` says which encoder it is, ``POST /v1/pages`` and ``POST /v1/query`` encode;
``visar.encoders.wire`` has the messages. The standard library serves it: the encoder works on one
request at a time whatever the server, so there is nothing to gain from more, and a machine with a
GPU needs nothing beyond the encoder.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import logging
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6, SHUT_WR
from socketserver import TCPServer
from typing import Any

from visar._version import __version__
from visar.encoders import wire
from visar.encoders.protocol import Encoder
from visar.errors import EmptyQuestion, MalformedMessage, ServiceError, VisarError
from visar.network import DEFAULT_PORT, TOKEN_VARIABLE, is_loopback

SHORTEST_TOKEN = 16
# Requests that are read, wait for the encoder or are encoded, each with its message in memory.
MAX_REQUESTS = 8
MAX_CONNECTIONS = 64
SECONDS_TO_SEND = 120.0
SECONDS_TO_STOP = 30.0
_SECONDS_PER_READ = 20.0
_SECONDS_TO_LINGER = 2.0
_RETRY_AFTER = "2"

_log = logging.getLogger(__name__)


class EncoderService:
    """Serves one encoder until it is closed.

    Off loopback it needs a token; whoever asks must send it as ``Authorization: Bearer …``.
    """

    def __init__(
        self,
        encoder: Encoder,
        *,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        token: str | None = None,
        max_body: int = wire.MAX_BODY,
    ) -> None:
        _check_token(host, token)
        description = wire.Description(
            wire.Identity.of(encoder), encoder.reads, encoder.weak_match, max_body
        )
        try:
            self._server = _Server(host, port, _Endpoints(encoder, description), token)
        except (OSError, OverflowError) as error:
            raise ServiceError(
                f"The service cannot listen on {host}, port {port}: {error}. "
                "Choose another with --host and --port."
            ) from error

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self._server.server_address[:2]
        name = f"[{host!s}]" if self._server.address_family == AF_INET6 else str(host)
        return f"http://{name}:{port}"

    def serve(self) -> None:
        """Answer requests, until another thread calls :meth:`stop` or an exception ends it."""
        self._server.serve_forever(poll_interval=0.1)

    def stop(self) -> None:
        """Make :meth:`serve` return. Only from another thread."""
        self._server.shutdown()

    def close(self) -> None:
        """Take no more requests, and wait for those that are being answered."""
        self._server.server_close()
        self._server.wait(SECONDS_TO_STOP)


def _check_token(host: str, token: str | None) -> None:
    if is_loopback(host):
        return
    if not token:
        raise ServiceError(
            f"{host} can be reached by other machines: set a token in the environment "
            f"({TOKEN_VARIABLE}) for the service and for those who use it, or listen on 127.0.0.1."
        )
    if len(token) < SHORTEST_TOKEN:
        raise ServiceError(
            f"The token in {TOKEN_VARIABLE} can be guessed: "
            f"take at least {SHORTEST_TOKEN} random characters."
        )


class _Refusal(Exception):
    """An answer that is no success."""

    def __init__(self, status: HTTPStatus, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class _Endpoints:
    """What the service answers, apart from HTTP."""

    def __init__(self, encoder: Encoder, description: wire.Description) -> None:
        self.description = description
        self._encoder = encoder
        # Models are seldom made for several threads, and never faster by them.
        self._lock = threading.Lock()

    def pages(self, body: bytes) -> bytes:
        pages, images = wire.unpack_pages(body)
        if len(images) != (len(pages) if self.description.reads == "image" else 0):
            raise MalformedMessage(
                f"the encoder {self._encoder.name} reads {self.description.reads}: "
                "send images with all pages if it reads images, and with none if not"
            )
        with self._lock:
            embeddings = self._encoder.encode_pages(pages, images)
        if len(embeddings) != len(pages):
            raise RuntimeError(f"{len(embeddings)} embeddings for {len(pages)} pages")
        return self._sound(lambda: wire.pack_embeddings(self.description.identity, embeddings))

    def query(self, body: bytes) -> bytes:
        question = wire.unpack_question(body)
        with self._lock:
            vectors = self._encoder.encode_query(question)
        return self._sound(lambda: wire.pack_query(self.description.identity, vectors))

    def _sound(self, pack: Callable[[], bytes]) -> bytes:
        """Vectors that may not be sent are the encoder's mistake, not that of who asked."""
        try:
            return pack()
        except MalformedMessage as error:
            raise VisarError(f"The encoder {self._encoder.name} failed: {error}.") from error


class _Server(ThreadingHTTPServer):
    # A thread whose connection is silent must not keep the program from ending; those with a
    # request are waited for.
    daemon_threads = True

    def __init__(self, host: str, port: int, endpoints: _Endpoints, token: str | None) -> None:
        self.address_family = AF_INET6 if ":" in host else AF_INET
        self.endpoints = endpoints
        self.token = token
        self.requests = threading.BoundedSemaphore(MAX_REQUESTS)
        self._connections = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        # Not HTTPServer's, which asks the name service who we are.
        TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._connections.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # the system gives no more threads
            self._connections.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        _log.info("a connection broke", exc_info=True)

    def wait(self, seconds: float) -> None:
        """Wait until no request is being answered."""
        deadline = time.monotonic() + seconds
        for _ in range(MAX_REQUESTS):
            self.requests.acquire(timeout=max(0.0, deadline - time.monotonic()))


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _SECONDS_PER_READ
    protocol_version = "HTTP/1.1"
    server_version = f"visar/{__version__}"
    sys_version = ""
    _unread = False

    def do_GET(self) -> None:
        self._respond(self._get)

    def do_POST(self) -> None:
        self._unread = True
        self._respond(self._post)

    def _respond(self, answer: Callable[[], tuple[str, bytes]]) -> None:
        """Answer with what was asked for, or with one clear mistake."""
        try:
            self._admit()
            kind, body = answer()
        except Exception as error:
            self._refuse(_as_refusal(error))
        else:
            self._send(HTTPStatus.OK, kind, body)

    def _get(self) -> tuple[str, bytes]:
        if self.path != "/v1/encoder":
            raise self._unknown()
        return "application/json", self.server.endpoints.description.to_json()

    def _post(self) -> tuple[str, bytes]:
        endpoints = self.server.endpoints
        actions = {"/v1/pages": endpoints.pages, "/v1/query": endpoints.query}
        if self.path not in actions:
            raise self._unknown()
        length = self._length()
        if not self.server.requests.acquire(blocking=False):
            raise _Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "busy", "Too many requests at once.")
        try:
            return wire.CONTENT_TYPE, actions[self.path](self._body(length))
        finally:
            self.server.requests.release()

    def _admit(self) -> None:
        """Turn away who may not ask."""
        if self.server.token is not None:
            given = self.headers.get("Authorization", "").encode("utf-8", "replace")
            if not hmac.compare_digest(given, f"Bearer {self.server.token}".encode()):
                message = f"The token is missing or wrong: set {TOKEN_VARIABLE} to the service's."
                raise _Refusal(HTTPStatus.UNAUTHORIZED, "token", message)
        elif not is_loopback(_hostname(self.headers.get("Host", ""))):
            # A web page may have made its own name mean this machine.
            message = "Without a token the service answers to the name localhost alone."
            raise _Refusal(HTTPStatus.FORBIDDEN, "host", message)

    def _length(self) -> int:
        # A web page cannot send this type to another site without being asked first.
        if self.headers.get_content_type() != wire.CONTENT_TYPE:
            message = f"Send messages as {wire.CONTENT_TYPE}."
            raise _Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "content_type", message)
        said = self.headers.get("Content-Length", "")
        if not (said.isascii() and said.isdigit()) or "Transfer-Encoding" in self.headers:
            message = "Say how long the message is (Content-Length)."
            raise _Refusal(HTTPStatus.LENGTH_REQUIRED, "length", message)
        limit = self.server.endpoints.description.max_body
        if len(said) > len(str(limit)) or int(said) > limit:
            message = f"The message is longer than {limit} bytes: send fewer pages at once."
            raise _Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_large", message)
        return int(said)

    def _body(self, length: int) -> bytes:
        deadline = time.monotonic() + SECONDS_TO_SEND
        body = bytearray()
        try:
            while len(body) < length:
                part = self.rfile.read1(min(length - len(body), 2**20))
                if not part or time.monotonic() > deadline:
                    break
                body += part
        except TimeoutError:
            pass
        if len(body) < length:
            message = f"Only {len(body)} of {length} bytes have arrived in time."
            raise _Refusal(HTTPStatus.REQUEST_TIMEOUT, "timeout", message)
        self._unread = False
        return bytes(body)

    def _unknown(self) -> _Refusal:
        message = "There is GET /v1/encoder, POST /v1/pages and POST /v1/query."
        return _Refusal(HTTPStatus.NOT_FOUND, "not_found", message)

    def _refuse(self, refusal: _Refusal) -> None:
        values = {"error": {"code": refusal.code, "message": str(refusal)}}
        self._send(refusal.status, "application/json", json.dumps(values).encode())
        if self._unread:
            self._linger()

    def _linger(self) -> None:
        """Take in for a moment what is still being sent: who is cut off may not read the answer."""
        deadline = time.monotonic() + _SECONDS_TO_LINGER
        with contextlib.suppress(OSError):
            self.wfile.flush()
            self.connection.shutdown(SHUT_WR)
            self.connection.settimeout(_SECONDS_TO_LINGER)
            while time.monotonic() < deadline and self.connection.recv(2**20):
                pass

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        # One request for each connection: what a refused one still sends cannot be taken for
        # another.
        self.close_connection = True
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            self.send_header("Retry-After", _RETRY_AFTER)
        if status == HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        self.end_headers()
        self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what the standard library refuses like everything else."""
        status = HTTPStatus(code)
        text = f"{message or status.phrase}."
        self.request_version = self.protocol_version
        self._refuse(_Refusal(status, "http", explain or text))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log the request line and the status; headers, where tokens are, never."""
        _log.info("%s %s", self.address_string(), format % args)


def _as_refusal(error: Exception) -> _Refusal:
    if isinstance(error, _Refusal):
        return error
    if isinstance(error, EmptyQuestion):
        return _Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, "empty_question", str(error))
    if isinstance(error, MalformedMessage):
        message = f"The message is malformed: {error}."
        return _Refusal(HTTPStatus.BAD_REQUEST, "malformed", message)
    _log.error("the encoder failed", exc_info=error)
    # What others say may hold what was sent, or where files lie: that stays in the log.
    message = (
        str(error)
        if isinstance(error, VisarError)
        else "The encoder failed; the log of the service says how."
    )
    return _Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "encoder", message)


def _hostname(host: str) -> str:
    """The name in a Host header, without the port."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host
