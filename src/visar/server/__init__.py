"""The HTTP server: an index behind an API, and jobs that add documents to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from visar.documents import Limits, ReadOptions

if TYPE_CHECKING:
    from fastapi import FastAPI

    from visar.index import Index


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Access, models and limits of a server."""

    token: str | None = field(default=None, repr=False)
    """The operator's token, sent as ``Authorization: Bearer``, with access to everything. Without
    it, and without tokens in the index, anyone on this machine has access, and nobody else."""
    needs_token: bool = False
    """Refuse all requests if there are no tokens. For servers that other machines can reach."""
    encoders: Mapping[str, str] = field(default_factory=lambda: {"embedded": "embedded"})
    """Encoders that clients may choose from, by name; the first is the default. The values are
    those of ``--encoder``."""
    generators: Mapping[str, str] = field(default_factory=lambda: {"extractive": "extractive"})
    """Generators that clients may choose from, by name; the first is the default. The values are
    those of ``--generator``."""
    base_url: str | None = None
    """URL of the API for ``openai:MODEL``; other generators don't use it."""
    folder: Path | None = None
    """Folder for uploads and jobs. The default is inside the index, or in the user's data directory
    if the index is in object storage."""
    options: ReadOptions = field(
        default_factory=lambda: ReadOptions(limits=Limits(seconds_per_document=1_800))
    )
    """Options for reading documents; its limits apply to uploads."""
    workers: int = 2
    """Number of documents to add in parallel, each in its own process. If there are several
    processes, one of them is for documents that take less than a minute."""
    max_waiting: int = 1000
    """Maximum number of waiting jobs; further uploads get 429."""
    max_kept_bytes: int = 2_000_000_000
    """Maximum total size of the uploads that failed and cancelled jobs keep for a retry."""
    max_kept_days: float = 7
    """Maximum number of days to keep these uploads."""
    max_questions: int = 8
    """Maximum number of concurrent questions; others get 429."""
    max_question_length: int = 4_000
    """Maximum length of a question in characters, up to 4,000."""
    max_streams: int = 128
    """Maximum number of open ``/jobs/events`` streams; others get 503. Each open web page uses
    one."""
    requests_per_minute: int = 600
    """Maximum number of requests per minute from one client address; others get 429."""


def create_app(index: Index, settings: Settings | None = None) -> FastAPI:
    """Create an application that serves an index, which the caller has to close.

    It works with any ASGI server. It can also be mounted in another application, whose lifespan
    must then enter this one's, since it starts and stops the jobs.
    """
    import visar.serving  # noqa: F401 - says what to install if FastAPI is missing
    from visar.server.app import make_app

    return make_app(index, settings or Settings())
