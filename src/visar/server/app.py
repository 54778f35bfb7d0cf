"""The application: an index as an HTTP API under ``/api/v1``."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from visar._version import __version__
from visar.errors import StoreError
from visar.index import Index
from visar.server import documents, questions, uploads
from visar.server.context import ERRORS, Context, QuestionGate
from visar.server.jobs import JobQueue
from visar.server.schemas import Available, Health, Problem
from visar.server.settings import Settings
from visar.serving import (
    PROBLEM_TYPE,
    SESSION,
    RequestGuard,
    answer_errors,
    problem,
    refusal,
    session_cookie,
)

# After visar.serving, which says what to install if they are missing.
from fastapi import APIRouter, FastAPI, Request, Response  # isort: skip
from fastapi.responses import PlainTextResponse  # isort: skip
from fastapi.staticfiles import StaticFiles  # isort: skip
from starlette.datastructures import MutableHeaders  # isort: skip
from starlette.types import ASGIApp, Message, Receive, Scope, Send  # isort: skip
from limits import RateLimitItemPerMinute  # isort: skip
from limits.storage import MemoryStorage  # isort: skip
from limits.strategies import MovingWindowRateLimiter  # isort: skip
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest  # isort: skip

PREFIX = "/api/v1"
_PAGE_POLICY = "; ".join(
    [
        "default-src 'none'",
        *(f"{kind}-src 'self'" for kind in ("script", "style", "img", "connect", "font")),
        *("base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"),
        "require-trusted-types-for 'script'",
    ]
)
# Maximum number of concurrent uploads, of batches, and of JSON requests.
MAX_REQUESTS = 64
# Maximum size of a batch of files, in multiples of the maximum size of a file.
LARGEST_BATCH = 10


def create_app(index: Index, settings: Settings | None = None) -> FastAPI:
    """Make the application that serves an index.

    Parameters
    ----------
    index
        Stays the caller's: it is not closed with the application.
    settings
        Access, models and limits.

    Returns
    -------
    FastAPI
        Can be run by any ASGI server or mounted in another application, whose lifespan must then
        enter that of this one: with it the jobs begin and end.
    """
    settings = settings or Settings()
    context = Context(index, settings, QuestionGate(settings.max_questions))
    metrics = _Metrics()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        context.jobs = JobQueue(index, settings)
        try:
            yield
        finally:
            context.jobs.close()

    app = _Api(
        title="ViSAR",
        version=__version__,
        summary="Ask long documents questions: the pages that matter, however many they are.",
        docs_url=None,  # its page loads scripts from elsewhere
        redoc_url=None,
        openapi_url=f"{PREFIX}/openapi.json",
        lifespan=lifespan,
        responses={"default": {"model": Problem, "description": "What is wrong."}},
    )
    app.include_router(uploads.router(context), prefix=PREFIX)
    app.include_router(documents.router(context), prefix=PREFIX)
    app.include_router(questions.router(context), prefix=PREFIX)
    app.include_router(_about(context, metrics), prefix=PREFIX)
    own = Path(__file__).parent / "static"
    app.mount("/", _Page(directory=own, packages=[("visar.explain", "static")], html=True))
    answer_errors(app, ERRORS, context.message)
    app.add_middleware(_Observer, metrics=metrics, requests_per_minute=settings.requests_per_minute)
    app.add_middleware(
        RequestGuard,
        token=settings.token,
        max_bytes={
            "application/json": 1_000_000,
            "application/octet-stream": settings.options.limits.max_bytes,
            "application/x-tar": LARGEST_BATCH * settings.options.limits.max_bytes,
        },
        # Questions above their own limit need room too, to be told so.
        max_requests=max(MAX_REQUESTS, 2 * settings.max_questions),
        max_streams={f"{PREFIX}/jobs/events": settings.max_streams},
        private="/api/",
    )
    return app


class _Api(FastAPI):
    """An application whose description says what content type its errors have."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            for operations in super().openapi()["paths"].values():
                for operation in operations.values():
                    # FastAPI takes the content type of what is answered when all goes well.
                    operation["responses"]["default"]["content"] = {
                        PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}
                    }
        return super().openapi()


