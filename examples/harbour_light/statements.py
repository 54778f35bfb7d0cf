"""The auditor's report and the four statements."""

from __future__ import annotations

from collections.abc import Sequence

from harbour_light import figures, theme
from harbour_light.figures import Line, money, total
from harbour_light.parts import amounts, caption, number_table, paragraphs, small
from harbour_light.sheet import Sheet

SECTION = "Financial statements"

_WIDTHS = (theme.TEXT_WIDTH - 200, 50.0, 75.0, 75.0)
_HEAD = ("£ million", "Note", "2024", "2023")
Row = tuple[str, str, str, str]


class Statement:
    """Rows of a statement, remembering which are totals and which are captions."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.totals: list[int] = []
        self.headings: list[int] = []

    def heading(self, text: str) -> None:
        self.headings.append(len(self.rows))
        self.rows.append((text, "", "", ""))

    def lines(self, lines: Sequence[Line], notes: Sequence[str] = ()) -> None:
        padded = [*notes, *[""] * (len(lines) - len(notes))]
        self.rows += [amounts(line, note) for line, note in zip(lines, padded, strict=True)]

    def total(self, line: Line, note: str = "") -> None:
        self.totals.append(len(self.rows))
        self.rows.append(amounts(line, note))

    def table(self, leading: float = 17.0) -> object:
        return number_table(
            _HEAD, self.rows, _WIDTHS, totals=self.totals, headings=self.headings, leading=leading
        )


def auditors_report(sheet: Sheet) -> None:
    sheet.lead("To the members of Harbour Light plc")
    sheet.columns(
        paragraphs(
            """
            # Our opinion

            In our opinion the financial statements give a true and fair view of the state of the
            Group’s affairs at 31 December 2024 and of its profit and cash flows for the year then
            ended, and have been properly prepared in accordance with international accounting
            standards.

            # Basis for opinion

            We conducted our audit in accordance with international standards on auditing. We are
            independent of the Group and have met our other ethical duties. We provided no service
            to it that is forbidden. We believe that the evidence we obtained is sufficient and
            appropriate as a basis for our opinion.

            # Materiality

            Overall materiality was £2.3 million, which is 5% of profit before tax (2023: £1.9
            million). We reported to the audit committee all misstatements above £115,000.

            # Scope

            We audited nine of the fourteen companies of the Group in full. They account for 91% of
            revenue and 94% of total assets. We visited Skarholm and Nordvika and worked with
            auditors there under our direction.

            # Key audit matter: revenue of long contracts

            Contracts for buoys and marking run for up to three years, and revenue follows the
            stage of completion, which needs judgement. We tested a sample of 24 contracts,
            compared estimates with later results, and visited four sites. We found the estimates
            balanced.

            # Key audit matter: goodwill of Port Services

            The value of this goodwill of £28.3 million depends on future concessions. We challenged
            the assumed chance of renewing Skarholm, used our own specialists for the discount
            rate, and tested what change would lead to an impairment. We agree with the conclusion
            that none is needed and with the disclosure.

            # Going concern

            We have nothing to report on the directors’ use of the going concern basis.

            # Other information

            The other information in the annual report is consistent with the financial statements
            and with what we learned in the audit.

            # Responsibilities

            The directors are responsible for the financial statements and for internal control.
            Our aim is reasonable assurance that the statements are free from material
            misstatement, whether through fraud or error.

            # Fraud and breaches of law

            We considered how fraud might occur, and where. Rules of safety at sea, competition law
            and the terms of concessions matter most to the Group. We read the minutes of the
            Board, tested journals with unusual features, and asked management, internal audit and
            the company’s lawyers.

            # Climate

            We considered whether the goals for emissions change the value of assets, above all of
            diesel tugs, and read the disclosures for consistency with the accounts.

            # Remuneration report

            In our opinion the part of the remuneration report that must be audited has been
            properly prepared.

            # Appointment

            We were appointed in 2018 and this is our seventh audit. Our report is made solely to
            the members of the company.

            Ruth Calloway, senior statutory auditor, for Calder &amp; Whitlock LLP, 5 March 2025
            """
        )
    )


def income_statement(sheet: Sheet) -> None:
    sheet.full(small("for the year ended 31 December 2024"))
    statement = Statement()
    statement.lines([figures.REVENUE_LINE, figures.COST_OF_SALES], ["2"])
    statement.total(figures.GROSS_PROFIT)
    statement.lines(figures.OPERATING_COSTS)
    statement.total(figures.OPERATING, "2")
    statement.lines(figures.FINANCE, ["", "4"])
    statement.total(figures.BEFORE_TAX)
    statement.lines([figures.TAX], ["5"])
    statement.total(figures.PROFIT)
    sheet.full(statement.table())
    sheet.gap(16)
    sheet.full(caption("Earnings and dividends per share"))
    sheet.full(
        number_table(
            ["Pence", "Note", "2024", "2023"],
            [
                ["Basic earnings per share", "6", "30.0", "25.0"],
                ["Diluted earnings per share", "6", "29.6", "24.7"],
                ["Dividends per share, paid and proposed", "6", "12.0", "10.5"],
            ],
            _WIDTHS,
            leading=17,
        )
    )
    sheet.gap(18)
    sheet.full(caption("Consolidated statement of comprehensive income"))
    other: Line = ("Other comprehensive expense", *total(figures.OTHER_COMPREHENSIVE))
    comprehensive = Statement()
    comprehensive.lines([figures.PROFIT])
    comprehensive.lines(figures.OTHER_COMPREHENSIVE, ["7"])
    comprehensive.total(other)
    comprehensive.total(("Total comprehensive income", *total([figures.PROFIT, other])))
    sheet.full(comprehensive.table())
    sheet.gap(18)
    sheet.full(caption("Operating costs by kind"))
    sheet.full(
        number_table(
            ["£ million", "", "2024", "2023"],
            [
                ["Employees", "", "118.6", "109.3"],
                ["Materials and parts", "", "121.5", "112.4"],
                ["Fuel and energy", "", "22.7", "24.1"],
                ["Services, yards and other costs", "", "61.9", "50.6"],
                ["Depreciation and amortisation", "", "36.2", "33.5"],
                ["Other operating income", "", "(1.5)", "(1.5)"],
                ["Total operating costs", "", "359.4", "328.4"],
            ],
            _WIDTHS,
            totals=[6],
        )
    )


def balance_sheet(sheet: Sheet) -> None:
    sheet.full(small("at 31 December 2024"))
    statement = Statement()
    statement.heading("Non-current assets")
    statement.lines(figures.NON_CURRENT_ASSETS, ["", "", "3", "", "7"])
    non_current: Line = ("Total non-current assets", *total(figures.NON_CURRENT_ASSETS))
    statement.total(non_current)
    statement.heading("Current assets")
    statement.lines(figures.CURRENT_ASSETS)
    current: Line = ("Total current assets", *total(figures.CURRENT_ASSETS))
    statement.total(current)
    assets: Line = ("Total assets", *total([non_current, current]))
    statement.total(assets)
    statement.heading("Current liabilities")
    statement.lines(figures.CURRENT_LIABILITIES, ["4", "", "", "", "8"])
    owed_soon: Line = ("Total current liabilities", *total(figures.CURRENT_LIABILITIES))
    statement.total(owed_soon)
    statement.heading("Non-current liabilities")
    statement.lines(figures.NON_CURRENT_LIABILITIES, ["4", "", "5", "8"])
    owed_later: Line = ("Total non-current liabilities", *total(figures.NON_CURRENT_LIABILITIES))
    statement.total(owed_later)
    liabilities: Line = ("Total liabilities", *total([owed_soon, owed_later]))
    statement.total(liabilities)
    statement.total(("Net assets", *total([assets, liabilities])))
    statement.heading("Equity")
    statement.lines(figures.EQUITY)
    statement.total(("Total equity", *total(figures.EQUITY)))
    sheet.full(statement.table(17.4))
    sheet.gap(14)
    sheet.full(
        small(
            "The financial statements were approved by the Board on 5 March 2025 and signed on its "
            "behalf by Margaret Oyelaran, Chief Executive, and Tomas Lindqvist, Chief Financial "
            "Officer. Company number 00187142."
        )
    )


def cash_flow(sheet: Sheet) -> None:
    sheet.full(small("for the year ended 31 December 2024"))
    statement = Statement()
    statement.heading("Operating activities")
    statement.lines([figures.PROFIT])
    now, before = total(figures.FINANCE)
    finance: Line = ("Net finance costs", -now, -before)
    statement.lines([("Income tax expense", -figures.TAX[1], -figures.TAX[2]), finance])
    statement.total(figures.OPERATING)
    statement.heading("Adjustments for items that are not cash")
    statement.lines(figures.CASH_ADJUSTMENTS, ["3"])
    statement.heading("Changes in working capital")
    statement.lines(figures.WORKING_CAPITAL)
    statement.total(figures.CASH_GENERATED)
    statement.lines(figures.INTEREST_AND_TAX_PAID)
    statement.total(figures.OPERATING_CASH)
    sheet.full(statement.table(18.5))
    sheet.gap(6)
    sheet.full(small("<i>The statement continues on the next page.</i>"))
    sheet.gap(12)
    sheet.columns(
        paragraphs(
            """
            # What drives the figures

            Cash generated from operations was £10.5 million higher than in 2023, as operating
            profit rose by £8.0 million and depreciation and amortisation by £2.7 million.

            Inventories grew because 1,150 lanterns for two lighthouse authorities were finished in
            December and shipped in January. Receivables grew with revenue: customers took 61 days
            to pay on average, as in 2023.

            Tax was paid in eight countries; the largest payment, £5.2 million, was made in the
            United Kingdom.
            """
        )
    )


def cash_flow_continued(sheet: Sheet) -> None:
    sheet.full(small("for the year ended 31 December 2024, continued"))
    statement = Statement()
    statement.heading("Investing activities")
    statement.lines(figures.INVESTING, ["3"])
    statement.total(figures.INVESTING_CASH)
    statement.heading("Financing activities")
    statement.lines(figures.FINANCING, ["4", "4", "", "6"])
    statement.total(figures.FINANCING_CASH)
    statement.total(figures.CASH_CHANGE)
    statement.lines([figures.OPENING_CASH, figures.EXCHANGE_ON_CASH])
    statement.total(figures.CLOSING_CASH)
    sheet.full(statement.table(17.5))
    sheet.gap(18)
    sheet.full(caption("Movement of net debt"))
    movement = Statement()
    movement.lines(
        [
            ("Net debt at 1 January", -98.3, -98.6),
            figures.CASH_CHANGE,
            figures.EXCHANGE_ON_CASH,
            ("New borrowings", -40.0, -10.0),
            ("Borrowings repaid", 25.0, 12.0),
        ]
    )
    movement.total(("Net debt at 31 December", -103.4, -98.3))
    sheet.full(movement.table(17.5))
    sheet.gap(18)
    sheet.full(caption("Free cash flow"))
    free = Statement()
    parts = [figures.OPERATING_CASH, figures.INVESTING_CASH, figures.FINANCING[2]]
    free.lines(parts)
    free.total(("Free cash flow", *total(parts)))
    sheet.full(free.table(17.5))


_EQUITY_MOVES: tuple[tuple[str, float, float, float, float], ...] = (
    ("At 1 January 2023", 11.7, 42.3, -0.6, 180.3),
    ("Profit for the year", 0, 0, 0, 29.0),
    ("Other comprehensive income", 0, 0, -0.8, 0.2),
    ("Share-based payments", 0, 0, 0, 1.8),
    ("Dividends", 0, 0, 0, -11.6),
    ("Purchase of own shares", 0, 0, 0, -1.2),
    ("At 31 December 2023", 11.7, 42.3, -1.4, 198.5),
    ("Profit for the year", 0, 0, 0, 34.8),
    ("Other comprehensive income", 0, 0, -0.9, 0.4),
    ("Share-based payments", 0, 0, 0, 2.1),
    ("Dividends", 0, 0, 0, -12.8),
    ("Purchase of own shares", 0, 0, 0, -1.5),
    ("At 31 December 2024", 11.7, 42.3, -2.3, 221.5),
)


def changes_in_equity(sheet: Sheet) -> None:
    sheet.full(small("for the year ended 31 December 2024"))
    rows = [
        [name, *(money(value) for value in values), money(sum(values))]
        for name, *values in _EQUITY_MOVES
    ]
    wide = theme.TEXT_WIDTH
    sheet.full(
        number_table(
            ["£ million", "Capital", "Premium", "Translation", "Retained", "Total"],
            rows,
            [wide - 5 * 64, *[64] * 5],
            totals=[0, 6, 12],
            leading=17,
        )
    )
    sheet.gap(20)
    sheet.full(caption("Note 1. Accounting policies"))
    sheet.columns(
        paragraphs(
            """
            # Basis of preparation

            The accounts follow international accounting standards and the historical cost
            convention, except for derivatives and pension assets, which are at fair value. Amounts
            are in millions of pounds sterling, rounded to the nearest hundred thousand.

            # Consolidation

            The Group consists of the company and thirteen subsidiaries, all wholly owned except
            Nordvika Pilots AS, of which it owns 80%; the outside share is not material.

            # Revenue

            Products are recognised when the customer takes control, usually on delivery. Services
            and charters are recognised as they are rendered, and long contracts by the stage of
            completion, measured by cost.

            # Property, plant and equipment

            Assets are stated at cost less depreciation, which is spread evenly over their lives:
            vessels 25 years, their batteries ten, tugs 30, quays and buildings 40 to 60, machinery
            five to fifteen, and computers three to five years.

            # Development costs

            Development is capitalised when a product is technically and commercially proven, and
            amortised over seven years from its launch.

            # New standards

            No standard that came into force in 2024 had a material effect.

            # Judgements and estimates

            The stage of completion of long contracts, the value of goodwill and the cost of
            restoring quays need the most judgement.
            """
        )
    )
