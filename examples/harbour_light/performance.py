"""The financial review and the risks."""

from __future__ import annotations

from harbour_light import figures, theme
from harbour_light.charts import waterfall
from harbour_light.diagrams import risk_grid
from harbour_light.parts import caption, number_table, paragraphs, small, text_table
from harbour_light.sheet import Sheet

SECTION = "Performance and risk"


def financial_review(sheet: Sheet) -> None:
    sheet.lead("Profit grew faster than revenue, and cash paid for most of what we built.")
    profit = {name: now - before for name, now, before in figures.SEGMENT_PROFIT}
    sheet.full(caption("Operating profit from 2023 to 2024, £ million"))
    sheet.full(
        waterfall(
            theme.TEXT_WIDTH,
            128,
            [("2023", figures.OPERATING_PROFIT[3]), *profit.items()],
            "2024",
        )
    )
    sheet.gap(14)
    sheet.columns(
        paragraphs(
            f"""
            # Results

            Revenue grew by £39.0 million to £412.6 million; at constant exchange rates growth was
            11.1%. The gross margin rose to 36.4% from 35.6%. Operating profit was £53.2 million, a
            margin of 12.9%. Administrative expenses include £1.1 million of costs of the move to
            Varde Point.

            # Interest and tax

            Net finance costs were £7.4 million (2023: £7.0 million); the new notes added £1.0
            million in the second half. EBITDA covered them 12.1 times. The tax charge was £11.0
            million, a rate of 24.0%. We expect 24% to 25% in 2025.

            # Cash

            Operations generated £83.2 million of cash (2023: £72.7 million). Working capital took
            £6.5 million, mostly lanterns held in stock for two large deliveries in January. Free
            cash flow after capital expenditure and leases was £9.5 million (2023: £13.3 million).

            # Capital expenditure

            We spent £47.5 million on property, plant and equipment, 35% more than the £35.2
            million of 2023 and equal to 11.5% of revenue (2023: 9.4%). Vessels took £27.8 million:
            £14.9 million was paid on Guillemot, £8.3 million on Razorbill, and £4.6 million on tugs
            and boats. Note 3 on page {sheet.page_of("capex")} gives five years by segment.

            # Net debt

            Net debt rose by £5.1 million to £103.4 million. In June we issued £40.0 million of
            sustainability-linked notes due in 2031 and repaid £25.0 million of the term loan. At
            the year end £55.0 million of the £80.0 million revolving credit facility was undrawn,
            which with cash of £36.6 million gives liquidity of £91.6 million.

            # Currency

            A third of revenue is in Norwegian and Swedish kronor and a fifth in euro. A pound 5%
            stronger against all three would have cost £1.9 million of operating profit.
            """
        )
    )
    sheet.gap(12)
    wide = theme.TEXT_WIDTH
    sheet.full(
        number_table(
            ["£ million", "2024", "2023"],
            [
                ["Operating profit", "53.2", "45.2"],
                ["Depreciation and amortisation", "36.2", "33.5"],
                ["EBITDA", "89.4", "78.7"],
                ["Net debt to EBITDA", "1.16", "1.25"],
            ],
            [wide - 140, 70, 70],
            totals=[2],
        )
    )


def risk_management(sheet: Sheet) -> None:
    sheet.lead(
        "Every business keeps a register of what could go wrong. The Board looks at the largest "
        "twice a year, and at one of them in depth at every meeting."
    )
    left = paragraphs(
        """
        # How it works

        Each risk has an owner among the executives, who states how likely and how grave it is with
        the present controls. Internal audit tests the controls of all principal risks over two
        years. Near misses are reported to the risk committee of management within 48 hours.

        # Appetite

        We accept commercial risk where we can price it. We accept very little risk to life, to the
        sea or to our licences, and none to honesty.

        # What changed

        Cyber attack moved up, after an attack on a port operator in the region in February 2024.
        Delay in moving the buoy works is no longer a principal risk. Jamming of satellite signals
        is watched as an emerging risk.
        """
    )
    sheet.beside(
        left,
        [
            caption("Principal risks by likelihood and impact"),
            risk_grid(
                theme.COLUMN_WIDTH,
                230,
                [
                    (1, 0.36, 0.88),
                    (2, 0.56, 0.71),
                    (3, 0.62, 0.44),
                    (4, 0.33, 0.57),
                    (5, 0.80, 0.40),
                    (6, 0.20, 0.66),
                    (7, 0.70, 0.20),
                    (8, 0.44, 0.31),
                ],
            ),
            small(f"The numbers are explained on page {sheet.page_of('risks')}."),
        ],
    )
    sheet.gap(18)
    sheet.columns(
        paragraphs(
            """
            # Viability

            The directors have looked at the prospects of the Group over the four years to
            December 2028, the span of the strategic plan and of most vessel charters. They tested
            the plan against three severe but plausible cases and against all three at once.

            # The three cases

            In the first, Skarholm is not renewed and one more concession is lost. In the second, a
            service vessel is lost and out of service for eighteen months. In the third, a cyber
            attack stops Watchkeeper and the lantern works for ten weeks. With all three at once
            net debt would reach 2.4 times EBITDA in 2026, still below the covenant of 3.0 times.

            # Conclusion

            The directors reasonably expect that the Group will be able to continue in operation
            and meet its liabilities as they fall due over the four years.

            # Going concern

            The Group has committed facilities beyond the eighteen months examined. The accounts
            are prepared on the going concern basis.
            """
        )
    )
    sheet.gap(14)
    wide = theme.TEXT_WIDTH
    sheet.full(caption("Stress tests of the plan"))
    sheet.full(
        number_table(
            ["Case", "Loss of profit a year, £ million", "Highest net debt to EBITDA"],
            [
                ["1. Two concessions lost", "8.9", "1.6"],
                ["2. A vessel lost", "6.2", "1.5"],
                ["3. Cyber attack of ten weeks", "11.4", "1.7"],
                ["All three together", "26.5", "2.4"],
            ],
            [wide * 0.4, wide * 0.3, wide * 0.3],
            totals=[3],
        )
    )


