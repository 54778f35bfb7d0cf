"""The Board, its committees and what directors are paid."""

from __future__ import annotations

from reportlab.platypus import Paragraph, Table, TableStyle

from harbour_light import theme
from harbour_light.charts import stacked_bars
from harbour_light.diagrams import portrait
from harbour_light.parts import callout, caption, number_table, paragraphs, small, text_table
from harbour_light.scenery import band
from harbour_light.sheet import Sheet

SECTION = "Governance"

_DIRECTORS = (
    (
        "EH",
        "Edmund Hale, Chairman",
        "Joined in 2016, Chairman since 2019. A former master mariner, he ran the ferry company "
        "Sound Lines for eleven years. Chairs the nomination committee. Aged 66.",
    ),
    (
        "MO",
        "Margaret Oyelaran, Chief Executive",
        "Joined as head of Beacons in 2014, Chief Executive since 2020. An electrical "
        "engineer, she holds four patents on lantern optics. Aged 51.",
    ),
    (
        "TL",
        "Tomas Lindqvist, Chief Financial Officer",
        "Joined in 2021 from a Nordic shipyard group, where he was treasurer. Chartered "
        "accountant. Aged 47.",
    ),
    (
        "PR",
        "Priya Raman, Senior Independent Director",
        "Joined in 2018. Spent twenty years in infrastructure investment. Leads the search for the "
        "next Chairman. Aged 58.",
    ),
    (
        "DA",
        "David Achterberg, non-executive",
        "Joined in 2020. A former audit partner, he chairs the audit committee and has recent and "
        "relevant financial experience. Aged 61.",
    ),
    (
        "IS",
        "Ingrid Solheim, non-executive",
        "Joined in 2019. Was people director of an offshore energy company. Chairs the "
        "remuneration committee and is the director for employee views. Aged 55.",
    ),
    (
        "HM",
        "Dr Helen Marsh, non-executive",
        "Joined in February 2024. A marine biologist and former head of a coastal agency. Chairs "
        "the sustainability committee. Aged 49.",
    ),
)


def board(sheet: Sheet) -> None:
    sheet.full(band("tug"))
    sheet.gap(12)
    sheet.lead("Seven directors: a Chairman, two executives and four independent members.")
    rows = [
        [portrait(initials), [Paragraph(f"<b>{name}</b>", theme.BODY), *paragraphs(life)]]
        for initials, name, life in _DIRECTORS
    ]
    table = Table(rows, colWidths=[62, theme.TEXT_WIDTH - 62])
    table.setStyle(
        TableStyle(
            [
                ("VALIGN", (0, 0), (-1, -1), "TOP"),
                ("LINEBELOW", (0, 0), (-1, -2), 0.5, theme.MIST),
                ("TOPPADDING", (0, 0), (-1, -1), 7),
                ("BOTTOMPADDING", (0, 0), (-1, -1), 3),
                ("LEFTPADDING", (0, 0), (0, -1), 0),
            ]
        )
    )
    sheet.full(table)
    sheet.gap(16)
    sheet.full(
        callout(
            [
                caption("Changes"),
                *paragraphs(
                    """
                    Sir Robin Tait retired from the Board on 15 May 2024. Owen Fairbairn has been
                    Company Secretary since 2017. The executive committee, which is not part of the
                    Board, has eight members, three of them women.
                    """
                ),
            ],
            theme.TEXT_WIDTH,
        )
    )


