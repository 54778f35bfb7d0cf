"""The three businesses, where they work, and what they invent."""

from __future__ import annotations

from harbour_light import figures, theme
from harbour_light.charts import bars, donut, lines, lying_bars
from harbour_light.diagrams import sea_map
from harbour_light.parts import callout, caption, number_table, paragraphs, text_table, tiles
from harbour_light.sheet import Sheet

SECTION = "Our businesses"


def _revenue_chart(segment: str) -> list[object]:
    return [
        caption(f"{segment}: revenue, £ million"),
        bars(theme.COLUMN_WIDTH, 150, figures.YEARS, figures.REVENUE_BY_SEGMENT[segment]),
    ]


def beacons(sheet: Sheet) -> None:
    sheet.lead("Lanterns, buoys and the service that tells their owners they are lit.")
    sheet.full(
        tiles(
            [
                ("£168.4m", "Revenue, up 5.4%"),
                ("£29.8m", "Operating profit (2023: £27.3m)"),
                ("17.7%", "Operating margin (2023: 17.1%)"),
                ("742", "Employees"),
            ],
            theme.TEXT_WIDTH,
        )
    )
    sheet.gap(16)
    sheet.columns(
        paragraphs(
            f"""
            # The year

            Beacons had a good year after a slow start. Orders from the Nordic authorities, which
            had waited for the new buoyage guideline, came in the second half. The margin rose
            because more lights are under monitoring contracts, and in spite of the delays at
            Varde Point.

            # Aurora 4

            The Aurora 4 lantern was launched in March 2024. It shows a white light at 12 nautical
            miles, weighs 14 kilograms and runs for 22 nights without sun. We give a warranty of
            seven years on the lantern and five years on its battery. Its type approval
            certificate is reproduced on page {sheet.page_of("certificate")}.

            # Selkie buoys

            The Selkie is a buoy of recycled polyethylene with a lantern, a position signal and a
            wave sensor. We delivered 640 of them in 2024 (2023: 710); the fall is due to the move
            of the works. Selkie 2 will be shown at the buoyage conference in Skarholm in
            September 2025.

            # Watchkeeper

            Watchkeeper collects the state of each light by radio or satellite every ten minutes
            and tells the owner what will fail. It looked after 18,600 lights and buoys at the
            end of the year, of which 7,100 were made by competitors. The yearly fee is between
            £90 and £240 for each light.

            # What comes next

            In 2025 we open an assembly shop of 30 people in Saint Brenn, our first on the
            continent, to be nearer to customers there and to avoid customs delays.

            # Customers

            The ten largest customers of Beacons are all public authorities and bring 38% of its
            revenue. None was lost in 2024, and four small ports joined.
            """
        )
    )
    sheet.gap(16)
    sheet.beside(
        _revenue_chart("Beacons"),
        [
            caption("Lights and buoys monitored by Watchkeeper, thousand"),
            lines(
                theme.COLUMN_WIDTH,
                150,
                figures.YEARS,
                {"At the end of the year": (6.2, 8.9, 11.7, 15.1, 18.6)},
                "{:.1f}",
            ),
        ],
    )


def port_services(sheet: Sheet) -> None:
    sheet.lead("Pilots, tugs and harbour masters in eleven ports.")
    sheet.full(
        tiles(
            [
                ("£142.9m", "Revenue, up 8.7%"),
                ("£18.6m", "Operating profit (2023: £17.1m)"),
                ("13.0%", "Operating margin (2023: 13.0%)"),
                ("781", "Employees"),
            ],
            theme.TEXT_WIDTH,
        )
    )
    sheet.gap(16)
    sheet.columns(
        paragraphs(
            """
            # The year

            We piloted 31,240 ships and towed 18,905. The concession of Kilmarra, which began in
            October 2023, brought £7.8 million of revenue in its first full year. Volumes in the
            other ports were flat; prices rose by 3% on average under the indexation of our
            contracts.

            # Concessions

            Two concessions were won in 2024: the renewal of Port Ellery, for fifteen years from
            July 2024, and the new concession of Saint Brenn, for ten years from January 2025. We
            lost the tender for Hallow Quay on price. The concession of Skarholm ends in December
            2026 and its renewal is the most important tender of the coming two years.

            # Tugs

            The fleet has 26 tugs with an average age of 14 years. Seven are hybrid. Each hybrid
            tug costs £6.1 million, about £1.3 million more than a diesel tug, and saves about
            £160,000 of fuel a year at today’s prices; grants cover a third of the difference.

            # Pilots

            We employ 143 pilots, 19 of them women, and trained 14 new ones. It takes 30 months
            to train a pilot. A simulator bridge was opened at Port Ellery in May.
            """
        )
    )
    sheet.gap(14)
    wide = theme.TEXT_WIDTH
    sheet.full(caption("Our six largest concessions"))
    sheet.full(
        text_table(
            ["Port", "Services", "Ends", "Ships piloted in 2024"],
            [
                ["Port Ellery", "Pilotage, towage, harbour master", "June 2039", "8,420"],
                ["Skarholm", "Pilotage, towage", "December 2026", "6,315"],
                ["Kilmarra", "Towage, harbour master", "September 2035", "none: towage only"],
                ["Nordvika", "Pilotage, towage", "March 2031", "4,780"],
                ["Tolland", "Pilotage, harbour master", "May 2033", "3,905"],
                ["Varde Point", "Pilotage, towage, harbour master", "August 2029", "3,160"],
            ],
            [wide * 0.2, wide * 0.38, wide * 0.19, wide * 0.23],
        )
    )
    sheet.gap(14)
    sheet.beside(
        _revenue_chart("Port Services"),
        [
            caption("Ships towed in 2024, by kind of ship"),
            lying_bars(
                theme.COLUMN_WIDTH,
                ["Container ships", "Tankers", "Bulk carriers", "Ferries", "Naval and other"],
                (6720, 5135, 4010, 1985, 1055),
            ),
        ],
    )


