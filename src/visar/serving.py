"""HTTP servers: who may ask, how much and how many at once, and what errors look like.

Every error is a problem of RFC 9457: ``{"type", "title", "status", "detail"}``, and ``code``, which
is for programs and never changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import re
import signal
import socket
import threading
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import Future
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from queue import SimpleQueue
from types import FrameType
from typing import Any, TypeVar

from visar.errors import ServiceError, extra_needed
from visar.network import TOKEN_VARIABLE, is_address, is_loopback

with extra_needed("A server", "server"):
    import uvicorn
    from fastapi import FastAPI, HTTPException, Request
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import JSONResponse
    from starlette.exceptions import HTTPException as FrameworkException
    from starlette.requests import ClientDisconnect
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
    from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

PROBLEM_TYPE = "application/problem+json"
SESSION = "visar_session"
SHORTEST_TOKEN = 16
MAX_CONNECTIONS = 64
# Requests that are read, wait or are answered, each with its body in memory.
MAX_REQUESTS = 8
SECONDS_PER_READ = 20.0
SECONDS_PER_MESSAGE = 120.0
# Large bodies have more time, as long as they arrive at least so fast; whose body comes more slowly
# loses its place when others need it.
SLOWEST_BYTES_PER_SECOND = 50_000
SECONDS_TO_STOP = 30
# What a route sets in its scope if its answer ends with the client alone.
ENDLESS = "visar.endless"
_T = TypeVar("_T")


def create_app(
    *,
    token: str | None,
    max_bytes: Mapping[str, int],
    errors: Mapping[type[Exception], tuple[int, str]],
) -> FastAPI:
    """Make an application without routes.

    Parameters
    ----------
    token, max_bytes
        As `RequestGuard` takes them.
    errors
        Exceptions whose message is the answer, with its status and code. Of all others, which may
        speak of what was sent or where files lie, the answer says nothing; the server logs them.
    """
    app = FastAPI(openapi_url=None)
    app.add_middleware(RequestGuard, token=token, max_bytes=max_bytes, max_requests=MAX_REQUESTS)

    answer_errors(app, errors)
    return app


def answer_errors(
    app: FastAPI,
    errors: Mapping[type[Exception], tuple[int, str]],
    message: Callable[[Exception], str] = str,
) -> None:
    """Let an application answer errors as `problem` does."""

    async def respond(_: Request, error: Exception) -> JSONResponse:
        return problem(error, errors, message)

    for each in (Exception, FrameworkException, RequestValidationError, *errors):
        app.add_exception_handler(each, respond)


def problem(
    error: Exception,
    errors: Mapping[type[Exception], tuple[int, str]] | None = None,
    message: Callable[[Exception], str] = str,
) -> JSONResponse:
    """The answer to a request that failed.

    ``errors`` are those of `create_app`; ``message`` gives what is said of one of them.
    """
    for kind, (status, code) in (errors or {}).items():
        if isinstance(error, kind):
            retry = {"Retry-After": "2"} if status in (429, 503) else None
            return _response(refusal(status, code, message(error), retry))
    if isinstance(error, RequestValidationError):
        return _response(refusal(422, "invalid", first_mistake(error.errors())))
    if isinstance(error, FrameworkException):
        return _response(error)
    return _response(refusal(500, "failed", "The service failed; its log says how."))


def refusal(
    status: int, code: str, message: str, headers: dict[str, str] | None = None
) -> HTTPException:
    """An exception that is answered with an error."""
    return HTTPException(status, {"code": code, "message": message}, headers)


def first_mistake(errors: Sequence[Any]) -> str:
    """What is wrong, of the errors of pydantic, without the value, which may be long."""
    return f"{'.'.join(map(str, errors[0]['loc']))}: {errors[0]['msg']}."


class RequestGuard:
    """ASGI middleware that turns requests away before they cost anything.

    Parameters
    ----------
    token
        What ``Authorization: Bearer`` must give. Without one only requests whose Host is localhost
        or a loopback address are answered: a web page may have made its own name mean this machine.
    max_bytes
        The content types of bodies that are taken, none of which a web page can send to another
        site unasked, and the size of each.
    max_requests
        How many requests with bodies are read, wait or are answered at once. For another, the one
        whose body is furthest behind `SLOWEST_BYTES_PER_SECOND` is given up, if any is.
    private
        The beginning of the paths that need the token; others hold nothing secret.
    hosts
        The names that a Host may have with a token, in lower case, beside localhost and addresses;
        any by default.

    The cookie of `session_cookie` does as well as the token: the pictures of a web page come
    without headers. A request that a web page of another site makes is refused, by its Origin.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str | None,
        max_bytes: Mapping[str, int],
        max_requests: int = MAX_REQUESTS,
        private: str = "/",
        hosts: Container[str] | None = None,
    ) -> None:
        self._app = app
        self._expected = None if token is None else f"Bearer {token}".encode()
        self._cookie = None if token is None else session_cookie(token)
        self._private = private
        self._hosts = hosts
        self._max_bytes = max_bytes
        self._max_requests = max_requests
        self._bodies: set[_Body] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        counted = scope["method"] in ("POST", "PUT", "PATCH")
        try:
            self._admit(headers, private=_path(scope).startswith(self._private))
            limit = self._limit(headers) if counted else 0
        except HTTPException as error:
            # The server reads and drops what is still being sent, so that the answer arrives.
            await _response(error)(scope, receive, send)
            return
        body = _Body(receive, limit)
        if counted:
            self._bodies.add(body)
        try:
            with contextlib.suppress(ClientDisconnect):
                await self._app(scope, body.receive, send)
        finally:
            self._bodies.discard(body)

    def _admit(self, headers: dict[bytes, bytes], *, private: bool) -> None:
        host = re.sub(r":\d*$", "", headers.get(b"host", b"").decode("latin-1")).lower()
        if self._expected is not None:
            if private and not self._knows(headers):
                message = f"The token is missing or wrong: set {TOKEN_VARIABLE} to the service's."
                raise refusal(401, "token", message, {"WWW-Authenticate": "Bearer"})
            known = self._hosts is None or is_loopback(host) or is_address(host)
            if not known and host not in (self._hosts or ()):
                raise refusal(403, "host", "The service does not answer to this name.")
        elif not is_loopback(host):
            raise refusal(403, "host", "Without a token the service answers to localhost alone.")
        origin = headers.get(b"origin")
        if origin is not None and origin.partition(b"://")[2] != headers.get(b"host"):
            raise refusal(403, "origin", "Web pages of other sites are not answered.")

    def _knows(self, headers: dict[bytes, bytes]) -> bool:
        """Whether a request has the token, or the cookie that was given for it."""
        if hmac.compare_digest(headers.get(b"authorization", b""), self._expected or b""):
            return True
        cookies = SimpleCookie()
        with contextlib.suppress(CookieError):
            cookies.load(headers.get(b"cookie", b"").decode("latin-1"))
        given = cookies[SESSION].value if SESSION in cookies else ""
        return hmac.compare_digest(given.encode(), (self._cookie or "").encode())

    def _limit(self, headers: dict[bytes, bytes]) -> int:
        """How many bytes the body may have."""
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        limit = self._max_bytes.get(kind.decode("latin-1"))
        if limit is None:
            allowed = " or ".join(self._max_bytes)
            raise refusal(415, "content_type", f"Send the content type {allowed}.")
        if int(headers.get(b"content-length", b"0")) > limit:
            raise _too_large(limit)
        if len(self._bodies) >= self._max_requests:
            slowest = max(self._bodies, key=_Body.bytes_behind)
            if slowest.bytes_behind() <= 0:
                raise refusal(503, "busy", "Too many requests at once.", {"Retry-After": "2"})
            self._bodies.remove(slowest)
            slowest.give_up()
        return limit


