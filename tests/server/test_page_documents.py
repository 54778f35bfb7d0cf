"""The page in a real browser: many documents, several selected, and many files at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.conftest import write_pdf
from tests.explain.browser import needs_chromium
from tests.server.browsing import PHONE, WIDE, Open, assert_accessible
from tests.server.browsing import browser as browser
from tests.server.browsing import open_page as open_page
from tests.server.browsing import report_address as report_address
from tests.server.conftest import encrypt
from tests.server.service import client, serving, wait_until
from tests.store.samples import TEXT, document, items, open_kind, put
from visar.index import Index

pytestmark = needs_chromium
LONG = "minutes-of-the-board-of-trustees-with-all-annexes-2024.pdf"


def filled(folder: Path, names: list[str]) -> Path:
    """Make an index with a document of each name, of one page more than the one before."""
    with closing(open_kind("sqlite", folder)) as store:
        for pages, name in enumerate(names, start=1):
            number = 1 + pages % 20
            put(store, document(name, number), TEXT, items("note", number, TEXT))
    return folder


@pytest.fixture
def shelf_address(tmp_path: Path) -> Iterator[str]:
    """A server with eight documents, which the test may change."""
    names = ["note-10", "note-9", *(f"list-{number}" for number in range(5)), LONG[:-4]]
    with Index.open(filled(tmp_path / "index", names)) as index, serving(index) as address:
        yield address


def rows(page: Page) -> Locator:
    return page.locator("visar-library li.row")


def check(page: Page, name: str) -> None:
    """Select a document by the checkbox that appears when it is pointed at."""
    box = page.get_by_label(f"Select {name}")
    rows(page).filter(has=box).hover()
    box.check()


def test_selected_documents_are_removed_together(open_page: Open, shelf_address: str) -> None:
    page = open_page(at=shelf_address)
    selected = page.get_by_role("group", name="Selected documents")
    expect(rows(page)).to_have_count(8)
    expect(selected).to_be_hidden()
    check(page, "note-9.pdf")
    check(page, "list-0.pdf")
    expect(selected).to_contain_text("2 selected")
    # While documents are selected, a click on another one selects it, too.
    page.get_by_role("button", name="list-1.pdf 5 pages").click()
    expect(selected).to_contain_text("3 selected")
    expect(page.locator("visar-viewer")).to_be_hidden()
    assert_accessible(page)
    selected.get_by_role("button", name="Remove").click()
    expect(rows(page)).to_have_count(5)
    expect(selected).to_be_hidden()
    page.get_by_role("button", name="Undo").click()
    expect(rows(page)).to_have_count(8)
    # Without a change of mind they are gone.
    page.get_by_role("button", name="Select", exact=True).click()
    check(page, "note-9.pdf")
    check(page, "list-0.pdf")
    selected.get_by_role("button", name="Remove").click()
    with client(shelf_address) as http:
        wait_until(lambda: len(http.get("documents").json()) == 6, "the documents are removed")


def test_selected_documents_go_to_a_collection(open_page: Open, shelf_address: str) -> None:
    page = open_page(at=shelf_address, failing=True)
    page.get_by_role("button", name="Select", exact=True).click()
    # With shift, all between two clicks.
    page.get_by_label("Select list-0.pdf").click()
    page.get_by_label("Select list-3.pdf").click(modifiers=["Shift"])
    expect(page.get_by_role("group", name="Selected documents")).to_contain_text("4 selected")
    page.get_by_role("button", name="Add to collection").click()
    dialog = page.get_by_role("dialog", name="Add 4 documents to a collection")
    expect(dialog.get_by_label("Name of a new collection")).to_be_focused()
    assert_accessible(page)
    page.keyboard.type("Lists")
    page.keyboard.press("Enter")
    expect(dialog).to_have_count(0)
    # The collection is selected, so that questions are about these documents.
    expect(page).to_have_url(re.compile("collection=Lists"))
    expect(rows(page)).to_have_count(4)
    collection = page.get_by_role("button", name="Lists 4 documents")
    collection.click()
    expect(rows(page)).to_have_count(8)
    # An existing collection is a click away.
    check(page, "note-9.pdf")
    page.get_by_role("button", name="Add to collection").click()
    page.get_by_role("dialog").get_by_role("button", name="Lists 4 documents").click()
    expect(rows(page)).to_have_count(5)
    # If it fails, what was typed stays.
    page.route("**/collections/**", lambda route: route.abort())
    check(page, "note-9.pdf")
    page.get_by_role("button", name="Add to collection").click()
    page.get_by_label("Name of a new collection").fill("Notes")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("the server")
    page.unroute_all()
    page.get_by_role("button", name="Create").click()
    expect(page).to_have_url(re.compile("collection=Notes"))


def test_selecting_needs_no_pointer(open_page: Open, shelf_address: str) -> None:
    page = open_page(at=shelf_address)
    box = page.get_by_label("Select note-10.pdf")
    expect(rows(page)).to_have_count(8)
    page.get_by_role("button", name=re.compile("^note-10.pdf")).focus()
    page.keyboard.press("Shift+Tab")
    expect(box).to_be_focused()
    expect(page.locator(".pick").filter(has=box)).to_have_css("opacity", "1")
    page.keyboard.press("Space")
    expect(box).to_be_checked()
    expect(page.get_by_role("group", name="Selected documents")).to_contain_text("1 selected")
    page.keyboard.press("Escape")
    expect(box).not_to_be_checked()
    expect(page.get_by_role("group", name="Selected documents")).to_be_hidden()


def test_selecting_works_by_touch(open_page: Open, shelf_address: str) -> None:
    page = open_page(at=shelf_address, size=PHONE, theme="dark")
    page.get_by_role("button", name="Library").click()
    page.get_by_role("button", name="Select", exact=True).click()
    page.get_by_role("button", name=re.compile("^note-10.pdf")).click()
    expect(page.get_by_label("Select note-10.pdf")).to_be_checked()
    expect(page.get_by_role("button", name="Remove", exact=True)).to_be_in_viewport()
    assert_accessible(page)
    page.get_by_role("button", name="Done").click()
    expect(page.get_by_label("Select note-10.pdf")).not_to_be_checked()


def test_documents_are_sorted(open_page: Open, shelf_address: str) -> None:
    page = open_page(at=shelf_address)
    expect(rows(page).first).to_contain_text(LONG)
    order = page.get_by_label("Sort documents")
    order.select_option("Name")
    expect(rows(page).first).to_contain_text("list-0.pdf")
    # Numbers count as numbers.
    expect(rows(page).nth(6)).to_contain_text("note-9.pdf")
    expect(rows(page).nth(7)).to_contain_text("note-10.pdf")
    order.select_option("Pages")
    expect(rows(page).first).to_contain_text("9 pages")
    expect(rows(page).last).to_contain_text("2 pages")
    page.reload()
    expect(rows(page).last).to_contain_text("2 pages")


def test_a_long_name_is_cut_in_its_middle(open_page: Open, shelf_address: str) -> None:
    page = open_page(at=shelf_address)
    name = rows(page).first.locator(".name")
    expect(name).to_have_attribute("title", LONG)
    start, end = name.locator("span").all()
    assert start.evaluate("(one) => one.scrollWidth > one.clientWidth")
    assert end.evaluate("(one) => one.scrollWidth <= one.clientWidth")
    expect(end).to_have_text(LONG[-13:])
    box = name.bounding_box()
    assert box
    assert box["height"] < 30


def test_many_files_have_one_progress(open_page: Open, address: str, tmp_path: Path) -> None:
    page = open_page(at=address)
    page.wait_for_selector(".entry")
    long = [
        write_pdf(tmp_path / f"{name}.pdf", *[f"Ropes, sails and {name}. " * 60] * 300)
        for name in ("anchors", "oars")
    ]
    broken = tmp_path / "broken.pdf"
    broken.write_text("no document at all", encoding="utf-8")
    empty = tmp_path / "empty.pdf"
    empty.write_bytes(b"")
    locked = encrypt(write_pdf(tmp_path / "safe.pdf", "The safe holds a map."), "sesame")
    page.locator("#files").set_input_files([long[0], broken, empty, locked, long[1]])
    every = page.get_by_role("group", name="All files")
    expect(every).to_contain_text(re.compile(r"[1-3] of 5 files *page \d+ of (at least )?300"))
    expect(every).to_contain_text("failed")
    queue = page.get_by_role("list", name="Files that are being added").get_by_role("listitem")
    names = [re.compile(name) for name in ("anchors", "broken", "empty", "safe", "oars")]
    expect(queue.filter(has=page.locator(".name"))).to_have_text(names)
    assert_accessible(page)
    every.get_by_role("button", name="Cancel all").click()
    expect(every).to_be_hidden()
    expect(page.get_by_text(re.compile(r"Added \d of 5 files"))).to_be_visible()
    # What failed stays, with the reason and what to do.
    expect(queue.filter(has_text="anchors")).to_contain_text("Canceled")
    expect(queue.filter(has_text="empty.pdf").get_by_role("alert")).to_contain_text("empty")
    page.get_by_role("button", name=re.compile("Dismiss all")).click()
    expect(queue).to_have_count(0)


def test_files_that_failed_leave_room_for_the_documents(
    open_page: Open, shelf_address: str, tmp_path: Path
) -> None:
    page = open_page(at=shelf_address, size={"width": 1280, "height": 720})
    broken = [tmp_path / f"broken-{number}.pdf" for number in range(3)]
    for one in broken:
        one.write_text("no document at all", encoding="utf-8")
    page.locator("#files").set_input_files(broken)
    queue = page.get_by_role("list", name="Files that are being added")
    expect(queue.get_by_text("Add another version of the file.")).to_have_count(3)
    expect(rows(page).nth(2)).to_be_in_viewport()
    expect(page.get_by_role("heading", name="Collections")).to_be_in_viewport()
    # What can't be clicked doesn't look so.
    queue.get_by_role("listitem").first.hover()
    color = queue.get_by_role("listitem").first.evaluate(
        "(one) => getComputedStyle(one).backgroundColor"
    )
    assert color == "rgba(0, 0, 0, 0)"


def test_no_column_is_cut_off(open_page: Open, shelf_address: str) -> None:
    for width in (360, 700, 701, 1100, 1101, 1440, 1920):
        page = open_page(at=shelf_address, size={**WIDE, "width": width})
        if width <= 1100:
            page.get_by_role("button", name="Library").click()
        page.get_by_role("button", name="Select", exact=True).click()
        page.get_by_label("Select note-9.pdf").check()
        clipped = "(one) => one.scrollWidth > one.clientWidth"
        assert not page.locator("visar-library").evaluate(clipped), width
        assert not page.evaluate(f"() => ({clipped})(document.documentElement)"), width
        page.close()
