"""Tests of citations in answers: numbering and verification."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import write_pdf
from visar.documents import Page, open_document
from visar.errors import NotInIndex
from visar.generation.citing import CitedText, cite
from visar.results import Citation

PAGES = {
    "2": "Warranty. The warranty of the Aurora lantern is seven years.\nKeep the bill.",
    "2:7": "Repairs. Twelve repairs were made in 2023 and 15 in 2024.",
    "9": "",
}
GIVEN = {label: ("doc", number) for number, label in enumerate(PAGES, start=1)}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Page, ...]:
    path: Path = write_pdf(tmp_path_factory.mktemp("cited") / "a.pdf", *PAGES.values())
    with open_document(path) as document:
        return tuple(document.pages())


def cited(text: str, pages: Sequence[Page]) -> tuple[str, tuple[Citation, ...]]:
    return cite(text, GIVEN, lambda _, number: pages[number - 1])


def test_markers_are_numbered_by_page_in_the_order_of_the_text(pages: tuple[Page, ...]) -> None:
    text, citations = cited("Repairs rose [2:7]. Seven years [page 2] [2:7, 9].", pages)
    assert text == "Repairs rose [1]. Seven years [2] [1][3]."
    assert [one.number for one in citations] == [1, 2, 1, 3]
    assert [one.label for one in citations] == ["2:7", "2", "2:7", "9"]
    assert [one.page for one in citations] == [2, 1, 2, 3]


@pytest.mark.parametrize(
    ("claim", "is_verified"),
    [
        ("The warranty of the lantern is seven years", True),
        ("- **Seven** years of warranty", True),
        ("The warranty is nine years in Norway", False),
        ("There were 15 repairs", False),  # on another page
        ("The Aurora lantern has a warranty of 12 years", False),  # a number that is not there
        ("", False),
    ],
)
def test_a_claim_is_verified_by_the_words_and_numbers_of_its_page(
    claim: str, is_verified: bool, pages: tuple[Page, ...]
) -> None:
    _, (citation,) = cited(f"{claim} [2].", pages)
    assert citation.verified is is_verified


def test_a_claim_starts_after_the_previous_marker_or_sentence(
    pages: tuple[Page, ...],
) -> None:
    text = (
        "Keep the bill [2]. First. It is 7 [2], and 15 repairs were made in 2024 [2:7][2].\n- x [2]"
    )
    _, citations = cited(text, pages)
    assert [one.claim for one in citations] == [
        "Keep the bill",
        "It is 7",
        ", and 15 repairs were made in 2024",
        ", and 15 repairs were made in 2024",
        "x",
    ]
    assert [one.verified for one in citations] == [True, False, True, False, False]


def test_a_quote_is_the_closest_passage_with_its_position(pages: tuple[Page, ...]) -> None:
    _, (citation,) = cited("You should keep your bill [2].", pages)
    assert citation.quote == "Keep the bill."
    (box,) = citation.boxes
    words = [word for word in pages[0].words if word.text in ("Keep", "bill.")]
    assert all(box[0] <= word.box[0] and word.box[2] <= box[2] for word in words)


def test_claims_of_missing_pages_are_not_verified(pages: tuple[Page, ...]) -> None:
    _, (citation,) = cited("Seven years [12].", pages)
    assert (citation.was_given, citation.verified, citation.claim) == (False, False, "Seven years")

    def gone(document: str, number: int) -> Page:
        raise NotInIndex(f"{document}, page {number}, was removed.")

    _, (citation,) = cite("Seven years [2].", GIVEN, gone)
    assert (citation.page, citation.verified) == (1, False)


@given(
    st.lists(st.sampled_from(["[2", "]", "[2:7]", "[9, 2]", " [", "word", ". ", "\n", "[x]", "1"])),
    st.data(),
)
def test_numbering_does_not_depend_on_the_pieces(parts: list[str], data: st.DataObject) -> None:
    text = "".join(parts)
    whole, _ = cite(text, {}, lambda *_: pytest.fail("no page was given"))
    pieces = CitedText()
    shown, rest = "", text
    while rest:
        length = data.draw(st.integers(1, len(rest)))
        shown += pieces.add(rest[:length])
        assert whole.startswith(shown)  # nothing is taken back
        rest = rest[length:]
    assert shown + pieces.end() == whole
    assert len(re.findall(r"\[\d+\]", whole)) >= text.count("[2:7]")
