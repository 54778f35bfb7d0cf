"""Addresses and tokens of HTTP services, and a client that retries.

Servers are in `visar.serving`. Only `ServiceClient` needs more than the standard library.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import random
import re
import time
import weakref
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from visar._version import __version__
from visar.errors import InvalidOption, ServiceError
from visar.text import clean_line

if TYPE_CHECKING:
    import httpx2

TOKEN_VARIABLE = "VISAR_TOKEN"  # noqa: S105 - the variable, not the token
DEFAULT_PORT = 8765
# Encoding a few pages with a large model on a CPU takes minutes.
SECONDS_PER_REQUEST = 900.0
# Seconds before each retry, times a random factor so that clients don't retry simultaneously.
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)
LONGEST_PAUSE = 30.0
_RETRYABLE = {429, 502, 503, 504}


def own_token() -> str | None:
    """Return the token that clients of a server on this machine must send, if one is set.

    It is ``VISAR_TOKEN``, or else the content of the file that ``VISAR_TOKEN_FILE`` names, since
    container platforms provide secrets as files. Raises InvalidOption if the file can't be read or
    is empty.
    """
    if token := os.environ.get(TOKEN_VARIABLE):
        return token
    name = os.environ.get(f"{TOKEN_VARIABLE}_FILE")
    if not name:
        return None
    try:
        token = Path(name).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise InvalidOption(
            f"Can't read {name}, which {TOKEN_VARIABLE}_FILE names: {error}."
        ) from error
    if not token:
        raise InvalidOption(f"{name}, which {TOKEN_VARIABLE}_FILE names, is empty: add a token.")
    return token


def session_key(token: str) -> str:
    """Return the value of the session cookie, which stands for a token without revealing it."""
    return hmac.new(token.encode(), b"visar session", "sha256").hexdigest()


def token_hash(secret: str) -> str:
    """Return the hash of a token or session key, which is stored in its place."""
    return hashlib.sha256(secret.encode()).hexdigest()


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, judging only by its name or address.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.1", "::1", "0.0.0.0", "gpu.lan")]
    [True, True, True, False, False]
    """
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_ip_address(host: str) -> bool:
    """Return whether a host is an IP address, and not a name, which can resolve to any machine.

    >>> [is_ip_address(host) for host in ("10.0.0.7", "[::1]", "localhost", "gpu.lan")]
    [True, True, False, False]
    """
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def parse_address(address: str) -> SplitResult:
    """Split ``http(s)://host:port/path``; raises InvalidOption for anything else."""
    try:
        parts = urlsplit(address)
        well_formed = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        well_formed = False
    if not well_formed or parts.scheme not in ("http", "https"):
        raise InvalidOption(
            f"{address!r} isn't a valid service address: use http://host:port or https://host."
        )
    if parts.username is not None or parts.password is not None:
        raise InvalidOption(
            "A service's address can't contain a user or password, which others could see: "
            f"set a token in {TOKEN_VARIABLE} instead."
        )
    plain = address.isascii() and address.isprintable() and " " not in address
    if parts.query or parts.fragment or not plain:
        raise InvalidOption(
            f"{address!r} has more than a host, a port and a path: leave out the rest."
        )
    return parts


def network_reason(error: Exception) -> str:
    """Return why a connection failed, without the number that the system gives the error.

    >>> network_reason(OSError("[Errno 111] Connection refused"))
    'Connection refused'
    """
    reason = re.sub(r"^\[Errno -?\d+\] ", "", clean_line(error, 500)).rstrip(".")
    return reason or type(error).__name__


class ErrorResponse(ServiceError):
    """An error response of a service, with its code and reason."""

    def __init__(self, message: str, code: str, reason: str) -> None:
        super().__init__(message)
        self.code, self.reason = code, reason


