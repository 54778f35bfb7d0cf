"""HTTP between machines: addresses, tokens, and the one client that tries again.

Servers are in `visar.serving`. Only the client needs more than the standard library.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
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

TOKEN_VARIABLE = "VISAR_TOKEN"  # noqa: S105 - where it is, not what it is
DEFAULT_PORT = 8765
# A few pages by a large model on a processor take minutes.
SECONDS_PER_REQUEST = 900.0
# Seconds before each repetition, times a random factor that keeps clients apart.
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)
LONGEST_PAUSE = 30.0
_RETRIED = {429, 502, 503, 504}


def own_token() -> str | None:
    """Return the token that a service here wants of its users: ``VISAR_TOKEN``, if that is set.

    Otherwise the content of the file that ``VISAR_TOKEN_FILE`` names, as containers keep secrets.
    Raises InvalidOption if it cannot be read, or is empty.
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
            f"{TOKEN_VARIABLE}_FILE names {name}, which cannot be read: {error}."
        ) from error
    if not token:
        raise InvalidOption(f"{TOKEN_VARIABLE}_FILE names {name}, which is empty.")
    return token


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by its name or address alone.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.1", "::1", "0.0.0.0", "gpu.lan")]
    [True, True, True, False, False]
    """
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_address(host: str) -> bool:
    """Whether a host is given as an address, not by a name, which may be made to mean any machine.

    >>> [is_address(host) for host in ("10.0.0.7", "[::1]", "localhost", "gpu.lan")]
    [True, True, False, False]
    """
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def parse_address(address: str) -> SplitResult:
    """Split ``http(s)://host:port/path``; anything else is an `InvalidOption`."""
    try:
        parts = urlsplit(address)
        well_formed = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        well_formed = False
    if not well_formed or parts.scheme not in ("http", "https"):
        raise InvalidOption(
            f"{address!r} is no address of a service: write http://host:port or https://host."
        )
    if parts.username is not None or parts.password is not None:
        raise InvalidOption(
            "A service's address holds no user or password, which others could see: "
            f"set a token in {TOKEN_VARIABLE}."
        )
    plain = address.isascii() and address.isprintable() and " " not in address
    if parts.query or parts.fragment or not plain:
        raise InvalidOption(f"{address!r} has more than a host, a port and a path.")
    return parts


class Refused(ServiceError):
    """An answer that is an error, with its code and its reason."""

    def __init__(self, message: str, code: str, reason: str) -> None:
        super().__init__(message)
        self.code, self.reason = code, reason


class ServiceClient:
    """Requests to one address, from any number of threads.

    Without redirects and proxies of the environment: what is sent goes to the address given.
    ``start`` is the command that starts such a service, for the message that none is running;
    ``timeout`` the seconds to wait for an answer.
    """

    def __init__(self, address: str, *, start: str, timeout: float = SECONDS_PER_REQUEST) -> None:
        import ssl

        import httpx2

        self._parts = parse_address(address)
        self.address = address.rstrip("/")
        self._start = start
        self._reached = False
        self._http = httpx2.Client(
            # Reading the system's authorities takes longer than all else here.
            verify=self._parts.scheme == "https" and ssl.create_default_context(),
            trust_env=False,
            headers={"User-Agent": f"visar/{__version__}", "Accept-Encoding": "identity"},
            timeout=httpx2.Timeout(timeout, connect=10.0),
            # Below the server's: no request goes into a connection that is being closed.
            limits=httpx2.Limits(keepalive_expiry=5.0),
        )
        weakref.finalize(self, self._http.close)

    def request(
        self, method: str, path: str, *, longest: int, body: bytes = b"", content_type: str = ""
    ) -> bytes:
        """Ask, and ask again while the service is busy (429, 502, 503, 504) or breaks off.

        A connection that fails is tried again only if the service has answered before, and may be
        starting anew. Raises `Refused` for an answer that is an error, and another
        `ServiceError` for none or one of more than ``longest`` bytes.
        """
        import httpx2

        headers = self._authorization() | ({"Content-Type": content_type} if body else {})
        url = self.address + path
        asked = self._http.build_request(method, url, content=body or None, headers=headers)
        for pause in (*PAUSES, None):
            retry_after = ""
            try:
                response, received = self._once(asked, longest)
            except (httpx2.ReadTimeout, httpx2.WriteTimeout, httpx2.PoolTimeout) as error:
                raise self._failed("has not answered in time") from error
            except (httpx2.TransportError, UnicodeError) as error:
                if pause is None or not self._reached:
                    raise self._unreachable(error) from error
            else:
                self._reached = True
                if response.status_code == 200:
                    return received
                if pause is None or response.status_code not in _RETRIED:
                    raise self._refused(response.status_code, received)
                retry_after = response.headers.get("Retry-After", "")
            time.sleep(_seconds(pause, retry_after))
        raise AssertionError  # pragma: no cover - the last turn returns or raises

    def _once(self, asked: httpx2.Request, longest: int) -> tuple[httpx2.Response, bytes]:
        received = bytearray()
        with contextlib.closing(self._http.send(asked, stream=True)) as response:
            for part in response.iter_raw():
                received += part
                if len(received) > longest:
                    raise self._failed(f"answers with more than {longest} bytes")
        return response, bytes(received)

    def _authorization(self) -> dict[str, str]:
        token = os.environ.get(TOKEN_VARIABLE)
        if not token:
            return {}
        if self._parts.scheme == "http" and not is_loopback(self._parts.hostname or ""):
            raise ServiceError(
                f"The token in {TOKEN_VARIABLE} is not sent to {self.address}: anyone on the way "
                "could read it. Use https://, or a tunnel to a port of this machine."
            )
        if not (token.isascii() and token.isprintable()):
            raise ServiceError(
                f"The token in {TOKEN_VARIABLE} has characters that cannot be sent: "
                "use letters and digits."
            )
        return {"Authorization": f"Bearer {token}"}

    def _refused(self, status: int, body: bytes) -> Refused:
        code, reason = "", f"no reason. Does {self._start} run there?"
        with contextlib.suppress(ValueError, AttributeError, RecursionError):
            said = json.loads(body)
            # OpenAI's shape, which vLLM speaks, or a problem of RFC 9457, which ours do.
            said = said["error"] if isinstance(said.get("error"), dict) else said
            code = str(said.get("code"))
            reason = clean_line(said.get("detail") or said.get("message") or reason, 500)
        what = f"answers {status}: {reason}"
        if status in (401, 403):
            what = f"does not let you in: set {TOKEN_VARIABLE} in the environment to its token."
        return Refused(f"The service at {self.address} {what}", code, reason)

    def _unreachable(self, error: Exception) -> ServiceError:
        import ssl

        import httpx2

        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, ssl.SSLError):
                return self._failed(f"cannot be trusted: {cause.reason or cause}")
            cause = cause.__cause__ or cause.__context__
        if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | UnicodeError):
            return ServiceError(
                f"No service answers at {self.address} ({clean_line(error, 500)}): is it running "
                f"there? {self._start} starts one."
            )
        return self._failed(f"breaks off, or does not speak HTTP ({clean_line(error, 500)})")

    def _failed(self, what: str) -> ServiceError:
        return ServiceError(f"The service at {self.address} {what}.")


def _seconds(pause: float, retry_after: str) -> float:
    """How long to wait: as the service asks, else exponentially with jitter."""
    if retry_after.isascii() and retry_after.isdigit():
        return min(float(retry_after), LONGEST_PAUSE)
    return pause * random.uniform(0.5, 1.0)
