"""People, safety, climate, nature."""

from __future__ import annotations

from harbour_light import figures, theme
from harbour_light.charts import lines, lying_bars, stacked_bars
from harbour_light.parts import callout, caption, number_table, paragraphs, quote, small, tiles
from harbour_light.sheet import Sheet

SECTION = "Responsibility"


def people(sheet: Sheet) -> None:
    sheet.lead("We were 1,964 people on average in 2024, 122 more than the year before.")
    sheet.columns(
        paragraphs(
            """
            # Joining and leaving

            We welcomed 341 new colleagues. Voluntary staff turnover fell to 8.7% from 9.9%. Those
            who leave tell us most often that the shifts do not suit a young family; since
            September tug crews may swap shifts through an application of their own making.

            # Learning

            Each employee had 31 hours of training on average. There are 64 apprentices, of whom
            22 are women, and 58 of the 61 who finished their time in the last three years are
            still with us. The Thorne scholarship pays the studies of six employees a year.

            # Pay

            All employees in the British Isles earn at least the voluntary living wage. The median
            gender pay gap was 9.6% (2023: 10.8%), mostly because few women have yet become
            pilots, our best-paid profession ashore or afloat.

            # Being heard

            The yearly survey was answered by 84% of employees. Engagement was 78 out of 100, two
            points more than in 2023. The lowest score, 61, was given to “my tools and systems let
            me work well”, and the budget for tools was raised by £1.2 million in response.

            # Equality

            Women hold 34% of senior management posts (2023: 31%) and four of seven seats on the
            Board. Our aim is 40% of senior management by 2028.
            """
        )
    )
    sheet.gap(18)
    sheet.beside(
        [
            caption("Employees by region, average of 2024"),
            lying_bars(
                theme.COLUMN_WIDTH,
                ["British Isles", "Nordic countries", "Continental Europe", "Rest of world"],
                (1046, 478, 301, 139),
            ),
        ],
        [
            caption("Employees by length of service"),
            lying_bars(
                theme.COLUMN_WIDTH,
                ["under 2 years", "2 to 5 years", "6 to 15 years", "over 15 years"],
                (534, 471, 583, 376),
            ),
        ],
    )
    sheet.gap(16)
    wide = theme.TEXT_WIDTH
    sheet.full(caption("Average number of employees"))
    sheet.full(
        number_table(
            ["", "2024", "2023"],
            [
                ["Beacons", "742", "718"],
                ["Port Services", "781", "751"],
                ["Offshore", "356", "292"],
                ["Central", "85", "81"],
                ["Group", "1,964", "1,842"],
            ],
            [wide - 140, 70, 70],
            totals=[4],
        )
    )
    sheet.gap(16)
    sheet.full(
        quote(
            "I came for two years. That was nineteen years and four tugs ago.",
            "Maren Tveit, tug master, Skarholm",
            wide,
        )
    )


def safety(sheet: Sheet) -> None:
    sheet.lead("The sea does not forgive haste. Our first rule is that anyone may stop any job.")
    sheet.full(
        tiles(
            [
                ("0", "Deaths at work (2023: 0)"),
                ("1", "Serious injury (2023: 3)"),
                ("1,127", "Jobs stopped by an employee"),
                ("96%", "Safety drills held on time"),
            ],
            theme.TEXT_WIDTH,
        )
    )
    sheet.gap(18)
    sheet.columns(
        paragraphs(
            """
            # What happened

            On 11 March 2024 a deckhand’s hand was crushed between rope and winch on the tug
            Cormorant. He has returned to work. The inquiry found that the guard had been taken off
            for cleaning and that two earlier reports of missing guards had not been followed up.
            All 26 tugs had fixed guards by the end of July, at a cost of £310,000.

            # What we changed

            Every report of a hazard now gets an answer to the person who made it within seven
            days; 94% did in the second half of the year. Transfers between boat and ladder are no
            longer made in waves above 1.5 metres. Masters on night duty must have had ten hours of
            rest, two more than the law asks.

            # Health

            Our occupational health service moved in-house in January. It found hearing loss in 7%
            of engine-room crew, and new ear protection with radio was given to all of them.
            Absence through illness was 3.4% of working days (2023: 3.9%).

            # Contractors

            Yards and subcontractors follow our rules when they work on our vessels, and their
            accidents are counted with ours. We ended the contract of one painting firm in August
            after repeated breaches.
            """
        )
    )
    sheet.gap(18)
    sheet.full(caption("Lost-time injuries per 200,000 hours worked, contractors included"))
    sheet.full(
        lines(
            theme.TEXT_WIDTH,
            170,
            ["2018", "2019", *figures.YEARS],
            {"Lost-time injury rate": (0.92, 0.80, 0.71, 0.64, 0.55, 0.48, 0.39)},
            "{:.2f}",
        )
    )
    sheet.gap(14)
    sheet.full(
        callout(
            [
                caption("Rescue"),
                *paragraphs(
                    """
                    Our crews took part in 43 rescues in 2024 and brought 118 people ashore. We
                    charge nobody for a rescue. The cost, £0.6 million, is borne by the Group.
                    """
                ),
            ],
            theme.TEXT_WIDTH,
        )
    )