def offshore(sheet: Sheet) -> None:
    sheet.lead("Nine vessels, 2,300 turbines, and a bed for everyone who keeps them turning.")
    sheet.full(
        tiles(
            [
                ("£101.3m", "Revenue, up 22.9%"),
                ("£14.2m", "Operating profit (2023: £9.7m)"),
                ("14.0%", "Operating margin (2023: 11.8%)"),
                ("356", "Employees"),
            ],
            theme.TEXT_WIDTH,
        )
    )
    sheet.gap(16)
    sheet.columns(
        paragraphs(
            """
            # The year

            Utilisation of the fleet was 91% of available days (2023: 88%). All four contracts that
            came up for renewal were renewed, at day rates 9% higher on average. Guard duty, in
            which smaller boats keep fishing and merchant ships clear of cable works, doubled to
            £11.6 million.

            # Guillemot and Razorbill

            The two hybrid vessels were ordered in March 2023. Each carries 60 technicians, a
            gangway that works in waves of three metres, and a battery of 4.2 megawatt hours,
            with which it can lie beside a turbine for six hours with its engines off. Guillemot
            was delivered on 9 September 2024, six days early. Razorbill was launched on 2 November
            2024 and is due in May 2025. Both are chartered for seven years.

            # Marking

            Every turbine at the edge of a farm must carry lights and a fog signal. We mark 34
            farms with 2,300 turbines. Lights are switched off between ship passages on nine of
            them, which spares migrating birds.

            # People

            Offshore recruited 71 people in 2024. Crews work two weeks on and two weeks off. We
            dropped the last agency contracts for deck crew in April, so that every seafarer on our
            vessels is now our own employee.
            """
        )
    )
    sheet.gap(12)
    wide = theme.TEXT_WIDTH
    sheet.full(caption("The fleet at 31 December 2024"))
    sheet.full(
        number_table(
            ["Vessel", "Built", "Length, m", "Technicians", "Power", "Charter ends"],
            [
                ["Guillemot", "2024", "84", "60", "hybrid", "September 2031"],
                ["Kittiwake", "2021", "79", "56", "diesel", "March 2028"],
                ["Fulmar", "2020", "79", "56", "diesel", "June 2027"],
                ["Gannet", "2018", "72", "48", "diesel", "January 2026"],
                ["Shearwater", "2016", "68", "40", "diesel", "October 2026"],
                ["Four guard boats", "2009–2015", "24–31", "–", "diesel", "yearly"],
            ],
            [wide * 0.24, wide * 0.14, wide * 0.14, wide * 0.15, wide * 0.13, wide * 0.2],
        )
    )
    sheet.gap(16)
    sheet.beside(
        _revenue_chart("Offshore"),
        [
            caption("Share of Offshore revenue by service, 2024"),
            donut(
                theme.COLUMN_WIDTH,
                112,
                {"Vessel charter": 63, "Marking": 19, "Guard duty": 11, "Data": 7},
                "£101.3m",
            ),
        ],
    )


