"""The page in a real browser: the viewer's name, words to find, thumbnails, and text to copy."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.explain.browser import needs_chromium
from tests.server.browsing import PHONE, WIDE, Open, ask, assert_accessible
from tests.server.browsing import browser as browser
from tests.server.browsing import open_page as open_page
from tests.server.browsing import report_address as report_address

pytestmark = needs_chromium
REPORT = "harbour-light-annual-report.pdf"


def open_report(page: Page) -> Page:
    page.get_by_role("button", name=f"{REPORT} 40 pages").click()
    expect(page.get_by_alt_text(f"Page 1 of {REPORT}")).to_be_visible()
    return page


def find(page: Page, words: str) -> None:
    page.get_by_role("button", name="Find words").click()
    page.get_by_label("Find in this document").fill(words)


def test_the_document_is_the_heading(open_page: Open) -> None:
    page = open_report(open_page())
    expect(page.locator("visar-viewer").get_by_role("heading", name=REPORT)).to_be_visible()


def test_words_are_found_in_the_whole_document(open_page: Open) -> None:
    page = open_report(open_page())
    find(page, "Capital  expenditure")
    status = page.locator("visar-viewer [role=status]")
    number = page.get_by_label("Page number")
    # The first match is shown, on a later page.
    expect(status).to_have_text(re.compile(r"^1 of \d+, \d+ on this page$"))
    expect(number).not_to_have_value("1")
    expect(page.locator(".match.current").first).to_be_in_viewport()
    found = re.match(r"1 of (\d+)", status.inner_text())
    assert found
    first = number.input_value()
    page.keyboard.press("Shift+Enter")
    expect(status).to_have_text(re.compile(f"^{found[1]} of"))
    page.get_by_role("button", name="Next match").click()
    expect(status).to_have_text(re.compile("^1 of"))
    expect(number).to_have_value(first)
    assert_accessible(page)
    # From a page that was turned to, the search goes on.
    page.get_by_label("Next page").click()
    page.get_by_label("Find in this document").press("Enter")
    expect(status).to_have_text(re.compile("^[2-9] of"))
    page.get_by_label("Find in this document").fill("zeppelin")
    expect(status).to_have_text("No matches")
    expect(page.locator(".match")).to_have_count(0)
    page.keyboard.press("Escape")
    expect(page.get_by_label("Find in this document")).to_be_hidden()
    expect(page.locator("visar-viewer")).to_be_visible()


def test_thumbnails_lead_to_pages(open_page: Open) -> None:
    page = open_page()
    loaded: set[str] = set()
    page.on("request", lambda request: loaded.add(request.url))
    open_report(page)
    page.get_by_role("button", name="Thumbnails of all pages").click()
    strip = page.get_by_role("list", name="Pages")
    expect(strip.get_by_role("button")).to_have_count(40)
    page.wait_for_function("() => document.querySelector('.strip img')?.naturalWidth > 0")
    # Only those in view are loaded.
    assert not any(f"/pages/{number}/thumbnail" in url for number in (30, 40) for url in loaded)
    strip.get_by_role("button", name="Page 4", exact=True).click()
    expect(page.get_by_label("Page number")).to_have_value("4")
    # The keys turn pages, and the focus goes with them.
    page.keyboard.press("ArrowRight")
    expect(strip.get_by_role("button", name="Page 5", exact=True)).to_be_focused()
    expect(strip.locator("[aria-current=true]")).to_have_text("5")
    find(page, "warranty")
    expect(strip.get_by_role("button", name="Page 10, 1 found")).to_be_in_viewport()
    assert_accessible(page)


@pytest.mark.parametrize("is_secure", [True, False], ids=["https", "http"])
def test_the_text_of_a_page_is_copied(open_page: Open, is_secure: bool) -> None:
    hide = "delete Navigator.prototype.clipboard"
    page = open_page(script="" if is_secure else hide)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_report(page)
    page.get_by_label("Page number").fill("10")
    page.keyboard.press("Enter")
    expect(page.get_by_alt_text(f"Page 10 of {REPORT}")).to_be_visible()
    page.get_by_role("button", name="Copy the text of this page").click()
    expect(page.get_by_text("Copied the text of page 10.")).to_be_visible()
    # What was copied is what a field takes from the clipboard.
    page.get_by_role("button", name="Find words").click()
    page.get_by_label("Find in this document").evaluate("(one) => one.removeAttribute('maxlength')")
    page.keyboard.press("Control+V")
    field = page.get_by_label("Find in this document")
    expect(field).to_have_value(re.compile("warranty of seven years on the lantern"))


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_it_fits_and_is_accessible(open_page: Open, size: dict[str, int], theme: str) -> None:
    page = open_page(size=size, theme=theme)
    if size is PHONE:
        page.get_by_role("button", name="Library").click()
    open_report(page)
    page.get_by_role("button", name="Thumbnails of all pages").click()
    find(page, "lantern")
    expect(page.locator(".match.current").first).to_be_attached()
    assert_accessible(page)
    clipped = "(one) => one.scrollWidth > one.clientWidth"
    assert not page.locator("visar-viewer").evaluate(clipped)
    assert not page.evaluate(f"() => ({clipped})(document.documentElement)")


def test_a_large_screen_has_a_large_page(open_page: Open) -> None:
    page = open_report(open_page(size={"width": 1920, "height": 1080}))
    box = page.locator("visar-viewer").bounding_box()
    assert box
    assert box["width"] > 600


def test_a_passage_is_scrolled_to_and_another_page_begins_at_its_top(open_page: Open) -> None:
    page = open_page(size={"width": 1280, "height": 500})
    ask(page, "Who are the registrars, and what is their address?")
    viewer = page.locator("visar-viewer")
    spot = viewer.locator(".spot").first
    expect(spot).to_be_in_viewport()
    viewer.evaluate("(one) => { one.scrollTop = one.scrollHeight; }")
    page.get_by_label("Previous page").click()
    expect(page.get_by_alt_text(re.compile("^Page"))).to_be_visible()
    page.wait_for_function("() => document.querySelector('visar-viewer').scrollTop === 0")


def test_escape_closes_what_has_the_focus(open_page: Open) -> None:
    page = open_page(size={"width": 1000, "height": 800})
    menu = page.get_by_role("button", name="Library")
    menu.click()
    open_report(page)
    viewer = page.locator("visar-viewer")
    toggle = page.get_by_role("button", name="Conversations")
    toggle.click()
    expect(toggle).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("Escape")
    expect(toggle).to_have_attribute("aria-expanded", "false")
    sort = page.get_by_label("Sort documents")
    for part in (menu, sort):
        menu.click()
        expect(sort).to_be_visible()  # the drawer is open, so that it can have the focus
        part.focus()
        page.keyboard.press("Escape")
        expect(menu).to_have_attribute("aria-expanded", "false")
        expect(menu).to_be_focused()
        expect(viewer).to_be_visible()
    page.keyboard.press("Escape")
    expect(viewer).to_be_hidden()