def climate(sheet: Sheet) -> None:
    sheet.lead(
        "Emissions of our own operations are down by a quarter since 2020. Half is the goal."
    )
    sheet.columns(
        paragraphs(
            f"""
            # Where we stand

            Ninety-three per cent of our direct emissions come from the funnels of tugs and service
            vessels. In 2024 scope 1 and 2 emissions were 36.1 thousand tonnes of CO2 equivalent,
            10.4% less than in 2023 and 24.8% less than in 2020, the base year, although we ran
            more vessels.

            # Where we are going

            We aim to halve scope 1 and 2 emissions by 2030 against 2020, and to reach net zero by
            2040. The 2030 goal needs 20 hybrid or electric tugs, three more hybrid service
            vessels, and renewable fuel for a fifth of what is left. The cost is in our plan: £62
            million over six years, after grants.

            # Scope 3

            Emissions of suppliers and of the use of our products were 118.4 thousand tonnes (2023:
            121.0 thousand). Steel and polyethylene make up most of it. From 2025 suppliers with
            sales above £1 million to us must report their own emissions.

            # Money that depends on it

            The interest on the sustainability-linked notes falls or rises by 0.10 percentage
            points a year according to whether emissions in 2027 are below 29 thousand tonnes. A
            fifth of the long-term incentive of directors depends on the same figure.

            # Assurance

            The figures for scope 1 and 2 were examined by Northgate Verification. Their signed
            statement is reproduced on page {sheet.page_of("assurance")}.
            """
        )
    )
    sheet.gap(18)
    sheet.full(caption("Greenhouse gas emissions, thousand tonnes of CO2 equivalent"))
    sheet.full(
        stacked_bars(
            theme.TEXT_WIDTH,
            190,
            figures.YEARS,
            {"Scope 1": figures.SCOPE_1, "Scope 2": figures.SCOPE_2},
        )
    )
    sheet.gap(16)
    wide = theme.TEXT_WIDTH
    sheet.full(
        number_table(
            ["Energy", "2024", "2023"],
            [
                ["Marine diesel, thousand litres", "11,940", "13,020"],
                ["Renewable diesel, thousand litres", "860", "410"],
                ["Electricity, megawatt hours", "21,300", "20,150"],
                ["of which from renewable sources", "78%", "64%"],
            ],
            [wide - 140, 70, 70],
        )
    )


def nature(sheet: Sheet) -> None:
    sheet.lead("We work in water that others live in and live from.")
    sheet.columns(
        paragraphs(
            """
            # Birds

            Steady bright light draws migrating birds. All new lanterns can be dimmed to the lowest
            legal level, and on nine wind farms lights are dark unless a ship is near. Counts by
            the Skarholm Bird Observatory found 41% fewer birds struck at those farms.

            # Sea bed

            Mooring chains scour the sea bed. We replaced 212 chains by elastic moorings in
            seagrass meadows, at £1,900 each, and have 530 left to do. Divers found new shoots
            within one season at 60% of the places they looked at.

            # Materials

            A Selkie buoy holds 310 kilograms of recycled polyethylene, most of it from fishing
            nets. We took back 1,480 old lanterns and recycled 92% of their weight. Waste sent to
            landfill fell to 118 tonnes from 164 tonnes.

            # Oil

            There were two spills of more than ten litres, both of hydraulic oil (2023: five). The
            larger, of 85 litres, happened at Nordvika in April and was recovered the same day.

            # Neighbours

            We gave £0.9 million to lifeboats, sea schools and the museum of navigation at Port
            Ellery. Employees may give two working days a year to a good cause; 612 did. Since 1998
            the Group has run the Thorne sea school, where 240 children a year learn to sail.

            # Suppliers

            We audited 57 suppliers and found two that withheld passports from migrant workers.
            Both returned them; we stay with one under watch and left the other.
            """
        )
    )
    sheet.gap(18)
    wide = theme.TEXT_WIDTH
    sheet.full(caption("Measures of sustainability"))
    sheet.full(
        number_table(
            ["", "2022", "2023", "2024", "Goal for 2028"],
            [
                ["Scope 1 and 2 emissions, thousand tonnes", "43.7", "40.3", "36.1", "27.0"],
                ["Hybrid or electric tugs", "2", "4", "7", "13"],
                ["Recycled polyethylene in buoys", "71%", "78%", "83%", "95%"],
                ["Waste to landfill, tonnes", "201", "164", "118", "40"],
                ["Oil spills above ten litres", "6", "5", "2", "0"],
                ["Elastic moorings fitted, in total", "95", "188", "400", "930"],
                ["Suppliers audited", "38", "44", "57", "80"],
            ],
            [wide - 4 * 74, *[74] * 4],
            leading=18,
        )
    )
    sheet.gap(4)
    sheet.full(small("Emissions are assured; the other measures are not."))
    sheet.gap(14)
    sheet.full(
        callout(
            [
                caption("Seals on the Selkie"),
                *paragraphs(
                    """
                    Grey seals like to rest on our buoys, and a resting seal of 200 kilograms tilts
                    the lantern out of true. In 2024 we gave 36 buoys a skirt that seals slide off
                    without harm. Six colonies were given floating rafts near by instead. They are
                    used every day.
                    """
                ),
            ],
            wide,
        )
    )
