"""HTTP servers: access control, limits, error responses, and the server itself.

Every error is an RFC 9457 problem: ``{"type", "title", "status", "detail"}``, and a stable ``code``
for programs.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import re
import signal
import socket
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from http import HTTPStatus
from ipaddress import ip_address, ip_network
from operator import itemgetter
from types import FrameType
from typing import Any, TypeAlias

from visar.errors import ServiceError, extra_needed
from visar.network import TOKEN_VARIABLE, is_ip_address, is_loopback, session_key, token_hash

with extra_needed("A server", "server"):
    import uvicorn
    from fastapi import HTTPException, Request
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import JSONResponse
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException as FrameworkException
    from starlette.requests import ClientDisconnect, HTTPConnection
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
    from uvicorn.protocols.http.h11_impl import H11Protocol

PROBLEM_TYPE = "application/problem+json"
SESSION = "visar_session"
GRANT = "visar.grant"
"""Scope key for the access that the token of a request grants; see `RequestGuard`."""
MIN_TOKEN_LENGTH = 16
# Concurrent requests with a body of one content type. Each body may be in memory.
MAX_REQUESTS = 8
# Concurrent requests without a body. They cost little, and a page of thumbnails makes many.
MAX_READS = 256
MAX_IDLE_CONNECTIONS = 256
# Concurrent connections from one client address.
MAX_PER_CLIENT = 64
# How long a client may keep the server waiting: to send a header or a body, or to read a response.
# Each byte transferred makes up for some of the wait, at SLOWEST_BYTES_PER_SECOND.
SECONDS_TO_WAIT = 20.0
SLOWEST_BYTES_PER_SECOND = 10_000
# A client that keeps the server waiting for longer than this can lose its slot to another.
SECONDS_OF_GRACE = 0.25
SECONDS_TO_STOP = 30
_SERVER = "visar.server"
Grants: TypeAlias = Mapping[str, object]
"""Access of each token, by the `visar.network.token_hash` of the token and of its session key."""


def answer_errors(
    app: Starlette,
    errors: Mapping[type[Exception], tuple[int, str]],
    message: Callable[[Exception], str] = str,
) -> None:
    """Make an application respond to every exception with `problem`."""

    async def respond(_: Request, error: Exception) -> JSONResponse:
        return problem(error, errors, message)

    for kind in (Exception, FrameworkException, RequestValidationError, *errors):
        app.add_exception_handler(kind, respond)


def problem(
    error: Exception,
    errors: Mapping[type[Exception], tuple[int, str]] | None = None,
    message: Callable[[Exception], str] = str,
) -> JSONResponse:
    """Return the response to a request that failed.

    ``errors`` maps expected exceptions to a status and a code, and ``message`` returns their text.
    Other exceptions are not quoted, since they may contain private data; the server logs them.
    """
    for kind, (status, code) in (errors or {}).items():
        if isinstance(error, kind):
            retry = {"Retry-After": "2"} if status in (429, 503) else None
            return _response(refusal(status, code, message(error), retry))
    if isinstance(error, RequestValidationError):
        return _response(refusal(422, "invalid", first_mistake(error.errors())))
    if isinstance(error, FrameworkException):
        return _response(error)
    return _response(refusal(500, "failed", "The server failed. See its log for the reason."))


def refusal(
    status: int, code: str, message: str, headers: dict[str, str] | None = None
) -> HTTPException:
    """Return an exception for routes to raise, which becomes an error response."""
    return HTTPException(status, {"code": code, "message": message}, headers)


def first_mistake(errors: Sequence[Any]) -> str:
    """Describe the first of pydantic's errors, without the value, which may be long or secret."""
    message = str(errors[0]["msg"]).removeprefix("Value error, ").removesuffix(".")
    return f"{'.'.join(map(str, errors[0]['loc']))}: {message}."


def _response(error: FrameworkException) -> JSONResponse:
    status = error.status_code
    title = HTTPStatus(status).phrase
    code, detail = title.lower().replace(" ", "_"), f"{error.detail}."
    if isinstance(error.detail, dict):  # from refusal(), not from the framework
        code, detail = error.detail["code"], error.detail["message"]
    content = {"type": "about:blank", "title": title, "status": status}
    content |= {"detail": detail, "code": code}
    return JSONResponse(content, status, error.headers, media_type=PROBLEM_TYPE)


