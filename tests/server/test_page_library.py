"""The page in a real browser: files, passwords, collections, and who may see them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.conftest import damage_page, write_pdf
from tests.explain.browser import needs_chromium
from tests.server.browsing import SECONDS, WIDE, Open, ask, assert_accessible
from tests.server.browsing import browser as browser
from tests.server.browsing import open_page as open_page
from tests.server.browsing import report_address as report_address
from tests.server.conftest import encrypt
from tests.server.service import TOKEN, client, finished, serving, upload
from tests.store.samples import TEXT, document, items, open_kind, put
from visar.documents import ReadOptions
from visar.index import Index
from visar.server import Settings

pytestmark = needs_chromium


def test_a_file_becomes_a_document(open_page: Open, address: str, tmp_path: Path) -> None:
    page = open_page(at=address)
    path = write_pdf(tmp_path / "boats.pdf", "The boats of the harbour are red.")
    page.locator("#files").set_input_files(path)
    entry = page.get_by_role("button", name="boats.pdf 1 page", exact=True)
    expect(entry).to_be_visible()
    # It can be asked at once, alone.
    entry.click()
    expect(page.get_by_alt_text("Page 1 of boats.pdf")).to_be_visible()
    page.get_by_label("Question", exact=True).fill("Which colour do the boats have?")
    page.keyboard.press("Enter")
    expect(page.locator(".card .text").first).to_contain_text("are red")
    # Removed with time to think again.
    page.get_by_label("Remove boats.pdf").click()
    expect(entry).to_be_hidden()
    page.get_by_role("button", name="Undo").click()
    expect(entry).to_be_visible()
    page.get_by_label("Find a document by name").fill("nothing")
    expect(page.get_by_label("Remove boats.pdf")).to_have_count(0)


def test_a_document_without_text_says_so(open_page: Open, address: str, tmp_path: Path) -> None:
    page = open_page(at=address)
    page.locator("#files").set_input_files(write_pdf(tmp_path / "blank.pdf", ""))
    entry = page.get_by_role("button", name="blank.pdf 1 page · no text found", exact=True)
    entry.click()
    page.get_by_label("Question", exact=True).fill("Which colour do the boats have?")
    page.keyboard.press("Enter")
    expect(page.locator(".card .text").first).to_contain_text("no text was found")


def test_a_document_with_a_damaged_page_names_it(
    open_page: Open, address: str, tmp_path: Path
) -> None:
    page = open_page(at=address)
    path = damage_page(write_pdf(tmp_path / "torn.pdf", "One page.", "Another.", "A third."), 2)
    page.locator("#files").set_input_files(path)
    name = "torn.pdf 2 pages · can't read page 2"
    expect(page.get_by_role("button", name=name, exact=True)).to_be_visible()
    with client(address) as http:
        (job,) = [job for job in http.get("jobs").json() if job["name"] == "torn.pdf"]
        assert [page["number"] for page in job["invalid"]] == [2]


def test_files_are_uploaded_without_a_secure_context(
    open_page: Open, address: str, tmp_path: Path
) -> None:
    """Browsers have no crypto.randomUUID on plain HTTP, except on localhost."""
    page = open_page(at=address, script="delete Crypto.prototype.randomUUID")
    assert page.evaluate("() => crypto.randomUUID") is None
    page.locator("#files").set_input_files(write_pdf(tmp_path / "ropes.pdf", "The ropes are new."))
    expect(page.get_by_role("button", name="ropes.pdf 1 page", exact=True)).to_be_visible()


@pytest.fixture(scope="module")
def large_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with 1,205 documents, more than one request lists."""
    place = tmp_path_factory.mktemp("large") / "index"
    with closing(open_kind("sqlite", place)) as store:
        for number in range(1205):
            put(store, document(f"note-{number:04}", 1), TEXT, items("note", 1, TEXT))
    with Index.open(place) as index, serving(index) as address:
        yield address


