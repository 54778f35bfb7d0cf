"""The application: an index as an HTTP API under ``/api/v1``."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from visar._version import __version__
from visar.index import Index
from visar.server import library, questions
from visar.server.context import ERRORS, Context, QuestionGate
from visar.server.jobs import JobQueue
from visar.server.schemas import Available, Health, Problem
from visar.server.settings import Settings
from visar.serving import (
    SESSION,
    RequestGuard,
    answer_errors,
    problem,
    refusal,
    session_cookie,
)

# After visar.serving, which says what to install if they are missing.
from fastapi import APIRouter, FastAPI, Request, Response  # isort: skip
from fastapi.staticfiles import StaticFiles  # isort: skip
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
# Uploads among them, which wait for slow networks; questions have a limit of their own.
MAX_REQUESTS = 64


def create_app(index: Index, settings: Settings | None = None) -> FastAPI:
    """Make the application that serves an index.

    Parameters
    ----------
    index
        Stays the caller's: it is not closed with the application.
    settings
        Who may ask, what may be run, and how much at once.

    Returns
    -------
    FastAPI
        Can be run by any ASGI server or mounted in another application, whose lifespan must then
        enter that of this one: with it the jobs begin and end.
    """
    settings = settings or Settings()
    context = Context(index, settings, QuestionGate(settings.max_questions))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        context.jobs = JobQueue(
            _folder(index, settings),
            index.location,
            dict(settings.encoders),
            dataclasses.asdict(settings.options),
            workers=settings.workers,
            max_waiting=settings.max_waiting,
        )
        try:
            yield
        finally:
            context.jobs.close()

    app = FastAPI(
        title="ViSAR",
        version=__version__,
        summary="Ask long documents questions: the pages that matter, however many they are.",
        docs_url=None,  # its page loads scripts from elsewhere
        redoc_url=None,
        openapi_url=f"{PREFIX}/openapi.json",
        lifespan=lifespan,
        responses={"default": {"model": Problem, "description": "What is wrong."}},
    )
    app.include_router(library.router(context), prefix=PREFIX)
    app.include_router(questions.router(context), prefix=PREFIX)
    app.include_router(_about(context), prefix=PREFIX)
    own = Path(__file__).parent / "static"
    app.mount("/", _Page(directory=own, packages=[("visar.explain", "static")], html=True))
    answer_errors(app, ERRORS, index.location)
    app.middleware("http")(_Observer(settings.requests_per_minute))
    app.add_middleware(
        RequestGuard,
        token=settings.token,
        max_bytes={
            "application/json": 1_000_000,
            "application/octet-stream": settings.options.limits.max_bytes,
        },
        max_requests=MAX_REQUESTS,
        private="/api/",
    )
    return app


def _folder(index: Index, settings: Settings) -> Path:
    """Where uploads and jobs are kept."""
    if settings.folder is not None:
        return settings.folder
    if "://" not in index.location:
        return Path(index.location) / "server"
    from platformdirs import user_data_path

    name = hashlib.sha256(index.location.encode()).hexdigest()[:16]
    return user_data_path("visar") / "server" / name


def _about(context: Context) -> APIRouter:
    router = APIRouter(tags=["server"])

    @router.get("/health")
    async def health() -> Health:
        """Whether the server answers."""
        return Health(version=__version__)

    @router.get("/ready", responses={503: {"model": Problem}})
    def ready() -> Health:
        """Whether the index can be read."""
        context.index.collections()
        return Health(version=__version__)

    @router.post("/session", status_code=204)
    async def session(request: Request, response: Response) -> None:
        """Exchange the token for a cookie that a browser sends along with everything."""
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

    return router


class _Page(StaticFiles):
    """The web page: it loads nothing from elsewhere, and runs no script but its own."""

    def file_response(self, *given: Any, **options: Any) -> Response:
        response = super().file_response(*given, **options)
        response.headers["Content-Security-Policy"] = _PAGE_POLICY
        # Always asked for again, by its tag: a new version is seen at once.
        response.headers["Cache-Control"] = "no-cache"
        return response


class _Observer:
    """Middleware: the rate of each client, security headers, and what ``/metrics`` tells."""

    def __init__(self, requests_per_minute: int) -> None:
        self._rate = RateLimitItemPerMinute(requests_per_minute)
        self._limiter = MovingWindowRateLimiter(MemoryStorage())
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "visar_requests", "Requests by route and status.", ("route", "status"),
            registry=self._registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "visar_request_seconds", "Time to the start of an answer.", ("route",),
            registry=self._registry,
        )  # fmt: skip
        self._running = Gauge(
            "visar_requests_running", "Requests being answered.", registry=self._registry
        )

    async def __call__(self, request: Request, call_next: Callable[[Request], Any]) -> Response:
        if request.url.path == f"{PREFIX}/metrics" and request.method == "GET":
            return Response(generate_latest(self._registry), media_type="text/plain; version=0.0.4")
        client = request.client.host if request.client else ""
        if not self._limiter.hit(self._rate, client):
            message = f"More than {self._rate.amount} requests in a minute."
            return problem(refusal(429, "rate", message, {"Retry-After": "10"}))
        started = time.perf_counter()
        with self._running.track_inprogress():
            response: Response = await call_next(request)
        route = getattr(request.scope.get("route"), "path", "other")
        self._requests.labels(route, str(response.status_code)).inc()
        self._seconds.labels(route).observe(time.perf_counter() - started)
        response.headers.setdefault("X-Content-Type-Options", "nosniff")
        response.headers.setdefault("Referrer-Policy", "no-referrer")
        response.headers.setdefault("Content-Security-Policy", "default-src 'none'; sandbox")
        return response
