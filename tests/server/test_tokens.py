"""Access with the operator's token, and with tokens that are stored in the index."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import expect

from tests.conftest import write_pdf
from tests.explain.browser import needs_chromium
from tests.server.browsing import Open
from tests.server.browsing import browser as browser
from tests.server.browsing import open_page as open_page
from tests.server.browsing import report_address as report_address
from tests.server.service import TOKEN, assert_problem, client, program, serving, wait_until
from tests.storage import bucket as bucket
from visar import serving as http
from visar.access import AccessTokens
from visar.errors import ServiceError
from visar.index import Index
from visar.network import session_key
from visar.server import Settings
from visar.serving import SESSION
from visar.store import open_store


def get(address: str, token: str | None = None, **cookies: str) -> httpx2.Response:
    """Request the list of documents."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    with client(address, headers=headers, cookies=cookies) as http:
        return http.get("documents")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Folder of an index with two collections of one document each."""
    folder = tmp_path / "index"
    with Index.open(folder) as index:
        for name in ("sails", "oars"):
            index.add(write_pdf(tmp_path / f"{name}.pdf", f"All about {name}."), collection=name)
    return folder


@pytest.fixture
def tokens(folder: Path) -> Iterator[AccessTokens]:
    """The tokens of the index, opened separately, as in another process."""
    store = open_store(folder)
    yield AccessTokens(store)
    store.close()


def test_requests_need_a_token_once_the_index_has_one(folder: Path, tokens: AccessTokens) -> None:
    with Index.open(folder) as index, serving(index) as address:
        assert get(address).status_code == 200
        sails, secret = tokens.create("read", collection="sails")
        everything, other = tokens.create("read")
        assert_problem(get(address), 401, "token")
        assert_problem(get(address, "visar_wrong"), 401, "token")
        assert [one["name"] for one in get(address, secret).json()] == ["sails.pdf"]
        assert len(get(address, other).json()) == 2
        tokens.revoke(sails.id)
        assert_problem(get(address, secret), 401, "token")
        # Revoking the last token doesn't open the server to everyone.
        tokens.revoke(everything.id)
        assert_problem(get(address, other), 401, "token")
        assert_problem(get(address), 401, "token")


def test_the_operators_token_gives_access_to_everything(folder: Path, tokens: AccessTokens) -> None:
    _, secret = tokens.create("read", collection="oars")
    with Index.open(folder) as index, serving(index, Settings(token=TOKEN)) as address:
        assert len(get(address, TOKEN).json()) == 2
        assert [one["name"] for one in get(address, secret).json()] == ["oars.pdf"]
        assert_problem(get(address), 401, "token")


def test_a_session_cookie_replaces_a_token_without_revealing_it(
    folder: Path, tokens: AccessTokens
) -> None:
    token, secret = tokens.create("read", collection="sails")
    with Index.open(folder) as index, serving(index) as address:
        with client(address, headers={"Authorization": f"Bearer {secret}"}) as http:
            response = http.post("session", json={})
            assert response.status_code == 204
        cookie = response.headers["set-cookie"]
        assert secret not in cookie
        assert {"httponly", "samesite=strict"} <= {*cookie.lower().split("; ")}
        key = response.cookies[SESSION]
        assert [one["name"] for one in get(address, **{SESSION: key}).json()] == ["sails.pdf"]
        # A token takes precedence over a cookie.
        assert_problem(get(address, "visar_wrong", **{SESSION: key}), 401, "token")
        # Someone who can read the index can't derive a session from it.
        for known in (token.sha256, token.session_sha256, session_key(token.sha256)):
            assert_problem(get(address, **{SESSION: known}), 401, "token")
            assert_problem(get(address, known), 401, "token")
        tokens.revoke(token.id)
        assert_problem(get(address, **{SESSION: key}), 401, "token")


def test_nobody_has_access_while_tokens_cannot_be_read(folder: Path, tokens: AccessTokens) -> None:
    _, secret = tokens.create("read")
    with Index.open(folder) as index, serving(index) as address:
        assert get(address, secret).status_code == 200
        shutil.move(folder, folder.with_name("elsewhere"))
        assert_problem(get(address, secret), 503, "index")
        assert_problem(get(address), 503, "index")
        shutil.move(folder.with_name("elsewhere"), folder)
        assert get(address, secret).status_code == 200


def test_a_server_can_require_a_token_before_there_is_one(folder: Path) -> None:
    settings = Settings(needs_token=True)
    with Index.open(folder) as index, serving(index, settings) as address:
        assert_problem(get(address), 401, "token")


def test_a_stored_token_allows_a_server_to_listen_on_all_addresses(
    folder: Path, tokens: AccessTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VISAR_TOKEN", raising=False)
    with pytest.raises(AssertionError, match="VISAR_TOKEN"), program(folder, "--host", "0.0.0.0"):  # noqa: S104
        pass
    with pytest.raises(ServiceError, match="VISAR_TOKEN"):  # the short token would still be unsafe
        http.listen("0.0.0.0", 0, token="short", has_stored=True)  # noqa: S104, S106
    token, secret = tokens.create("read", collection="sails")
    with program(folder, "--host", "0.0.0.0") as (address, _):  # noqa: S104
        local = address.replace("0.0.0.0", "127.0.0.1")  # noqa: S104
        assert [one["name"] for one in get(local, secret).json()] == ["sails.pdf"]
        tokens.revoke(token.id)
        assert_problem(get(local), 401, "token")


def test_tokens_work_with_object_storage(bucket: str) -> None:
    location = f"{bucket}/tokens"
    with Index.open(location) as index, serving(index) as address:
        assert get(address).status_code == 200
        with contextlib.closing(open_store(location)) as store:
            token, secret = AccessTokens(store).create("read")
            wait_until(lambda: get(address).status_code == 401, "a token is needed")
            assert get(address, secret).status_code == 200
            AccessTokens(store).revoke(token.id)
            wait_until(lambda: get(address, secret).status_code == 401, "the token is refused")


@needs_chromium
def test_the_web_page_only_shows_the_tokens_collection(
    folder: Path, tokens: AccessTokens, open_page: Open
) -> None:
    _, secret = tokens.create("write", collection="sails")
    with Index.open(folder) as index, serving(index) as address:
        page = open_page(at=address, failing=True)
        page.get_by_label("Token").fill("visar_wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("dialog").get_by_text("Wrong token.", exact=True)).to_be_visible()
        page.get_by_label("Token").fill(secret)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("button", name=re.compile("sails.pdf")).first).to_be_visible()
        assert "oars" not in page.content()
        assert secret not in str(page.context.cookies())
