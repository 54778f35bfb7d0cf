"""The notes to the financial statements."""

from __future__ import annotations

from collections.abc import Sequence

from harbour_light import figures, theme
from harbour_light.charts import bars, stacked_bars
from harbour_light.figures import Line, money, total
from harbour_light.parts import caption, number_table, paragraphs, small
from harbour_light.sheet import Sheet

SECTION = "Notes to the accounts"

_WIDE = theme.TEXT_WIDTH
_TWO_YEARS = (_WIDE - 140, 70.0, 70.0)
_TWO_YEARS_IN_COLUMN = (theme.COLUMN_WIDTH - 100, 50.0, 50.0)


def _two_years(
    lines: list[Line],
    sum_name: str,
    leading: float = 15.0,
    widths: Sequence[float] = _TWO_YEARS,
) -> object:
    rows = [[name, money(now), money(before)] for name, now, before in lines]
    now, before = total(lines)
    return number_table(
        ["£ million", "2024", "2023"],
        [*rows, [sum_name, money(now), money(before)]],
        widths,
        totals=[len(rows)],
        leading=leading,
    )


def segments(sheet: Sheet) -> None:
    sheet.columns(
        paragraphs(
            """
            The Group has three reportable segments, which are managed separately because they sell
            to different customers. The Chief Executive judges them by operating profit. Central
            costs are those of the head office and the Board. Sales between segments, £6.3 million
            (2023: £5.8 million), are made at market prices and left out of the figures below.
            """
        )
    )
    sheet.gap(10)
    rows = [
        [name, *(money(value) for value in values)]
        for name, values in figures.REVENUE_BY_SEGMENT.items()
    ]
    sheet.full(caption("Revenue by segment, £ million"))
    sheet.full(
        number_table(
            ["", *figures.YEARS],
            [*rows, ["Group", *(money(value) for value in figures.REVENUE)]],
            [_WIDE - 5 * 62, *[62] * 5],
            totals=[3],
        )
    )
    sheet.gap(13)
    sheet.beside(
        [
            caption("Operating profit by segment"),
            _two_years(
                list(figures.SEGMENT_PROFIT), "Operating profit", widths=_TWO_YEARS_IN_COLUMN
            ),
        ],
        [
            caption("Depreciation and amortisation by segment"),
            _two_years(list(figures.SEGMENT_DEPRECIATION), "Group", widths=_TWO_YEARS_IN_COLUMN),
        ],
    )
    sheet.gap(16)
    sheet.full(caption("Assets by segment"))
    unallocated: list[Line] = [
        ("Cash and cash equivalents", 36.6, 26.7),
        ("Retirement benefit surplus", 6.2, 4.1),
    ]
    sheet.full(_two_years([*figures.SEGMENT_ASSETS, *unallocated], "Total assets"))
    sheet.gap(16)
    sheet.full(caption("Revenue by place of the customer"))
    sheet.full(_two_years(list(figures.REVENUE_BY_REGION), "Group"))
    sheet.gap(16)
    sheet.columns(
        paragraphs(
            """
            No customer accounts for more than 10% of revenue. The largest, a wind farm operator,
            brought £34.9 million, or 8.5% (2023: £29.1 million), all of it in Offshore.

            Revenue recognised over time was £219.0 million (2023: £190.5 million); the rest was
            recognised when goods were delivered.
            """
        )
    )


def capital_expenditure(sheet: Sheet) -> None:
    sheet.columns(
        paragraphs(
            """
            Capital expenditure is what the Group pays for property, plant and equipment. It rose
            from £21.4 million in 2020 to £47.5 million in 2024, more in every year, and
            from 7.5% to 11.5% of revenue.

            The rise is due to Offshore, whose share of the total grew from 19% to 46% with the
            building of Guillemot and Razorbill. Movements of capital creditors were not material
            in any of the years.
            """
        )
    )
    sheet.gap(8)
    wide = [_WIDE - 5 * 62, *[62.0] * 5]
    for title, table in (
        ("Capital expenditure by segment, £ million", figures.CAPEX_BY_SEGMENT),
        ("Capital expenditure by kind of asset, £ million", figures.CAPEX_BY_KIND),
    ):
        rows = [[name, *(money(value) for value in values)] for name, values in table.items()]
        sheet.full(caption(title))
        sheet.full(
            number_table(
                ["", *figures.YEARS],
                [*rows, ["Total capital expenditure", *(money(v) for v in figures.CAPEX)]],
                wide,
                totals=[4],
            )
        )
        sheet.gap(12)
    sheet.full(caption("Capital expenditure by segment, £ million"))
    sheet.full(stacked_bars(_WIDE, 132, figures.YEARS, figures.CAPEX_BY_SEGMENT))
    sheet.gap(12)
    sheet.full(caption("Movement of property, plant and equipment"))
    sheet.full(_two_years(list(figures.PROPERTY_MOVEMENT), "Net book value at 31 December"))
    sheet.gap(12)
    sheet.columns(
        paragraphs(
            """
            # Commitments

            At the year end the Group had contracted for £21.6 million of capital expenditure not
            provided for (2023: £30.2 million), of which £11.2 million is for Razorbill.

            # Plans

            The budget for 2025 is £45.0 million. Assets with a book value of £48.3 million are
            pledged for the vessel loan.
            """
        )
    )


