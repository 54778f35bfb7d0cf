"""The example is what its script makes, its figures agree, its questions find their evidence."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pypdfium2
import pytest
from harbour_light import figures, scans
from harbour_light.document import PLANS, build, toolchain
from harbour_light.sheet import DoesNotFitError, PagePlan, Sheet, draw_page
from reportlab.platypus import Spacer

from visar.samples import REPORT

EXAMPLES = Path(__file__).parents[2] / "examples"
SCANNED = {
    number: text
    for number, plan in enumerate(PLANS, start=1)
    for key, text in (("certificate", scans.CERTIFICATE), ("assurance", scans.ASSURANCE))
    if plan.key == key
}
KINDS = {"one page", "several pages", "chart", "scanned page", "not answerable"}


@dataclass(frozen=True)
class Read:
    """What a PDF says about itself."""

    creator: str
    sizes: list[tuple[float, float]]
    texts: list[str]


def words(text: str) -> str:
    return " ".join(text.split())


def read(pdf: bytes) -> Read:
    document = pypdfium2.PdfDocument(pdf)
    try:
        pages = [document[i] for i in range(len(document))]
        return Read(
            document.get_metadata_value("Creator"),
            [page.get_size() for page in pages],
            [words(page.get_textpage().get_text_bounded()) for page in pages],
        )
    finally:
        document.close()


@pytest.fixture(scope="module")
def committed() -> Read:
    return read(REPORT.read_bytes())


@pytest.fixture(scope="module")
def made() -> bytes:
    return build()


def questions() -> list[dict[str, Any]]:
    content = json.loads((EXAMPLES / "questions.json").read_text(encoding="utf-8"))
    assert content["document"] == REPORT.name
    found: list[dict[str, Any]] = content["questions"]
    return found


each_question = pytest.mark.parametrize("asked", questions(), ids=lambda asked: asked["question"])


# The file


def test_the_script_says_what_the_committed_file_says(made: bytes, committed: Read) -> None:
    fresh = read(made)
    assert fresh.texts == committed.texts
    assert fresh.sizes == committed.sizes


def test_the_same_tools_make_the_same_bytes(made: bytes, committed: Read) -> None:
    if committed.creator != toolchain():
        pytest.skip(f"the committed file was made with {committed.creator}, here: {toolchain()}")
    assert made == REPORT.read_bytes()


def test_making_it_twice_makes_the_same_bytes(made: bytes) -> None:
    assert build() == made


def test_it_is_long_enough_to_search_and_small_enough_to_ship(committed: Read) -> None:
    assert 32 <= len(committed.texts) <= 40
    assert REPORT.stat().st_size < 1_500_000


def test_only_the_scanned_pages_lack_text(committed: Read) -> None:
    silent = {number for number, text in enumerate(committed.texts, start=1) if not text}
    assert silent == set(SCANNED)


def test_contents_name_the_page_each_part_is_on(committed: Read) -> None:
    contents = committed.texts[1]
    for number, plan in enumerate(PLANS, start=1):
        if plan.dressed and not plan.continues and plan.key != "contents":
            assert f"{plan.title} {number}" in contents


def test_a_page_with_too_much_on_it_is_refused_by_name() -> None:
    def overfull(sheet: Sheet) -> None:
        sheet.full(Spacer(10, 900))

    plan = PagePlan("much", "Test", "Too much", overfull)
    with pytest.raises(DoesNotFitError, match=r"page 1 \(Too much\).*Spacer of 900 points"):
        draw_page(None, plan, 1, [plan])


# The figures


def test_the_balance_sheet_balances() -> None:
    assets = figures.total([*figures.NON_CURRENT_ASSETS, *figures.CURRENT_ASSETS])
    owed = figures.total([*figures.CURRENT_LIABILITIES, *figures.NON_CURRENT_LIABILITIES])
    equity = figures.total(figures.EQUITY)
    for year in range(2):
        assert round(assets[year] + owed[year], 1) == equity[year]


def test_the_cash_flow_ends_in_the_cash_of_the_balance_sheet() -> None:
    assert figures.CLOSING_CASH[1:] == figures.CURRENT_ASSETS[2][1:]
    assert figures.CLOSING_CASH[2] == figures.OPENING_CASH[1]


def test_equity_moves_by_profit_and_what_owners_took() -> None:
    comprehensive = figures.total([figures.PROFIT, *figures.OTHER_COMPREHENSIVE])[0]
    owners = figures.FINANCING[3][1] + figures.FINANCING[4][1] + figures.CASH_ADJUSTMENTS[4][1]
    now, before = figures.total(figures.EQUITY)
    assert round(before + comprehensive + owners, 1) == now


def test_segments_add_up_to_the_group() -> None:
    assert figures.total(figures.SEGMENT_PROFIT) == figures.OPERATING[1:]
    assert figures.OPERATING[1:] == (figures.OPERATING_PROFIT[4], figures.OPERATING_PROFIT[3])
    assert figures.total(figures.REVENUE_BY_REGION) == figures.REVENUE_LINE[1:]
    written_off = figures.total(figures.CASH_ADJUSTMENTS[:3])
    assert figures.total(figures.SEGMENT_DEPRECIATION) == written_off
    cash_and_pension = [figures.CURRENT_ASSETS[2], figures.NON_CURRENT_ASSETS[4]]
    assets = figures.total([*figures.NON_CURRENT_ASSETS, *figures.CURRENT_ASSETS])
    assert figures.total([*figures.SEGMENT_ASSETS, *cash_and_pension]) == assets


def test_capital_expenditure_is_the_same_by_segment_by_kind_and_in_the_book_value() -> None:
    assert figures.add_up(figures.CAPEX_BY_KIND.values()) == figures.CAPEX
    assert figures.total(figures.PROPERTY_MOVEMENT) == figures.NON_CURRENT_ASSETS[2][1:]


def test_debts_are_the_same_by_facility_by_year_and_in_the_balance_sheet() -> None:
    owed = figures.total([figures.CURRENT_LIABILITIES[0], figures.NON_CURRENT_LIABILITIES[0]])
    assert sum(row[3] for row in figures.FACILITIES) == -owed[0]
    assert sum(row[4] for row in figures.FACILITIES) == -owed[1]
    assert sum(amount for _, amount in figures.MATURITY) == -owed[0]
    _, cash_now, cash_before = figures.CLOSING_CASH
    assert round(-owed[0] - cash_now, 1) == figures.NET_DEBT[4]
    assert round(-owed[1] - cash_before, 1) == figures.NET_DEBT[3]


# The questions


def test_every_kind_of_question_is_asked() -> None:
    assert {asked["kind"] for asked in questions()} == KINDS


@each_question
def test_evidence_is_on_the_pages_named(asked: dict[str, Any], committed: Read) -> None:
    assert len(asked["evidence_pages"]) == len(asked["evidence_text"])
    for number, evidence in zip(asked["evidence_pages"], asked["evidence_text"], strict=True):
        assert 1 <= number <= len(committed.texts)
        on_paper = words(" ".join(SCANNED.get(number, []))) or committed.texts[number - 1]
        assert evidence in on_paper


@each_question
def test_the_kind_fits_the_evidence(asked: dict[str, Any]) -> None:
    pages = asked["evidence_pages"]
    assert (asked["kind"] == "not answerable") == (not pages) == (not asked["answers"])
    assert (asked["kind"] == "several pages") == (len(pages) > 1)
    assert (asked["kind"] == "scanned page") == any(number in SCANNED for number in pages)


@each_question
def test_evidence_of_a_single_page_is_on_no_other(asked: dict[str, Any], committed: Read) -> None:
    if len(asked["evidence_pages"]) == 1:
        others = [
            text
            for number, text in enumerate(committed.texts, start=1)
            if number not in asked["evidence_pages"]
        ]
        assert not any(asked["evidence_text"][0] in text for text in others)


@each_question
def test_what_is_asked_in_vain_is_nowhere(asked: dict[str, Any], committed: Read) -> None:
    everything = " ".join(committed.texts).lower()
    for absent in asked.get("absent_text", []):
        assert absent.lower() not in everything
