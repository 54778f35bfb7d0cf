"""Access rights of requests, and the stored tokens that grant them."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass

from visar.access import AccessTokens
from visar.errors import VisarError
from visar.results import AccessToken
from visar.serving import GRANT, refusal

# After visar.serving, which says what to install if they are missing.
from anyio import CapacityLimiter, Lock, to_thread  # isort: skip
from fastapi import Request  # isort: skip

READING_TAGS = ("questions", "session")
"""Tags of routes that change nothing, even if their method is POST."""
# Tokens of an index in object storage are cached for this time.
_SECONDS_PER_READ = 1.0
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Access:
    """The access rights of a request."""

    token: str | None = None
    """Id of the stored token; None for the operator."""
    collection: str | None = None
    """The only accessible collection; None for the whole library."""
    writes: bool = True
    """Whether the request may change anything."""

    @property
    def is_operator(self) -> bool:
        """True for the server's own token, or if no token is needed."""
        return self.token is None

    def check_writes(self) -> None:
        """Refuse the request if its token is read-only."""
        if not self.writes:
            message = "This token is read-only: use one with write access to make changes."
            # Clients raise ReadOnlyIndex for this code.
            raise refusal(403, "read_only", message)


OPERATOR = Access()


class StoredTokens:
    """The tokens that are stored in the index.

    Parameters
    ----------
    tokens
        Tokens, read for every request, so that a revoked token is refused immediately.
    is_remote
        Whether the index is in object storage. Its tokens are only read once a second.
    needed
        Whether requests need a token even if there are none.
    """

    def __init__(self, tokens: AccessTokens, *, is_remote: bool, needed: bool) -> None:
        self._tokens = tokens
        self._max_age = _SECONDS_PER_READ if is_remote else 0.0
        self._needed = needed
        # A thread of its own, since questions and images may take all others.
        self._thread = CapacityLimiter(1)
        self._lock = Lock()
        self._cached: tuple[float, Mapping[str, Access]] | None = None

    async def grants(self) -> Mapping[str, Access] | None:
        """Return the access that each token grants, by its hash; None if no token is needed.

        Once the server has seen a token, requests need one until it stops: revoking the last token
        must not open the library to everyone.
        """
        async with self._lock:
            if self._cached is None or time.monotonic() - self._cached[0] >= self._max_age:
                now = time.monotonic()
                self._cached = now, await to_thread.run_sync(self._load, limiter=self._thread)
            grants = self._cached[1]
        self._needed = self._needed or bool(grants)
        return grants if self._needed else None

    def _load(self) -> Mapping[str, Access]:
        try:
            tokens = self._tokens.all()
        except VisarError as error:
            _logger.warning("Can't read the tokens of the index: %s", error)
            message = "Can't read the tokens of the index: try again in a moment."
            raise refusal(503, "index", message, {"Retry-After": "2"}) from error
        hashes = [(one, key) for one in tokens for key in (one.sha256, one.session_sha256)]
        return {key: _access(one) for one, key in hashes}


def _access(token: AccessToken) -> Access:
    return Access(token.id, token.collection, writes=token.access == "write")


def access_of(request: Request) -> Access:
    """Return the access rights of a request, from the token that `RequestGuard` has checked."""
    grant = request.scope[GRANT]
    return grant if isinstance(grant, Access) else OPERATOR


async def check_rights(request: Request) -> None:
    """Refuse requests with a read-only token, except reads and questions."""
    tags = request.scope["route"].tags
    if request.method in ("GET", "HEAD") or not {*READING_TAGS}.isdisjoint(tags):
        return
    access_of(request).check_writes()


async def check_operator(request: Request) -> None:
    """Refuse requests that don't come from the operator."""
    if not access_of(request).is_operator:
        raise refusal(403, "operator", "Only the operator may do this: use the server's own token.")
