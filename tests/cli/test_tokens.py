"""``visar tokens``: what an operator types, and what a server then accepts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.typed import Visar
from visar.index import Index


def test_a_token_is_created_listed_and_revoked(visar: Visar, tmp_path: Path) -> None:
    created = visar("tokens", "create", "--collection", "reports", "--read", "--name", "Ann")
    assert created.code == 0
    secret = created.out.strip()
    assert secret.startswith("visar_")
    listed = visar("tokens", "list")
    assert secret not in listed.out
    (token,) = json.loads(visar("tokens", "list", "--json").out)
    assert set(token) == {"id", "name", "collection", "access", "created"}
    assert (token["name"], token["collection"], token["access"]) == ("Ann", "reports", "read")
    assert all(value in listed.out for value in (token["id"], "Ann", "reports", "read"))
    assert token["id"] in created.err
    with Index.open(tmp_path / "index") as index:
        assert [one.id for one in index.tokens.all()] == [token["id"]]
    assert visar("tokens", "revoke", token["id"]).code == 0
    assert json.loads(visar("tokens", "list", "--json").out) == []
    assert visar("tokens", "list").code == 0


def test_a_token_without_a_collection_gives_access_to_everything(visar: Visar) -> None:
    token = json.loads(visar("tokens", "create", "--write", "--json").out)
    assert (token["collection"], token["access"]) == (None, "write")
    assert token["token"].startswith("visar_")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["create"], "--read"),
        (["create", "--read", "--collection", "two\nlines"], "collection"),
        (["revoke", "nothing"], "nothing"),
        (["create", "--read", "--server", "http://127.0.0.1:1"], "--server"),
    ],
)
def test_errors_name_the_option_or_value(visar: Visar, arguments: list[str], named: str) -> None:
    visar("tokens", "create", "--read")
    ran = visar("tokens", *arguments)
    assert ran.code == 2
    assert named in ran.err
    assert "Traceback" not in ran.err


def test_a_missing_index_has_no_tokens(visar: Visar) -> None:
    ran = visar("tokens", "list")
    assert ran.code == 2
    assert ran.out == ""