class RequestGuard:
    """ASGI middleware that checks access and limits before a request reaches the application.

    Parameters
    ----------
    token
        Token that clients must send as ``Authorization: Bearer``. Its `session_key` in the cookie
        `SESSION` works too, since browsers request images without that header. If there are no
        tokens at all, Host must be localhost or a loopback address, because a web page can point
        its own domain at this machine.
    stored
        Function that returns further tokens, or None if no token is needed. The access that a
        request's token grants is in its scope as `GRANT`: True for ``token``, and None if no token
        is needed.
    max_bytes
        Maximum size of a body, by content type, or by path and content type for a path with its
        own limit. Other types are refused. Don't allow types that a web page can send to another
        site without permission.
    max_requests
        Maximum number of concurrent requests for each of these types, so that slow uploads leave
        room for questions. Requests without a body have a limit of their own, `MAX_READS`. If all
        slots are taken, the slowest client is disconnected, or the new one gets 503.
    max_by_path
        Maximum number of concurrent requests to paths with a limit of their own.
    private
        Prefixes of the paths that need a token.
    hosts
        Host names, in lower case, to accept with a token in addition to localhost and IP addresses.
        None accepts all.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str | None,
        stored: Callable[[], Awaitable[Grants | None]] | None = None,
        max_bytes: Mapping[str, int],
        max_requests: int = MAX_REQUESTS,
        max_by_path: Mapping[str, int] | None = None,
        private: tuple[str, ...] = ("/",),
        hosts: Container[str] | None = None,
    ) -> None:
        self._app = app
        self._own: Grants | None = None
        if token is not None:
            self._own = dict.fromkeys(map(token_hash, (token, session_key(token))), True)
        self._stored = stored
        self._max_bytes = max_bytes
        self._max_requests = max_requests
        self._max_by_path = max_by_path or {}
        self._private = private
        self._hosts = hosts
        self._running: dict[str, set[_Transfer]] = defaultdict(set)
        self._clients: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = str(scope["path"]).removeprefix(scope.get("root_path", ""))
        # Behind a trusted proxy, this is the proxy's client: see http_server().
        client = scope["client"][0] if scope.get("client") else ""
        group, slots, limit = "", MAX_READS, 0
        try:
            private = path.startswith(self._private)
            await self._check_sender(HTTPConnection(scope), private=private)
            if path in self._max_by_path:
                group, slots = path, self._max_by_path[path]
            elif scope["method"] in ("POST", "PUT", "PATCH"):
                group, limit = self._check_body(HTTPConnection(scope), path)
                slots = self._max_requests if group else MAX_READS
            if self._clients[client] >= MAX_PER_CLIENT:
                raise _busy(429, "Too many concurrent requests from your address")
            self._check_slots(group, slots)
        except HTTPException as error:
            # The server reads and discards the rest of the body, so that the response arrives.
            await _response(error)(scope, receive, send)
            return
        transfer = _Transfer(scope, receive, send, limit)
        self._running[group].add(transfer)
        self._clients[client] += 1
        try:
            with contextlib.suppress(ClientDisconnect):
                await self._app(scope, transfer.receive, transfer.send)
        finally:
            self._running[group].discard(transfer)
            self._clients[client] -= 1
            if not self._clients[client]:
                del self._clients[client]

    def _check_slots(self, group: str, slots: int) -> None:
        """If all slots are taken, disconnect the slowest client; refuse if none is slow."""
        running = self._running[group]
        if len(running) < slots:
            return
        slowest = max(running, key=_Transfer.delay)
        if slowest.delay() < SECONDS_OF_GRACE or not slowest.disconnect():
            raise _busy(503, "Too many concurrent requests")
        running.discard(slowest)

    async def _check_sender(self, request: HTTPConnection, *, private: bool) -> None:
        host = request.headers.get("host", "")
        name = re.sub(r":\d*$", "", host).lower()
        grants, grant = self._own, _grant_of(request, self._own)
        if self._stored is not None and (grants is None or (private and grant is None)):
            stored = await self._stored()
            grants = stored if grants is None else {**grants, **(stored or {})}
            grant = _grant_of(request, stored)
        if grants is None or grant is not None:
            request.scope[GRANT] = grant
        if grants is None:
            is_allowed = is_loopback(name)
        elif private and grant is None:
            message = f"Missing or wrong token: set {TOKEN_VARIABLE} to the server's token."
            raise refusal(401, "token", message, {"WWW-Authenticate": "Bearer"})
        else:
            is_allowed = self._hosts is None or name in self._hosts
            is_allowed = is_allowed or is_loopback(name) or is_ip_address(name)
        if not is_allowed:
            message = "This host name isn't allowed. Without a token, only localhost is."
            raise refusal(403, "host", message)
        origin = request.headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            raise refusal(403, "origin", "Requests from web pages of other sites aren't allowed.")

    def _check_body(self, request: HTTPConnection, path: str) -> tuple[str, int]:
        """Return the body's key in ``max_bytes`` and its limit, or "" and 0 if there is no body."""
        headers = request.headers
        size = int(headers.get("content-length", 0))
        if not size and not {"content-type", "transfer-encoding"} & set(headers):
            return "", 0
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        group = f"{path} {kind}" if f"{path} {kind}" in self._max_bytes else kind
        limit = self._max_bytes.get(group)
        if limit is None:
            allowed = " or ".join(key for key in self._max_bytes if " " not in key)
            message = f"Content type {kind!r:.60} isn't supported: send {allowed}."
            raise refusal(415, "content_type", message)
        if size > limit:
            raise _too_large(limit)
        return group, limit


