"""``visar generators``."""

from __future__ import annotations

from rich.text import Text

from visar.cli.options import Json
from visar.cli.output import STATE_STYLES, console, plain_table, print_hints, print_json
from visar.generation.registry import GeneratorInfo, available_generators
from visar.serialization import to_plain


def generators(*, as_json: Json = False) -> None:
    """List generators, which write answers."""
    known = available_generators()
    if as_json:
        print_json([to_plain(generator) | {"state": generator.state} for generator in known])
        return
    table = plain_table("NAME", "HERE", "READS", "DESCRIPTION")
    for generator in known:
        state = Text(generator.state, STATE_STYLES[generator.state])
        table.add_row(generator.name, state, generator.reads or "", _needs(generator))
    console.print(table)
    console.print()
    print_hints(
        ("Your own checkpoint", "--generator FOLDER, or its hub name"),
        ("Your own class", "--generator module:Class"),
        ("Your own server", "--generator openai:MODEL --base-url http://host:port/v1"),
    )


def _needs(generator: GeneratorInfo) -> Text:
    needs = Text(generator.description)
    if generator.next_step is not None:
        needs.append(f" → {generator.next_step}", STATE_STYLES[generator.state])
    return needs
