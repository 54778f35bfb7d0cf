"""The program ``visar``: its commands and its error messages.

Only the module of the typed command is imported. Of the others only names and help are known, so
that ``visar --help`` and ``visar list`` don't wait for code they don't use.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from visar._version import __version__
from visar.cli import completion
from visar.cli.help import App

# Sections of the help.
_ASK = "Ask"
_INDEX = "Your index"
_SHARE = "Share"
_SETUP = "Models and settings"
_EVALUATE = "Evaluate"

COMMANDS = (
    ("demo", "asking:demo", _ASK, "Answer three questions about a sample report."),
    (
        "ask",
        "asking:ask",
        _ASK,
        "Ask a question. Files are added to your index, so later questions are fast.",
    ),
    ("search", "asking:search", _ASK, "Find the pages a question needs. Writes no answer."),
    ("explain", "asking:explain", _ASK, "Explain why pages were chosen. Can save a report."),
    (
        "chat",
        "chat:chat",
        _ASK,
        "Ask several questions in a row. Follow-ups may refer to earlier answers.",
    ),
    ("add", "library:add", _INDEX, "Add documents to your index. Known documents are skipped."),
    ("list", "library:list_documents", _INDEX, "List the documents in your index."),
    ("show", "library:show", _INDEX, "Show the details of a document."),
    ("remove", "library:remove", _INDEX, "Remove a document from your index. Its file is kept."),
    ("verify", "library:verify", _INDEX, "Check your index for damage. Nothing is changed."),
    ("backup", "library:backup", _INDEX, "Copy your index to a new folder. It may be in use."),
    ("compact", "library:compact", _INDEX, "Clean up after interrupted adds."),
    ("serve", "serve:serve", _SHARE, "Serve the web page and the HTTP API. Press Ctrl-C to stop."),
    ("setup", "setup:setup", _SETUP, "Choose and download models for this machine."),
    ("doctor", "models:doctor", _SETUP, "Show what works here and what is missing."),
    ("generators", "models:generators", _SETUP, "List the models that can write answers."),
    ("completion", "completion:completion", _SETUP, "Print a shell completion script."),
    ("bench", "bench:bench", _EVALUATE, "Time the choice of pages on your documents."),
    (
        "calibrate",
        "calibrate:calibrate",
        _EVALUATE,
        "Fit page probabilities to your documents. Needs questions with known pages.",
    ),
)
"""Commands: their names, where they are, their section, and their help."""
GROUPS = (
    ("threads", "chat:app", _ASK, "List, export or delete saved conversations."),
    ("tokens", "serve:app", _SHARE, "Manage access tokens for the HTTP API."),
    ("mcp", "mcp:app", _SHARE, "Let AI assistants use your index, over MCP."),
    ("config", "config:app", _SETUP, "Show or change your settings."),
    ("encoders", "models:app", _SETUP, "List, export or serve encoders."),
    ("eval", "evaluation:app", _EVALUATE, "Run benchmarks and report the results."),
)
ALL = "all"
ASKING = ("ask", "search", "explain")
"""Commands that encode a question."""
WITHOUT_SETTINGS = ("config", "setup", "eval")
"""Commands that ignore the user's settings: two change them, and runs have their own options."""
_INTERRUPTED = 130
# Typer brings its own copy of Click from some version on, and shows no more of it than this.
_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]