def test_all_documents_are_listed_newest_first(open_page: Open, large_address: str) -> None:
    page = open_page(at=large_address)
    entries = page.locator("visar-library li.row")
    more = page.get_by_role("button", name="Show more")
    expect(entries.first).to_contain_text("note-1204.pdf")
    expect(more).to_contain_text("1,005")
    expect(entries).to_have_count(200)
    more.click()
    expect(entries).to_have_count(400)
    expect(more).to_be_focused()
    # The filter finds those that are not shown, too.
    page.get_by_label("Find a document by name").fill("note-0000")
    expect(entries).to_have_count(1)
    expect(more).to_have_count(0)
    entries.get_by_role("button", name="note-0000.pdf 1 page").click()
    expect(page.get_by_label("Search in").locator("option:checked")).to_have_text("note-0000.pdf")


def test_a_long_library_scrolls_by_itself(open_page: Open, large_address: str) -> None:
    page = open_page(at=large_address)
    expect(page.locator("visar-library li.row").nth(30)).to_be_attached()
    height = page.evaluate("() => document.documentElement.scrollHeight")
    assert height == WIDE["height"]


def test_all_documents_are_selected_and_sorted(open_page: Open, large_address: str) -> None:
    page = open_page(at=large_address)
    rows = page.locator("visar-library li.row")
    page.get_by_label("Sort documents").select_option("Name")
    expect(rows.first).to_contain_text("note-0000.pdf")
    for left in ("1,005", "805", "605", "405", "205", "5"):
        page.get_by_role("button", name=f"Show more ({left} left)").click()
    expect(rows).to_have_count(1205)
    expect(rows.last).to_contain_text("note-1204.pdf")
    # Collections and the place for new files stay in reach.
    expect(page.get_by_role("heading", name="Collections")).to_be_in_viewport()
    page.get_by_role("button", name="Select", exact=True).click()
    page.get_by_role("button", name="Select all 1,205").click()
    page.get_by_role("button", name="Add to collection").click()
    page.get_by_label("Name of a new collection").fill("All")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("button", name="All 1,205 documents")).to_be_visible()


DROP = """(content) => {
    const data = new DataTransfer();
    const bytes = Uint8Array.from(content, (letter) => letter.charCodeAt(0));
    data.items.add(new File([bytes], "sails.pdf"));
    data.items.add(new File(["hidden"], ".hidden"));
    data.items.add(new File([], "empty.pdf"));
    data.items.add(new File([bytes, "%"], `${"s".repeat(120)}ä.pdf`));
    const options = { dataTransfer: data, bubbles: true };
    document.body.dispatchEvent(new DragEvent("drop", options));
}"""


def test_dropped_files_are_added(open_page: Open, address: str, tmp_path: Path) -> None:
    page = open_page(at=address)
    page.wait_for_selector(".entry")
    content = (
        write_pdf(tmp_path / "sails.pdf", "The sails are brown.").read_bytes().decode("latin-1")
    )
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url))
    page.evaluate(DROP, content)
    expect(page.get_by_role("button", name="sails.pdf 1 page", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name=f"{'s' * 120}ä.pdf 1 page", exact=True)).to_be_visible()
    expect(page.get_by_text(".hidden")).to_have_count(0)
    # All went in one request; what was wrong with one stopped no other.
    refused = page.get_by_role("listitem").filter(has_text="empty.pdf")
    expect(refused.get_by_role("alert")).to_be_visible()
    assert len([url for url in sent if "/documents/batch" in url]) == 1
    refused.get_by_role("button", name="Dismiss").click()
    expect(refused).to_have_count(0)


