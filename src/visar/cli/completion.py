"""``visar completion``, and the names that a shell can complete.

What completes a name is called while a command is typed: it imports little, and whatever fails, it
offers nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Annotated, Literal

import typer

VARIABLE = "_VISAR_COMPLETE"
"""The environment variable by which a shell asks for completions."""
# What bash does not take for a part of a word. The other shells quote by themselves.
_SPECIAL = re.compile(r"[^\w@%+=:,./-]")

Shell = Annotated[
    Literal["bash", "zsh", "fish"],
    typer.Argument(
        help='Your shell. For bash, in ~/.bashrc: eval "$(visar completion bash)"; the same for '
        "zsh, after compinit; for fish, to ~/.config/fish/completions/visar.fish."
    ),
]


def completion(shell: Shell) -> None:
    """Write the script with which a shell completes commands, options and names."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    typer.echo(get_completion_script(prog_name="visar", complete_var=VARIABLE, shell=shell))


def typed_words() -> list[str]:
    """Return the words of the command line that a shell asks about, after the program's name."""
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    return line.split()[1:]


def _offered(names: Callable[[typer.Context], list[str]]) -> Callable[..., list[str]]:
    def complete(ctx: typer.Context) -> list[str]:
        try:
            found = names(ctx)
        except Exception:  # an error message would stand in the middle of the typed command
            return []
        if os.environ.get(VARIABLE) == "complete_bash":
            return [_SPECIAL.sub(lambda sign: f"\\{sign[0]}", name) for name in found]
        return found

    return complete


@_offered
def documents(ctx: typer.Context) -> list[str]:
    """Return the names of the documents in the index that the command is about."""
    from visar.store import open_store

    location = ctx.params.get("index")
    return [document.name for document in open_store(location, create=False).documents()]


@_offered
def encoders(_: typer.Context) -> list[str]:
    """Return the names of the encoders."""
    from visar.encoders.registry import available_encoders

    return [encoder.name for encoder in available_encoders()]


@_offered
def generators(_: typer.Context) -> list[str]:
    """Return the names of the generators."""
    from visar.generation.registry import available_generators

    return [generator.name for generator in available_generators()]


@_offered
def methods(_: typer.Context) -> list[str]:
    """Return the names of the methods that choose pages."""
    from visar.retrieval.methods import method_names

    return method_names()


@_offered
def evaluated_methods(_: typer.Context) -> list[str]:
    """Return the groups of methods that can be evaluated, and the methods."""
    from visar.evaluation.methods import GROUPS
    from visar.retrieval.methods import method_names

    return [*GROUPS, *method_names()]


@_offered
def converters(_: typer.Context) -> list[str]:
    """Return the names of the benchmarks that can be converted."""
    from visar.evaluation.datasets.converters import converter_names

    return converter_names()
