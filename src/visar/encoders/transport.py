"""HTTP to an encoder's service: patient with what passes, clear about what does not.

The standard library's plain client follows no redirects and knows no proxies, so that pages and
tokens go nowhere else than to the address given.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import ssl
import time
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from visar._version import __version__
from visar.errors import InvalidOption, ServiceError
from visar.network import TOKEN_VARIABLE, is_loopback

# A few pages by a large model on a processor take minutes.
SECONDS_PER_REQUEST = 900.0
# How long to wait before asking again; so many times beyond the first.
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)
LONGEST_PAUSE = 30.0
# No answer at all counts as 0.
_PASSING = {0, 429, 502, 503, 504}
_SECONDS_TO_CONNECT = 10.0
_LONGEST_SAYING = 500


@dataclass(frozen=True, slots=True)
class Reply:
    """What a service answered."""

    status: int
    body: bytes
    retry_after: str | None = None


_NO_REPLY = Reply(0, b"")


class Transport:
    """Requests to one service, which the command ``start`` would start."""

    def __init__(self, address: str, *, timeout: float, start: str) -> None:
        self._parts = parse_address(address)
        self.address = address.rstrip("/")
        self._timeout = timeout
        self._start = start

    def request(
        self,
        method: str,
        path: str,
        *,
        longest: int,
        body: bytes | None = None,
        content_type: str | None = None,
        started: bool = True,
    ) -> Reply:
        """Ask, and ask again while the service is busy or breaks off.

        Where it has ``started``, a refused connection means that it starts anew; before, that it
        does not run. More than ``longest`` bytes are not taken.
        """
        headers = {"User-Agent": f"visar/{__version__}"} | self._authorization()
        if content_type:
            headers["Content-Type"] = content_type
        for pause in (*PAUSES, None):
            try:
                reply = self._once(method, path, body, headers, longest)
            except ConnectionRefusedError as error:
                if pause is None or not started:
                    raise self._absent(error) from error
                reply = _NO_REPLY
            except (ConnectionError, http.client.IncompleteRead) as error:
                if pause is None:
                    raise self._failed(f"breaks off: {error}") from error
                reply = _NO_REPLY
            if pause is None or reply.status not in _PASSING:
                return reply
            time.sleep(_pause(pause, reply.retry_after))
        raise AssertionError  # pragma: no cover - the last turn returns or raises

    def _once(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], longest: int
    ) -> Reply:
        connection = self._connected()
        try:
            # Who refuses a long message may not read it to its end: the answer says why.
            with contextlib.suppress(BrokenPipeError):
                connection.request(method, self._parts.path.rstrip("/") + path, body, headers)
            response = connection.getresponse()
            content = response.read(longest + 1)
        except TimeoutError as error:
            raise self._failed(f"has not answered within {self._timeout:g} s") from error
        except (ConnectionError, http.client.IncompleteRead):
            raise
        except (http.client.HTTPException, OSError) as error:
            raise self._failed(f"does not speak HTTP ({error!r:.80})") from error
        finally:
            connection.close()
        if len(content) > longest:
            raise self._failed(f"answers with more than {longest} bytes")
        if response.length:
            # A plain read takes the end of a broken connection for the end of the answer.
            raise http.client.IncompleteRead(content, response.length)
        return Reply(response.status, content, response.getheader("Retry-After"))

    def _connected(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        connection = (
            http.client.HTTPSConnection(host, port, context=ssl.create_default_context())
            if self._parts.scheme == "https"
            else http.client.HTTPConnection(host, port)
        )
        connection.timeout = _SECONDS_TO_CONNECT
        try:
            connection.connect()
        except ssl.SSLError as error:
            raise self._failed(f"cannot be trusted: {error.reason or error}") from error
        except ConnectionError:
            raise
        except (OSError, UnicodeError) as error:  # the latter of a name with too long a part
            raise self._absent(error) from error
        connection.sock.settimeout(self._timeout)
        return connection

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

    def _absent(self, error: OSError | UnicodeError) -> ServiceError:
        reason = getattr(error, "strerror", None) or error
        return ServiceError(
            f"No encoder answers at {self.address} ({reason}): is the service "
            f"running there? {self._start} starts one."
        )

    def _failed(self, what: str) -> ServiceError:
        return ServiceError(f"The encoder at {self.address} {what}.")


def _pause(usual: float, retry_after: str | None) -> float:
    """How long to wait: what the service asks for, else some time that differs between clients."""
    if retry_after is not None and retry_after.isascii() and retry_after.isdigit():
        return min(float(retry_after), LONGEST_PAUSE)
    return usual * random.uniform(0.5, 1.0)


def printable(text: object) -> str:
    r"""What a service says of itself, fit to be shown: not too long, nothing a terminal obeys.

    >>> printable("busy\x1b[2J")
    'busy [2J'
    """
    shown = str(text)[:_LONGEST_SAYING]
    return "".join(character if character.isprintable() else " " for character in shown)


def parse_address(address: str) -> SplitResult:
    """The parts of a service's address, if it is a plain one."""
    try:
        parts = urlsplit(address)
        well_formed = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        well_formed = False
    if not well_formed or parts.scheme not in ("http", "https"):
        raise InvalidOption(
            f"{address!r} is no address of an encoder: write http://host:port or https://host."
        )
    if parts.username is not None or parts.password is not None:
        raise InvalidOption(
            "An encoder's address holds no user or password, which others could see: "
            f"set a token in {TOKEN_VARIABLE}."
        )
    plain = address.isascii() and address.isprintable() and " " not in address
    if parts.query or parts.fragment or not plain:
        raise InvalidOption(f"{address!r} has more than a host, a port and a path.")
    return parts
