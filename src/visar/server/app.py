"""The application: an index as an HTTP API under ``/api/v1``."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any, Literal

from anyio import to_thread
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import PlainTextResponse
from fastapi.staticfiles import StaticFiles
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.datastructures import MutableHeaders
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from visar._version import __version__
from visar.errors import DiskFull, ReadOnlyIndex, StoreError
from visar.index import Index
from visar.network import session_key
from visar.server import Settings, documents, openai_api, questions, uploads
from visar.server.context import ERRORS, Context, State
from visar.server.schemas import Available, Health, Problem, Readiness
from visar.server.view import check_operator, check_rights
from visar.serving import (
    GRANT,
    PROBLEM_TYPE,
    SESSION,
    RequestGuard,
    answer_errors,
    bearer_token,
    problem,
    refusal,
)

PREFIX = "/api/v1"
PRIVATE = ("/api/", f"{openai_api.PREFIX}/")
"""Prefixes of paths that need a token. They are never files of the web page."""
_logger = logging.getLogger(__name__)
_PAGE_POLICY = "; ".join(
    [
        "default-src 'none'",
        *(f"{kind}-src 'self'" for kind in ("script", "style", "img", "connect", "font")),
        *("base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"),
        "require-trusted-types-for 'script'",
    ]
)
# Maximum number of concurrent requests of each kind: uploads, batches and JSON.
MAX_REQUESTS = 64
# Maximum number of concurrent health checks.
MAX_CHECKS = 8
# Period of the rate limit. Only tests change it.
RATE_SECONDS = 60.0
# Maximum size of a batch of files, in multiples of the maximum size of a file.
MAX_BATCH = 10


def make_app(index: Index, settings: Settings) -> FastAPI:
    """Create the application; see `visar.server.create_app`."""
    context = Context(index, settings)
    metrics = CollectorRegistry()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        try:
            context.job_queue()  # resumes the jobs of an earlier run
        except StoreError as error:
            _logger.warning("Documents can't be added: %s", error)
        try:
            yield
        finally:
            context.close()

    app = _Api(
        title="ViSAR",
        version=__version__,
        summary="Ask questions of long documents. Finds exactly the pages each question needs.",
        docs_url=None,  # its page would load scripts from another site
        redoc_url=None,
        openapi_url=f"{PREFIX}/openapi.json",
        lifespan=lifespan,
        dependencies=[Depends(check_rights)],
        responses={"default": {"model": Problem, "description": "Error."}},
    )
    app.state.context = context
    app.state.metrics = metrics
    for part in (uploads, documents, questions):
        app.include_router(part.routes, prefix=PREFIX)
    app.include_router(questions.conversations, prefix=PREFIX)
    app.include_router(routes, prefix=PREFIX)
    app.include_router(openai_api.routes, prefix=openai_api.PREFIX)
    unmatched = _Unmatched([*app.routes])
    for prefix in PRIVATE:
        app.router.routes.append(Route(f"{prefix}{{path:path}}", unmatched))
    static = Path(__file__).parent / "static"
    app.mount("/", _Page(directory=static, packages=[("visar.explain", "static")], html=True))
    answer_errors(app, ERRORS, context.message)

    @app.exception_handler(StoreError)
    def respond(_: Request, error: Exception) -> Response:
        return context.problem(error)

    app.add_middleware(_Observer, metrics=metrics, requests_per_minute=settings.requests_per_minute)
    app.add_middleware(
        RequestGuard,
        token=settings.token,
        stored=context.tokens.grants,
        max_bytes={
            "application/json": 1_000_000,
            "application/octet-stream": settings.options.limits.max_bytes,
            "application/x-tar": MAX_BATCH * settings.options.limits.max_bytes,
        },
        # Let in more questions than can be answered, so that the others get 429 and not 503.
        max_requests=max(MAX_REQUESTS, 2 * settings.max_questions),
        max_by_path={
            f"{PREFIX}/jobs/events": settings.max_streams,
            f"{PREFIX}/health": MAX_CHECKS,
            f"{PREFIX}/ready": MAX_CHECKS,
        },
        private=PRIVATE,
    )
    app.add_middleware(openai_api.OpenAIErrors)
    return app


class _Api(FastAPI):
    """An application whose OpenAPI description has the content type of errors."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            for operations in super().openapi()["paths"].values():
                for operation in operations.values():
                    # FastAPI would use the content type of successful responses.
                    operation["responses"]["default"]["content"] = {
                        PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}
                    }
        return super().openapi()


class _Unmatched:
    """Responds to requests that no route of the API matches, before the web page's files do."""

    def __init__(self, routes: Sequence[BaseRoute]) -> None:
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        allowed = [
            method
            for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
            if any(
                one.matches({**scope, "method": method})[0] is Match.FULL for one in self._routes
            )
        ]
        if allowed:
            raise HTTPException(405, headers={"Allow": ", ".join(allowed)})
        raise HTTPException(404)