def _grant_of(request: HTTPConnection, grants: Grants | None) -> object:
    """Return the access that a request's token or session cookie grants; None if it has neither."""
    secret = bearer_token(request) or request.cookies.get(SESSION)
    if not (secret and grants):
        return None
    given, result = token_hash(secret), None
    # Compare with all, each in constant time, so that the time taken reveals nothing.
    for known, grant in grants.items():
        if hmac.compare_digest(known, given):
            result = grant
    return result


def bearer_token(request: HTTPConnection) -> str:
    """Return the token in the Authorization header, or ""."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    # Starlette reads headers as Latin-1.
    return token.encode("latin-1").decode("utf-8", "replace") if kind == "Bearer" else ""


class _Transfer:
    """A request and its response, with limits on the size of the body and the client's delay."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, limit: int) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._limit = limit
        self._size = 0
        self._complete = False
        self._delay = 0.0
        self._waiting_since: float | None = None

    def delay(self) -> float:
        """Return how long the client has kept the server waiting, less the time for its bytes."""
        since = self._waiting_since
        return self._delay + (0.0 if since is None else time.monotonic() - since)

    def disconnect(self) -> bool:
        """Close the connection; return False if the server can't."""
        server = _server_of(self._scope)
        return server is not None and server.disconnect(self._scope)

    async def receive(self) -> Message:
        if self._complete:  # only a disconnect can follow
            return await self._receive()
        self._waiting_since = time.monotonic()
        try:
            async with asyncio.timeout(SECONDS_TO_WAIT - self._delay):
                part = await self._receive()
        except TimeoutError:
            close = {"Connection": "close"}
            message = "The request body arrived too slowly. Try again."
            raise refusal(408, "timeout", message, close) from None
        self._size += self._finish_waiting(part)
        if self._size > self._limit:
            raise _too_large(self._limit)
        self._complete = not part.get("more_body", False)
        return part

    async def send(self, message: Message) -> None:
        # This waits while the client doesn't read, until `_Server.on_tick` closes the connection.
        self._waiting_since = time.monotonic()
        await self._send(message)
        self._finish_waiting(message)

    def _finish_waiting(self, message: Message) -> int:
        length = len(message.get("body", b""))
        self._delay = max(0.0, self.delay() - length / SLOWEST_BYTES_PER_SECOND)
        self._waiting_since = None
        return length


def _busy(status: int, what: str) -> HTTPException:
    return refusal(status, "busy", f"{what}: try again in a moment.", {"Retry-After": "2"})


def _too_large(limit: int) -> HTTPException:
    return refusal(413, "too_large", f"The request body has more than {limit} bytes.")


