"""``visar setup``: a better encoder and a language model for this machine."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Annotated

import typer
from rich.text import Text

from visar.cli import settings
from visar.cli.config import check
from visar.cli.options import Json
from visar.cli.output import STATE_STYLES, console, errors, plain_table, print_json
from visar.encoders.registry import EncoderInfo, available_encoders, get_encoder
from visar.generation import extractive
from visar.generation.registry import GeneratorInfo, available_generators, get_generator, is_served
from visar.generation.servers import USUAL_ADDRESSES, ServedModel, find_served_models
from visar.models.hub import downloads_shown
from visar.models.machine import Machine, gigabytes, this_machine
from visar.models.protocols import Downloadable, State

EncoderChoice = Annotated[
    str | None, typer.Option("--encoder", help="Take this encoder, not the proposed one.")
]
GeneratorChoice = Annotated[
    str | None, typer.Option("--generator", help="Take this generator, not the proposed one.")
]
BaseUrl = Annotated[
    str | None,
    typer.Option(
        "--base-url",
        help="Look for language models at this address, not at the usual ports of this machine.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Download and set what is chosen; do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Propose; download and change nothing.")]

# The least memory of a card, in gigabytes, and what runs there: the weights in 16 bits, and pages.
_FOR_CARDS = ((12, "colqwen2.5"), (3, "colsmol-500m"), (2, "colsmol-256m"))
# torch alone takes about one gigabyte.
_FOR_CPUS = (3, "colbert-small")
# Beside an encoder.
_LOCAL_MODEL = (28, "qwen2.5-vl")
_BRINGS = {
    "embedded": "installed, and fast: the default",
    "colbert-small": "words, trained to find passages; slower than the default",
    "colsmol-256m": "sees charts, tables and scans",
    "colsmol-500m": "sees charts, tables and scans, with more parameters",
    "colqwen2.5": "sees charts, tables and scans; one of the paper's encoders",
    extractive.NAME: "quotes the best passages, at once",
    "qwen2.5-vl": "writes answers from what pages show; the paper's first choice",
}


@dataclass(frozen=True, slots=True)
class Choice:
    """An encoder or a generator that suits the machine."""

    name: str
    size: str
    brings: str
    state: State
    install: str | None
    """What to type before it can be used here."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What setup found, proposes, and has done."""

    machine: Machine
    served: tuple[ServedModel, ...]
    encoders: tuple[Choice, ...]
    """Those that fit this machine, the best first."""
    generators: tuple[Choice, ...]
    encoder: str
    generator: str
    base_url: str | None = None
    """Where the generator is served."""
    written: str | None = None
    """The configuration file, if the choice was written to it."""