def make_app(typed: str | None) -> typer.Typer:
    """Return the program with one command loaded, or with `ALL` of them."""
    app = App(
        "Ask questions of annual reports, manuals, slide decks and scans. ViSAR finds exactly the "
        "pages each question needs.",
        name="visar",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(_program)
    for name, target, section, text in COMMANDS:
        command, loaded = _unloaded, typed in (name, ALL)
        if loaded:
            from visar.cli.options import with_options

            command = with_options(_load(target))
        app.command(name, help=None if loaded else text, rich_help_panel=section)(command)
    for name, target, section, text in GROUPS:
        group = _load(target) if typed in (name, ALL) else typer.Typer()
        app.add_typer(group, name=name, help=text, rich_help_panel=section)
    return app


def _show_version(is_given: bool) -> None:
    if is_given:
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
    """Take options that come before the command."""


def _load(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(import_module(f"visar.cli.{module}"), name)


def _unloaded() -> None:
    """Stand in for a command that was not typed."""


def run() -> None:
    """Run the program. A user's mistake ends it with one line and exit code 2, not a traceback."""
    from visar.errors import VisarError

    _open_streams()
    words, options = sys.argv[1:], {}
    if completion.VARIABLE in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()
        words, options = completion.typed_words(), {"prog_name": "visar"}
    typed = next((word for word in words if not word.startswith("-")), None)
    try:
        settings: dict[str, str] = {}
        if typed not in (None, *WITHOUT_SETTINGS):
            from visar.cli.settings import read

            settings = read()
        if not options and _uses_embedded(typed, words, settings):
            _load_embedded_early()
        code = _call(make_app(typed), settings, **options)
        sys.stdout.flush()
    except VisarError as error:
        code = _fail(str(error), 2)
    except ModuleNotFoundError as error:
        code = _fail(_missing_package(error), 2)
    except _USAGE_ERROR as error:
        code = _usage_error(error)
    except typer.Abort:
        code = 1
    except OSError as error:
        code = _fail(_os_message(error), 1)
    if code == _INTERRUPTED:  # what Typer makes of Ctrl-C
        raise KeyboardInterrupt
    sys.exit(code or 0)


def _uses_embedded(typed: str | None, words: list[str], settings: dict[str, str]) -> bool:
    """Return whether a command will encode a question with the embedded encoder."""
    others = ("--encoder", "--server", "--help", "-h")
    return (
        typed in ASKING
        and not any(word.startswith(others) for word in words)
        and not any(variable in os.environ for variable in ("VISAR_ENCODER", "VISAR_SERVER"))
        and "encoder" not in settings
    )


def _load_embedded_early() -> None:
    """Load the embedded model in the background, while the command is imported."""
    from visar.encoders.embedded import EmbeddedEncoder
    from visar.models.loading import load_ahead

    encoder = EmbeddedEncoder()
    # Imported in this thread, because Ctrl-C interrupts only this one.
    import onnxruntime  # noqa: F401
    import tokenizers  # noqa: F401

    load_ahead(encoder)


def _call(app: typer.Typer, settings: dict[str, str], **options: str) -> int | None:
    """Call the typed command with the user's default options."""
    command = typer.main.get_command(app)
    defaults = None
    if settings:
        from visar.cli.settings import option_defaults

        defaults = option_defaults(command, settings)
    gc.freeze()
    gc.enable()
    code: int | None = command(standalone_mode=False, default_map=defaults, **options)
    return code


def _open_streams() -> None:
    """Prepare for characters that can't be encoded, and for streams that the shell has closed."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _fail(message: str, code: int) -> int:
    """Print an error, if stderr can still be written to; return the exit code."""
    with contextlib.suppress(OSError):
        from visar.cli.output import complain

        complain(message)
    return code


def _usage_error(error: Any) -> int:
    """Report a usage error; ``visar`` without a command prints its help."""
    message = error.format_message()
    message += "" if message.endswith((".", "?")) else "."
    # As people say it, instead of Click's "is not in the range x>=1".
    message = re.sub(r"is not in the range x>=([\d.]+)", r"is below the minimum of \1", message)
    message = re.sub(r"is not in the range ([\d.]+)<=x<=", r"is not between \1 and ", message)
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(message)
        return 0
    context = getattr(error, "ctx", None)
    return _fail(message if context is None else f"{message} See `{context.command_path} -h`.", 2)


def _missing_package(error: ModuleNotFoundError) -> str:
    package = (error.name or "").partition(".")[0]
    if package in ("", "visar"):
        raise error  # a bug
    return f"The package {package} isn't installed. Run: pip install {package}"


def _os_message(error: OSError) -> str:
    if error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    with contextlib.suppress(OSError, ValueError):
        # Otherwise Python tries to write the rest when it ends, and prints a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return f"Can't write the output: {error.strerror or error}"
