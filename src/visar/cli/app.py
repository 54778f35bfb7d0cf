"""The program ``visar``: its commands, and what happens when one fails."""

from __future__ import annotations

import sys

import typer

from visar.cli import asking, bench, chat, doctor, encoders, evaluation, generators, library
from visar.cli.output import complain
from visar.errors import VisarError

app = typer.Typer(
    name="visar",
    help="Ask long documents questions: ViSAR finds the pages that matter, however many they are.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("ask")(asking.ask)
app.command("search")(asking.search)
app.command("chat")(chat.chat)
app.command("add")(library.add)
app.command("list")(library.list_documents)
app.command("show")(library.show)
app.command("remove")(library.remove)
app.command("verify")(library.verify)
app.command("compact")(library.compact)
app.command("bench")(bench.bench)
app.command("doctor")(doctor.doctor)
app.command("generators")(generators.generators)
app.add_typer(encoders.app, name="encoders")
app.add_typer(evaluation.app, name="eval")


def main() -> None:
    """Run the program; a person's mistake gets one line and exit code 2, never a traceback."""
    try:
        app()
    except VisarError as error:
        complain(str(error))
        sys.exit(2)
    except SystemExit as ended:
        # Typer has made an exit of Ctrl-C before it comes here, without a word.
        if isinstance(getattr(ended.__context__, "__cause__", None), KeyboardInterrupt):
            complain("interrupted. What was finished is kept; the same command goes on from there.")
        raise
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
