"""``visar config``: default values of options."""

from __future__ import annotations

import os
from typing import Annotated

import typer
from rich.text import Text

from visar.cli import settings
from visar.cli.help import App
from visar.cli.options import Json
from visar.cli.output import console, plain_table, print_json, say
from visar.cli.settings import SETTINGS

app = App("Show or change your settings.", invoke_without_command=True)

Key = Annotated[
    str,
    typer.Argument(metavar="NAME", help=f"Setting: {', '.join(SETTINGS)} or generators.NAME."),
]
Value = Annotated[
    str, typer.Argument(metavar="VALUE", help="Value, as for the option of that name.")
]


def chosen_settings() -> dict[str, dict[str, str | None]]:
    """Return the current value of every setting and its source.

    The source is the name of an environment variable, "file" or "default".
    """
    from visar.store import default_location

    saved = settings.read()
    chosen: dict[str, tuple[str | None, str]] = {}
    for key, setting in SETTINGS.items():
        if value := os.environ.get(setting.variable):
            chosen[key] = value, setting.variable
        elif key in saved:
            chosen[key] = saved[key], "file"
        else:
            default = default_location() if key == "index" else setting.default
            chosen[key] = default, "default"
    for name, generator in settings.named_generators().items():
        chosen[f"{settings.GENERATORS}.{name}"] = generator, "file"
    return {key: {"value": value, "source": source} for key, (value, source) in chosen.items()}


@app.callback()
def show(context: typer.Context, *, as_json: Json = False) -> None:
    """Show or change your settings."""
    if context.invoked_subcommand is None:
        _show(as_json=as_json)


@app.command("set")
def set_value(key: Key, value: Value, *, as_json: Json = False) -> None:
    """Change a setting."""
    check(key, value)
    settings.write({key: value})
    _show(as_json=as_json)


@app.command("unset")
def unset(key: Key, *, as_json: Json = False) -> None:
    """Remove a setting."""
    settings.write({key: None})
    _show(as_json=as_json)


def check(key: str, value: str) -> None:
    """Raise InvalidOption if a setting names an unknown model. Downloads nothing."""
    from visar.models.checkpoints import is_checkpoint_name

    if ":" in value or is_checkpoint_name(value):
        return  # an address, a class or a checkpoint, which is checked when it is used
    if key == "encoder":
        from visar.encoders.registry import get_encoder

        get_encoder(value)
    if key == "reader":
        from visar.quotes.reader import choose_reader

        choose_reader(value)
    if key == "generator" and value in settings.named_generators():
        return
    if key == "generator" or key.startswith("generators."):
        from visar.generation.registry import available_generators
        from visar.plugins import unknown_name

        known = [generator.name for generator in available_generators()]
        if value not in known:
            raise unknown_name("generator", value, known, "")


def _show(*, as_json: bool) -> None:
    path, chosen = settings.location(), chosen_settings()
    if as_json:
        print_json({"file": str(path), "exists": path.exists(), "settings": chosen})
        return
    rows = (
        (
            key,
            Text(one["value"] or "", "dim" if one["source"] == "default" else ""),
            one["source"] or "",
            SETTINGS[key].use if key in SETTINGS else "a generator with a name of your own",
        )
        for key, one in chosen.items()
    )
    console.print(plain_table("SETTING", "VALUE", "FROM", "DESCRIPTION", rows=rows))
    console.print()
    say(f"{path}{'' if path.exists() else ' (not created yet)'}", "dim")
