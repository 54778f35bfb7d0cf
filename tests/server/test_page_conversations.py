"""The page in a real browser: conversations, written answers, and what writes them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, Request, expect

from tests.explain.browser import needs_chromium
from tests.generation.scripted import (
    Behaviour,
    Scripted,
    delta,
    refuses,
    replies,
    scripted,
    streams,
)
from tests.server.browsing import (
    PHONE,
    QUESTION,
    SECONDS,
    WIDE,
    Open,
    ask,
    assert_accessible,
    submit,
    unfold,
    wait_for_explanation,
)
from tests.server.browsing import browser as browser
from tests.server.browsing import open_page as open_page
from tests.server.browsing import report_address as report_address
from tests.server.service import TOKEN, serving
from visar.index import Index
from visar.results import SearchResult
from visar.server import Settings

pytestmark = needs_chromium
CHIEF = "Who is the chief executive?"
FOLLOW_UP = "And when was she appointed?"
MARKDOWN = """The chief executive is **Margaret Oyelaran** [24]. She:

- leads the *executive committee* [24]
- owns a yacht called Petrel [24]

| Year | Revenue |
| --- | ---: |
| 2024 | 412.6 |

> The light is on.

See [the law](https://example.org/law), [a trap](javascript:alert(1)) and `code`.
<img src=x onerror=alert(2)>
"""


@contextmanager
def modelled(library: Index, *behaviours: Behaviour) -> Iterator[tuple[str, Scripted]]:
    """Serve a library with a scripted model, and with quotes."""
    with scripted(*behaviours) as model:
        generators = {"smart": f"openai-text:m-1@{model.url}", "extractive": "extractive"}
        settings = Settings(generators=generators, requests_per_minute=1_000_000)
        with serving(library, settings) as address:
            yield address, model


def last_turn(page: Page) -> Locator:
    return page.locator(".turn").last


def questions_sent(page: Page) -> list[Any]:
    """Return a list that gets the body of each question that the page sends."""
    sent: list[Any] = []

    def listen(request: Request) -> None:
        if request.url.endswith("/ask/stream"):
            sent.append(request.post_data_json)

    page.on("request", listen)
    return sent


def test_a_follow_up_knows_what_came_before(open_page: Open) -> None:
    page = open_page()
    sent = questions_sent(page)
    ask(page, CHIEF)
    submit(page, FOLLOW_UP)
    searched = last_turn(page).locator(".searched")
    expect(searched).to_contain_text("When was Margaret Oyelaran appointed?")
    wait_for_explanation(page)
    assert sent[0]["thread"] == sent[1]["thread"]
    # Its words are shaded where they were searched.
    shaded = searched.get_by_role("button", name="appointed?", exact=True)
    expect(shaded).to_be_visible()
    assert_accessible(page)
    # What was searched for can be edited, and is then asked as it is.
    searched.get_by_role("button", name="Edit what was searched for").click()
    field = page.get_by_label("Search for", exact=True)
    expect(field).to_be_focused()
    field.fill("And who is the auditor?")
    page.get_by_role("button", name="Ask this").click()
    expect(page.locator(".turn")).to_have_count(3)
    wait_for_explanation(page)
    assert sent[2]["standalone"] is True
    expect(last_turn(page).locator(".searched")).to_have_count(0)
    # The whole conversation has an address, and is loaded without asking again.
    headings = page.get_by_role("heading", level=1)
    expected = [CHIEF, FOLLOW_UP, "And who is the auditor?"]
    expect(headings).to_have_text(expected)
    page.reload()
    wait_for_explanation(page)
    expect(headings).to_have_text(expected)
    expect(page.locator(".searched")).to_have_count(1)
    page.go_back()
    expect(page.locator(".turn", has=page.locator(".pages"))).to_contain_text(FOLLOW_UP)
    assert len(sent) == 3


def test_a_shared_question_is_asked_once(open_page: Open) -> None:
    page = open_page("/?q=Who+chairs+the+audit+committee%3F", failing=True)
    wait_for_explanation(page)
    expect(page).to_have_url(re.compile("thread="))
    sent = questions_sent(page)
    page.reload()
    wait_for_explanation(page)
    assert not sent
    # Without its conversation, the question is asked again.
    page.goto(re.sub("thread=[0-9a-f]+", f"thread={'0' * 32}", page.url).replace("turn=1&", ""))
    wait_for_explanation(page)
    assert len(sent) == 1


def test_a_written_answer_is_markdown_whose_citations_lead_to_passages(
    open_page: Open, library: Index
) -> None:
    with modelled(library, replies(MARKDOWN)) as (address, _):
        page = open_page(at=address, size=WIDE)
        page.on("dialog", lambda _: pytest.fail("A script of the answer ran."))
        ask(page, "What is the name of the chief executive?")
        card = page.locator("visar-answer .card").first
        expect(card.locator("strong")).to_have_text("Margaret Oyelaran")
        expect(card.locator("em")).to_have_text("executive committee")
        expect(card.get_by_role("cell", name="412.6")).to_be_visible()
        expect(card.locator("code")).to_have_text("code")
        link = card.get_by_role("link")
        expect(link).to_have_count(1)
        expect(link).to_have_attribute("href", "https://example.org/law")
        expect(card).to_contain_text("a trap")
        expect(card).to_contain_text("<img src=x onerror=alert(2)>")
        expect(card.locator("img")).to_have_count(0)
        # A claim that isn't on the page is marked, whatever the others are.
        expect(card.get_by_role("button", name="[1] p. 24")).to_have_count(4)
        doubtful = card.get_by_role("listitem").filter(has_text="yacht")
        expect(doubtful).to_contain_text("unverified")
        expect(card.locator(".doubtful")).to_have_count(1)
        card.get_by_role("button", name="[1] p. 24").first.click()
        expect(page.get_by_label("Page number")).to_have_value("24")
        expect(page.get_by_alt_text(re.compile("Page 24 of"))).to_be_visible()
        expect(page.locator(".sheet .spot").first).to_be_visible()
        expect(card).to_contain_text("Written by m-1")
        # All parts have the same distance.
        above = "(all) => all.map((one) => getComputedStyle(one).margin)"
        margins = card.locator(".written > * + *").evaluate_all(above)
        assert margins == ["10px 0px 0px"] * 4
        assert_accessible(page)
        page.close()


def test_hostile_markdown_makes_no_element_of_its_own(open_page: Open) -> None:
    page = open_page()
    page.wait_for_selector(".entry")
    render = (
        "async (text) => { const { markdown } = await import('./markdown.js'); "
        "const box = document.createElement('div'); "
        "box.append(...markdown(text, (index) => new Text(`<${index}>`))); return box.innerHTML; }"
    )

    def html(text: str) -> str:
        return str(page.evaluate(render, text))

    assert html("<b>x</b> & [1] [2](http://a.b)") == (
        "<p>&lt;b&gt;x&lt;/b&gt; &amp; &lt;0&gt; &lt;1&gt;(http://a.b)</p>"
    )
    for target in ("javascript:alert`1`", "data:text/html,x", "//evil.example", "JaVaScRiPt:x"):
        assert html(f"[x]({target})") == "<p>x</p>"
    assert html("[x](javascript:alert(1))") == "<p>[x](javascript:alert(1))</p>"
    assert html("![x](https://evil.example/p.png)") == "<p>x</p>"
    assert html("**a _b_ `c*d*`** 2*3*4 snake_case_name") == (
        "<p><strong>a <em>b</em> <code>c*d*</code></strong> 2*3*4 snake_case_name</p>"
    )
    assert html("1. a\n   - b\n2. c") == "<ol><li>a<ul><li>b</li></ul></li><li>c</li></ol>"
    assert html("```\n# [1] <x>\n") == (
        '<pre tabindex="0"><code># &lt;0&gt; &lt;x&gt;\n</code></pre>'
    )
    assert "<th>a</th>" in html("a | b\n--- | ---\n1 | [3] | 4")
    # Deep or long, it takes a moment and no stack.
    for text in (">" * 5_000 + "x", "- " * 5_000 + "x", "*" * 5_000, "[" * 5_000, "`" * 4_999):
        assert html(text)
    assert html("\ue0007\ue001") == "<p>7</p>"


def test_an_answer_can_be_stopped_copied_and_asked_again(open_page: Open, library: Index) -> None:
    with modelled(library) as (address, model):
        model.then(streams(delta(role="assistant", content="Margaret"), model.stay_silent))
        model.then(replies("Margaret Oyelaran [24]."))
        page = open_page(at=address)
        submit(page, "What is the name of the chief executive?")
        turn = last_turn(page)
        expect(turn.locator(".live")).to_have_text("Margaret")
        turn.get_by_role("button", name="Stop").click()
        expect(turn).to_contain_text("Stopped.")
        expect(turn.locator(".written")).to_have_text("Margaret")
        expect(turn.locator(".live")).to_have_count(0)
        # The pages stay.
        expect(turn.get_by_role("list", name="Pages used")).to_be_visible()
        assert_accessible(page)
        model.closing.set()
        turn.get_by_role("button", name="Ask again").click()
        expect(turn.locator(".written")).to_have_text("Margaret Oyelaran [1].")
        expect(page.locator(".turn")).to_have_count(1)
        page.evaluate("() => Object.defineProperty(navigator, 'clipboard', { value: {"
                      "writeText: async (text) => { window.copied = text } } })")  # fmt: skip
        turn.get_by_role("button", name="Copy").click()
        expect(page.get_by_text("Copied.")).to_be_visible()
        copied = page.evaluate("() => window.copied")
        assert copied == (
            "Margaret Oyelaran [1].\n\n[1] harbour-light-annual-report.pdf, page 24\n"
        )
        page.close()


def test_quotes_stand_in_for_a_model_that_breaks_off(open_page: Open, library: Index) -> None:
    said = delta(role="assistant", content="It rose from")
    with modelled(library, streams(said, cut=True), refuses(400, "out of order")) as (address, _):
        page = open_page(at=address)
        for reason in ("broke off", "out of order"):
            submit(page)
            alert = last_turn(page).get_by_role("alert")
            expect(alert).to_contain_text("no written answer")
            expect(alert).to_contain_text(reason)
            expect(last_turn(page).locator(".card .text").nth(0)).to_contain_text("47.5")
            wait_for_explanation(page)
        assert_accessible(page)
        page.close()


def test_what_writes_answers_is_chosen_and_remembered(open_page: Open, library: Index) -> None:
    with modelled(library, replies("Margaret Oyelaran [24].")) as (address, model):
        page = open_page(at=address)
        sent = questions_sent(page)
        menu = page.get_by_label("Answers written by")
        expect(menu.locator("option")).to_have_text(["smart", "Quotes only"])
        menu.select_option("Quotes only")
        ask(page, CHIEF)
        expect(last_turn(page)).to_contain_text("Quoted directly")
        page.reload()
        wait_for_explanation(page)
        expect(menu.locator("option:checked")).to_have_text("Quotes only")
        menu.select_option("smart")
        last_turn(page).get_by_role("button", name="Ask again").click()
        expect(last_turn(page)).to_contain_text("Written by m-1")
        assert [one["generator"] for one in sent] == ["extractive", "smart"]
        assert len(model.asked) == 1
        expect(page.locator(".turn")).to_have_count(1)
        page.close()


def test_a_server_with_quotes_only_offers_no_choice(open_page: Open) -> None:
    page = open_page()
    with page.expect_response("**/generators"):
        page.reload()
    ask(page, CHIEF)
    expect(page.get_by_label("Answers written by")).to_be_hidden()


def test_conversations_are_listed_renamed_exported_and_deleted(
    open_page: Open, tmp_path: Path, manual: Path
) -> None:
    with Index.open(tmp_path / "index") as index, serving(index) as address:
        index.add(manual)
        page = open_page(at=address, failing=True)
        page.on("dialog", lambda _: pytest.fail("The page asks in a window of the browser."))
        ask(page, CHIEF)
        page.get_by_role("button", name="New conversation").click()
        expect(page.locator(".turn")).to_have_count(0)
        ask(page)
        page.get_by_role("button", name="Conversations").click()
        threads = page.locator("#threads")
        expect(threads.get_by_role("listitem")).to_have_count(2)
        expect(threads.locator("[aria-current=true]")).to_contain_text(QUESTION)
        assert_accessible(page)
        threads.get_by_role("button", name=f"Rename {CHIEF}").click()
        field = page.get_by_label("Name of the conversation")
        expect(field).to_be_focused()
        field.fill("<b>People</b>")
        page.keyboard.press("Enter")
        entry = threads.get_by_role("button", name="<b>People</b> 1 question")
        expect(entry).to_be_visible()
        for kind, suffix, beginning in (("Markdown", "md", "# "), ("HTML", "html", "<!doctype")):
            with page.expect_download() as download:
                threads.get_by_role("link", name=f"Export {QUESTION} as {kind}").click()
            assert download.value.suggested_filename.endswith(f".{suffix}")
            assert Path(download.value.path()).read_text("utf-8").startswith(beginning)
        entry.click()
        wait_for_explanation(page)
        expect(page.get_by_role("heading", level=1)).to_have_text(CHIEF)
        # Deleted with time to think again.
        page.get_by_role("button", name="Conversations").click()
        threads.get_by_role("button", name="Delete <b>People</b>").click()
        expect(page.locator(".turn")).to_have_count(0)
        expect(threads.get_by_role("listitem")).to_have_count(1)
        page.get_by_role("button", name="Undo").click()
        expect(entry).to_be_visible()
        # One that is gone says so, and leads to a new one.
        page.goto(f"{address}/?thread={'0' * 32}")
        expect(page.locator("visar-answer").get_by_role("alert")).to_contain_text("No conversation")
        page.locator("visar-answer").get_by_role("button", name="New conversation").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("Ask a question")
        page.close()


def test_a_conversation_that_cannot_be_saved_still_goes_on(
    browser: Browser, library: Index
) -> None:
    reader = library.tokens.create("read")
    try:
        settings = Settings(token=TOKEN, requests_per_minute=1_000_000)
        with serving(library, settings) as address, browser.new_context() as context:
            page = context.new_page()
            page.goto(address)
            page.get_by_label("Token").fill(reader[1])
            page.get_by_role("button", name="Sign in").click()
            page.wait_for_selector(".entry")
            sent = questions_sent(page)
            ask(page, CHIEF)
            expect(page.locator("visar-answer")).to_contain_text("isn't saved")
            submit(page, FOLLOW_UP)
            expect(last_turn(page).locator(".searched")).to_be_visible()
            wait_for_explanation(page)
            assert sent[0]["history"] == []
            assert [one["question"] for one in sent[1]["history"]] == [CHIEF]
            assert "thread" not in sent[1]
            page.reload()
            wait_for_explanation(page)
            expect(page.get_by_role("heading", level=1)).to_have_text([CHIEF, FOLLOW_UP])
            assert len(sent) == 2
    finally:
        library.tokens.revoke(reader[0].id)


def test_unlikely_pages_of_a_long_answer_are_folded(
    open_page: Open, library: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = library.search

    def with_many(question: str, **options: Any) -> SearchResult:
        found = search(question, **options)
        unlikely = [
            replace(found.pages[0], page=page, likelihood="unlikely") for page in range(1, 15)
        ]
        return replace(found, pages=(*found.pages[:2], *unlikely))

    monkeypatch.setattr(library, "search", with_many)
    page = open_page()
    submit(page)
    expect(page.get_by_role("list", name="Pages used").get_by_role("listitem")).to_have_count(2)
    folded = page.get_by_role("list", name="Unlikely pages")
    expect(folded).to_be_hidden()
    page.get_by_text("14 more pages, unlikely").click()
    expect(folded.get_by_role("listitem")).to_have_count(14)
    # They stay unfolded when one is opened.
    folded.get_by_role("button", name="Page 12").click()
    expect(folded.locator("[aria-current=true]")).to_be_visible()


def test_words_without_meaning_are_hardly_shaded(open_page: Open) -> None:
    page = ask(open_page(), "What is the name of the chief executive?")

    def share(word: str) -> float:
        button = page.locator(".question").get_by_role("button", name=word, exact=True).first
        style = str(button.evaluate("(one) => one.style.background"))
        found = re.search(r"([\d.]+)%", style)
        return float(found[1]) if found else 0

    assert share("executive?") == 40
    for word in ("the", "of", "is"):
        assert share(word) <= 6


@pytest.mark.parametrize("width", [360, 700, 1101, 1280, 1920])
def test_nothing_is_cut_off(open_page: Open, width: int) -> None:
    page = ask(open_page(size={"width": width, "height": 1000}))
    unfold(page)
    expect(page.locator(".pairs .chips li").first).to_be_visible()
    expect(page.locator(".methods .dot").first).to_be_visible()
    # A quoted table is a part of a larger picture, and scrolls where it would be too small.
    wider = page.evaluate(
        "() => [...document.querySelectorAll('#answer, #answer *')].filter((one) => "
        "one.clientWidth && one.scrollWidth > one.clientWidth + 1 && !one.closest('svg, .cut')"
        " && getComputedStyle(one).display !== 'inline').map((one) => one.className)"
    )
    assert not wider
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    # A chip is one line.
    heights = page.locator(".chips li").evaluate_all("(all) => all.map((one) => one.clientHeight)")
    assert max(heights) < 30


def test_the_first_minute(open_page: Open, tmp_path: Path) -> None:
    with Index.open(tmp_path / "index") as index, serving(index) as address:
        pages = [open_page(at=address, size=size, theme="dark") for size in (WIDE, PHONE)]
        for page in pages:
            expect(page.get_by_text("Drop your documents here")).to_be_visible()
            assert_accessible(page)
            with page.expect_file_chooser():
                page.get_by_role("button", name="Choose files").click()
        pages[0].get_by_role("button", name="Try the sample report").click()
        for page in pages:
            questions = page.locator(".suggestions").get_by_role("button")
            expect(questions).to_have_count(3, timeout=2 * SECONDS)
            assert_accessible(page)
            questions.first.click()
            expect(last_turn(page).locator(".card .text").first).to_contain_text("seven years")
            wait_for_explanation(page)
            page.close()


def test_a_sample_that_fails_can_be_tried_again(open_page: Open, tmp_path: Path) -> None:
    with Index.open(tmp_path / "index") as index, serving(index) as address:
        page = open_page(at=address, failing=True)
        said = json.dumps({"detail": "The disk is full.", "code": "disk_full"})
        page.route(
            "**/documents/sample",
            lambda route: route.fulfill(
                status=507, content_type="application/problem+json", body=said
            ),
        )
        page.get_by_role("button", name="Try the sample report").click()
        expect(page.locator("visar-answer [role=status]")).to_have_text("The disk is full.")
        expect(page.get_by_role("button", name="Try the sample report")).to_be_enabled()
        # A question about nothing says what to do, too.
        submit(page)
        expect(page.locator("visar-answer").get_by_role("alert")).to_contain_text("add a document")
        page.close()