def corporate_governance(sheet: Sheet) -> None:
    sheet.lead("The Board met eight times in 2024, twice of them on board or in a depot.")
    sheet.columns(
        paragraphs(
            """
            # What the Board did

            It approved the budget for 2025, the renewal of Port Ellery, the issue of the
            sustainability-linked notes, and the opening of the shop at Saint Brenn. It turned
            down an offer for the guard boat business. It spent a day on cyber security with
            outside advisers, and two days at Skarholm with customers and crews.

            # Independence

            All non-executive directors are independent. The Chairman was independent when
            appointed. As he will have served for more than nine years by 2025, the Board asked
            major shareholders, who agreed that he stay until 2026 for an orderly handover.

            # Evaluation

            The evaluation of 2024 was led by an outside firm, Lantern Row Advisers, which has no
            other tie to the Group. It found an open and well prepared Board. It advised shorter
            papers, more time for technology, and a plan for the succession of the Chief Executive;
            all three are being followed.

            # Employees

            Ingrid Solheim met 190 employees in eleven meetings. What she heard about tools and
            shift plans led to the changes described under People.

            # Shareholders

            The Chairman and the Senior Independent Director met holders of 46% of the shares. At
            the annual general meeting of 2024 every resolution was passed with at least 91% of
            votes; the lowest support was for the remuneration policy.

            # Compliance

            The company applied the governance code throughout the year with one exception: the
            Chairman’s length of service, explained above.

            # Conflicts of interest

            Directors declare other posts and interests before each meeting. David Achterberg left
            the room when the insurance contract was renewed, because his brother works for the
            broker. No other conflict arose.

            # Nomination committee

            The committee met three times. It led the appointment of Dr Marsh, for which 41 people
            were considered and six interviewed, and began the search for the next Chairman with
            the help of the firm Sable and Wray.
            """
        )
    )
    sheet.gap(18)
    wide = theme.TEXT_WIDTH
    sheet.full(caption("Attendance at meetings in 2024: attended / possible"))
    sheet.full(
        number_table(
            ["", "Board", "Audit", "Remuneration", "Nomination", "Sustainability"],
            [
                ["Edmund Hale", "8/8", "–", "–", "3/3", "–"],
                ["Margaret Oyelaran", "8/8", "–", "–", "–", "4/4"],
                ["Tomas Lindqvist", "8/8", "–", "–", "–", "–"],
                ["Priya Raman", "8/8", "5/5", "4/4", "3/3", "–"],
                ["David Achterberg", "7/8", "5/5", "–", "3/3", "–"],
                ["Ingrid Solheim", "8/8", "–", "4/4", "3/3", "4/4"],
                ["Dr Helen Marsh (from 1 February)", "7/7", "4/4", "3/3", "–", "4/4"],
                ["Sir Robin Tait (to 15 May)", "3/3", "2/2", "2/2", "–", "–"],
            ],
            [wide - 5 * 66, *[66] * 5],
            leading=17,
        )
    )
    sheet.gap(4)
    sheet.full(small("David Achterberg missed one meeting because of a family bereavement."))


def audit_committee(sheet: Sheet) -> None:
    sheet.lead("A report by David Achterberg, chair of the audit committee.")
    sheet.columns(
        paragraphs(
            """
            # Members and meetings

            Priya Raman, Dr Helen Marsh and I are the members. We met five times. The Chief
            Financial Officer, the head of internal audit and the external auditor attended, and
            we met both auditors without management at every meeting.

            # Judgements we examined

            Revenue of long contracts: Offshore and Beacons had £38.7 million of revenue on
            contracts that ran over the year end. We compared the stage of completion of the ten
            largest with reports from site, and were satisfied.

            Goodwill: the goodwill of Port Services, £28.3 million, depends on the renewal of
            Skarholm. Value in use exceeds the carrying amount by £19.4 million, and the margin
            would be used up if the discount rate rose from 9.2% to 11.6%.

            Useful lives: hybrid vessels are depreciated over 25 years, but their batteries over
            ten. We agreed with the split.

            # Internal audit

            Internal audit made 21 reports. Two were rated unsatisfactory: overtime in Port
            Services, and the stock count at Tolland. Follow-up in December found both corrected.

            # Speaking up

            The confidential line had 34 reports (2023: 29). One led to a dismissal, for false
            expense claims. None concerned the accounts.

            # External auditor

            Calder &amp; Whitlock LLP have been auditors since 2018. The fee for the audit was
            £740,000 (2023: £690,000), and they earned £60,000 for the review of the half-year
            report, 8% of the audit fee; our limit is 30%. We judge them independent. The audit
            will be put out to tender in 2027, for the financial year 2028.

            # Fair, balanced, understandable

            We advised the Board that this report as a whole is. A reader outside the Group read
            the draft and found eleven passages too technical; nine were rewritten and two moved to
            the glossary.

            # Our own work

            The evaluation of the Board found the committee effective. In 2025 we shall look at the
            new reporting on internal controls, at the accounts of Brisling Instruments once it is
            bought, and at how stock is counted in all works.

            # Climate in the accounts

            We asked how the goal of net zero affects the lives of diesel tugs. Eleven tugs will be
            retired before the end of their present lives, and depreciation was raised by £0.7
            million a year from 2024.

            # Cyber security

            The committee now receives the results of the quarterly attack tests. In the test of
            September the outside team was stopped after nine minutes.
            """
        )
    )
    sheet.gap(18)
    sheet.full(caption("Fees of the auditor, £ thousand"))
    wide = theme.TEXT_WIDTH
    sheet.full(
        number_table(
            ["", "2024", "2023"],
            [
                ["Audit of the company and the consolidated accounts", "455", "425"],
                ["Audit of subsidiaries", "285", "265"],
                ["Total audit fees", "740", "690"],
                ["Review of the half-year report", "60", "55"],
                ["Total fees", "800", "745"],
            ],
            [wide - 140, 70, 70],
            totals=[2, 4],
        )
    )


