"""Finding a phrase in a document."""

from __future__ import annotations

import httpx2
import pytest

from tests.server.service import assert_problem
from visar.documents.page import Page, Word
from visar.server.documents import MAX_PLACED, find_phrase


def page(number: int, *lines: str) -> Page:
    """A page whose words are 0.1 wide and high, at the position of their line."""
    words = [
        Word(text, (left / 10, line / 10, (left + 1) / 10, (line + 1) / 10), line)
        for line, content in enumerate(lines)
        for left, text in enumerate(content.split(" "))
    ]
    return Page(number, 600, 800, 0, tuple(words), "text layer")


def test_each_match_has_a_box_for_each_of_its_lines() -> None:
    found = find_phrase([page(1, "no"), page(2, "the Capital", "expenditure of")], " capital  EXP")
    assert [(one.page, one.count) for one in found] == [(2, 1)]
    assert found[0].boxes == (((0.1, 0.0, 0.2, 0.1), (0.0, 0.1, 0.1, 0.2)),)


@pytest.mark.parametrize(
    ("text", "phrase", "count"),
    [
        ("lamp lamps Lampshade", "lamp", 3),
        ("lamp lamps", "lamp l", 1),
        ("Straße", "STRASSE", 1),
        ("of\ufb01ce", "office", 1),
        ("aaaa", "aa", 2),
        ("a b", "ab", 0),
        ("lamp", " ", 0),
        ("100% (a.b)", "% (a.", 1),
    ],
)
def test_case_and_spelling_of_characters_do_not_matter(text: str, phrase: str, count: int) -> None:
    assert sum(one.count for one in find_phrase([page(1, text)], phrase)) == count


def test_all_matches_are_counted_and_the_first_are_placed() -> None:
    pages = [page(number, "lamp " * 99 + "lamp") for number in range(1, 31)]
    found = find_phrase(pages, "lamp")
    assert {one.count for one in found} == {100}
    assert sum(len(one.boxes) for one in found) == MAX_PLACED


def test_a_document_is_searched_over_http(http: httpx2.Client, document: str) -> None:
    found = http.get(f"documents/{document}/find", params={"q": "seven years"}).json()
    assert [(one["page"], one["count"]) for one in found] == [(2, 1), (4, 1)]
    ((box,),) = found[0]["boxes"]
    words = http.get(f"documents/{document}/pages/2").json()["words"]
    seven = next(word for word in words if word["text"] == "seven")
    assert box[:2] == seven["box"][:2]
    assert http.get(f"documents/{document}/find", params={"q": "lighthouse"}).json() == []
    assert_problem(http.get(f"documents/{document}/find", params={"q": ""}), 422, "invalid")
    assert_problem(http.get("documents/nothing/find", params={"q": "a"}), 404, "not_found")