routes = APIRouter(tags=["server"])
_OPERATOR_ONLY = [Depends(check_operator)]


@routes.get("/health")
async def health() -> Health:
    """Check that the server responds."""
    return Health(version=__version__)


@routes.get("/ready", dependencies=_OPERATOR_ONLY)
async def ready(context: State) -> Readiness:
    """Check that questions can be answered and documents added.

    Returns an error if the index can't be read, or if the job queue has stopped although the
    disk is writable. Only for the operator.
    """
    return await to_thread.run_sync(_readiness, context, limiter=context.checks)


@routes.post("/session", status_code=204, tags=["session"])
async def session(request: Request, response: Response) -> None:
    """Exchange a token for a session cookie."""
    if request.scope[GRANT] is not None and (token := bearer_token(request)):
        response.set_cookie(
            SESSION,
            session_key(token),
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )


@routes.get("/encoders")
async def encoders(context: State) -> Available:
    """List the encoders that questions and documents can choose from."""
    return Available(names=list(context.settings.encoders))


@routes.get("/generators")
async def generators(context: State) -> Available:
    """List the generators that questions can choose from."""
    return Available(names=list(context.settings.generators))


@routes.get("/methods")
async def methods() -> Available:
    """List the methods that choose the pages."""
    return Available(names=list(questions.METHOD_NAMES))


@routes.get("/metrics", dependencies=_OPERATOR_ONLY, response_class=PlainTextResponse)
async def read_metrics(request: Request) -> Response:
    """Return metrics for Prometheus. Only for the operator."""
    return Response(
        generate_latest(request.app.state.metrics), media_type="text/plain; version=0.0.4"
    )


def _readiness(context: Context) -> Readiness:
    context.check_index()
    disk: Literal["ok", "disk_full", "read_only"] = "ok"
    try:
        context.check_disk()
    except DiskFull:
        disk = "disk_full"
    except ReadOnlyIndex:
        disk = "read_only"
    try:
        problem = context.job_queue().problem
    except StoreError as error:
        problem = str(error)
    if problem is not None and disk == "ok":
        raise StoreError(f"Documents can't be added: {problem}")
    return Readiness(version=__version__, disk=disk, jobs="stopped" if problem else "ok")


class _Page(StaticFiles):
    """The files of the web page, which may only load and run files of this server."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers["Content-Security-Policy"] = _PAGE_POLICY
        # Browsers compare the ETag each time, so that they never show an old version.
        response.headers["Cache-Control"] = "no-cache"
        return response


class _Rate:
    """A limit on the number of requests that each client may make per minute."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        # Times of requests by client; the client with the latest request is last.
        self._times: dict[str, deque[float]] = {}

    def take(self, client: str) -> int:
        """Count a request and return 0, or return the seconds until one is allowed."""
        now = time.monotonic()
        start = now - RATE_SECONDS
        for old in [*islice(self._times, 2)]:
            if self._times[old][-1] <= start:
                del self._times[old]
        times = self._times[client] = self._times.pop(client, deque())
        while times and times[0] <= start:
            times.popleft()
        if len(times) < self.limit:
            times.append(now)
            return 0
        return ceil(times[0] - start)


class _Observer:
    """ASGI middleware that limits each client's rate, adds security headers and counts requests."""

    def __init__(
        self, app: ASGIApp, *, metrics: CollectorRegistry, requests_per_minute: int
    ) -> None:
        self._app = app
        self._rate = _Rate(requests_per_minute)
        self._requests = Counter(
            "visar_requests", "Requests by route and status.", ("route", "status"),
            registry=metrics,
        )  # fmt: skip
        self._seconds = Histogram(
            "visar_request_seconds", "Time to the start of the response.", ("route",),
            registry=metrics,
        )  # fmt: skip
        self._running = Gauge("visar_requests_running", "Requests in progress.", registry=metrics)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        client = scope["client"][0] if scope.get("client") else ""
        if seconds := self._rate.take(client):
            message = (
                f"The limit of {self._rate.limit} requests per minute is reached. "
                f"Try again in {seconds} s."
            )
            response = problem(refusal(429, "rate", message, {"Retry-After": str(seconds)}))
            await response(scope, receive, send)
            return
        started = time.perf_counter()

        async def send_observed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("X-Content-Type-Options", "nosniff")
                headers.setdefault("Referrer-Policy", "no-referrer")
                headers.setdefault("Content-Security-Policy", "default-src 'none'; sandbox")
                self._count(scope, message["status"], time.perf_counter() - started)
            await send(message)

        with self._running.track_inprogress():
            try:
                await self._app(scope, receive, send_observed)
            except Exception:
                self._count(scope, 500, time.perf_counter() - started)
                raise

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)
