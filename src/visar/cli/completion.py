"""``visar completion``, and the completions of names.

They run while a command is typed: they import little, and return nothing if they fail.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from importlib import import_module
from typing import Annotated, Literal

import typer

VARIABLE = "_VISAR_COMPLETE"
"""Environment variable with which a shell asks for completions."""
# Characters that end a word in bash. Other shells quote them themselves.
_SPECIAL = re.compile(r"[^\w@%+=:,./-]")

Shell = Annotated[
    Literal["bash", "zsh", "fish"],
    typer.Argument(
        metavar="SHELL",
        help='Your shell: bash, zsh or fish. For bash, add eval "$(visar completion bash)" to '
        "~/.bashrc; for zsh, add the same with zsh to ~/.zshrc, after compinit; for fish, save "
        "the script as ~/.config/fish/completions/visar.fish.",
    ),
]


def completion(shell: Shell) -> None:
    """Print a shell completion script."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    typer.echo(get_completion_script(prog_name="visar", complete_var=VARIABLE, shell=shell))


def typed_words() -> list[str]:
    """Return the words of the command line to complete, without the name of the program."""
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    return line.split()[1:]


def _completion(names: Callable[[typer.Context], list[str]]) -> Callable[..., list[str]]:
    def complete(ctx: typer.Context) -> list[str]:
        try:
            found = names(ctx)
        except Exception:  # an error message would appear in the middle of the command
            return []
        if os.environ.get(VARIABLE) == "complete_bash":
            return [_SPECIAL.sub(lambda sign: f"\\{sign[0]}", name) for name in found]
        return found

    return complete


def _names(module: str, function: str) -> Callable[..., list[str]]:
    """Return a completion for the names that a function lists; its module is imported late."""

    def names(_: typer.Context) -> list[str]:
        found = getattr(import_module(module), function)()
        return [one if isinstance(one, str) else one.name for one in found]

    return _completion(names)


encoders = _names("visar.encoders.registry", "available_encoders")
generators = _names("visar.generation.registry", "available_generators")
readers = _names("visar.quotes.reader", "available_readers")
methods = _names("visar.retrieval.methods", "method_names")
converters = _names("visar.evaluation.datasets.converters", "converter_names")


@_completion
def documents(ctx: typer.Context) -> list[str]:
    """Return the names of the documents in the local index, not of those on a server."""
    from visar.store import open_store

    if ctx.params.get("server"):
        return []
    location = ctx.params.get("index")
    return [document.name for document in open_store(location, create=False).documents()]


@_completion
def evaluated_methods(_: typer.Context) -> list[str]:
    """Return the names of methods and groups of methods that can be evaluated."""
    from visar.evaluation.methods import GROUPS
    from visar.retrieval.methods import method_names

    return [*GROUPS, *method_names()]
