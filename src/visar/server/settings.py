"""What an operator decides about a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from visar.documents import ReadOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Who may ask a server, what it may run, and how much of it at once."""

    token: str | None = field(default=None, repr=False)
    """What ``Authorization: Bearer`` must give; without one, only localhost is answered."""
    encoders: Mapping[str, str] = field(default_factory=lambda: {"embedded": "embedded"})
    """The encoders that requests may choose, by the names they choose them by; the first is the
    default. The values are what ``--encoder`` takes."""
    generators: Mapping[str, str] = field(default_factory=lambda: {"extractive": "extractive"})
    """The generators that requests may choose, in the same way."""
    base_url: str | None = None
    """Where ``openai:MODEL`` is served."""
    folder: Path | None = None
    """Folder for jobs and their uploads; by default inside a local index, and in the user's data
    folder for an index in object storage."""
    options: ReadOptions = field(default_factory=ReadOptions)
    """How documents are read; its limits bound uploads."""
    workers: int = 1
    """How many documents are added at once, each in a process of its own."""
    max_waiting: int = 1000
    """Jobs that may wait; further uploads are refused."""
    max_kept_bytes: int = 2_000_000_000
    """Total size of the uploads that failed and cancelled jobs keep for a retry."""
    max_kept_days: float = 7
    """Maximum time that they keep them."""
    max_questions: int = 8
    """Questions answered or waiting at once; further ones are refused."""
    max_question_length: int = 4_000
    """In characters; longer questions are refused. No more than 4,000 are ever taken."""
    requests_per_minute: int = 600
    """By one client address."""
