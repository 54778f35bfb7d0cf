"""Fixtures and helpers for tests of the web page in a real browser."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

from tests.explain.browser import CHROMIUM
from tests.server.service import serving
from visar.index import Index

QUESTION = "How did capital expenditure change between 2020 and 2024?"
SECONDS = 60_000.0
WIDE = {"width": 1440, "height": 1000}
PHONE = {"width": 390, "height": 844}
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    flags = (
        "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
        "--disable-component-update --disable-sync"
    )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags.split())
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def report_address(library: Index) -> Iterator[str]:
    """Address of a server with the example report."""
    with serving(library) as address:
        yield address


@pytest.fixture
def open_page(browser: Browser, report_address: str) -> Iterator[Open]:
    """Return a function that opens pages.

    Exceptions, blocked resources and requests to other hosts fail the test, as do failed requests
    unless the page is opened with ``failing``.
    """
    errors: list[str] = []
    pages: list[Page] = []

    def check_message(message: ConsoleMessage, failing: bool) -> None:
        if message.type == "error" and not (failing and "Failed to load" in message.text):
            errors.append(message.text)

    def check_host(request: Request, address: str) -> None:
        if urlsplit(request.url).netloc != urlsplit(address).netloc:
            errors.append(f"requested {request.url}")

    def open_page(
        path: str = "/",
        *,
        at: str = report_address,
        theme: Any = "light",
        size: Any = WIDE,
        failing: bool = False,
        script: str = "",
    ) -> Page:
        page = browser.new_page(viewport=size, color_scheme=theme)
        page.set_default_timeout(SECONDS)
        page.on("console", lambda message: check_message(message, failing))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: check_host(request, at))
        page.add_init_script(script)
        page.add_init_script(
            "addEventListener('securitypolicyviolation', (event) => "
            "console.error('blocked', event.violatedDirective, event.blockedURI))"
        )
        page.goto(at + path)
        pages.append(page)
        return page

    expect.set_options(timeout=SECONDS)
    yield open_page
    for page in pages:
        page.close()
    assert not errors, errors


def submit(page: Page, question: str = QUESTION) -> None:
    """Enter a question and submit it."""
    page.get_by_label("Question", exact=True).fill(question)
    page.get_by_role("button", name="Ask", exact=True).click()


def ask(page: Page, question: str = QUESTION) -> Page:
    """Ask a question and wait for the explanation."""
    submit(page, question)
    wait_for_explanation(page)
    return page


def wait_for_explanation(page: Page) -> None:
    """Wait until the explanation of the answer is visible."""
    expect(page.get_by_role("heading", name="Why these pages")).to_be_visible()


def unfold(page: Page) -> None:
    """Show what the method saw: the matrix, the cost and other methods."""
    page.get_by_text("Overlap, cost and other methods").click()


def assert_accessible(page: Page) -> None:
    """Check that axe finds no serious violations."""
    # Wait for transitions, which may go through colors with too little contrast.
    page.evaluate("Promise.all(document.getAnimations().map((one) => one.finished))")
    # The page's policy doesn't block the script of axe, since it is evaluated by the debugger.
    results = Axe().run(page)
    serious = [
        (violation["id"], [node["html"][:200] for node in violation["nodes"]])
        for violation in results.response["violations"]
        if violation["impact"] in ("serious", "critical")
    ]
    assert not serious, serious


class Cable:
    """A proxy between a browser and a server whose connections can be cut and restored."""

    def __init__(self, address: str) -> None:
        self._server = urlsplit(address)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: set[socket.socket] = set()
        self._is_cut = False
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Close all connections, and refuse new ones."""
        self._is_cut = True
        for one in list(self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        """Accept connections again."""
        self._is_cut = False

    def close(self) -> None:
        # Shut it down first, since closing it would leave the thread waiting.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                browser, _ = self._listener.accept()
            except OSError:
                return
            if self._is_cut:
                browser.close()
                continue
            assert self._server.hostname
            server = socket.create_connection((self._server.hostname, self._server.port or 80))
            self._sockets |= {browser, server}
            for source, target in ((browser, server), (server, browser)):
                threading.Thread(target=self._copy, args=(source, target), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while content := source.recv(65536):
                target.sendall(content)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)
        self._sockets.discard(source)
        source.close()


@pytest.fixture
def cable(report_address: str) -> Iterator[Cable]:
    """A proxy in front of the server with the example report."""
    cable = Cable(report_address)
    yield cable
    cable.close()
