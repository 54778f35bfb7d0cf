"""What readers look up: the glossary and facts for shareholders."""

from __future__ import annotations

from harbour_light import theme
from harbour_light.charts import donut
from harbour_light.parts import caption, number_table, paragraphs, text_table
from harbour_light.sheet import Sheet

SECTION = "Further information"

_TERMS = (
    (
        "Aid to navigation",
        "Any device outside a ship that helps it find its way: light, buoy, signal.",
    ),
    (
        "AIS",
        "Automatic identification system, by which ships and buoys tell others where they are.",
    ),
    ("Availability", "Share of hours in which an aid to navigation worked as published."),
    ("Basis point", "One hundredth of a percentage point."),
    ("Buoyage", "The system of buoys and marks in a stretch of water."),
    (
        "Character",
        "The rhythm and colour by which a light is known, such as two flashes in ten seconds.",
    ),
    ("Concession", "Right to provide services in a port for a number of years."),
    ("Constant exchange rates", "Last year’s figures translated at this year’s rates."),
    (
        "CO2 equivalent",
        "Greenhouse gases expressed as the amount of carbon dioxide of equal effect.",
    ),
    ("Day rate", "Price of hiring a vessel with its crew for a day, without fuel."),
    ("EBITDA", "Operating profit before depreciation and amortisation."),
    ("Free cash flow", "Cash from operating and investing activities, less lease principal."),
    ("Guard duty", "Keeping other ships away from works at sea."),
    ("Hybrid vessel", "Vessel that can run on engines, on batteries or on both."),
    ("Leading lights", "Two lights that, seen one above the other, mark the line of a channel."),
    ("Lights as a service", "Contract in which the customer pays for each lit hour."),
    ("Lost-time injury", "Injury that keeps a person from work for a day or more."),
    ("Nautical mile", "1,852 metres."),
    ("Net debt", "Borrowings less cash, without lease liabilities."),
    ("Order book", "Value of signed orders not yet delivered, without options."),
    ("Pilotage", "Guiding a ship through a port or channel by a licensed local pilot."),
    ("Radar beacon", "Device that answers a ship’s radar with a coded mark on its screen."),
    ("Return on capital employed", "Operating profit over average equity plus net debt."),
    (
        "Scope 1, 2 and 3",
        "Emissions of our own fuel; of energy we buy; of suppliers and customers.",
    ),
    ("Sector light", "Light that shows different colours in different directions."),
    ("Shore power", "Electricity from land for a ship in port."),
    ("Sustainability-linked notes", "Debt whose interest depends on a goal for emissions."),
    ("Utilisation", "Days on hire as a share of days on which a vessel was available."),
)


def glossary(sheet: Sheet) -> None:
    sheet.lead("Words of the trade and of the accounts, as we use them.")
    sheet.full(
        text_table(
            ["Term", "Meaning"],
            [(f"<b>{term}</b>", meaning) for term, meaning in _TERMS],
            [theme.TEXT_WIDTH * 0.28, theme.TEXT_WIDTH * 0.72],
            padding=4.6,
        )
    )


def shareholders(sheet: Sheet) -> None:
    half, wide = theme.COLUMN_WIDTH, theme.TEXT_WIDTH
    sheet.full(caption("Calendar for 2025"))
    sheet.full(
        text_table(
            ["Date", "Event"],
            [
                ["24 April 2025", "Shares trade without the right to the final dividend"],
                ["25 April 2025", "Record date of the final dividend"],
                ["14 May 2025", "Annual general meeting, 11 am, Old Customs House, Port Ellery"],
                ["30 May 2025", "Payment of the final dividend of 8.0 pence"],
                ["7 August 2025", "Half-year results"],
                ["10 October 2025", "Payment of the interim dividend"],
            ],
            [wide * 0.25, wide * 0.75],
            padding=5,
        )
    )
    sheet.gap(18)
    sheet.beside(
        [
            caption("Who owns Harbour Light"),
            donut(
                half,
                124,
                {
                    "Institutions, British Isles": 44,
                    "Institutions abroad": 23,
                    "Private shareholders": 17,
                    "Thorne family trust": 12,
                    "Employees": 4,
                },
                "117.0m\nshares",
            ),
        ],
        [
            caption("Share price, pence"),
            number_table(
                ["", "2024", "2023"],
                [
                    ["Highest", "662", "541"],
                    ["Lowest", "498", "402"],
                    ["At 31 December", "639", "512"],
                    ["Dividend yield at 31 December", "1.9%", "2.1%"],
                ],
                [half - 90, 45, 45],
                leading=18,
            ),
        ],
    )
    sheet.gap(18)
    sheet.columns(
        paragraphs(
            """
            # Registrar

            Questions about your holding, dividends and change of address are answered by Quayside
            Registrars, 14 Rope Walk, Port Ellery. Holders may take dividends in new shares; the
            last day to choose is 9 May 2025.

            # Electronic reports

            Shareholders who receive this report by electronic mail save 1.2 tonnes of paper a
            year. To join them, write to the registrar.

            # Fraud

            We never telephone shareholders to buy or sell shares. If somebody does so in our name,
            end the call and tell the registrar.

            # Visiting us

            The lantern works at Port Ellery is open to shareholders on the first Saturday of June
            and September. Places are limited to 40 a day.

            # Advisers

            Auditor: Calder &amp; Whitlock LLP. Broker: Penhale Marsden. Solicitors: Rook, Ferrier
            and Partners. Principal banker: Northern Coast Bank.

            # Registered office

            Harbour Light plc, The Sail Loft, 1 Lamp Quay, Port Ellery. Company number 00187142.
            """
        )
    )