def setup(
    *,
    encoder: EncoderChoice = None,
    generator: GeneratorChoice = None,
    base_url: BaseUrl = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Choose an encoder and a language model for this machine, download them, and set them."""
    plan = _with(propose(base_url), encoder, generator, base_url)
    if not as_json:
        _print_plan(plan)
    if not (yes or dry_run or as_json) and sys.stdin.isatty():
        chosen = (typer.prompt("Encoder", plan.encoder), typer.prompt("Generator", plan.generator))
        plan = _with(plan, *chosen, base_url)
        yes = typer.confirm(
            f"Download from the model hub what is not here, and set both in {settings.location()}?",
            default=True,
        )
    if yes and not dry_run:
        plan = _carry_out(plan)
    if as_json:
        print_json(plan)
    elif plan.written is None:
        console.print("Nothing was changed: visar setup --yes takes it as proposed.")


def propose(base_url: str | None = None) -> Plan:
    """Look at the machine and its servers, and propose the best that can be used now."""
    machine = this_machine()
    served = tuple(find_served_models([base_url] if base_url else USUAL_ADDRESSES))
    encoders, generators = encoders_for(machine), generators_for(machine, served)
    return Plan(
        machine, served, encoders, generators, _first_usable(encoders), _first_usable(generators)
    )


def _with(plan: Plan, encoder: str | None, generator: str | None, base_url: str | None) -> Plan:
    """Return the plan with what was chosen instead of the proposal."""
    for key, value in (("encoder", encoder), ("generator", generator)):
        if value is not None:
            check(key, value)
    writer = generator or plan.generator
    address = {model.generator: model.base_url for model in plan.served}.get(writer, base_url)
    return replace(
        plan,
        encoder=encoder or plan.encoder,
        generator=writer,
        base_url=address if is_served(writer) else None,
    )


def encoders_for(machine: Machine) -> tuple[Choice, ...]:
    """Return the encoders that a machine can run, the best first."""
    card = 0 if machine.card is None else gigabytes(machine.card.memory)
    names = [name for needed, name in _FOR_CARDS if card >= needed][:2]
    if machine.memory is None or gigabytes(machine.memory) >= _FOR_CPUS[0]:
        names.append(_FOR_CPUS[1])
    known = {info.name: info for info in available_encoders()}
    return tuple(_choice(known[name]) for name in (*names, "embedded"))


def generators_for(machine: Machine, served: tuple[ServedModel, ...]) -> tuple[Choice, ...]:
    """Return the generators that a machine has or can run, the best first."""
    known = {info.name: info for info in available_generators()}
    install = known["openai:MODEL"].install
    # That no address is set is what setup is for.
    install = install if install and install.startswith("pip") else None
    found = [
        Choice(
            model.generator,
            "",
            f"writes answers from what pages {'show' if model.sees_images else 'say'}; served at "
            f"{model.base_url}",
            "missing" if install else "ready",
            install,
        )
        for model in served
    ]
    card = 0 if machine.card is None else gigabytes(machine.card.memory)
    local = [_LOCAL_MODEL[1]] if card >= _LOCAL_MODEL[0] else []
    return (*found, *(_choice(known[name]) for name in (*local, extractive.NAME)))


def _choice(info: EncoderInfo | GeneratorInfo) -> Choice:
    return Choice(info.name, info.size, _BRINGS[info.name], info.state, info.install)


def _first_usable(choices: tuple[Choice, ...]) -> str:
    return next(choice.name for choice in choices if choice.state != "missing")


def _carry_out(plan: Plan) -> Plan:
    """Download what is chosen, try the encoder, and write the choice to the configuration file."""
    before = settings.read().get("encoder", "embedded")
    encoder = get_encoder(plan.encoder)
    models: list[object] = [encoder]
    if plan.generator != extractive.NAME:
        models.append(get_generator(plan.generator, base_url=plan.base_url))
    with downloads_shown():
        for model in models:
            if isinstance(model, Downloadable):
                model.fetch()
    # What is wrong with a model is better known before it is set.
    encoder.encode_query("ready")
    path = settings.location()
    choice = {"encoder": plan.encoder, "generator": plan.generator, "base_url": plan.base_url}
    settings.write(choice)
    errors.print(Text(f"Set in {path}: visar config shows and changes it."), soft_wrap=True)
    if plan.encoder != before:
        again = f"Documents added before have no vectors of {plan.encoder}: visar add adds them."
        errors.print(Text(again), soft_wrap=True)
    return replace(plan, written=str(path))


def _print_plan(plan: Plan) -> None:
    console.print(Text(plan.machine.summary))
    console.print()
    table = plain_table("CHOICE", "HERE", "SIZE", "WHAT IT BRINGS")
    groups = (
        ("encoder", plan.encoders, plan.encoder),
        ("generator", plan.generators, plan.generator),
    )
    for kind, choices, chosen in groups:
        for choice in choices:
            mark = "→" if choice.name == chosen else " "
            state = Text(choice.state, STATE_STYLES[choice.state])
            table.add_row(f"{mark} {kind} {choice.name}", state, choice.size, Text(choice.brings))
        if chosen not in [choice.name for choice in choices]:
            table.add_row(f"→ {kind} {chosen}", "", "", "as you say")
    console.print(table)
    console.print()
    for choice in (*plan.encoders, *plan.generators):
        if choice.install:
            line = Text(f"{choice.name} first needs: {choice.install}", STATE_STYLES["missing"])
            console.print(line, soft_wrap=True)
    console.print("[dim]Others: visar encoders, visar generators[/dim]")
