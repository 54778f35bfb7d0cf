"""The page in a real browser: fixtures that open it, and helpers that use it."""

from __future__ import annotations

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
    """Open pages in which every exception, blocked resource or foreign request is a failure.

    So is every failed request, except with ``failing``.
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
    assert errors == []


def submit(page: Page, question: str = QUESTION) -> None:
    """Ask a question."""
    page.get_by_label("Question", exact=True).fill(question)
    page.get_by_role("button", name="Ask", exact=True).click()


def ask(page: Page, question: str = QUESTION) -> Page:
    """Ask a question and wait for the explanation."""
    submit(page, question)
    wait_for_explanation(page)
    return page


def wait_for_explanation(page: Page) -> None:
    """Wait until the page shows why it used these pages."""
    expect(page.get_by_role("heading", name="Why these pages")).to_be_visible()


def assert_accessible(page: Page) -> None:
    """Check that axe finds nothing serious."""
    # axe is a script of its own, which the page's policy does not keep out of an evaluation.
    found = Axe().run(page)
    serious = [
        (each["id"], [node["html"][:200] for node in each["nodes"]])
        for each in found.response["violations"]
        if each["impact"] in ("serious", "critical")
    ]
    assert serious == []
