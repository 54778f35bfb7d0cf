"""The numbers of the report, in £ million unless said otherwise: written once, used everywhere.

Totals are sums made here, so that every table adds up; what must also agree between the
statements (the balance sheet balances, the cash flow ends in its cash) is tested.
"""

from __future__ import annotations

from collections.abc import Iterable

YEARS = ("2020", "2021", "2022", "2023", "2024")
SEGMENTS = ("Beacons", "Port Services", "Offshore")

Series = tuple[float, ...]
Line = tuple[str, float, float]
"""A caption with this year's and last year's amount."""


def total(lines: Iterable[Line]) -> tuple[float, float]:
    lines = list(lines)
    return round(sum(line[1] for line in lines), 1), round(sum(line[2] for line in lines), 1)


def add_up(series: Iterable[Series]) -> Series:
    return tuple(round(sum(column), 1) for column in zip(*series, strict=True))


def money(value: float) -> str:
    """One decimal, thousands separated, negatives in brackets, as accountants print it."""
    text = f"{abs(value):,.1f}"
    if float(text.replace(",", "")) == 0:
        return "–"
    return f"({text})" if value < 0 else text


# Five years
REVENUE_BY_SEGMENT: dict[str, Series] = {
    "Beacons": (133.9, 140.8, 151.2, 159.7, 168.4),
    "Port Services": (109.2, 118.3, 124.6, 131.5, 142.9),
    "Offshore": (44.1, 51.9, 64.8, 82.4, 101.3),
}
REVENUE = add_up(REVENUE_BY_SEGMENT.values())
OPERATING_PROFIT: Series = (30.4, 34.9, 39.8, 45.2, 53.2)
EARNINGS_PER_SHARE: Series = (16.4, 19.2, 21.9, 25.0, 30.0)
DIVIDEND_PER_SHARE: Series = (7.0, 8.2, 9.5, 10.5, 12.0)
NET_DEBT: Series = (112.7, 108.9, 98.6, 98.3, 103.4)

CAPEX_BY_SEGMENT: dict[str, Series] = {
    "Beacons": (8.2, 8.6, 9.1, 9.8, 10.6),
    "Port Services": (7.9, 8.8, 9.3, 10.4, 12.7),
    "Offshore": (4.1, 6.0, 8.6, 13.1, 22.0),
    "Central": (1.2, 1.4, 1.6, 1.9, 2.2),
}
CAPEX_BY_KIND: dict[str, Series] = {
    "Vessels": (9.3, 11.2, 13.4, 18.1, 27.8),
    "Quays and buildings": (5.1, 5.6, 6.2, 7.0, 8.2),
    "Plant and machinery": (5.2, 5.9, 6.6, 7.2, 8.1),
    "Information technology": (1.8, 2.1, 2.4, 2.9, 3.4),
}
CAPEX = add_up(CAPEX_BY_SEGMENT.values())

SCOPE_1: Series = (41.2, 40.1, 38.7, 36.4, 33.5)
SCOPE_2: Series = (6.8, 6.1, 5.0, 3.9, 2.6)

# The segments: this year, last year
SEGMENT_PROFIT: tuple[Line, ...] = (
    ("Beacons", 29.8, 27.3),
    ("Port Services", 18.6, 17.1),
    ("Offshore", 14.2, 9.7),
    ("Central costs", -9.4, -8.9),
)
SEGMENT_DEPRECIATION: tuple[Line, ...] = (
    ("Beacons", 10.4, 9.9),
    ("Port Services", 13.1, 12.6),
    ("Offshore", 11.6, 9.9),
    ("Central", 1.1, 1.1),
)
SEGMENT_ASSETS: tuple[Line, ...] = (
    ("Beacons", 178.6, 168.9),
    ("Port Services", 196.4, 188.7),
    ("Offshore", 128.9, 111.3),
    ("Central", 7.6, 6.9),
)
REVENUE_BY_REGION: tuple[Line, ...] = (
    ("British Isles", 169.2, 155.1),
    ("Nordic countries", 111.4, 98.9),
    ("Continental Europe", 86.6, 79.4),
    ("Rest of world", 45.4, 40.2),
)

# The income statement
REVENUE_LINE: Line = ("Revenue", REVENUE[4], REVENUE[3])
COST_OF_SALES: Line = ("Cost of sales", -262.3, -240.7)
OPERATING_COSTS: tuple[Line, ...] = (
    ("Distribution costs", -31.5, -29.2),
    ("Research and development", -18.7, -16.1),
    ("Administrative expenses", -48.4, -43.9),
    ("Other operating income", 1.5, 1.5),
)
FINANCE: tuple[Line, ...] = (("Finance income", 1.2, 0.9), ("Finance costs", -8.6, -7.9))
TAX: Line = ("Income tax expense", -11.0, -9.2)
GROSS_PROFIT: Line = ("Gross profit", *total([REVENUE_LINE, COST_OF_SALES]))
OPERATING: Line = ("Operating profit", *total([GROSS_PROFIT, *OPERATING_COSTS]))
BEFORE_TAX: Line = ("Profit before tax", *total([OPERATING, *FINANCE]))
PROFIT: Line = ("Profit for the year", *total([BEFORE_TAX, TAX]))
OTHER_COMPREHENSIVE: tuple[Line, ...] = (
    ("Remeasurement of the pension surplus", 0.6, 0.3),
    ("Tax on the remeasurement", -0.2, -0.1),
    ("Exchange differences on foreign operations", -0.9, -0.8),
)

