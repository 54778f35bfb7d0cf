"""The program ``visar``: its commands, and what happens when one fails.

Only the module of the command that was typed is imported: the others are known by name and help,
so that ``visar --help`` and ``visar list`` do not wait for what they do not use.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated

import typer

from visar._version import __version__

# Each command: its name, where it is, and the first line of its help.
COMMANDS = (
    (
        "ask",
        "asking:ask",
        "Ask a question about files, or about what is in the index. Files are remembered.",
    ),
    ("search", "asking:search", "Find the pages a question needs, without an answer."),
    (
        "chat",
        "chat:chat",
        "Ask question after question. Each is answered on its own pages; the models stay loaded.",
    ),
    ("add", "library:add", "Add documents to the index. What is there already is not read again."),
    ("list", "library:list_documents", "List the documents of the index."),
    ("show", "library:show", "Show what the index knows of a document."),
    ("remove", "library:remove", "Remove a document from the index. Its file stays."),
    ("verify", "library:verify", "Check everything in the index; change nothing."),
    ("compact", "library:compact", "Drop what interrupted additions have left in the index."),
    (
        "bench",
        "bench:bench",
        "Measure on your documents and this machine how long it takes to choose pages.",
    ),
    (
        "calibrate",
        "calibrate:calibrate",
        "Fit how likely pages are, for an encoder and documents of your own, from questions.",
    ),
    ("doctor", "doctor:doctor", "Show what is installed, what can run here, and what is missing."),
    (
        "generators",
        "generators:generators",
        "List what can write answers, what it needs, and whether it can run here.",
    ),
)
GROUPS = (
    ("encoders", "encoders:app", "List the encoders, or run one as a service."),
    ("eval", "evaluation:app", "Evaluate on a benchmark, and report it as the paper does."),
)
ALL = "all"


def make_app(wanted: str | None) -> typer.Typer:
    """Return the program with one command loaded, or with :data:`ALL` of them."""
    app = typer.Typer(
        name="visar",
        help="Ask long documents questions: ViSAR finds the pages that matter, however many "
        "they are.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_program)
    for name, place, text in COMMANDS:
        loaded = wanted in (name, ALL)
        app.command(name, help=None if loaded else text)(_load(place) if loaded else _unloaded)
    for name, place, text in GROUPS:
        group = _load(place) if wanted in (name, ALL) else typer.Typer()
        app.add_typer(group, name=name, help=text)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"visar {__version__}")
        raise typer.Exit


def _program(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Take the options before a command."""


def _load(place: str) -> typer.Typer:
    module, _, name = place.partition(":")
    loaded: typer.Typer = getattr(import_module(f"visar.cli.{module}"), name)
    return loaded


def _unloaded() -> None:
    """Stand for a command that was not typed: never called."""


def main() -> None:
    """Run the program; a person's mistake gets one line and exit code 2, never a traceback."""
    from visar.errors import VisarError

    typed = next((word for word in sys.argv[1:] if not word.startswith("-")), None)
    try:
        make_app(typed)()
    except VisarError as error:
        _complain(str(error))
        sys.exit(2)
    except SystemExit as ended:
        # Typer has made an exit of Ctrl-C before it comes here, without a word.
        if isinstance(getattr(ended.__context__, "__cause__", None), KeyboardInterrupt):
            _complain(
                "interrupted. What was finished is kept; the same command goes on from there."
            )
        raise
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)


def _complain(message: str) -> None:
    from visar.cli.output import complain

    complain(message)