def principal_risks(sheet: Sheet) -> None:
    sheet.lead("Eight risks could change the future of the Group. This is what we do about them.")
    wide = theme.TEXT_WIDTH
    rows = [
        (
            "1. Accident at sea",
            "A collision or sinking costs lives, closes a port or pollutes a coast.",
            "Crews trained on simulators; audits of each vessel twice a year; insurance of £300 "
            "million for liability.",
            "Unchanged",
            "Head of Offshore",
        ),
        (
            "2. Loss of a concession",
            "Skarholm alone brings 7% of Group revenue; its contract ends in December 2026.",
            "Tender team in place two years ahead; service levels published every month.",
            "Higher",
            "Head of Port Services",
        ),
        (
            "3. Cyber attack",
            "Watchkeeper stops, or shows a dark light as lit.",
            "Separate networks for control and office; outside attack test every quarter; paper "
            "fallback practised twice a year.",
            "Higher",
            "Chief Technology Officer",
        ),
        (
            "4. Failure of a product",
            "A faulty series of lanterns must be recalled from thousands of places.",
            "Type approval; 1,000 hours of salt spray; each series can be traced to its parts.",
            "Unchanged",
            "Head of Beacons",
        ),
        (
            "5. Shortage of skilled people",
            "Pilots and marine electricians are scarce; 28% of our pilots are over 55.",
            "Own training of pilots; 64 apprentices; retention bonus after three years.",
            "Unchanged",
            "People Director",
        ),
        (
            "6. Failure of a supplier",
            "Lithium cells come from two makers, optical glass from one.",
            "Six months of glass in stock; sodium cells under test; a second glass maker to be "
            "approved by March 2026.",
            "Lower",
            "Head of Beacons",
        ),
        (
            "7. Inflation and interest",
            "Wages and fuel rise faster than indexed prices.",
            "Two thirds of fuel hedged for twelve months; 61% of borrowings at fixed or swapped "
            "rates.",
            "Lower",
            "Chief Financial Officer",
        ),
        (
            "8. Climate",
            "Storms damage quays and lights; rules on fuel tighten early.",
            "Quays at Port Ellery raised by 0.6 metres; hybrid fleet; storm stocks at all depots.",
            "Unchanged",
            "Chief Executive",
        ),
    ]
    sheet.full(
        text_table(
            ["Risk", "What could happen", "What we do", "Change in 2024", "Owner"],
            [(f"<b>{row[0]}</b>", *row[1:]) for row in rows],
            [wide * 0.17, wide * 0.27, wide * 0.31, wide * 0.11, wide * 0.14],
            padding=6,
        )
    )
    sheet.gap(16)
    sheet.columns(
        paragraphs(
            """
            # Emerging risks

            We watch three developments that may become principal risks: the jamming of satellite
            positioning, autonomous ships that do not look for lights, and a shortage of yards that
            can build service vessels, where waiting times have grown to 30 months.

            # Insurance

            Hulls are insured for their market value, liability for £300 million, and loss of
            income for twelve months after an excess of 30 days. Premiums were £5.4 million in 2024
            (2023: £5.0 million).

            # Internal control

            The Board reviewed the system of internal control in November 2024 and found no
            significant failing. Two weaknesses, in the approval of overtime and in the stock count
            at Tolland, were put right before the year end.

            # Fraud and bribery

            Everybody who buys, sells or bids is trained every year; 99% completed the training in
            2024. Gifts above £50 must be declared and above £150 refused. Agents abroad are
            checked before they are appointed and every two years after that.
            """
        )
    )
