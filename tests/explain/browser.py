"""A real browser for tests, if one is installed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Page, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium"
)


@dataclass
class Opened:
    """A page in the browser, with its requests and errors."""

    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


@contextmanager
def opened(path: Path, theme: Literal["light", "dark"] = "light") -> Iterator[Opened]:
    """Open a file; violations of its content security policy are errors too."""
    with sync_playwright() as playwright:
        # As root, in containers, Chromium has no sandbox.
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(color_scheme=theme)
        seen = Opened(page)
        page.on("request", lambda request: seen.requests.append(request.url))
        page.on("console", lambda message: seen.complaints.append(message.text))
        page.on("pageerror", lambda error: seen.complaints.append(str(error)))
        page.goto(path.as_uri())
        seen.requests[:] = [
            url for url in seen.requests if url != path.as_uri() and not url.startswith("data:")
        ]
        yield seen
        browser.close()
