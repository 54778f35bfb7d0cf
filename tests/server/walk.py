"""Requests to every route of the API, generated from the OpenAPI description.

A new parameter must be added to `SLOTS` or `HARMLESS`; a test fails until it is.
"""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx2

PREFIX = "/api/v1/"
ENDLESS = f"{PREFIX}jobs/events"
UPLOAD = b"%PDF-1.4 This is not a whole document."
# The kind of thing that a parameter, or a field of a body, names.
SLOTS = {
    "document": "document",
    "documents": "document",
    "job": "job",
    "thread": "thread",
    "collection": "collection",
}
# Values for parameters that name nothing in the library; None leaves a parameter out.
HARMLESS: Mapping[str, Any] = {
    "question": "What are the wages?",
    "password": "sesame",
    "q": "wages",
    "page": 1,
    "number": 1,
    **dict.fromkeys(("where", "offset", "limit", "dpi", "metadata", "exact", "encoder")),
    **dict.fromkeys(("method", "k", "max_k", "neighbors", "generator")),
    **dict.fromkeys(("history", "standalone", "format")),
}


@dataclass(frozen=True)
class Operation:
    """A method of a route."""

    method: str
    path: str
    description: Mapping[str, Any]
    schemas: Mapping[str, Any]

    @property
    def only_reads(self) -> bool:
        """True if the operation changes nothing."""
        return self.method in ("GET", "HEAD") or bool(
            {"questions", "session"} & {*self.description["tags"]}
        )

    def slots(self) -> set[str]:
        """Return the kinds of things that a request can name, such as "document" or "job"."""
        names = Names({})
        self._build(names)
        return names.slots

    def send(self, http: httpx2.Client, names: Mapping[str, str]) -> httpx2.Response:
        """Send the request with these names in the slots."""
        path, params, body = self._build(Names(names))
        return http.request(self.method, path.removeprefix(PREFIX), params=params, **body)

    def _build(self, names: Names) -> tuple[str, dict[str, Any], dict[str, Any]]:
        path, params = self.path, {}
        for one in self.description.get("parameters", ()):
            value = self._value(one["name"], names)
            if one["in"] == "path":
                path = path.replace(f"{{{one['name']}}}", quote(str(value), safe=""))
            elif one["in"] == "query" and value is not None:
                params[one["name"]] = value
        for kind, content in self.description.get("requestBody", {}).get("content", {}).items():
            if kind == "application/json":
                return path, params, {"json": self._json(content["schema"], names)}
            upload = UPLOAD if kind == "application/octet-stream" else tar_of(UPLOAD)
            return path, params, {"content": upload, "headers": {"Content-Type": kind}}
        return path, params, {}

    def _value(self, name: str, names: Names) -> Any:
        if name == "name":
            # The name of a collection, or that of a new file or conversation.
            return names["collection"] if "/collections/" in self.path else "wages.pdf"
        if name in SLOTS:
            return names[SLOTS[name]]
        assert name in HARMLESS, f"{self.method} {self.path} has a new parameter: {name}"
        return HARMLESS[name]

    def _json(self, schema: Mapping[str, Any], names: Names) -> Any:
        schema = next((one for one in schema.get("anyOf", ()) if "$ref" in one), schema)
        if "$ref" in schema:
            schema = self.schemas[schema["$ref"].rpartition("/")[2]]
        body = {}
        for name, field in schema.get("properties", {}).items():
            if "$ref" in field:
                body[name] = self._json(field, names)
            elif (value := self._value(name, names)) is not None:
                body[name] = [value] if name == "documents" else value
        return body


class Names:
    """Names for slots, with a record of the slots that were used."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self.slots: set[str] = set()

    def __getitem__(self, slot: str) -> str | None:
        self.slots.add(slot)
        return self._names.get(slot)


def operations(http: httpx2.Client) -> Iterator[Operation]:
    """Yield all operations; those that delete come last."""
    api = http.get("openapi.json").json()
    all_operations = [
        Operation(method.upper(), path, description, api["components"]["schemas"])
        for path, methods in api["paths"].items()
        for method, description in methods.items()
    ]
    return iter(sorted(all_operations, key=lambda one: one.method == "DELETE"))


def tar_of(content: bytes) -> bytes:
    """Return a tar stream with one file."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        member = tarfile.TarInfo("wages.pdf")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def comparable(response: httpx2.Response, sent: str) -> tuple[Any, ...]:
    """Return a response without ``sent`` and values that differ between equal requests."""

    def plain(text: str) -> str:
        text = text.replace(sent, "…").replace(quote(sent, safe=""), "…")
        # Ids of jobs, times and durations.
        text = re.sub(r"[0-9a-f]{32}\b", "ID", text)
        text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.+]+", "TIME", text)
        return re.sub(r'"seconds":[\d.e-]+', "SECONDS", text)

    headers = {
        name: plain(value)
        for name, value in response.headers.items()
        if name not in ("date", "content-length")
    }
    return response.status_code, headers, plain(response.text)
