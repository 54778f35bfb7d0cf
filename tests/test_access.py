"""Access tokens of an index, in both kinds of store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.store.samples import KINDS, Kind, open_kind
from visar.access import AccessTokens
from visar.errors import InvalidOption, NotInIndex
from visar.network import session_key, token_hash
from visar.store import open_store


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_are_stored_in_the_index(kind: Kind, tmp_path: Path) -> None:
    if kind == "lance":
        pytest.importorskip("lancedb")
    store = open_kind(kind, tmp_path)
    tokens = AccessTokens(store)
    assert tokens.all() == []
    first, _ = tokens.create("read", collection="reports", name="Ann\n\x1b[2J")
    second, _ = tokens.create("write")
    again = AccessTokens(open_kind(kind, store.location, create=False))
    assert again.all() == [first, second]
    assert (first.collection, first.access, first.name) == ("reports", "read", "Ann [2J")
    assert (second.collection, second.access, second.name) == (None, "write", "")
    assert again.revoke(first.id) == first
    assert tokens.all() == [second]
    with pytest.raises(NotInIndex, match=first.id):
        tokens.revoke(first.id)
    with pytest.raises(InvalidOption):
        tokens.create("read", collection="two\nlines")


def test_the_index_contains_neither_tokens_nor_session_keys(tmp_path: Path) -> None:
    store = open_store(tmp_path / "index")
    token, secret = AccessTokens(store).create("read")
    assert secret.startswith("visar_")
    assert len(secret) > 40
    assert token.sha256 == token_hash(secret)
    assert token.session_sha256 == token_hash(session_key(secret))
    assert secret not in repr(token)
    store.close()
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert token.id.encode() in stored
    assert secret.encode() not in stored
    assert session_key(secret).encode() not in stored


def test_tokens_are_unique(tmp_path: Path) -> None:
    tokens = AccessTokens(open_store(tmp_path / "index"))
    secrets = {tokens.create("read")[1] for _ in range(20)}
    assert len(secrets) == 20
    assert len({json.dumps([one.id, one.sha256]) for one in tokens.all()}) == 20