def where_we_work(sheet: Sheet) -> None:
    sheet.lead(
        "Six depots keep stock and technicians within a day’s sailing of nine lights out of ten."
    )
    sheet.full(caption("Depots and works, with the number of lights and buoys each looks after"))
    sheet.full(
        sea_map(
            theme.TEXT_WIDTH,
            330,
            [
                ("Port Ellery", 0.245, 0.25, "head office · 3,240 lights"),
                ("Tolland", 0.2, 0.545, "1,870 lights"),
                ("Kilmarra", 0.185, 0.87, "1,150 lights"),
                ("Skarholm", 0.735, 0.8, "2,960 lights"),
                ("Nordvika", 0.745, 0.6, "1,480 lights"),
                ("Saint Brenn", 0.69, 0.2, "800 lights"),
                ("Varde Point", 0.43, 0.885, "buoy works"),
            ],
        )
    )
    sheet.gap(18)
    sheet.columns(
        paragraphs(
            """
            # Head office and lantern works

            Port Ellery has been our home since 1871, when the brothers Josiah and Amos Thorne
            began to cast lamp housings in a former sail loft. The lantern works beside the head
            office employs 260 people and ships to 54 countries.

            # Buoy works

            The buoy works moved from Tolland to Varde Point in 2024. The new hall is 140 metres
            long, stands on a quay 9 metres deep, and can finish four buoys a day. Its roof
            carries 3,200 square metres of solar panels.

            # Depots

            A depot keeps a workboat, a crew of technicians and spare parts for six weeks. Depot
            crews made 6,870 visits to lights in 2024, a tenth fewer than in 2023, because
            Watchkeeper made them unnecessary.

            # Beyond our waters

            In 48 other countries we work through 29 agents, who are trained at Port Ellery every
            second year. The largest single order from overseas in 2024 was for 320 lanterns for a
            canal authority.
            """
        )
    )
    sheet.gap(16)
    sheet.full(
        callout(
            [
                caption("A night at Kilmarra"),
                *paragraphs(
                    """
                    At 02:40 on 19 October the leading lights of Kilmarra lost their mains supply
                    in a storm. Watchkeeper raised the alarm within four minutes, the batteries
                    carried the lights, and a depot crew had a generator running by 05:15. Eleven
                    ships used the channel that night. None of them noticed.
                    """
                ),
            ],
            theme.TEXT_WIDTH,
        )
    )


def research(sheet: Sheet) -> None:
    sheet.lead("We spent £26.0 million on research and development, 6.3% of revenue.")
    sheet.columns(
        paragraphs(
            """
            # Where the money went

            Of the £26.0 million (2023: £23.0 million), £18.7 million was charged to the income
            statement and £7.3 million was capitalised as development of products that will be
            sold. A third was spent on Watchkeeper, and a quarter on batteries and power.

            # Batteries

            With the Technical University of Nordvika we test sodium cells in 40 lanterns on the
            northern coast. They hold less energy than lithium cells but work at minus 35 degrees
            and contain no cobalt. If they last a third winter, we shall sell them from 2026.

            # Seeing without light

            The radar reflector of the Selkie 2 is printed into its hull, where it cannot rust or
            be torn off. In trials small craft appeared on ships’ radar at 6.4 nautical miles
            instead of 3.9.

            # Predicting failures

            A new model of lamp failure, trained on eleven years of Watchkeeper records, finds a
            weak battery 16 days before it fails, against ten days for the old one. It was written
            by a team of seven in Tolland and runs on the customer’s own computer if wished.

            # Patents

            We applied for 17 patents in 2024 and were granted 12. At the end of the year the Group
            held 143 patents in 38 families. Nobody contested any of them during the year.
            """
        )
    )
    sheet.gap(18)
    sheet.beside(
        [
            caption("Research and development spending, £ million"),
            bars(theme.COLUMN_WIDTH, 150, figures.YEARS, (15.8, 17.9, 20.4, 23.0, 26.0)),
        ],
        [
            caption("Spending by subject, 2024"),
            donut(
                theme.COLUMN_WIDTH,
                128,
                {
                    "Watchkeeper": 34,
                    "Batteries and power": 25,
                    "Buoys": 18,
                    "Optics": 14,
                    "Vessels": 9,
                },
                "£26.0m",
            ),
        ],
    )
    sheet.gap(18)
    wide = theme.TEXT_WIDTH
    sheet.full(caption("What will leave the laboratory next"))
    sheet.full(
        text_table(
            ["Product", "What is new", "On sale from", "Development cost so far"],
            [
                [
                    "Selkie 2 buoy",
                    "A third lighter, printed reflector",
                    "October 2025",
                    "£4.8 million",
                ],
                [
                    "Aurora 4 Red",
                    "Sector light for narrow channels",
                    "January 2026",
                    "£1.9 million",
                ],
                [
                    "Sodium battery pack",
                    "Cold-proof, without cobalt",
                    "Autumn 2026",
                    "£3.1 million",
                ],
                [
                    "Watchkeeper Tide",
                    "Forecast of currents for pilots",
                    "March 2027",
                    "£2.2 million",
                ],
            ],
            [wide * 0.22, wide * 0.36, wide * 0.19, wide * 0.23],
            padding=6,
        )
    )