def remuneration_policy(sheet: Sheet) -> None:
    sheet.lead("A report by Ingrid Solheim, chair of the remuneration committee.")
    sheet.columns(
        paragraphs(
            """
            # The year in short

            Profit, cash and safety were better than planned; the move of the works was not. The
            committee therefore cut the formula outcome of the Chief Executive’s bonus from 74% to
            68% of the maximum, and that of the Chief Financial Officer from 71% to 65%. Both
            agreed.

            # Salaries

            Directors’ salaries rose by 3.6% in 2024, employees’ by 4.8% on average. For 2025 the
            Chief Executive’s salary will be £500,000 and the Chief Financial Officer’s £353,000.

            # Pay in proportion

            The Chief Executive earned 31 times as much as the employee in the middle of our
            British pay scale, who earned £42,800 (2023: 28 times).

            # Shareholdings

            The Chief Executive must hold shares worth 250% of salary, the Chief Financial Officer
            200%. At the year end they held 318% and 154%; Mr Lindqvist has until 2026 to reach the
            level.

            # Clawback

            Bonus and share awards can be taken back for three years if accounts were wrong, a
            person behaved badly, or a failure of safety comes to light. This was not needed.

            # Looking ahead

            The policy was approved in 2024 with 91% of votes and runs until 2027. For 2025 a
            measure of light availability replaces customer satisfaction in the bonus.

            # Long-term incentive

            The award of 2022 vested at 72%. Earnings per share grew by 16% a year on average,
            above the maximum of 14%; return on capital earned half of its part; emissions earned
            four fifths. The shares must be kept until 2027.

            # Employees’ views

            I discussed directors’ pay with the works councils in Port Ellery and Skarholm. They
            asked for the same safety measure in everybody’s bonus. From 2025 there is one.

            # Service contracts

            Executive directors can be given twelve months’ notice and must give nine. There are no
            payments for failure: a director who leaves for poor performance loses all awards that
            have not vested. No payment was made to former directors in 2024.

            # Advice

            The committee was advised by Fenwright Consulting, chosen by tender in 2021, for a fee
            of £64,000. The firm does no other work for the Group.
            """
        )
    )
    sheet.gap(16)
    wide = theme.TEXT_WIDTH
    sheet.full(caption("The policy in one table"))
    sheet.full(
        text_table(
            ["Element", "How it works", "Most that can be paid"],
            [
                ["Salary", "Reviewed each January", "Rises in line with employees’"],
                ["Pension", "Paid into the employees’ scheme or in cash", "8% of salary"],
                [
                    "Annual bonus",
                    "Profit 40%, cash 20%, safety 15%, light availability and customers 15%, "
                    "personal aims 10%; a third is deferred in shares for three years",
                    "125% of salary",
                ],
                [
                    "Long-term incentive",
                    "Shares after three years: earnings per share 40%, return on capital 40%, "
                    "emissions 20%; held for two more years",
                    "150% of salary",
                ],
                ["Benefits", "Car allowance, health cover, life cover", "£25,000"],
            ],
            [wide * 0.18, wide * 0.57, wide * 0.25],
            padding=5,
        )
    )


