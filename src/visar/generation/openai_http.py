"""Address, key and HTTP client for OpenAI-compatible servers."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, cast
from urllib.parse import quote, urlsplit

from visar.errors import GeneratorUnavailable, InvalidOption, extra_needed
from visar.network import is_loopback, parse_address
from visar.text import clean_line

with extra_needed("A model behind an OpenAI-compatible server", "openai"):
    # Exported for openai_server too.
    import httpx2 as httpx2
    import openai as openai

ADDRESS_VARIABLE = "OPENAI_BASE_URL"
KEY_VARIABLE = "OPENAI_API_KEY"
# Maximum size of a response other than a reply: an error, a list of models.
_MOST_BYTES = 2**20
NO_QUOTA = "insufficient_quota"
ABOUT_IMAGES = re.compile(r"\b(images?|image_url|vision|multi-?modal)\b", re.IGNORECASE)
_NO_COMMENT = re.compile(rb"^[^:\s]", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server's address and key; its repr doesn't show the key."""

    base_url: str
    key: str | None = field(repr=False)

    @classmethod
    def of(cls, base_url: str | None) -> Endpoint:
        """Return the server at an address; by default OPENAI_BASE_URL, then OpenAI's own."""
        address = base_url or os.environ.get(ADDRESS_VARIABLE) or "https://api.openai.com/v1"
        key = (os.environ.get(KEY_VARIABLE) or "").strip() or None
        endpoint = cls(_checked(address.strip()), key)
        if key is None and endpoint.is_openai:
            raise GeneratorUnavailable(
                f"{endpoint.host} needs an API key: set {KEY_VARIABLE}. For a server of your own, "
                f"set {ADDRESS_VARIABLE} to its address, such as http://127.0.0.1:8000/v1."
            )
        if key is not None and (not (key.isascii() and key.isprintable()) or " " in key):
            raise GeneratorUnavailable(
                f"The key in {KEY_VARIABLE} contains invalid characters, such as spaces or line "
                "breaks. Set it again."
            )
        is_plain = endpoint.base_url.lower().startswith("http://")
        if key is not None and is_plain and not is_loopback(endpoint.host):
            raise GeneratorUnavailable(
                f"The key in {KEY_VARIABLE} is not sent to {endpoint.base_url}, because plain HTTP "
                "is not encrypted. Use https:// or a tunnel to a local port, or unset "
                f"{KEY_VARIABLE} if the server needs no key."
            )
        return endpoint

    @property
    def host(self) -> str:
        return urlsplit(self.base_url).hostname or ""

    @property
    def is_openai(self) -> bool:
        return self.host == "openai.com" or self.host.endswith(".openai.com")

    @property
    def is_near(self) -> bool:
        """Whether the address belongs to this machine or a private network; nothing is resolved."""
        try:
            return is_loopback(self.host) or ip_address(self.host).is_private
        except ValueError:
            return False

    def quoted(self, message: str) -> str:
        """Return the beginning of a server's message, without the key and safe for a terminal."""
        if self.key is not None:
            # Before the message is cut, which could leave a part of the key.
            for written in (self.key, quote(self.key, safe=""), json.dumps(self.key)[1:-1]):
                message = message.replace(written, "[key]")
        return clean_line(message, 400).rstrip(" .")


def _checked(address: str) -> str:
    with suppress(InvalidOption):
        if "@" not in address:
            parse_address(address)
            return address.rstrip("/")
    shown = "An address with a user or password" if "@" in address else repr(address)
    raise InvalidOption(
        f"{shown} isn't a valid server address: use http://host:port/v1 or https://host/v1. Put a "
        f"key into the environment variable {KEY_VARIABLE}."
    )


class UnusableReply(Exception):
    """A reply that can't be used; the message continues "MODEL at ADDRESS …"."""


class HttpClient(httpx2.Client):
    """HTTP client that only contacts the given address, and reads no more than a `Body` allows.

    Failures that OpenAI's client must not retry are raised as errors of ours, or marked.
    """

    def __init__(self, patience: float, *, is_near: bool) -> None:
        self._patience = patience
        self._has_answered = threading.Event()
        super().__init__(
            # A redirect would send the key and the pages to another address.
            follow_redirects=False,
            # A proxy for the internet can't reach a server in a private network.
            trust_env=not is_near,
            verify=httpx2.create_ssl_context(),
            event_hooks={"request": [_drop_telemetry], "response": [self._check]},
        )

    def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        try:
            return super().send(request, **options)
        except httpx2.ReadTimeout as error:
            raise openai.APITimeoutError(request=request) from error
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            if self._has_answered.is_set():  # it may be restarting
                raise
            raise openai.APIConnectionError(request=request) from error

    def _check(self, response: httpx2.Response) -> None:
        self._has_answered.set()
        # A few compressed bytes can expand to any number.
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise UnusableReply("sent a compressed response, which was not requested")
        response.stream = Body(cast("httpx2.SyncByteStream", response.stream), self._patience)
        if _is_lasting(response):
            response.headers["x-should-retry"] = "false"


class Body(httpx2.SyncByteStream):
    """The body of a response; at most ``most`` bytes of it are read."""

    def __init__(self, chunks: httpx2.SyncByteStream, patience: float) -> None:
        self.most = _MOST_BYTES
        self._chunks = chunks
        self._patience = patience

    def __iter__(self) -> Iterator[bytes]:
        read, spoke = 0, time.monotonic()
        for chunk in self._chunks:
            read += len(chunk)
            if read > self.most:
                raise UnusableReply(f"sent more than {self.most} bytes without finishing")
            # Comments could keep a connection open forever.
            if _NO_COMMENT.search(chunk):
                spoke = time.monotonic()
            elif time.monotonic() - spoke > self._patience:
                raise httpx2.ReadTimeout("nothing but comments")
            yield chunk

    def close(self) -> None:
        self._chunks.close()


def _drop_telemetry(request: httpx2.Request) -> None:
    """Drop the headers in which the client describes the system it runs on."""
    for name in [name for name in request.headers if name.startswith("x-stainless-")]:
        del request.headers[name]


def _is_lasting(response: httpx2.Response) -> bool:
    """Return whether a failure is permanent, although the client would retry it."""
    if response.status_code not in (429, 500):
        return response.status_code == 501
    content = response.read().decode("utf-8", "replace")
    return NO_QUOTA in content or bool(ABOUT_IMAGES.search(content))
