"""Where an OpenAI-compatible server is, and the key it is asked with."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from ipaddress import ip_address
from json import dumps
from textwrap import shorten
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from visar._version import __version__
from visar.errors import GeneratorUnavailable, InvalidOption, MissingExtra
from visar.network import is_loopback

if TYPE_CHECKING:
    import httpx2
    import openai

ADDRESS_VARIABLE = "OPENAI_BASE_URL"
KEY_VARIABLE = "OPENAI_API_KEY"
OPENAI_ADDRESS = "https://api.openai.com/v1"
# Servers that want no key are sent this, since the client always sends one.
NO_KEY = "no-key"
SECONDS_TO_CONNECT = 10.0
_QUOTED_AT_MOST = 400


class TooMuch(Exception):
    """A server that sends more than was asked for, or hides how much it is."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server's address, without anything secret in what it shows of itself."""

    base_url: str
    key: str | None = field(repr=False)

    @classmethod
    def of(cls, base_url: str | None) -> Endpoint:
        """The server at an address, else at that of the environment, else OpenAI's."""
        address = (base_url or os.environ.get(ADDRESS_VARIABLE) or OPENAI_ADDRESS).strip()
        key = (os.environ.get(KEY_VARIABLE) or "").strip() or None
        _check_address(address)
        endpoint = cls(address.rstrip("/"), key)
        endpoint._check_key()
        return endpoint

    @property
    def host(self) -> str:
        return urlsplit(self.base_url).hostname or ""

    @property
    def is_openai(self) -> bool:
        return self.host == "openai.com" or self.host.endswith(".openai.com")

    @property
    def is_near(self) -> bool:
        """Whether it is this machine, or one whose address is private, by the address alone."""
        try:
            return is_loopback(self.host) or ip_address(self.host).is_private
        except ValueError:
            return False

    def quoted(self, said: str) -> str:
        """The beginning of what a server said, without the key and fit for a terminal."""
        # The key goes first: of one that is cut, a part would stay.
        for written in self._written_keys():
            said = said.replace(written, "[key]")
        plain = "".join(c if c.isprintable() else " " for c in said)
        return shorten(plain.rstrip(" ."), _QUOTED_AT_MOST, placeholder=" …")

    def _written_keys(self) -> set[str]:
        """The key in the ways a server may write it."""
        if self.key is None:
            return set()
        return {self.key, quote(self.key, safe=""), dumps(self.key)[1:-1]}

    def client(self, *, timeout: float, most_bytes: int) -> openai.OpenAI:
        """A client that goes to this address only, and takes so many bytes per answer."""
        require_client()
        import openai

        http = openai.DefaultHttpxClient(
            # A redirect would take the key and the pages to where nobody sent them.
            follow_redirects=False,
            # A proxy for the world outside does not reach a server in here.
            trust_env=not self.is_near,
            verify=_trusted_authorities(),
            event_hooks={"response": [_limited_to(most_bytes)]},
        )
        return openai.OpenAI(
            base_url=self.base_url,
            api_key=self.key or NO_KEY,
            timeout=openai.Timeout(timeout, connect=SECONDS_TO_CONNECT),
            max_retries=0,
            default_headers={
                "User-Agent": f"visar/{__version__}",
                "Accept-Encoding": "identity",
            },
            http_client=http,
        )

    def _check_key(self) -> None:
        if self.key is None:
            if self.is_openai:
                raise GeneratorUnavailable(
                    f"{self.host} wants a key: set {KEY_VARIABLE} in the environment to yours. For "
                    f"a server of your own, set {ADDRESS_VARIABLE} to its address, for instance "
                    "http://127.0.0.1:8000/v1."
                )
            return
        if not (self.key.isascii() and self.key.isprintable()) or " " in self.key:
            raise GeneratorUnavailable(
                f"The key in {KEY_VARIABLE} has characters that no key has, such as spaces or line "
                "breaks: set it anew."
            )
        if self.base_url.lower().startswith("http://") and not is_loopback(self.host):
            raise GeneratorUnavailable(
                f"The key in {KEY_VARIABLE} is not sent to {self.base_url}: anyone on the way "
                "could read it. Use https:// or a tunnel to a port of this machine, or unset "
                f"{KEY_VARIABLE} if that server wants none."
            )


def require_client() -> None:
    """Make sure that what talks to servers is installed."""
    if find_spec("openai") is None or find_spec("httpx2") is None:
        raise MissingExtra("A model behind an OpenAI-compatible server", "openai")


def _check_address(address: str) -> None:
    try:
        parts = urlsplit(address)
        well_formed = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        well_formed = False
    if well_formed and "@" in parts.netloc:
        raise InvalidOption(
            "A server's address holds no user or password, which others could see: "
            f"set {KEY_VARIABLE} in the environment."
        )
    if not well_formed or parts.scheme not in ("http", "https"):
        raise InvalidOption(
            f"{address!r} is no address of a server: write http://host:port/v1 or https://host/v1."
        )
    if parts.query or parts.fragment or not address.isascii() or not address.isprintable():
        raise InvalidOption(f"{address!r} has more than a host, a port and a path.")


@cache
def _trusted_authorities() -> ssl.SSLContext:
    """Read once: it takes longer than all else that a client is made of."""
    import httpx2

    return httpx2.create_ssl_context()


def _limited_to(most_bytes: int) -> Callable[[httpx2.Response], None]:
    """What makes a client stop reading an answer that does not end."""
    import httpx2

    class Limited(httpx2.SyncByteStream):
        def __init__(self, stream: httpx2.SyncByteStream) -> None:
            self._stream = stream

        def __iter__(self) -> Iterator[bytes]:
            left = most_bytes
            for chunk in self._stream:
                left -= len(chunk)
                if left < 0:
                    raise TooMuch(f"sends more than {most_bytes} bytes")
                yield chunk

        def close(self) -> None:
            self._stream.close()

    def limit(response: httpx2.Response) -> None:
        # A few compressed bytes can stand for any number.
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise TooMuch("sends compressed what was asked for as it is")
        if isinstance(response.stream, httpx2.SyncByteStream):
            response.stream = Limited(response.stream)

    return limit