def listen(host: str, port: int, *, token: str | None, has_stored: bool = False) -> socket.socket:
    """Open a socket to serve on.

    Raises ServiceError if the address isn't available. If other machines can reach it, it also does
    so for a token with fewer than 16 characters, or if there is neither a token nor a stored one.
    """
    is_safe = has_stored if token is None else len(token) >= MIN_TOKEN_LENGTH
    if not (is_safe or is_loopback(host)):
        raise ServiceError(
            f"Other machines can reach {host}: set {TOKEN_VARIABLE} in the environment, for the "
            f"server and its users, to at least {MIN_TOKEN_LENGTH} random characters, or listen on "
            "127.0.0.1."
        )
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise ServiceError(
            f"Can't listen on {host}, port {port}: {error}. "
            "Choose another address with --host and --port."
        ) from error
    # Connections inherit this. Without it, the body of a small response is delayed by 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def http_server(
    app: ASGIApp, started: Callable[[], None] | None = None, *, proxies: str | None = None
) -> uvicorn.Server:
    """Return a server for an application: call its ``run(sockets=[listen(…)])``.

    ``started`` is called when it accepts requests. ``proxies`` is a comma-separated list of
    addresses and networks whose X-Forwarded-For and X-Forwarded-Proto headers are trusted. After
    SIGINT or SIGTERM, ``run`` finishes the responses in progress and returns; a second SIGINT makes
    it return immediately.
    """
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        log_config=None,
        proxy_headers=proxies is not None,
        forwarded_allow_ips=proxies,
        server_header=False,
        # Room for the longest metadata of an upload: 12 bytes for each character.
        h11_max_incomplete_event_size=160_000,
        # asyncio accepts up to this many connections in a row.
        backlog=128,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=SECONDS_TO_STOP,
    )
    return _Server(config, started, proxies)


def is_stopping(request: HTTPConnection) -> bool:
    """Return whether the `http_server` of a request is shutting down. Streams must then end."""
    server = _server_of(request.scope)
    return server is not None and server.should_exit


def _server_of(scope: Scope) -> _Server | None:
    server: _Server | None = scope.get("state", {}).get(_SERVER)
    return server


class _Server(uvicorn.Server):
    """A server that closes stalled connections, and returns after a signal.

    `RequestGuard` limits requests. This limits connections without a request, and those whose
    response isn't read.
    """

    def __init__(
        self, config: uvicorn.Config, started: Callable[[], None] | None, proxies: str | None
    ) -> None:
        super().__init__(config)
        self._on_start = started
        self._proxies = [ip_network(proxy.strip()) for proxy in (proxies or "").split(",") if proxy]
        self._waiting: dict[tuple[H11Protocol, object], tuple[float, int]] = {}

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.lifespan.state[_SERVER] = self
        await super().startup(sockets)
        if self._on_start is not None and self.started:
            self._on_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        # uvicorn's own method raises the signal again at the end, which kills the process.
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    def disconnect(self, scope: Scope) -> bool:
        """Close the connection of a request; return False if there is none."""
        for connection in self._connections():
            if connection.scope is scope:
                connection.transport.abort()
                return True
        return False

    async def on_tick(self, counter: int) -> bool:
        """Close connections whose client is too slow, and the oldest if too many are idle.

        uvicorn's keep-alive timeout only covers connections that send nothing after a response.
        """
        now = time.monotonic()
        before, self._waiting = self._waiting, {}
        idle: list[tuple[float, H11Protocol]] = []
        clients: Counter[str] = Counter()
        for connection in self._connections():
            unread = connection.transport.get_write_buffer_size()
            # The cycle is None before the first request.
            is_idle = getattr(connection.cycle, "response_complete", True)
            if is_idle or unread:
                state = connection, connection.cycle
                since, last_unread = before.get(state, (now, unread))
                since += max(0, last_unread - unread) / SLOWEST_BYTES_PER_SECOND
                self._waiting[state] = min(since, now), unread
                if now - since > SECONDS_TO_WAIT:
                    connection.transport.abort()
                    continue
            if is_idle:
                idle.append((since, connection))
            else:
                clients[_address(connection)] += 1
        kept = 0
        for since, connection in sorted(idle, key=itemgetter(0), reverse=True):
            client = _address(connection)
            has_room = clients[client] < MAX_PER_CLIENT or self._is_proxy(client)
            # A new client needs time to send its header, and a refused one to read the response.
            if kept < MAX_IDLE_CONNECTIONS and (has_room or now - since < SECONDS_OF_GRACE):
                clients[client] += 1
                kept += 1
            else:
                connection.transport.close()
        return await super().on_tick(counter)

    def _connections(self) -> list[H11Protocol]:
        # They are all of this class: see http_server().
        return [one for one in self.server_state.connections if isinstance(one, H11Protocol)]

    def _is_proxy(self, client: str) -> bool:
        return any(ip_address(client) in network for network in self._proxies)


def _address(connection: H11Protocol) -> str:
    return connection.client[0] if connection.client else ""