_PAY = {
    "Salary": (485.0, 468.0, 342.0, 330.0),
    "Benefits": (22.0, 21.0, 18.0, 17.0),
    "Pension": (39.0, 37.0, 27.0, 26.0),
    "Annual bonus": (412.0, 338.0, 276.0, 227.0),
    "Long-term incentive": (368.0, 291.0, 214.0, 168.0),
}


def directors_pay(sheet: Sheet) -> None:
    sheet.lead("What each director was paid for 2024. The tables on this page have been audited.")
    wide = theme.TEXT_WIDTH
    rows = [[name, *(f"{value:,.0f}" for value in values)] for name, values in _PAY.items()]
    sums = [sum(column) for column in zip(*_PAY.values(), strict=True)]
    sheet.full(caption("Executive directors: single total figure, £ thousand"))
    sheet.full(
        number_table(
            ["", "M. Oyelaran 2024", "2023", "T. Lindqvist 2024", "2023"],
            [*rows, ["Total", *(f"{value:,.0f}" for value in sums)]],
            [wide - 4 * 86, *[86] * 4],
            totals=[5],
            leading=17,
        )
    )
    sheet.gap(16)
    sheet.full(caption("Chairman and non-executive directors: fees, £ thousand"))
    sheet.full(
        number_table(
            ["", "2024", "2023"],
            [
                ["Edmund Hale, Chairman", "195", "190"],
                ["Priya Raman, Senior Independent Director", "72", "70"],
                ["David Achterberg, chair of audit", "70", "68"],
                ["Ingrid Solheim, chair of remuneration", "68", "66"],
                ["Dr Helen Marsh, chair of sustainability, from 1 February 2024", "60", "–"],
                ["Sir Robin Tait, to 15 May 2024", "22", "56"],
                ["Total", "487", "450"],
            ],
            [wide - 140, 70, 70],
            totals=[6],
            leading=17,
        )
    )
    sheet.gap(18)
    half = theme.COLUMN_WIDTH
    scenarios = {
        "Fixed": (565.0, 565.0, 565.0),
        "Bonus": (0.0, 312.5, 625.0),
        "Incentive": (0.0, 375.0, 750.0),
    }
    sheet.beside(
        [
            caption("What the Chief Executive can earn in 2025, £ thousand"),
            stacked_bars(half, 170, ["Lowest", "On target", "Highest"], scenarios),
        ],
        [
            caption("Bonus of 2024: how it came about"),
            number_table(
                ["Measure", "Weight", "Outcome"],
                [
                    ["Operating profit", "40%", "34%"],
                    ["Cash", "20%", "16%"],
                    ["Safety", "15%", "12%"],
                    ["Availability and customers", "15%", "9%"],
                    ["Personal aims", "10%", "3%"],
                    ["Formula outcome", "100%", "74%"],
                    ["After discretion", "", "68%"],
                ],
                [half - 100, 50, 50],
                totals=[5, 6],
                leading=17,
            ),
            small("Chief Executive. The maximum for 2024 was £606,000."),
        ],
    )
    sheet.gap(16)
    sheet.full(caption("Shares held on 31 December 2024"))
    sheet.full(
        number_table(
            ["", "Owned outright", "Deferred bonus", "Incentive, not vested"],
            [
                ["Margaret Oyelaran", "241,300", "48,150", "318,700"],
                ["Tomas Lindqvist", "82,600", "29,400", "221,900"],
                ["Edmund Hale", "40,000", "–", "–"],
            ],
            [wide - 3 * 110, *[110] * 3],
        )
    )