def _path(scope: Scope) -> str:
    """The path of a request within the application, wherever that is mounted."""
    return str(scope["path"]).removeprefix(scope.get("root_path", ""))


def session_cookie(token: str) -> str:
    """The value of the cookie `SESSION` that stands for a token, and does not tell it."""
    return hmac.new(token.encode(), b"visar session", "sha256").hexdigest()


def listen(host: str, port: int, *, token: str | None) -> socket.socket:
    """Open a socket to serve on.

    Raises ServiceError if other machines can reach it and the token has less than 16 characters,
    or if the address is taken or not this machine's.
    """
    if not is_loopback(host) and len(token or "") < SHORTEST_TOKEN:
        raise ServiceError(
            f"{host} can be reached by other machines: set {TOKEN_VARIABLE} in the environment, "
            f"for the service and for those who use it, to at least {SHORTEST_TOKEN} random "
            "characters, or listen on 127.0.0.1."
        )
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise ServiceError(
            f"The service cannot listen on {host}, port {port}: {error}. "
            "Choose another with --host and --port."
        ) from error


def http_server(app: ASGIApp, started: Callable[[], None] | None = None) -> uvicorn.Server:
    """A server for an application: call its ``run(sockets=[listen(…)])``.

    ``started`` is called when it answers. After SIGINT or SIGTERM it finishes the answers under
    way, and ``run`` returns; a second SIGINT does not wait for them.
    """
    config = uvicorn.Config(
        app,
        http=_Connection,
        ws="none",
        log_config=None,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=SECONDS_TO_STOP,
    )
    return _Server(config, started)


