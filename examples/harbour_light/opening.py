"""The first pages: cover, contents, the year at a glance, the two letters."""

from __future__ import annotations

from harbour_light import figures, theme
from harbour_light.charts import bars, donut
from harbour_light.parts import callout, caption, paragraphs, quote, small, tiles
from harbour_light.scenery import band, cover_scene
from harbour_light.sheet import Sheet

SECTION = "Overview"


def cover(sheet: Sheet) -> None:
    canvas = sheet.canvas
    cover_scene(theme.PAGE_WIDTH, theme.PAGE_HEIGHT).drawOn(canvas, 0, 0)
    canvas.setFillColor(theme.WHITE)
    canvas.setFont(theme.SERIF, 46)
    canvas.drawString(theme.MARGIN, 700, "Harbour Light plc")
    canvas.setFont(theme.SANS, 17)
    canvas.setFillColor(theme.AMBER)
    canvas.drawString(theme.MARGIN, 668, "Annual Report and Accounts 2024")
    canvas.setFillColor(theme.WHITE)
    canvas.setFont(theme.SERIF_ITALIC, 17)
    canvas.drawString(theme.MARGIN, 74, "Bringing ships, crews and turbines safely home")
    canvas.setFont(theme.SANS, 8)
    canvas.drawString(
        theme.MARGIN,
        40,
        "An example document: the company, its people, places and figures are invented.",
    )


def contents(sheet: Sheet) -> None:
    canvas = sheet.canvas
    left, right = theme.MARGIN, theme.PAGE_WIDTH - theme.MARGIN
    section = ""
    for number, plan in enumerate(sheet.plans, start=1):
        if not plan.dressed or plan.continues or plan is sheet.plan:
            continue
        if plan.section != section:
            section = plan.section
            sheet.gap(10)
            canvas.setFont(theme.SANS_BOLD, 10)
            canvas.setFillColor(theme.SEA)
            canvas.drawString(left, sheet.y, section)
            sheet.gap(14)
        canvas.setFont(theme.SANS, 9.5)
        canvas.setFillColor(theme.INK)
        canvas.drawString(left + 12, sheet.y, plan.title)
        canvas.drawRightString(right, sheet.y, str(number))
        canvas.setStrokeColor(theme.MIST)
        canvas.setLineWidth(0.6)
        canvas.line(left + 12, sheet.y - 3, right, sheet.y - 3)
        canvas.linkAbsolute("", plan.key, (left, sheet.y - 3, right, sheet.y + 10))
        sheet.gap(12.9)


def at_a_glance(sheet: Sheet) -> None:
    sheet.lead(
        "We make, place and look after the lights, buoys and signals by which ships find their "
        "way, we run the harbours they come home to, and we serve the wind farms they sail past."
    )
    sheet.full(
        tiles(
            [
                ("£412.6m", "Revenue, up 10.4% (2023: £373.6m)"),
                ("£53.2m", "Operating profit, up 17.7% (2023: £45.2m)"),
                ("30.0p", "Earnings per share (2023: 25.0p)"),
                ("12.0p", "Dividend for the year (2023: 10.5p)"),
            ],
            theme.TEXT_WIDTH,
        )
    )
    sheet.gap(18)
    half = theme.COLUMN_WIDTH
    sheet.beside(
        [caption("Revenue, £ million"), bars(half, 160, figures.YEARS, figures.REVENUE)],
        [
            caption("Operating profit, £ million"),
            bars(half, 160, figures.YEARS, figures.OPERATING_PROFIT),
        ],
    )
    sheet.gap(18)
    regions = {name: value / figures.REVENUE[4] * 100 for name, value, _ in REGIONS}
    segments = {
        name: values[4] / figures.REVENUE[4] * 100
        for name, values in figures.REVENUE_BY_SEGMENT.items()
    }
    sheet.beside(
        [
            caption("Where our revenue comes from"),
            donut(half, 104, regions, "Revenue\nby region"),
        ],
        [
            caption("Which business earns it"),
            donut(half, 104, segments, "Revenue\nby segment"),
        ],
    )
    sheet.gap(20)
    sheet.columns(
        paragraphs(
            """
            # Beacons

            Lanterns, smart buoys, radar beacons and the Watchkeeper monitoring service for
            lighthouse authorities and ports in 54 countries.

            # Port Services

            Pilotage, towage and harbour operations under long concessions in eleven ports, from
            Port Ellery in the west to Skarholm in the north.

            # Offshore

            Service vessels, marking and guard duty for offshore wind farms, with nine vessels at
            the end of the year and a tenth under construction.
            """
        )
    )


REGIONS = figures.REVENUE_BY_REGION


