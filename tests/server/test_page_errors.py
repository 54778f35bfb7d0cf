"""The page in a real browser when something fails: each failure is shown, and can be retried."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.conftest import write_pdf
from tests.explain.browser import needs_chromium
from tests.generation.scripted import Says, delta, replies, scripted, streams
from tests.server.browsing import PHONE, WIDE, Cable, Open, ask, assert_accessible, submit
from tests.server.browsing import browser as browser
from tests.server.browsing import cable as cable
from tests.server.browsing import open_page as open_page
from tests.server.browsing import report_address as report_address
from tests.server.service import serving
from tests.storage import free_port
from visar.index import Index
from visar.server import Settings

pytestmark = needs_chromium
ASK = "**/api/v1/ask/stream"
HTML = "<!doctype html><title>nginx</title><h1>An error of a proxy</h1>"
MODEL = {"model": "openai:m-1"}


@contextmanager
def modelled(library: Index, *behaviours: Says) -> Iterator[str]:
    """Serve a library with a language model that does as it is told."""
    with scripted(*behaviours) as model:
        settings = Settings(generators=MODEL, base_url=model.url, requests_per_minute=100_000)
        with serving(library, settings) as address:
            yield address


def problem(page: Page) -> Locator:
    return page.locator("visar-answer").get_by_role("alert")


def assert_answered(page: Page) -> None:
    """Check that quotations of the right page are shown."""
    quotation = page.locator(".card .text").filter(has=page.get_by_role("button", name="p. 36"))
    expect(quotation.first).to_contain_text("47.5")
    expect(page.get_by_role("list", name="Pages used").get_by_role("button")).to_have_count(3)


@pytest.mark.parametrize("answer", [{"status": 413, "body": HTML}, {"status": 200, "body": HTML}])
def test_an_upload_that_a_proxy_refuses_can_be_retried(
    open_page: Open, address: str, tmp_path: Path, answer: dict[str, int | str]
) -> None:
    page = open_page(at=address, failing=True)
    page.route(
        "**/documents/batch*", lambda route: route.fulfill(content_type="text/html", **answer)
    )
    name = f"sails-{answer['status']}.pdf"
    page.locator("#files").set_input_files(write_pdf(tmp_path / name, f"The sails are {name}."))
    entry = page.get_by_role("listitem").filter(has_text=name)
    expect(entry.get_by_role("alert")).to_contain_text(str(answer["status"]))
    assert_accessible(page)
    page.unroute_all()
    entry.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("button", name=f"{name} 1 page", exact=True)).to_be_visible()
    expect(entry).to_have_count(1)


def test_an_upload_that_breaks_off_can_be_dismissed(
    open_page: Open, address: str, tmp_path: Path
) -> None:
    page = open_page(at=address, failing=True)
    page.route("**/documents/batch*", lambda route: route.abort())
    page.locator("#files").set_input_files(write_pdf(tmp_path / "oars.pdf", "The oars are blue."))
    entry = page.get_by_role("listitem").filter(has_text="oars.pdf")
    expect(entry.get_by_role("alert")).to_be_visible()
    entry.get_by_role("button", name="Dismiss").click()
    expect(entry).to_have_count(0)


def test_a_question_is_retried_when_the_server_is_back(open_page: Open, cable: Cable) -> None:
    page = open_page(at=cable.address, failing=True)
    page.wait_for_selector("visar-library .entry")
    cable.cut()
    banner = page.locator(".banner")
    expect(banner).to_have_text("Connection lost. Reconnecting …")
    expect(banner).to_be_in_viewport()
    submit(page)
    expect(problem(page)).to_be_visible()
    expect(page.locator("visar-answer [role=status]")).to_have_count(0)
    assert_accessible(page)
    cable.mend()
    page.locator("visar-answer").get_by_role("button", name="Try again").click()
    assert_answered(page)
    expect(problem(page)).to_have_count(0)
    # The library finds the server again by itself.
    expect(banner).to_be_empty()


def test_what_was_added_while_the_connection_was_lost_is_listed(
    open_page: Open, index: Index, address: str, tmp_path: Path
) -> None:
    cable = Cable(address)
    page = open_page(at=cable.address, failing=True, size=PHONE)
    page.wait_for_selector("visar-library .entry", state="attached")
    cable.cut()
    banner = page.locator(".banner")
    expect(banner).to_be_in_viewport()
    assert_accessible(page)
    index.add(write_pdf(tmp_path / "meanwhile.pdf", "The ferry has left."))
    cable.mend()
    expect(banner).to_be_empty()
    added = page.get_by_role("button", name="meanwhile.pdf 1 page", include_hidden=True)
    expect(added).to_be_attached()
    cable.close()


def test_a_page_is_retried_when_the_server_is_back(open_page: Open, cable: Cable) -> None:
    page = ask(open_page(at=cable.address, failing=True))
    viewer = page.locator("visar-viewer")
    expect(viewer.locator("img")).to_be_visible()
    cable.cut()
    page.get_by_label("Next page").click()
    expect(viewer.get_by_role("alert")).to_be_visible()
    cable.mend()
    viewer.get_by_role("button", name="Try again").click()
    expect(page.get_by_alt_text(re.compile("Page 37 of"))).to_be_visible()


def test_a_proxy_that_answers_questions_is_told_from_the_server(open_page: Open) -> None:
    page = open_page(failing=True)
    page.route(ASK, lambda route: route.fulfill(status=502, content_type="text/html", body=HTML))
    submit(page)
    expect(problem(page)).to_contain_text("502")
    page.unroute_all()
    # Asking once more does as well as the button.
    submit(page)
    assert_answered(page)


def test_a_stream_that_ends_early_is_no_answer(open_page: Open) -> None:
    def cut(route: Route) -> None:
        reply = route.fetch()
        events = reply.text()
        route.fulfill(response=reply, body=events[: events.index("event: answer")])

    page = open_page(failing=True)
    page.route(ASK, cut)
    submit(page)
    expect(problem(page)).to_be_visible()
    # The pages were found, so they and their quotations are there.
    assert_answered(page)
    page.unroute_all()
    page.locator("visar-answer").get_by_role("button", name="Try again").click()
    expect(problem(page)).to_have_count(0)
    assert_answered(page)


def test_a_connection_lost_while_a_model_writes(open_page: Open, library: Index) -> None:
    with scripted() as model:
        model.then(
            streams(
                delta(role="assistant", content='{"answer": "It rose from 21.4'),
                model.stay_silent,
            )
        )
        settings = Settings(generators=MODEL, base_url=model.url, requests_per_minute=100_000)
        with serving(library, settings) as address:
            cable = Cable(address)
            page = open_page(at=cable.address, failing=True)
            submit(page)
            expect(page.locator(".live")).to_have_text("It rose from 21.4")
            cable.cut()
            expect(problem(page)).to_be_visible()
            # Nothing that was written or found is lost.
            expect(page.locator(".text").first).to_have_text("It rose from 21.4")
            expect(page.locator(".live")).to_have_count(0)
            assert_answered(page)
            page.close()
            cable.close()
            model.closing.set()


def test_an_empty_library_cannot_be_asked(open_page: Open, tmp_path: Path) -> None:
    with Index.open(tmp_path / "index") as index, serving(index) as address:
        page = open_page(at=address, failing=True)
        submit(page)
        expect(problem(page)).to_be_visible()
        expect(page.locator("visar-answer [role=status]")).to_have_count(0)
        page.close()


def test_a_document_that_is_gone_leads_to_all_documents(open_page: Open) -> None:
    page = open_page(f"/?q=capital+expenditure&document={'0' * 64}", failing=True)
    expect(problem(page)).to_be_visible()
    page.get_by_role("button", name="Search all documents").click()
    expect(page).not_to_have_url(re.compile("document="))
    expect(problem(page)).to_have_count(0)
    expect(page.get_by_role("list", name="Pages used")).to_be_visible()


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_a_page_that_is_gone_can_be_closed(open_page: Open, size: dict[str, int]) -> None:
    page = open_page(f"/?shown={'0' * 64}&page=1", theme="dark", size=size, failing=True)
    viewer = page.locator("visar-viewer")
    expect(viewer.get_by_role("alert")).to_be_in_viewport()
    assert_accessible(page)
    page.get_by_role("button", name="Close the page").click()
    expect(viewer).to_be_hidden()


def test_a_library_that_cannot_be_read_is_not_empty(open_page: Open) -> None:
    def refuse(route: Route) -> None:
        route.fulfill(status=503, content_type="application/problem+json", body=json.dumps(said))

    said = {"detail": "The index is locked.", "code": "index"}
    page = open_page("/api/v1/health", failing=True)
    page.route("**/api/v1/documents?*", refuse)
    page.goto(page.url.removesuffix("api/v1/health"))
    line = page.get_by_role("listitem").filter(has_text="The index is locked.")
    expect(line).to_be_visible()
    page.unroute_all()
    line.get_by_role("button", name="Try again").click()
    expect(
        page.get_by_role("button", name=re.compile("annual-report.pdf 40 pages"))
    ).to_be_visible()
    expect(line).to_have_count(0)


def test_quotations_replace_a_model_that_is_down(open_page: Open, library: Index) -> None:
    base_url = f"http://127.0.0.1:{free_port()}/v1"
    settings = Settings(generators=MODEL, base_url=base_url, requests_per_minute=100_000)
    with serving(library, settings) as address:
        page = open_page(at=address)
        submit(page)
        expect(problem(page)).to_contain_text("m-1")
        assert_answered(page)
        assert_accessible(page)
        page.close()


def test_an_answer_that_broke_off_says_so(open_page: Open, library: Index) -> None:
    pieces = ('{"answer": "It rose from £21.4 million', " in 2020 to £47")
    with modelled(library, replies(*pieces, finish="length")) as address:
        page = open_page(at=address)
        submit(page)
        card = page.locator("visar-answer .card").first
        expect(card).to_contain_text("Written by m-1")
        expect(card.locator(".text")).to_contain_text("in 2020 to £47")
        expect(card.locator(".bad").filter(has_text="maximum length")).to_have_count(1)
        page.close()


def test_a_citation_of_a_page_that_was_not_given_is_marked(open_page: Open, library: Index) -> None:
    reply = json.dumps({"answer": "It rose to £47.5 million.", "pages": ["36", "39"]})
    with modelled(library, replies(reply)) as address:
        page = open_page(at=address)
        submit(page)
        card = page.locator("visar-answer .card").first
        expect(card.get_by_role("button", name="[1] p. 36").first).to_be_visible()
        # It can be read, but not followed.
        expect(card.locator(".unknown")).to_have_text("[2] unverified")
        expect(card.get_by_role("button", name="p. 39")).to_have_count(0)
        expect(card.locator(".bad")).to_contain_text("39")
        assert_accessible(page)
        page.close()
