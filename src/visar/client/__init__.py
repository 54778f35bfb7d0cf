"""Clients of a ViSAR server: one for programs that wait, one for those that do not."""

from __future__ import annotations

from visar.client.clients import AsyncClient, Client
from visar.client.results import Additions, Answer, Document, Event, Job, Search

__all__ = [
    "Additions",
    "Answer",
    "AsyncClient",
    "Client",
    "Document",
    "Event",
    "Job",
    "Search",
]