def test_a_job_can_be_cancelled_and_a_locked_file_opened(
    open_page: Open, address: str, report: Path, tmp_path: Path
) -> None:
    page = open_page(at=address)
    # The file waits for a long one with each worker, so that there is time to cancel it.
    long = [
        write_pdf(tmp_path / f"long-{name}.pdf", *[f"Ropes, sails and {name}. " * 60] * 300)
        for name in ("anchors", "oars")
    ]
    page.locator("#files").set_input_files([*long, report])
    entry = page.get_by_role("listitem").filter(has_text=report.name)
    entry.get_by_role("button", name="Cancel").click()
    expect(entry.get_by_role("button", name="Try again")).to_be_visible()
    entry.get_by_role("button", name="Dismiss").click()
    expect(entry).to_be_hidden()
    for path in long:
        waited_for = page.get_by_role("listitem").filter(has_text=path.name)
        waited_for.get_by_role("button", name="Cancel").click()
        expect(waited_for.get_by_role("button", name="Try again")).to_be_visible()
    broken = tmp_path / "broken.pdf"
    broken.write_text("no document at all", encoding="utf-8")
    page.locator("#files").set_input_files(broken)
    failed = page.get_by_role("listitem").filter(has_text="broken.pdf")
    expect(failed.get_by_role("button", name="Try again")).to_be_visible()
    locked = encrypt(write_pdf(tmp_path / "safe.pdf", "The safe holds a map."), "sesame")
    page.locator("#files").set_input_files(locked)
    field = page.get_by_label("Password for locked-safe.pdf")
    field.press_sequentially("ses")
    # What is typed stays, whatever happens to other files.
    page.locator("#files").set_input_files(write_pdf(tmp_path / "other.pdf", "Another file."))
    expect(page.get_by_role("button", name="other.pdf 1 page", exact=True)).to_be_visible()
    field.press_sequentially("ame")
    page.get_by_role("button", name="Unlock", exact=True).click()
    page.get_by_role("button", name="locked-safe.pdf 1 page", exact=True).click()
    picture = page.get_by_alt_text("Page 1 of locked-safe.pdf")
    expect(picture).to_be_visible()
    page.wait_for_function("() => document.querySelector('.sheet img').naturalWidth > 0")


def test_a_password_is_asked_for_where_a_picture_is_missing(
    browser: Browser, tmp_path: Path
) -> None:
    path = write_pdf(tmp_path / "safe.pdf", "The safe holds a map.", "It is old.")
    with Index.open(tmp_path / "index") as index:
        index.add(encrypt(path, "sesame"), options=ReadOptions(password="sesame"))  # noqa: S106
    # A server that was started again knows no password.
    with (
        Index.open(tmp_path / "index") as index,
        serving(index) as address,
        browser.new_context() as context,
    ):
        page = context.new_page()
        page.goto(address)
        page.get_by_role("button", name="locked-safe.pdf 2 pages", exact=True).click()
        field = page.get_by_label("Password for locked-safe.pdf")
        field.fill("simsalabim")
        page.get_by_role("button", name="Unlock").click()
        expect(page.get_by_role("alert")).to_be_visible()
        assert_accessible(page)
        field.fill("sesame")
        page.get_by_role("button", name="Unlock").click()
        page.wait_for_function("() => document.querySelector('.sheet img')?.naturalWidth > 0")
        page.get_by_label("Next page").click()
        expect(page.get_by_alt_text("Page 2 of locked-safe.pdf")).to_be_visible()
        page.wait_for_function("() => document.querySelector('.sheet img')?.naturalWidth > 0")


def test_a_token_is_asked_for_once(browser: Browser, index: Index) -> None:
    with serving(index, Settings(token=TOKEN)) as address, browser.new_context() as context:
        page = context.new_page()
        page.goto(address)
        # Without a token, the connection isn't lost.
        with page.expect_response("**/jobs/events"):
            page.get_by_label("Token").fill("another-horse-another-staple")
        page.wait_for_timeout(300)
        expect(page.locator(".banner")).to_be_empty()
        assert_accessible(page)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("dialog").get_by_role("alert")).not_to_be_empty()
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("button", name="manual.pdf 5 pages")).to_be_visible()
        # Pictures come without headers, and are there all the same.
        page.get_by_role("button", name="manual.pdf 5 pages").click()
        page.wait_for_function("() => document.querySelector('.sheet img')?.naturalWidth > 0")
        page.reload()
        expect(page.get_by_role("button", name="manual.pdf 5 pages")).to_be_visible()
        # No script can read what stands for the token.
        assert page.evaluate("() => document.cookie") == ""


