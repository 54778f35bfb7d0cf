"""``visar setup``: an encoder, a language model and a reader that suit this machine."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import typer
from rich.text import Text

from visar.cli import settings
from visar.cli.config import check
from visar.cli.models import ModelInfo, print_models
from visar.cli.options import Json, fetch_model, option
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
from visar.models.machine import Machine, gigabytes, this_machine
from visar.quotes.reader import ReaderInfo, available_readers, choose_reader, relevance

EncoderChoice = Annotated[
    str | None, option("--encoder NAME", "Use this encoder instead of the proposed one.")
]
GeneratorChoice = Annotated[
    str | None, option("--generator NAME", "Use this generator instead of the proposed one.")
]
ReaderChoice = Annotated[
    str | None, option("--reader NAME", "Use this reader instead of the proposed one.")
]
BaseUrl = Annotated[
    str | None,
    option("--base-url URL", "Look for language models here instead of on the usual local ports."),
]
Yes = Annotated[bool, option("--yes", "Download and apply without asking.")]
DryRun = Annotated[bool, option("--dry-run", "Only show the proposal.")]

_MODELS = ("encoder", "generator", "reader")
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
    readers: tuple[ReaderInfo, ...]
    encoder: str
    generator: str
    reader: str
    base_url: str | None = None
    """Server of the generator."""
    written: str | None = None
    """Configuration file that was changed; null if none was."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Reasons why a model can't be used, by "encoder", "generator" or "reader"."""


def setup(
    *,
    encoder: EncoderChoice = None,
    generator: GeneratorChoice = None,
    reader: ReaderChoice = None,
    base_url: BaseUrl = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Choose models for this machine, and download them."""
    plan = _with(propose(base_url), encoder, generator, reader, base_url)
    if not as_json:
        _print_plan(plan)
    if not (yes or dry_run or as_json) and sys.stdin.isatty():
        first, second, third = (
            typer.prompt(key.capitalize(), getattr(plan, key)) for key in _MODELS
        )
        plan = _with(plan, first, second, third, base_url)
        where = settings.location()
        yes = typer.confirm(f"Download missing models, and set them in {where}?", default=True)
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
    readers = tuple(available_readers())
    first, second, third = (
        next(one.name for one in known if one.state != "missing")
        for known in (encoders, generators, readers)
    )
    return Plan(machine, served, encoders, generators, readers, first, second, third)


def _with(
    plan: Plan,
    encoder: str | None,
    generator: str | None,
    reader: str | None,
    base_url: str | None,
) -> Plan:
    """Return the plan with the user's choice instead of the proposal."""
    for key, value in zip(_MODELS, (encoder, generator, reader), strict=True):
        if value is not None:
            check(key, value)
    writer = generator or plan.generator
    address = {model.generator: model.base_url for model in plan.served}.get(writer, base_url)
    return replace(
        plan,
        encoder=encoder or plan.encoder,
        generator=writer,
        reader=reader or plan.reader,
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
        fetch_model(encoder)
        encoder.encode_query("ready")
        changes["encoder"] = plan.encoder
    except VisarError as error:
        failed["encoder"] = str(error)
    try:
        if plan.generator != extractive.NAME:
            fetch_model(get_generator(plan.generator, base_url=plan.base_url))
        changes |= {"generator": plan.generator, "base_url": plan.base_url}
    except VisarError as error:
        failed["generator"] = str(error)
    try:
        if (reader := choose_reader(plan.reader)) is not None:
            fetch_model(reader)
            relevance(reader, "ready?", ["ready"])
        changes["reader"] = plan.reader
    except VisarError as error:
        failed["reader"] = str(error)
    for key, reason in failed.items():
        complain(f"The {key} {getattr(plan, key)} was not set. {reason}")
    if not changes:
        return replace(plan, failed=failed)
    path = settings.location()
    settings.write(changes)
    named = ", ".join(key for key in _MODELS if key in changes)
    errors.print(Text(f"Set {named} in {path}. See `visar config`."), soft_wrap=True)
    if changes.get("encoder", before) != before:
        again = f"Documents added before have no vectors of {plan.encoder}: add them again."
        errors.print(Text(again), soft_wrap=True)
    return replace(plan, written=str(path), failed=failed)


def _print_plan(plan: Plan) -> None:
    console.print(Text(plan.machine.summary))
    console.print()
    listed: dict[str, Sequence[ModelInfo]] = {
        "encoder": plan.encoders,
        "generator": plan.generators,
        "reader": plan.readers,
    }
    chosen = {plan.encoder, plan.generator, plan.reader}
    marks = {
        model.name: f"{'→' if model.name in chosen else ' '} {kind} "
        for kind, models in listed.items()
        for model in models
    }
    print_models([model for models in listed.values() for model in models], marks)
    for other in sorted(chosen - marks.keys()):
        console.print(Text(f"→ {other}, your choice"))
    print_hints(("All models", "visar encoders, visar generators"))
