"""``visar setup``: choose an encoder, a generator and a reader for this machine."""

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
from visar.cli.output import complain, console, note, print_hints, print_json
from visar.encoders.records import RECORDS, EncoderRecord
from visar.encoders.registry import get_encoder
from visar.errors import VisarError
from visar.generation import extractive
from visar.generation.registry import (
    SERVERS,
    GeneratorInfo,
    ServedModel,
    available_generators,
    find_served_models,
    get_generator,
    is_served,
    without_address,
)
from visar.models.machine import Machine, gigabytes, this_machine
from visar.quotes.reader import ReaderInfo, available_readers, choose_reader, relevance

EncoderChoice = Annotated[
    str | None, option("--encoder NAME", "Use this encoder instead of the suggested one.")
]
GeneratorChoice = Annotated[
    str | None, option("--generator NAME", "Use this generator instead of the suggested one.")
]
ReaderChoice = Annotated[
    str | None, option("--reader NAME", "Use this reader instead of the suggested one.")
]
BaseUrl = Annotated[
    str | None,
    option("--base-url URL", "Look for generators here instead of on the usual local ports."),
]
Yes = Annotated[bool, option("--yes", "Download and apply without asking.")]
DryRun = Annotated[bool, option("--dry-run", "Only show the suggestion.")]

_MODELS = ("encoder", "generator", "reader")
# Minimum memory of a graphics card in gigabytes, for 16-bit weights and pages, and the encoder.
_FOR_CARDS = ((12, "colqwen2.5"), (3, "colsmol-500m"), (2, "colsmol-256m"))
# Minimum main memory in gigabytes: torch alone takes about one.
_FOR_CPUS = (3, "colbert-small")
# Minimum memory of a graphics card in gigabytes, next to an encoder.
_LOCAL_MODEL = (28, "qwen2.5-vl")


@dataclass(frozen=True, slots=True)
class Plan:
    """The models that setup found and proposes, and the outcome."""

    machine: Machine
    served: tuple[ServedModel, ...]
    encoders: tuple[EncoderRecord, ...]
    """Encoders that this machine can run, best first."""
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
    """Choose and download models for this machine."""
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
    """Suggest the best models that this machine and its servers can run now."""
    machine = this_machine()
    served = tuple(find_served_models([base_url] if base_url else SERVERS.values()))
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
    for key, value in zip(_MODELS, (encoder, generator, reader), strict=True):
        if value is not None:
            check(key, value)
    writer = generator or plan.generator
    return replace(
        plan,
        encoder=encoder or plan.encoder,
        generator=writer,
        reader=reader or plan.reader,
        base_url=base_url if is_served(writer) and without_address(writer) == writer else None,
    )


def encoders_for(machine: Machine) -> tuple[EncoderRecord, ...]:
    """Return the encoders that a machine can run, best first."""
    card = 0 if machine.card is None else gigabytes(machine.card.memory)
    names = [name for needed, name in _FOR_CARDS if card >= needed][:2]
    if machine.memory is None or gigabytes(machine.memory) >= _FOR_CPUS[0]:
        names.append(_FOR_CPUS[1])
    return tuple(RECORDS[name] for name in (*names, "embedded"))


def generators_for(machine: Machine, served: tuple[ServedModel, ...]) -> tuple[GeneratorInfo, ...]:
    """Return the generators that a machine serves or can run, best first."""
    known = {info.name: info for info in available_generators()}
    install = known["openai:MODEL"].install
    # A missing address doesn't matter: setup sets it.
    install = install if install and install.startswith("pip") else None
    found = [
        GeneratorInfo(
            model.generator,
            f"Served at {model.base_url}",
            "images" if model.sees_images else "text",
            install=install,
        )
        for model in served
    ]
    card = 0 if machine.card is None else gigabytes(machine.card.memory)
    local = [_LOCAL_MODEL[1]] if card >= _LOCAL_MODEL[0] else []
    return (*found, *(known[name] for name in (*local, extractive.NAME)))


def _apply(plan: Plan) -> Plan:
    """Download and test the models, and save those that work in the configuration file."""
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
        complain(f"Can't use the {key} {getattr(plan, key)}. {reason}")
    if not changes:
        return replace(plan, failed=failed)
    path = settings.location()
    settings.write(changes)
    models = ", ".join(key for key in _MODELS if key in changes)
    note(f"Set {models} in {path}. See `visar config`.")
    if changes.get("encoder", before) != before:
        again = f"Add your documents again: they have no vectors of {plan.encoder} yet."
        note(again)
    return replace(plan, written=str(path), failed=failed)


def _print_plan(plan: Plan) -> None:
    console.print(Text(plan.machine.summary))
    console.print()
    groups: dict[str, Sequence[ModelInfo]] = {
        "encoder": plan.encoders,
        "generator": plan.generators,
        "reader": plan.readers,
    }
    chosen = {plan.encoder, plan.generator, plan.reader}
    marks = {
        model.name: f"{'→' if model.name in chosen else ' '} {kind} "
        for kind, models in groups.items()
        for model in models
    }
    print_models([model for models in groups.values() for model in models], marks)
    for other in sorted(chosen - marks.keys()):
        console.print(Text(f"→ {other} (your choice)"))
    print_hints(("All models", "visar encoders, visar generators"))
