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
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from http import HTTPStatus
from types import FrameType
from typing import Any

from visar.errors import ServiceError, extra_needed
from visar.network import TOKEN_VARIABLE, is_address, is_loopback

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
SHORTEST_TOKEN = 16
# Concurrent requests with a body of one content type, each of which may be in memory.
MAX_REQUESTS = 8
# Concurrent requests without a body. They cost little, and a page of thumbnails makes many.
MAX_READS = 256
MAX_IDLE_CONNECTIONS = 256
# How long a body may keep the server waiting. Its bytes extend that, but never beyond this time.
SECONDS_PER_READ = 20.0
SLOWEST_BYTES_PER_SECOND = 10_000
# How long a client may take to send a header, or to read the next part of a response.
SECONDS_WITHOUT_PROGRESS = 60.0
SECONDS_TO_STOP = 30
_SERVER = "visar.server"


def answer_errors(
    app: Starlette,
    errors: Mapping[type[Exception], tuple[int, str]],
    message: Callable[[Exception], str] = str,
) -> None:
    """Make an application answer every exception with the response of `problem`."""

    async def respond(_: Request, error: Exception) -> JSONResponse:
        return problem(error, errors, message)

    for each in (Exception, FrameworkException, RequestValidationError, *errors):
        app.add_exception_handler(each, respond)


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
    """Return an exception that a route can raise to answer with an error."""
    return HTTPException(status, {"code": code, "message": message}, headers)


def first_mistake(errors: Sequence[Any]) -> str:
    """Describe the first of pydantic's errors, without the value, which may be long or secret."""
    return f"{'.'.join(map(str, errors[0]['loc']))}: {errors[0]['msg']}."


def _response(error: FrameworkException) -> JSONResponse:
    status, said = error.status_code, error.detail
    title = HTTPStatus(status).phrase
    code, detail = title.lower().replace(" ", "_"), f"{said}."
    if isinstance(said, dict):  # made by refusal(), not by the framework
        code, detail = said["code"], said["message"]
    content = {"type": "about:blank", "title": title, "status": status}
    content |= {"detail": detail, "code": code}
    return JSONResponse(content, status, error.headers, media_type=PROBLEM_TYPE)


class RequestGuard:
    """ASGI middleware that refuses requests before they cost anything.

    Parameters
    ----------
    token
        The token that ``Authorization: Bearer`` must carry; the cookie of `session_cookie` works
        too, since a web page's images are requested without headers. Without a token, Host must
        be localhost or a loopback address: a web page can point its own domain at this machine.
    max_bytes
        Maximum size of a body, by content type. Other types are refused; allow none that a web
        page can send to another site without permission.
    max_requests
        Maximum number of concurrent requests for each of these types, so that slow uploads leave
        room for questions. Requests without a body have room of their own, `MAX_READS`.
    max_streams
        Maximum number of open event streams, by path.
    private
        Prefix of the paths that need the token.
    hosts
        Host names that are accepted with a token, in lower case, in addition to localhost and IP
        addresses. None accepts all.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str | None,
        max_bytes: Mapping[str, int],
        max_requests: int = MAX_REQUESTS,
        max_streams: Mapping[str, int] | None = None,
        private: str = "/",
        hosts: Container[str] | None = None,
    ) -> None:
        self._app = app
        self._token = token
        self._max_bytes = max_bytes
        self._max_requests = max_requests
        self._max_streams = max_streams or {}
        self._private = private
        self._hosts = hosts
        self._running: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = str(scope["path"]).removeprefix(scope.get("root_path", ""))
        room, places, limit = "", MAX_READS, 0
        try:
            self._check_sender(HTTPConnection(scope), private=path.startswith(self._private))
            if path in self._max_streams:
                room, places = path, self._max_streams[path]
            elif scope["method"] in ("POST", "PUT", "PATCH"):
                room, limit = self._check_body(HTTPConnection(scope))
                places = self._max_requests
            if self._running[room] >= places:
                message = "Too many requests at once: try again in a moment."
                raise refusal(503, "busy", message, {"Retry-After": "2"})
        except HTTPException as error:
            # The server reads and discards the rest of the body, so that the response arrives.
            await _response(error)(scope, receive, send)
            return
        self._running[room] += 1
        try:
            with contextlib.suppress(ClientDisconnect):
                await self._app(scope, _limited(receive, limit), send)
        finally:
            self._running[room] -= 1

    def _check_sender(self, request: HTTPConnection, *, private: bool) -> None:
        host = request.headers.get("host", "")
        name = re.sub(r":\d*$", "", host).lower()
        if self._token is None:
            known = is_loopback(name)
        elif private and not _has_token(request, self._token):
            message = f"The token is missing or wrong: set {TOKEN_VARIABLE} to the server's."
            raise refusal(401, "token", message, {"WWW-Authenticate": "Bearer"})
        else:
            known = self._hosts is None or name in self._hosts
            known = known or is_loopback(name) or is_address(name)
        if not known:
            message = "This host name is not allowed. Without a token, only localhost is."
            raise refusal(403, "host", message)
        origin = request.headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            raise refusal(403, "origin", "Web pages of other sites are not answered.")

    def _check_body(self, request: HTTPConnection) -> tuple[str, int]:
        """Return the content type of the body, and its maximum size."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        limit = self._max_bytes.get(kind)
        if limit is None:
            allowed = " or ".join(self._max_bytes)
            raise refusal(415, "content_type", f"Send the content type {allowed}.")
        if int(request.headers.get("content-length", 0)) > limit:
            raise _too_large(limit)
        return kind, limit


