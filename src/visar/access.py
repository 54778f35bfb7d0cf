"""Access tokens, which open an index, or one collection of it, over HTTP.

Only their hashes are stored, so that the index and its backups don't reveal them.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

from visar.errors import NotInIndex
from visar.network import session_key, token_hash
from visar.query import check_collection
from visar.results import AccessKind, AccessToken
from visar.serialization import from_plain, to_plain
from visar.store import Store
from visar.text import clean_line

_KIND = "token"
_PREFIX = "visar_"
_BYTES = 32
_MAX_NAME_LENGTH = 200


class AccessTokens:
    """The access tokens of an index."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def all(self) -> list[AccessToken]:
        """Return all tokens, oldest first."""
        values = self._store.items(_KIND).values()
        tokens = [from_plain(AccessToken, value) for value in values]
        return sorted(tokens, key=lambda token: (token.created, token.id))

    def create(
        self, access: AccessKind, *, collection: str | None = None, name: str = ""
    ) -> tuple[AccessToken, str]:
        """Create a token and return it with its secret, which can't be retrieved later.

        Raises InvalidOption if the collection name is invalid.
        """
        if collection is not None:
            check_collection(collection)
        secret = _PREFIX + secrets.token_urlsafe(_BYTES)
        token = AccessToken(
            id=secrets.token_hex(4),
            name=clean_line(name, _MAX_NAME_LENGTH),
            collection=collection,
            access=access,
            created=datetime.now(UTC),
            sha256=token_hash(secret),
            session_sha256=token_hash(session_key(secret)),
        )
        self._store.change_item(_KIND, token.id, lambda _: to_plain(token))
        return token, secret

    def revoke(self, id_: str) -> AccessToken:
        """Delete a token and return it; raises NotInIndex if it doesn't exist."""
        known = self._store.items(_KIND)
        if id_ not in known:
            raise NotInIndex(f"No token with the id {id_!r}. `visar tokens list` shows the ids.")
        self._store.change_item(_KIND, id_, lambda _: None)
        return from_plain(AccessToken, known[id_])