class _Server(uvicorn.Server):
    """A server that a signal ends as any other end of its work: the process goes on."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None] | None) -> None:
        super().__init__(config)
        self._when_started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._when_started is not None and self.started:
            self._when_started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        # uvicorn's own raises the signal again once all has ended, which kills the process.
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True


class Worker:
    """A thread that calls functions one after the other.

    It does not keep a process from ending, as those of the usual executors do: a model may work
    for minutes.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    async def call(self, function: Callable[[], _T]) -> _T:
        """Give what the function returns, or raise what it raises."""
        future: Future[_T] = Future()
        future.set_running_or_notify_cancel()
        self._calls.put((future, function))
        return await asyncio.wrap_future(future)

    def _work(self) -> None:
        while True:
            future, function = self._calls.get()
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)
            del future, function  # what they hold is not needed while there is nothing to do


class _Connection(H11Protocol):
    """A connection that is cut if it is idle for long, or when others need its place."""

    deadline: asyncio.TimerHandle
    cycle: RequestResponseCycle | None  # type: ignore[assignment]  # None before the first request

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # As asyncio does for listeners of its own; else the body of an answer waits for 40 ms.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.start_idling()
        if len(self.connections) > MAX_CONNECTIONS:
            every = [each for each in self.connections if isinstance(each, _Connection)]
            idle = [each for each in every if each.is_idle and not each.transport.is_closing()]
            # At least this one: who holds connections without asking loses them first.
            min(idle, key=lambda each: each.deadline.when()).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.deadline.cancel()

    def shutdown(self) -> None:
        super().shutdown()
        if self.cycle is not None and self.cycle.scope.get(ENDLESS):
            self.transport.close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.deadline.cancel()
        self.start_idling()

    def send_400_response(self, msg: str) -> None:
        body = json.dumps(_problem(400, "http", msg))
        head = f"HTTP/1.1 400 Bad Request\r\nContent-Type: {PROBLEM_TYPE}\r\nConnection: close"
        self.transport.write(f"{head}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        self.transport.close()

    @property
    def is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def start_idling(self) -> None:
        # uvicorn's timer ends with the first byte of a header, and waits for an answer to be read.
        self.deadline = self.loop.call_later(SECONDS_PER_MESSAGE, self.cut_if_idle)

    def cut_if_idle(self) -> None:
        if self.is_idle:
            self.transport.abort()


class _Body:
    """The body of a request: so many bytes at most, in time."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._limit = limit
        self._clock = asyncio.get_running_loop().time
        self._started = self._clock()
        self._received = 0
        self._complete = False
        self._given_up = False
        self._waiting: asyncio.Timeout | None = None

    def bytes_behind(self) -> float:
        """How many bytes of it should have come by now; 0 if it is complete."""
        if self._complete:
            return 0.0
        return SLOWEST_BYTES_PER_SECOND * (self._clock() - self._started) - self._received

    def give_up(self) -> None:
        """Receive no more of it."""
        self._given_up = True
        if self._waiting is not None:
            self._waiting.reschedule(self._clock())

    async def receive(self) -> Message:
        """Receive the next part, as ASGI has it."""
        if self._complete:  # what comes now is that the client has gone
            return await self._receive()
        arrived = SECONDS_PER_MESSAGE + self._received / SLOWEST_BYTES_PER_SECOND
        latest = min(self._started + arrived, self._clock() + SECONDS_PER_READ)
        try:
            async with asyncio.timeout_at(self._clock() if self._given_up else latest) as waiting:
                self._waiting = waiting
                part = await self._receive()
        except TimeoutError:
            end = {"Connection": "close"}
            if self._given_up:
                message = "The body came too slowly while others needed its place."
                raise refusal(503, "busy", message, end | {"Retry-After": "2"}) from None
            raise refusal(408, "timeout", "The body has not arrived in time.", end) from None
        finally:
            self._waiting = None
        self._received += len(part.get("body", b""))
        if self._received > self._limit:
            raise _too_large(self._limit)
        self._complete = not part.get("more_body", False)
        return part


def _response(error: FrameworkException) -> JSONResponse:
    said: Any = error.detail
    title = HTTPStatus(error.status_code).phrase
    if not isinstance(said, dict):  # the framework's own
        said = {"code": title.lower().replace(" ", "_"), "message": f"{said}."}
    return JSONResponse(
        _problem(error.status_code, said["code"], said["message"]),
        error.status_code,
        error.headers,
        media_type=PROBLEM_TYPE,
    )


def _problem(status: int, code: str, detail: str) -> dict[str, str | int]:
    title = HTTPStatus(status).phrase
    return {"type": "about:blank", "title": title, "status": status, "detail": detail, "code": code}


def _too_large(limit: int) -> HTTPException:
    return refusal(413, "too_large", f"The body has more than {limit} bytes.")
