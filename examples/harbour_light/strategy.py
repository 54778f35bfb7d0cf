"""How the company earns its money, what it aims at, and the markets it is in."""

from __future__ import annotations

from harbour_light import figures, theme
from harbour_light.charts import bars, donut, lines
from harbour_light.diagrams import process
from harbour_light.parts import callout, caption, number_table, paragraphs, small, text_table
from harbour_light.scenery import band
from harbour_light.sheet import Sheet

SECTION = "Strategic report"


def business_model(sheet: Sheet) -> None:
    sheet.lead(
        "We sell a light once and look after it for twenty years. Two thirds of our gross profit "
        "comes from the looking after."
    )
    sheet.columns(
        paragraphs(
            """
            # What we put in

            Our resources are 1,964 people, 214 of them engineers; six depots and two works; nine
            offshore vessels and 26 tugs; and the trust of 61 lighthouse authorities, some of
            which have bought from us since 1887.

            # What we do

            We design, make and install aids to navigation. We monitor and repair them, our own
            and those of others. We pilot and tow ships in eleven ports. We carry technicians and
            spare parts to wind farms and keep other ships away from them.

            # Why customers stay

            A failed light closes a channel, and a closed channel costs a port more in a day than
            a year of our service. So customers choose by reliability first. In 2024 the lights
            under our care were lit for 99.93% of the hours they should have been; the
            international recommendation for the most important lights is 99.8%.

            # How the parts help each other

            Port concessions give us harbours in which to try new lanterns and buoys. Tugs and
            service vessels carry Beacons’ technicians for a third of what a chartered boat would
            cost. Watchkeeper’s data on waves and currents is sold to wind farms, which plan their
            crew transfers by it.

            # What could copy us

            Anyone can buy light-emitting diodes. It is harder to be trusted with a coast. A rival
            would need depots, boats, pilots’ licences and a record of decades, and would need them
            all at once. That is why we guard our record more carefully than our drawings.

            # Where the money comes from

            Products brought 47% of revenue in 2024 and services 53%. Of the revenue from services,
            four fifths was under contracts of three years or longer.
            """
        )
    )
    sheet.gap(20)
    sheet.full(
        caption("From enquiry to a light in the water: the steps of a typical buoy contract")
    )
    sheet.full(
        process(
            theme.TEXT_WIDTH,
            [
                ("Survey", "3 weeks", "site, currents,\ntraffic study"),
                ("Design", "5 weeks", "mooring plan,\nlight character"),
                ("Build", "9 weeks", "Varde Point\nworks"),
                ("Install", "2 weeks", "by our own\nvessels"),
                ("Watch", "20 years", "Watchkeeper and\nyearly visit"),
            ],
        )
    )
    sheet.gap(14)
    sheet.full(caption("How the value we created in 2024 was shared"))
    sheet.full(
        number_table(
            ["£ million", "2024", "2023"],
            [
                ["Employees: wages, pensions and social security", "118.6", "109.3"],
                ["Suppliers: materials, fuel and services", "206.1", "187.1"],
                ["Lenders: interest", "8.6", "7.9"],
                ["Governments: corporate income tax", "11.0", "9.2"],
                ["Shareholders: dividends paid", "12.8", "11.6"],
            ],
            [theme.TEXT_WIDTH - 140, 70, 70],
        )
    )


def strategy(sheet: Sheet) -> None:
    sheet.full(band("buoys"))
    sheet.gap(12)
    sheet.lead(
        "Our plan, Steady Light 2028, was set in 2023. It has four aims, each with a number that "
        "we report every year."
    )
    wide = theme.TEXT_WIDTH
    sheet.full(
        text_table(
            ["Aim", "Why it matters", "Target for 2028", "Where we stood in 2024"],
            [
                [
                    "<b>1. Serve, not only sell</b>",
                    "Service revenue is steadier and earns a higher margin than products.",
                    "60% of Group revenue from services",
                    "53% (2023: 51%)",
                ],
                [
                    "<b>2. Grow with offshore wind</b>",
                    "Turbines stand further out every year and need larger vessels.",
                    "Offshore revenue of £160 million",
                    "£101.3 million (2023: £82.4 million)",
                ],
                [
                    "<b>3. Run cleaner harbours</b>",
                    "Ports choose operators whose tugs and quays emit less.",
                    "Half of all tugs hybrid or electric",
                    "7 of 26 tugs (2023: 4)",
                ],
                [
                    "<b>4. Make lights that last</b>",
                    "A longer life means fewer visits, the largest cost of owning a light.",
                    "Average visit interval of 24 months",
                    "17 months (2023: 15)",
                ],
            ],
            [wide * 0.2, wide * 0.34, wide * 0.22, wide * 0.24],
            padding=7,
        )
    )
    sheet.gap(18)
    sheet.columns(
        paragraphs(
            f"""
            # Serve, not only sell

            We began to offer lights as a service in 2022: the customer pays by the lit hour, and
            we own the lantern. By the end of 2024 there were 2,150 lights under such contracts,
            with an average remaining life of 8.4 years.

            # Grow with offshore wind

            Four more vessels are planned by 2028 beyond Razorbill, each ordered only when a
            charter of at least five years has been signed. The Board does not build on
            speculation. Page {sheet.page_of("offshore")} describes the fleet.

            # Run cleaner harbours

            Three hybrid tugs joined the fleet in 2024. They burned 38% less fuel than the tugs
            they replaced. Shore power opened at Port Ellery in November and lets moored ships
            switch off their engines.

            # Make lights that last

            The Aurora 4 lantern needs a visit only every three years. It replaces a family of
            five older products, so that technicians carry one set of spare parts.

            # How we allocate capital

            First, keep ships and people safe and assets in repair. Second, projects that return
            at least 12% after tax. Third, a dividend of 35% to 45% of earnings. Fourth,
            acquisitions that bring skills we lack. Whatever is left reduces debt.

            # What we shall not do

            We shall not enter defence work, we shall not own wind farms, and we shall not bid for
            ports in which we could not employ our own pilots.
            """
        )
    )