def _about(context: Context, metrics: _Metrics) -> APIRouter:
    router = APIRouter(tags=["server"])

    @router.get("/health")
    async def health() -> Health:
        """Whether the server answers."""
        return Health(version=__version__)

    @router.get("/ready")
    def ready() -> Health:
        """Whether the index can be read."""
        context.index.collections()
        if context.jobs.problem is not None:
            raise StoreError(f"Documents can't be added: {context.jobs.problem}")
        return Health(version=__version__)

    @router.post("/session", status_code=204)
    async def session(request: Request, response: Response) -> None:
        """Exchange the token for a session cookie."""
        if context.settings.token is not None:
            response.set_cookie(
                SESSION,
                session_cookie(context.settings.token),
                httponly=True,
                samesite="strict",
                secure=request.url.scheme == "https",
            )

    @router.get("/encoders")
    async def encoders() -> Available:
        """The encoders that questions and documents may choose."""
        return Available(names=list(context.settings.encoders))

    @router.get("/generators")
    async def generators() -> Available:
        """What can write answers."""
        return Available(names=list(context.settings.generators))

    @router.get("/methods")
    async def methods() -> Available:
        """What can choose pages."""
        return Available(names=list(questions.METHOD_NAMES))

    @router.get("/metrics", response_class=PlainTextResponse)
    async def read_metrics() -> Response:
        """What Prometheus reads."""
        return Response(generate_latest(metrics.registry), media_type="text/plain; version=0.0.4")

    return router


class _Page(StaticFiles):
    """The web page: it loads nothing from elsewhere, and runs no script but its own."""

    def file_response(self, *given: Any, **options: Any) -> Response:
        response = super().file_response(*given, **options)
        response.headers["Content-Security-Policy"] = _PAGE_POLICY
        # Always asked for again, by its tag: a new version is seen at once.
        response.headers["Cache-Control"] = "no-cache"
        return response


class _Metrics:
    """The counters that ``/metrics`` reports."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "visar_requests", "Requests by route and status.", ("route", "status"),
            registry=self.registry,
        )  # fmt: skip
        self.seconds = Histogram(
            "visar_request_seconds", "Time to the start of the response.", ("route",),
            registry=self.registry,
        )  # fmt: skip
        self.running = Gauge(
            "visar_requests_running", "Requests in progress.", registry=self.registry
        )


class _Observer:
    """ASGI middleware that limits each client's rate, adds security headers and counts requests."""

    def __init__(self, app: ASGIApp, *, metrics: _Metrics, requests_per_minute: int) -> None:
        self._app = app
        self._metrics = metrics
        self._rate = RateLimitItemPerMinute(requests_per_minute)
        self._limiter = MovingWindowRateLimiter(MemoryStorage())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        client = scope["client"][0] if scope.get("client") else ""
        if not self._limiter.hit(self._rate, client):
            message = f"The limit is {self._rate.amount} requests per minute: try again later."
            refused = problem(refusal(429, "rate", message, {"Retry-After": "10"}))
            await refused(scope, receive, send)
            return
        started = time.perf_counter()

        async def observed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("X-Content-Type-Options", "nosniff")
                headers.setdefault("Referrer-Policy", "no-referrer")
                headers.setdefault("Content-Security-Policy", "default-src 'none'; sandbox")
                self._count(scope, message["status"], time.perf_counter() - started)
            await send(message)

        with self._metrics.running.track_inprogress():
            try:
                await self._app(scope, receive, observed)
            except Exception:
                self._count(scope, 500, time.perf_counter() - started)
                raise

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        self._metrics.requests.labels(route, str(status)).inc()
        self._metrics.seconds.labels(route).observe(seconds)