def borrowings(sheet: Sheet) -> None:
    sheet.columns(
        paragraphs(
            """
            All borrowings are unsecured except the vessel loan. The covenants, tested every half
            year, ask for net debt below 3.0 times EBITDA and EBITDA of at least 4.0 times net
            finance costs. At the year end the ratios were 1.16 and 12.1.

            Interest-rate swaps fix the rate on £15.4 million of the term loan, so that 61% of
            borrowings bear a fixed rate. A rise of one percentage point in interest rates would
            cost £0.5 million a year. The average rate paid in 2024 was 4.9%.
            """
        )
    )
    sheet.gap(10)
    facilities = [
        [name, rate, due, money(now), money(before)]
        for name, rate, due, now, before in figures.FACILITIES
    ]
    now = sum(row[3] for row in figures.FACILITIES)
    before = sum(row[4] for row in figures.FACILITIES)
    sheet.full(caption("Borrowings by facility"))
    sheet.full(
        number_table(
            ["£ million", "Interest", "Due", "2024", "2023"],
            [*facilities, ["Total borrowings", "", "", money(now), money(before)]],
            [_WIDE - 360, 110, 110, 70, 70],
            totals=[5],
            leading=17,
        )
    )
    sheet.gap(15)
    sheet.full(caption("When borrowings fall due, £ million"))
    years = [year for year, _ in figures.MATURITY]
    sheet.full(bars(_WIDE, 125, years, [amount for _, amount in figures.MATURITY]))
    sheet.gap(15)
    sheet.full(caption("Finance costs"))
    sheet.full(
        _two_years(
            [
                ("Interest on borrowings", 6.8, 6.2),
                ("Interest on leases", 1.1, 1.0),
                ("Unwinding of the discount on provisions", 0.7, 0.7),
            ],
            "Finance costs",
            17,
        )
    )
    sheet.gap(16)
    sheet.full(caption("Net debt"))
    sheet.full(
        _two_years(
            [
                ("Borrowings", 140.0, 125.0),
                ("Cash and cash equivalents", -36.6, -26.7),
            ],
            "Net debt",
            17,
        )
    )
    sheet.gap(4)
    sheet.full(small("Lease liabilities of £24.1 million (2023: £22.7 million) are not included."))
    sheet.gap(10)
    sheet.columns(
        paragraphs(
            """
            The revolving credit facility of £80.0 million is provided by five banks and was
            extended in March 2024 by two years to March 2029. £55.0 million of it was undrawn.

            The fair value of the private placement notes was £28.6 million. That of the other
            borrowings is close to their book value.
            """
        )
    )


def other_notes(sheet: Sheet) -> None:
    sheet.full(caption("Note 5. Income tax"))
    sheet.full(
        _two_years(
            [
                ("Tax at the standard rate of 25% (2023: 23.5%)", 11.5, 9.0),
                ("Expenses that are not deductible", 0.6, 0.5),
                ("Relief for patents and research", -0.9, -0.5),
                ("Different rates abroad", -0.3, 0.1),
                ("Adjustments for earlier years", 0.1, 0.1),
            ],
            "Income tax expense",
        )
    )
    sheet.gap(11)
    sheet.full(caption("Note 6. Earnings and dividends per share"))
    sheet.full(
        number_table(
            ["", "2024", "2023"],
            [
                ["Profit for the year, £ million", "34.8", "29.0"],
                ["Weighted average number of shares, million", "116.0", "116.0"],
                ["Basic earnings per share, pence", "30.0", "25.0"],
                ["Interim dividend, paid in October, pence", "4.0", "3.5"],
                ["Final dividend, proposed, pence", "8.0", "7.0"],
            ],
            _TWO_YEARS,
            totals=[2],
        )
    )
    sheet.gap(11)
    sheet.full(caption("Note 7. Pensions"))
    sheet.full(
        _two_years(
            [
                ("Fair value of the scheme’s assets", 98.7, 95.6),
                ("Present value of obligations", -92.5, -91.5),
            ],
            "Retirement benefit surplus",
        )
    )
    sheet.gap(6)
    sheet.columns(
        paragraphs(
            """
            The Thorne Pension Scheme was closed to new members in 2006 and has 1,312 members. The
            discount rate was 5.4% (2023: 4.7%).

            The next valuation by the trustees is as of 31 March 2026. Until then the company pays
            £1.5 million a year above the service cost.
            """
        )
    )
    sheet.gap(4)
    sheet.full(caption("Note 8. Provisions"))
    sheet.full(
        _two_years(
            [
                ("Product warranties", 5.8, 5.3),
                ("Restoring quays at the end of concessions", 5.6, 5.1),
                ("Other", 2.1, 1.9),
            ],
            "Provisions",
        )
    )
    sheet.gap(11)
    sheet.full(caption("Note 9. Goodwill"))
    sheet.full(
        _two_years(
            [
                ("Beacons", 31.0, 31.0),
                ("Port Services", 28.3, 28.3),
                ("Offshore", 15.2, 15.2),
            ],
            "Goodwill",
        )
    )
    sheet.gap(11)
    sheet.columns(
        paragraphs(
            """
            # Note 10. Contingent liabilities

            A fishing cooperative claims £3.4 million for nets lost at a cable guarded by our boats
            in 2022. Counsel thinks the claim unlikely to succeed, and nothing is provided.

            # Note 11. After the year end

            On 20 February 2025 the Group agreed to buy Brisling Instruments, a maker of wave
            sensors with 38 employees, for £8.2 million in cash. Completion is expected in June
            2025.
            """
        )
    )