def key_figures(sheet: Sheet) -> None:
    sheet.lead("Eight measures tell us whether the strategy works. Five of them decide bonuses.")
    wide = theme.TEXT_WIDTH
    sheet.full(
        number_table(
            ["Measure", *figures.YEARS],
            [
                ["Revenue, £ million", *(f"{v:.1f}" for v in figures.REVENUE)],
                ["Operating profit, £ million *", *(f"{v:.1f}" for v in figures.OPERATING_PROFIT)],
                ["Operating margin *", "10.6%", "11.2%", "11.7%", "12.1%", "12.9%"],
                ["Earnings per share, pence *", *(f"{v:.1f}" for v in figures.EARNINGS_PER_SHARE)],
                ["Return on capital employed *", "9.8%", "11.0%", "12.2%", "13.3%", "14.7%"],
                ["Net debt, £ million", *(f"{v:.1f}" for v in figures.NET_DEBT)],
                ["Availability of lights *", "99.81%", "99.85%", "99.88%", "99.91%", "99.93%"],
                ["Customer satisfaction, out of 10", "7.9", "8.0", "8.2", "8.2", "8.5"],
            ],
            [wide - 5 * 62, *[62] * 5],
            leading=18,
        )
    )
    sheet.gap(4)
    sheet.full(small("* decides part of the annual bonus; see the remuneration report."))
    sheet.gap(14)
    half = theme.COLUMN_WIDTH
    sheet.beside(
        [
            caption("Earnings per share, pence"),
            bars(half, 176, figures.YEARS, figures.EARNINGS_PER_SHARE),
        ],
        [
            caption("Dividend per share, pence"),
            bars(half, 176, figures.YEARS, figures.DIVIDEND_PER_SHARE),
        ],
    )
    sheet.gap(18)
    sheet.columns(
        paragraphs(
            """
            # How we measure

            Operating margin is operating profit divided by revenue. Return on capital employed is
            operating profit divided by the average of opening and closing equity plus net debt.
            Availability is the share of hours in which a light showed its correct character,
            measured by Watchkeeper and, for lights without it, by inspection.

            # Customer satisfaction

            An independent firm asks every customer with revenue above £50,000 once a year. In
            2024 it had 318 replies, 71% of those asked. Speed of repair was rated best, at 9.1;
            clarity of invoices was rated worst, at 6.8, and a new billing system is on its way.

            # Five years in a sentence

            Since 2020 revenue has grown by 44%, operating profit by 75% and the dividend by 71%,
            while net debt has fallen by 8%.
            """
        )
    )


def market(sheet: Sheet) -> None:
    sheet.lead(
        "Shipping grows slowly, offshore wind grows fast, and both need to see and to be seen."
    )
    half = theme.COLUMN_WIDTH
    sheet.columns(
        paragraphs(
            """
            # Aids to navigation

            The world spends about £2.1 billion a year on lights, buoys and beacons, and the sum
            has grown by 4% a year since 2019. Authorities replace lamps by LEDs, which is nearly
            done, and visits by remote monitoring, which has hardly begun: we estimate that one
            light in six is monitored today. Four suppliers share two thirds of the market.

            # Harbours

            Port authorities in northern Europe put pilotage and towage out to tender more often
            than they did. Seventeen concessions were awarded in 2024; we bid for six and won two.
            Contracts run for ten to fifteen years.

            # Offshore wind

            Wind farms move away from the coast. The average distance of new farms from their
            port was 61 kilometres in 2024, twice that of 2015, so that technicians stay at sea
            for two weeks at a time and need vessels with beds and stable gangways.

            # Rules

            From 2027 new vessels above 400 tonnes that call at European ports must be able to use
            shore power. The revised buoyage guideline of 2024 asks for a backup position signal on
            every major floating light. Both create demand for what we make.

            # Competition

            Nautilux is larger than we are and cheaper in simple lanterns. Seamark Group is strong
            in Asia and began to offer monitoring in 2023. In towage we meet national operators,
            and in offshore vessels about a dozen owners, most of them family firms.
            """
        )
    )
    sheet.gap(18)
    sheet.beside(
        [
            caption("Shares of the world market for aids to navigation, 2024"),
            donut(
                half,
                150,
                {
                    "Nautilux": 24,
                    "Harbour Light": 18,
                    "Seamark Group": 15,
                    "Pharos Systems": 9,
                    "all others": 34,
                },
                "£2.1 billion",
            ),
        ],
        [
            caption("Order book at the end of each quarter, £ million"),
            lines(
                half,
                176,
                ["Q1 23", "Q2 23", "Q3 23", "Q4 23", "Q1 24", "Q2 24", "Q3 24", "Q4 24"],
                {"Order book": (211, 218, 226, 239, 251, 268, 283, 297)},
                floor=180,
            ),
        ],
    )
    sheet.gap(16)
    sheet.full(
        callout(
            [
                caption("What could change our view"),
                *paragraphs(
                    """
                    Satellite positioning has made some lights redundant, and a few authorities
                    have begun to switch off the smallest. We believe that jamming of satellite
                    signals, which was reported by 4,300 ships in our waters in 2024, makes visible
                    lights more valuable, not less.
                    """
                ),
            ],
            theme.TEXT_WIDTH,
        )
    )