class ServiceClient:
    """A thread-safe HTTP client for one service, which retries requests.

    It follows no redirects and ignores proxies in the environment: requests only go to the given
    address. ``start`` is the command that starts the service, for error messages; ``timeout`` is
    the number of seconds to wait for a response.
    """

    def __init__(self, address: str, *, start: str, timeout: float = SECONDS_PER_REQUEST) -> None:
        import ssl

        import httpx2

        self._parts = parse_address(address)
        self.address = address.rstrip("/")
        self._start = start
        self._has_responded = False
        self._http = httpx2.Client(
            # Loading the system's certificate authorities is slow.
            verify=self._parts.scheme == "https" and ssl.create_default_context(),
            trust_env=False,
            headers={"User-Agent": f"visar/{__version__}", "Accept-Encoding": "identity"},
            timeout=httpx2.Timeout(timeout, connect=10.0),
            # Shorter than the server's: no request is sent on a connection that is being closed.
            limits=httpx2.Limits(keepalive_expiry=5.0),
        )
        weakref.finalize(self, self._http.close)

    def request(
        self, method: str, path: str, *, longest: int, body: bytes = b"", content_type: str = ""
    ) -> bytes:
        """Send a request, and retry while the service is busy (429, 502, 503, 504) or disconnects.

        A failed connection is only retried if the service has responded before, since it may be
        restarting. Raises `ErrorResponse` for an error response, and another `ServiceError` if
        there is no response or it has more than ``longest`` bytes.
        """
        import httpx2

        headers = self._authorization() | ({"Content-Type": content_type} if body else {})
        url = self.address + path
        message = self._http.build_request(method, url, content=body or None, headers=headers)
        for pause in (*PAUSES, None):
            retry_after = ""
            try:
                response, content = self._send_once(message, longest)
            except (httpx2.ReadTimeout, httpx2.WriteTimeout, httpx2.PoolTimeout) as error:
                raise self._failure("timed out") from error
            except (httpx2.TransportError, UnicodeError) as error:
                if pause is None or not self._has_responded:
                    raise self._connection_failure(error) from error
            else:
                self._has_responded = True
                if response.status_code == 200:
                    return content
                if pause is None or response.status_code not in _RETRYABLE:
                    raise self._refusal(response.status_code, content)
                retry_after = response.headers.get("Retry-After", "")
            time.sleep(_seconds_to_wait(pause, retry_after))
        raise AssertionError  # pragma: no cover - the last attempt returns or raises

    def _send_once(self, message: httpx2.Request, longest: int) -> tuple[httpx2.Response, bytes]:
        content = bytearray()
        with contextlib.closing(self._http.send(message, stream=True)) as response:
            for part in response.iter_raw():
                content += part
                if len(content) > longest:
                    raise self._failure(f"sent more than {longest} bytes")
        return response, bytes(content)

    def _authorization(self) -> dict[str, str]:
        token = os.environ.get(TOKEN_VARIABLE)
        if not token:
            return {}
        if self._parts.scheme == "http" and not is_loopback(self._parts.hostname or ""):
            raise ServiceError(
                f"The token in {TOKEN_VARIABLE} is not sent to {self.address}: over http, others "
                "could read it. Use https://, or a tunnel to a port of this machine."
            )
        if not (token.isascii() and token.isprintable()):
            raise ServiceError(
                f"The token in {TOKEN_VARIABLE} has invalid characters: use letters and digits."
            )
        return {"Authorization": f"Bearer {token}"}

    def _refusal(self, status: int, body: bytes) -> ErrorResponse:
        code, reason = "", f"no reason given. Is {self._start} running there?"
        with contextlib.suppress(ValueError, AttributeError, RecursionError):
            error = json.loads(body)
            # vLLM uses the format of OpenAI's errors, our own servers that of RFC 9457.
            error = error["error"] if isinstance(error.get("error"), dict) else error
            code = str(error.get("code"))
            reason = clean_line(error.get("detail") or error.get("message") or reason, 500)
        what = f"responded with {status}: {reason}"
        if status in (401, 403):
            what = f"rejected the request: set the environment variable {TOKEN_VARIABLE}."
        return ErrorResponse(f"The service at {self.address} {what}", code, reason)

    def _connection_failure(self, error: Exception) -> ServiceError:
        import ssl

        import httpx2

        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, ssl.SSLError):
                return self._failure(f"failed the TLS handshake: {cause.reason or cause}")
            cause = cause.__cause__ or cause.__context__
        if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | UnicodeError):
            return ServiceError(
                f"Can't reach {self.address}: {network_reason(error)}. Check the address, or start "
                f"a service with {self._start}."
            )
        return self._failure(f"broke off, or doesn't speak HTTP ({network_reason(error)})")

    def _failure(self, what: str) -> ServiceError:
        return ServiceError(f"The service at {self.address} {what}.")


def _seconds_to_wait(pause: float, retry_after: str) -> float:
    """Return the time that the service asks for, or else the pause with jitter."""
    if retry_after.isascii() and retry_after.isdigit():
        return min(float(retry_after), LONGEST_PAUSE)
    return pause * random.uniform(0.5, 1.0)