def test_a_page_whose_events_were_refused_asks_again(browser: Browser, tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "late.pdf", "The ferry is late.")
    settings = Settings(max_streams=1, requests_per_minute=1_000_000)
    with (
        Index.open(tmp_path / "index") as index,
        serving(index, settings) as address,
        browser.new_context() as context,
        client(address) as http,
    ):
        page = context.new_page()
        with http.stream("GET", "jobs/events") as response:
            assert response.status_code == 200
            with page.expect_response("**/jobs/events") as refused:
                page.goto(address)
            assert refused.value.status == 503
            assert finished(http, upload(http, path)["id"])["state"] == "done"
        added = page.get_by_role("button", name="late.pdf 1 page", exact=True)
        expect(added).to_be_visible(timeout=SECONDS)


def test_an_empty_library_says_what_to_do(open_page: Open, tmp_path: Path) -> None:
    with Index.open(tmp_path / "index") as index, serving(index) as address:
        page = open_page(at=address)
        expect(page.get_by_text("No documents yet")).to_be_visible()
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        # There is nothing to find, sort or collect yet.
        expect(page.locator("visar-library .filter")).to_be_hidden()
        expect(page.locator("visar-library .collections")).to_be_hidden()
        assert_accessible(page)
        path = write_pdf(tmp_path / "first.pdf", "The first document.")
        page.locator("#files").set_input_files(path)
        expect(page.get_by_role("button", name="first.pdf 1 page", exact=True)).to_be_visible()
        expect(page.locator("visar-library .filter")).to_be_visible()
        page.close()


def test_collections_are_made_named_and_asked(open_page: Open, address: str) -> None:
    # What is still being fetched for a collection fails once the collection is deleted.
    page = open_page(at=address, failing=True)
    page.get_by_role("button", name="Select", exact=True).click()
    page.get_by_role("button", name=re.compile("Select all")).click()
    page.get_by_role("button", name="Add to collection").click()
    page.get_by_label("Name of a new collection").fill("Books")
    page.keyboard.press("Enter")
    made = page.get_by_role("button", name=re.compile(r"^Books \d+ document"))
    expect(made).to_have_attribute("aria-current", "true")
    expect(page).to_have_url(re.compile("collection=Books"))
    page.get_by_role("button", name="Rename collection").click()
    expect(page.get_by_label("New name")).to_have_value("Books")
    assert_accessible(page)
    page.get_by_label("New name").fill("Old books")
    page.get_by_role("button", name="Rename", exact=True).click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page).to_have_url(re.compile(r"collection=Old\+books"))
    ask(page, "How long is the warranty of the Aurora lantern?")
    expect(page.locator(".card .text").first).to_contain_text("seven years")
    # Deleting it keeps its documents, and leaves time to think again.
    made = page.get_by_role("button", name=re.compile(r"^Old books"))
    page.get_by_role("button", name=re.compile("Delete collection")).click()
    expect(page).not_to_have_url(re.compile("collection="))
    expect(made).to_have_count(0)
    page.get_by_role("button", name="Undo").click()
    made.click()
    with page.expect_response(lambda one: one.request.method == "DELETE") as deleted:
        page.get_by_role("button", name=re.compile("Delete collection")).click()
        expect(made).to_have_count(0)
    assert deleted.value.ok
    expect(made).to_have_count(0)
    expect(page.get_by_role("button", name="manual.pdf 5 pages")).to_be_visible()