def chairmans_letter(sheet: Sheet) -> None:
    sheet.full(band("lighthouse"))
    sheet.gap(12)
    sheet.lead("A year in which we invested more than ever before, and earned the right to.")
    sheet.columns(
        [
            *paragraphs(
                f"""
                Dear shareholder,

                When I joined the Board nine years ago, Harbour Light was a respected maker of
                lanterns with a small harbour business attached. Today it is a group of three
                businesses that lean on each other, and 2024 was the year in which that began to
                show in the figures. Revenue rose by 10.4% to £412.6 million, operating profit by
                17.7% to £53.2 million, and earnings per share by a fifth, to 30.0 pence.

                # Investing for the next decade

                The decision that took most of the Board’s time was how much to build. Capital
                expenditure rose to £47.5 million in 2024 from £35.2 million in 2023, and it has
                more than doubled since 2020. Most of the increase went into two hybrid service
                vessels for our Offshore business. The first, Guillemot, entered service in
                September; her sister Razorbill follows in May 2025. We expect 2024 to be near the
                peak: the plan for 2025 is £45 million and for 2026 about £38 million. The detail
                is in note 3 on page {sheet.page_of("capex")}.

                We have not paid for this growth by weakening the balance sheet. Net debt stood at
                £103.4 million at the year end, 1.16 times EBITDA, against 1.25 times a year
                earlier and our ceiling of two times.

                # Dividend

                The Board recommends a final dividend of 8.0 pence per share. With the interim
                dividend of 4.0 pence this makes 12.0 pence for the year, an increase of 14.3%, and
                40% of earnings, in line with our policy of paying out between 35% and 45%.

                # The Board

                Dr Helen Marsh joined us in February 2024 and chairs the new sustainability
                committee. Sir Robin Tait retired at the annual general meeting after eight years;
                his knowledge of pilotage will be missed. I shall myself stand down at the annual
                general meeting of 2026, and Priya Raman is leading the search for my successor.

                # Thanks

                In the storm of 18 and 19 October, four of our tug crews spent thirty-one hours at
                sea and brought in nine vessels without the loss of a life. The Board gave each of
                the 27 crew members the Harbour Light medal, last awarded in 2011. I thank them,
                and all 1,964 colleagues.
                """
            ),
        ]
    )
    sheet.gap(16)
    sheet.full(
        quote(
            "A light is a promise. Ours is that somebody has checked it.",
            "Edmund Hale, Chairman, 5 March 2025",
            theme.TEXT_WIDTH,
        )
    )


def chief_executives_review(sheet: Sheet) -> None:
    sheet.full(band("turbines"))
    sheet.gap(12)
    sheet.lead(
        "Three businesses, one promise: the light is on, the channel is marked, help is near."
    )
    sheet.columns(
        paragraphs(
            f"""
            # How the year went

            All three segments grew. Offshore grew fastest, with revenue up 22.9% to £101.3
            million, because Guillemot was on hire from her first week and because customers
            renewed every contract that came up. Port Services benefited from the first full year
            of the Kilmarra concession. Beacons sold 11,400 lanterns, of which 3,900 were the new
            Aurora 4, and closed the year with a record order book.

            # What did not go well

            I promised in last year’s report to say plainly what failed. The move of our buoy
            works from Tolland to Varde Point took five months longer than planned and cost £2.6
            million more than its budget of £9.0 million. Deliveries of Selkie buoys to two
            lighthouse authorities were late, and we paid £0.4 million in damages. We changed the
            management of the project in June; the works have run at planned output since October.

            # Safety

            Nobody lost their life at work, and fewer people were hurt than in any year on record.
            One serious injury, a crushed hand on the tug Cormorant in March, led us to fit winch
            guards on all 26 tugs. More on page {sheet.page_of("safety")}.

            # Technology

            Watchkeeper, our monitoring service, now looks after 18,600 lights and buoys, and it
            gave warning of 93% of lamp failures at least ten days before they happened. That
            saves a boat trip each time. From 2025 every Aurora 4 is sold with Watchkeeper for
            three years in the price.

            # Outlook

            Eighty-one per cent of the revenue we plan for 2025 was under contract at the end of
            February. We expect revenue growth of 6% to 8% and an operating margin of about 13%.
            Wage inflation and the price of lithium cells are the main uncertainties.
            """
        )
    )
    sheet.gap(14)
    sheet.full(
        callout(
            [
                caption("Priorities for 2025"),
                *paragraphs(
                    """
                    - Bring Razorbill into service on time and within her budget of £19.5 million.

                    - Finish the roll-out of shore power at Port Ellery, Kilmarra and Skarholm.

                    - Win at least two of the four harbour concessions that are tendered in 2025.

                    - Launch the Selkie 2 buoy, which weighs a third less and needs no crane.
                    """
                ),
                small("Margaret Oyelaran, Chief Executive, 5 March 2025"),
            ],
            theme.TEXT_WIDTH,
        )
    )