def _has_token(request: HTTPConnection, token: str) -> bool:
    """Return whether a request has the token, or the cookie that stands for it."""
    bearer = request.headers.get("authorization", "").encode("latin-1")
    cookie = request.cookies.get(SESSION, "").encode()
    pairs = (bearer, f"Bearer {token}".encode()), (cookie, session_cookie(token).encode())
    return any(hmac.compare_digest(*pair) for pair in pairs)


def _limited(receive: Receive, limit: int) -> Receive:
    """Limit the size of a request's body, and the time that its client may keep us waiting."""
    complete, size, patience = False, 0, SECONDS_PER_READ

    async def limited() -> Message:
        nonlocal complete, size, patience
        if complete:  # all that can come now is the disconnect
            return await receive()
        started = time.monotonic()
        try:
            async with asyncio.timeout(patience):
                part = await receive()
        except TimeoutError:
            close = {"Connection": "close"}
            raise refusal(408, "timeout", "The body arrives too slowly.", close) from None
        length = len(part.get("body", b""))
        size += length
        if size > limit:
            raise _too_large(limit)
        patience += length / SLOWEST_BYTES_PER_SECOND - (time.monotonic() - started)
        patience = min(patience, SECONDS_PER_READ)
        complete = not part.get("more_body", False)
        return part

    return limited


def _too_large(limit: int) -> HTTPException:
    return refusal(413, "too_large", f"The body has more than {limit} bytes.")


def session_cookie(token: str) -> str:
    """Return the value of the cookie `SESSION`, which stands for a token without revealing it."""
    return hmac.new(token.encode(), b"visar session", "sha256").hexdigest()


def listen(host: str, port: int, *, token: str | None) -> socket.socket:
    """Open a socket to serve on.

    Raises ServiceError if other machines can reach it and the token has fewer than 16 characters,
    or if the address is in use or not one of this machine's.
    """
    if not is_loopback(host) and len(token or "") < SHORTEST_TOKEN:
        raise ServiceError(
            f"{host} can be reached by other machines: set {TOKEN_VARIABLE} in the environment, "
            f"for the server and for its users, to at least {SHORTEST_TOKEN} random "
            "characters, or listen on 127.0.0.1."
        )
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise ServiceError(
            f"Can't listen on {host}, port {port}: {error}. "
            "Choose another address with --host and --port."
        ) from error
    # Connections inherit it. Without it, the body of a small response waits for 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def http_server(
    app: ASGIApp, started: Callable[[], None] | None = None, *, proxies: str | None = None
) -> uvicorn.Server:
    """Return a server for an application: call its ``run(sockets=[listen(…)])``.

    ``started`` is called when it accepts requests. ``proxies`` are addresses and networks,
    separated by commas, whose X-Forwarded-For and X-Forwarded-Proto are trusted. After SIGINT or
    SIGTERM it finishes the responses in progress, and ``run`` returns; a second SIGINT skips that.
    """
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        log_config=None,
        proxy_headers=proxies is not None,
        forwarded_allow_ips=proxies,
        server_header=False,
        # asyncio accepts up to this many connections before it does anything else.
        backlog=128,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=SECONDS_TO_STOP,
    )
    return _Server(config, started)


def is_stopping(request: HTTPConnection) -> bool:
    """Return whether the `http_server` of a request is shutting down, so that streams must end."""
    server: uvicorn.Server | None = request.scope.get("state", {}).get(_SERVER)
    return server is not None and server.should_exit


class _Server(uvicorn.Server):
    """A server that closes stalled connections, and returns after a signal."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None] | None) -> None:
        super().__init__(config)
        self._when_started = started
        self._waiting: dict[tuple[object, ...], float] = {}

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.lifespan.state[_SERVER] = self
        await super().startup(sockets)
        if self._when_started is not None and self.started:
            self._when_started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        # uvicorn's own method raises the signal again at the end, which kills the process.
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Close connections whose client takes too long, and the oldest of too many idle ones.

        uvicorn's keep-alive timeout only covers connections that send nothing after a response.
        """
        now = time.monotonic()
        before, self._waiting = self._waiting, {}
        idle: dict[H11Protocol, float] = {}
        # All of them: see http_server().
        connections = [one for one in self.server_state.connections if isinstance(one, H11Protocol)]
        for connection in connections:
            unread = connection.transport.get_write_buffer_size()
            # There is no cycle before the first request.
            is_idle = getattr(connection.cycle, "response_complete", True)
            if is_idle or unread:
                state = connection, connection.cycle, unread
                since = self._waiting[state] = before.get(state, now)
                if is_idle:
                    idle[connection] = since
                if now - since > SECONDS_WITHOUT_PROGRESS:
                    connection.transport.abort()
        for connection in sorted(idle, key=idle.__getitem__, reverse=True)[MAX_IDLE_CONNECTIONS:]:
            connection.transport.abort()
        return await super().on_tick(counter)
