"""``visar setup``: an encoder and a language model that suit this machine."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

import typer
from rich.text import Text

from visar.cli import settings
from visar.cli.config import check
from visar.cli.models import ModelInfo, print_models
from visar.cli.options import Json, option
from visar.cli.output import (
    complain,
    console,
    errors,
    print_hints,
    print_json,
)
from visar.encoders.registry import EncoderInfo, available_encoders, get_encoder
from visar.errors import VisarError
from visar.generation import extractive
from visar.generation.registry import GeneratorInfo, available_generators, get_generator, is_served
from visar.generation.servers import USUAL_ADDRESSES, ServedModel, find_served_models
from visar.models.hub import downloads_shown
from visar.models.machine import Machine, gigabytes, this_machine
from visar.models.protocols import Downloadable

EncoderChoice = Annotated[
    str | None, option("--encoder NAME", "Use this encoder instead of the proposed one.")
]
GeneratorChoice = Annotated[
    str | None, option("--generator NAME", "Use this generator instead of the proposed one.")
]
BaseUrl = Annotated[
    str | None,
    option("--base-url URL", "Look for language models here instead of on the usual local ports."),
]
Yes = Annotated[bool, option("--yes", "Download and apply without asking.")]
DryRun = Annotated[bool, option("--dry-run", "Only show the proposal.")]

# Minimum memory of a graphics card in gigabytes, for 16-bit weights and pages, and the encoder.
_FOR_CARDS = ((12, "colqwen2.5"), (3, "colsmol-500m"), (2, "colsmol-256m"))
# Minimum main memory in gigabytes: torch alone takes about one.
_FOR_CPUS = (3, "colbert-small")
# Minimum memory of a graphics card in gigabytes, next to an encoder.
_LOCAL_MODEL = (28, "qwen2.5-vl")


@dataclass(frozen=True, slots=True)
class Plan:
    """What setup found, proposes, and did."""

    machine: Machine
    served: tuple[ServedModel, ...]
    encoders: tuple[EncoderInfo, ...]
    """Encoders that this machine can run, the best first."""
    generators: tuple[GeneratorInfo, ...]
    encoder: str
    generator: str
    base_url: str | None = None
    """Server of the generator."""
    written: str | None = None
    """Configuration file that was changed; null if none was."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Reasons why the encoder or the generator can't be used, by "encoder" or "generator"."""


def setup(
    *,
    encoder: EncoderChoice = None,
    generator: GeneratorChoice = None,
    base_url: BaseUrl = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Choose models for this machine, and download them."""
    plan = _with(propose(base_url), encoder, generator, base_url)
    if not as_json:
        _print_plan(plan)
    if not (yes or dry_run or as_json) and sys.stdin.isatty():
        chosen = (typer.prompt("Encoder", plan.encoder), typer.prompt("Generator", plan.generator))
        plan = _with(plan, *chosen, base_url)
        where = settings.location()
        yes = typer.confirm(f"Download missing models, and set both in {where}?", default=True)
    if yes and not dry_run:
        plan = _apply(plan)
    if as_json:
        print_json(plan)
    elif plan.written is None and not plan.failed:
        console.print("Dry run, nothing changed. Run `visar setup --yes` to apply.")
    if plan.failed:
        raise typer.Exit(1)


def propose(base_url: str | None = None) -> Plan:
    """Look at the machine and its servers, and propose the best models that can be used now."""
    machine = this_machine()
    served = tuple(find_served_models([base_url] if base_url else USUAL_ADDRESSES))
    encoders, generators = encoders_for(machine), generators_for(machine, served)
    first, second = (
        next(one.name for one in known if one.state != "missing")
        for known in (encoders, generators)
    )
    return Plan(machine, served, encoders, generators, first, second)


def _with(plan: Plan, encoder: str | None, generator: str | None, base_url: str | None) -> Plan:
    """Return the plan with the user's choice instead of the proposal."""
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


def encoders_for(machine: Machine) -> tuple[EncoderInfo, ...]:
    """Return the encoders that a machine can run, the best first."""
    card = 0 if machine.card is None else gigabytes(machine.card.memory)
    names = [name for needed, name in _FOR_CARDS if card >= needed][:2]
    if machine.memory is None or gigabytes(machine.memory) >= _FOR_CPUS[0]:
        names.append(_FOR_CPUS[1])
    known = {info.name: info for info in available_encoders()}
    return tuple(known[name] for name in (*names, "embedded"))


def generators_for(machine: Machine, served: tuple[ServedModel, ...]) -> tuple[GeneratorInfo, ...]:
    """Return the generators that a machine has or can run, the best first."""
    known = {info.name: info for info in available_generators()}
    install = known["openai:MODEL"].install
    # A missing address is no obstacle: setup sets it.
    install = install if install and install.startswith("pip") else None
    found = [
        GeneratorInfo(
            model.generator,
            f"Served at {model.base_url}",
            "images" if model.sees_images else "text",
            "",
            install,
        )
        for model in served
    ]
    card = 0 if machine.card is None else gigabytes(machine.card.memory)
    local = [_LOCAL_MODEL[1]] if card >= _LOCAL_MODEL[0] else []
    return (*found, *(known[name] for name in (*local, extractive.NAME)))


def _apply(plan: Plan) -> Plan:
    """Download and try the models, and write those that work to the configuration file."""
    before = settings.read().get("encoder", "embedded")
    changes: dict[str, str | None] = {}
    failed: dict[str, str] = {}
    try:
        encoder = get_encoder(plan.encoder)
        _fetch(encoder)
        encoder.encode_query("ready")
        changes["encoder"] = plan.encoder
    except VisarError as error:
        failed["encoder"] = str(error)
    try:
        if plan.generator != extractive.NAME:
            _fetch(get_generator(plan.generator, base_url=plan.base_url))
        changes |= {"generator": plan.generator, "base_url": plan.base_url}
    except VisarError as error:
        failed["generator"] = str(error)
    for key, reason in failed.items():
        complain(f"The {key} {getattr(plan, key)} was not set. {reason}")
    if not changes:
        return replace(plan, failed=failed)
    path = settings.location()
    settings.write(changes)
    named = " and ".join(key for key in ("encoder", "generator") if key in changes)
    errors.print(Text(f"Set the {named} in {path}. See `visar config`."), soft_wrap=True)
    if changes.get("encoder", before) != before:
        again = f"Documents added before have no vectors of {plan.encoder}: add them again."
        errors.print(Text(again), soft_wrap=True)
    return replace(plan, written=str(path), failed=failed)


def _fetch(model: object) -> None:
    if isinstance(model, Downloadable):
        with downloads_shown():
            model.fetch()


def _print_plan(plan: Plan) -> None:
    console.print(Text(plan.machine.summary))
    console.print()
    models: list[ModelInfo] = [*plan.encoders, *plan.generators]
    chosen = {plan.encoder, plan.generator}
    marks = {
        model.name: f"{'→' if model.name in chosen else ' '} "
        f"{'encoder' if isinstance(model, EncoderInfo) else 'generator'} "
        for model in models
    }
    print_models(models, marks)
    for other in sorted(chosen - marks.keys()):
        console.print(Text(f"→ {other}, your choice"))
    print_hints(("All models", "visar encoders, visar generators"))