# The balance sheet
NON_CURRENT_ASSETS: tuple[Line, ...] = (
    ("Goodwill", 74.5, 74.5),
    ("Other intangible assets", 59.6, 58.4),
    ("Property, plant and equipment", 206.2, 186.3),
    ("Right-of-use assets", 22.8, 21.6),
    ("Retirement benefit surplus", 6.2, 4.1),
)
CURRENT_ASSETS: tuple[Line, ...] = (
    ("Inventories", 63.8, 58.2),
    ("Trade and other receivables", 84.6, 76.8),
    ("Cash and cash equivalents", 36.6, 26.7),
)
CURRENT_LIABILITIES: tuple[Line, ...] = (
    ("Borrowings", -15.0, -25.0),
    ("Lease liabilities", -5.1, -4.8),
    ("Trade and other payables", -78.9, -72.5),
    ("Current tax", -5.7, -4.8),
    ("Provisions", -3.1, -2.9),
)
NON_CURRENT_LIABILITIES: tuple[Line, ...] = (
    ("Borrowings", -125.0, -100.0),
    ("Lease liabilities", -19.0, -17.9),
    ("Deferred tax", -18.9, -18.2),
    ("Provisions", -10.4, -9.4),
)
EQUITY: tuple[Line, ...] = (
    ("Share capital", 11.7, 11.7),
    ("Share premium", 42.3, 42.3),
    ("Translation reserve", -2.3, -1.4),
    ("Retained earnings", 221.5, 198.5),
)

# The cash flow
CASH_ADJUSTMENTS: tuple[Line, ...] = (
    ("Depreciation of property, plant and equipment", 24.9, 23.2),
    ("Depreciation of right-of-use assets", 5.2, 4.8),
    ("Amortisation of intangible assets", 6.1, 5.5),
    ("Profit on disposal of property, plant and equipment", -0.3, -0.2),
    ("Share-based payments", 2.1, 1.8),
    ("Pension contributions above the service cost", -1.5, -1.5),
)
WORKING_CAPITAL: tuple[Line, ...] = (
    ("Increase in inventories", -5.6, -3.9),
    ("Increase in trade and other receivables", -7.8, -6.2),
    ("Increase in trade and other payables", 6.4, 4.3),
    ("Increase/(decrease) in provisions", 0.5, -0.3),
)
INTEREST_AND_TAX_PAID: tuple[Line, ...] = (
    ("Interest paid", -7.9, -7.2),
    ("Income tax paid", -9.6, -8.4),
)
INVESTING: tuple[Line, ...] = (
    ("Purchase of property, plant and equipment", -CAPEX[4], -CAPEX[3]),
    ("Capitalised development expenditure", -7.3, -6.9),
    ("Proceeds from disposals", 2.4, 2.0),
    ("Interest received", 1.2, 0.9),
)
FINANCING: tuple[Line, ...] = (
    ("Proceeds from borrowings", 40.0, 10.0),
    ("Repayment of borrowings", -25.0, -12.0),
    ("Principal element of lease payments", -5.0, -4.6),
    ("Dividends paid", -12.8, -11.6),
    ("Purchase of own shares", -1.5, -1.2),
)
EXCHANGE_ON_CASH: Line = ("Effect of exchange rates", -0.3, -0.2)
OPENING_CASH: Line = ("Cash and cash equivalents at 1 January", 26.7, 28.4)

CASH_GENERATED: Line = (
    "Cash generated from operations",
    *total([OPERATING, *CASH_ADJUSTMENTS, *WORKING_CAPITAL]),
)
OPERATING_CASH: Line = (
    "Net cash from operating activities",
    *total([CASH_GENERATED, *INTEREST_AND_TAX_PAID]),
)
INVESTING_CASH: Line = ("Net cash used in investing activities", *total(INVESTING))
FINANCING_CASH: Line = ("Net cash used in financing activities", *total(FINANCING))
CASH_CHANGE: Line = (
    "Net increase/(decrease) in cash",
    *total([OPERATING_CASH, INVESTING_CASH, FINANCING_CASH]),
)
CLOSING_CASH: Line = (
    "Cash and cash equivalents at 31 December",
    *total([OPENING_CASH, CASH_CHANGE, EXCHANGE_ON_CASH]),
)

# Property, plant and equipment
PROPERTY_MOVEMENT: tuple[Line, ...] = (
    ("Net book value at 1 January", 186.3, 176.7),
    ("Additions", CAPEX[4], CAPEX[3]),
    ("Disposals", -2.1, -1.8),
    ("Depreciation charge", -24.9, -23.2),
    ("Exchange differences", -0.6, -0.6),
)

# Borrowings
FACILITIES: tuple[tuple[str, str, str, float, float], ...] = (
    ("Term loan", "SONIA + 1.70%", "2025 and 2026", 35.0, 60.0),
    ("Private placement notes", "3.85% fixed", "November 2027", 30.0, 30.0),
    ("Vessel loan", "EURIBOR + 1.45%", "August 2028", 10.0, 10.0),
    ("Revolving credit facility", "SONIA + 1.55%", "March 2029", 25.0, 25.0),
    ("Sustainability-linked notes", "4.60% fixed", "June 2031", 40.0, 0.0),
)
MATURITY: tuple[tuple[str, float], ...] = (
    ("2025", 15.0),
    ("2026", 20.0),
    ("2027", 30.0),
    ("2028", 10.0),
    ("2029", 25.0),
    ("2030", 0.0),
    ("2031", 40.0),
)
