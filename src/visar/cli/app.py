"""The program ``visar``: its commands, and how it reports errors.

Only the module of the command that was typed is imported. The others are known by name and help, so
that ``visar --help`` and ``visar list`` don't wait for code they don't use.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from visar._version import __version__
from visar.cli import completion
from visar.cli.help import Command

# Each command: its name, where it is, and its help.
COMMANDS = (
    ("demo", "demo:demo", "Ask a sample report three questions. Your own index isn't used."),
    (
        "ask",
        "asking:ask",
        "Ask a question. Files are added to your index, so later questions are fast.",
    ),
    ("search", "asking:search", "Find the pages a question needs, without an answer."),
    ("explain", "asking:explain", "Explain the choice of pages; save a report or pictures."),
    ("chat", "chat:chat", "Ask several questions in a row. Models stay loaded in between."),
    ("add", "library:add", "Add documents to your index. Known documents are not read again."),
    ("list", "library:list_documents", "List the documents in your index."),
    ("show", "library:show", "Show the details of a document."),
    ("remove", "library:remove", "Remove a document from your index. Its file is kept."),
    ("verify", "library:verify", "Check everything in your index. Nothing is changed."),
    ("compact", "library:compact", "Clean up after interrupted adds."),
    ("serve", "serve:serve", "Serve the index as a web page and an HTTP API. Ctrl-C stops it."),
    ("mcp", "mcp:mcp", "Let assistants such as Claude use your index, over MCP."),
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
    ("setup", "setup:setup", "Choose models for this machine, and download them."),
    ("doctor", "doctor:doctor", "Show what is installed, what can run here, and what is missing."),
    ("completion", "completion:completion", "Print a shell completion script."),
    ("generators", "models:generators", "List generators, which write answers."),
)
GROUPS = (
    ("config", "config:app", "Show or change your settings."),
    ("encoders", "models:app", "List encoders, or run one as a service."),
    ("eval", "evaluation:app", "Evaluate on a benchmark, and report it as the paper does."),
)
ALL = "all"
ASKING = ("ask", "search", "explain")
"""Commands that encode a question."""
UNSET = ("config", "setup", "eval")
"""Commands that don't use the user's settings: two change them, and a run has its own options."""
_INTERRUPTED = 130
# Typer brings its own copy of Click from some version on, and shows no more of it than this.
_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]


def make_app(wanted: str | None) -> typer.Typer:
    """Return the program with one command loaded, or with `ALL` of them."""
    app = typer.Typer(
        name="visar",
        help="Ask questions of annual reports, manuals, slide decks and scans. ViSAR finds exactly "
        "the pages each question needs.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        # Plain help: rich's would import Markdown and syntax highlighting first.
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_program)
    for name, place, text in COMMANDS:
        loaded = wanted in (name, ALL)
        command = _load_command(place) if loaded else _unloaded
        app.command(name, cls=Command, help=None if loaded else text)(command)
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
    """Take options that come before the command."""


def _load(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f"visar.cli.{module}"), name)


def _load_command(place: str) -> Callable[..., None]:
    from visar.cli.options import with_options

    return with_options(_load(place))


def _unloaded() -> None:
    """Stand in for a command that was not typed."""


def run() -> None:
    """Run the program; a user's mistake gets one line and exit code 2, never a traceback."""
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
        if typed not in (None, *UNSET):
            from visar.cli.settings import read

            settings = read()
        if not options and _uses_embedded(typed, words, settings):
            _begin_to_load_embedded()
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
        code = _fail(_refused(error), 1)
    if code == _INTERRUPTED:  # what Typer makes of Ctrl-C
        raise KeyboardInterrupt
    sys.exit(code or 0)


def _uses_embedded(typed: str | None, words: list[str], settings: dict[str, str]) -> bool:
    """Return whether a command is going to encode a question with the embedded encoder."""
    otherwise = ("--encoder", "--server", "--help", "-h")
    return (
        typed in ASKING
        and not any(word.startswith(otherwise) for word in words)
        and not any(variable in os.environ for variable in ("VISAR_ENCODER", "VISAR_SERVER"))
        and "encoder" not in settings
    )


def _begin_to_load_embedded() -> None:
    """Load the embedded model while the command is imported."""
    from visar.encoders.embedded import EmbeddedEncoder
    from visar.models.loading import load_ahead

    encoder = EmbeddedEncoder()
    # This thread, the only one that Ctrl-C interrupts, imports what loading needs.
    import onnxruntime  # noqa: F401
    import tokenizers  # noqa: F401

    load_ahead(encoder)


def _call(app: typer.Typer, settings: dict[str, str], **options: str) -> int | None:
    """Call the command that was typed, with the defaults that the user has set."""
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
    """Make output safe from characters it can't encode, and from streams the shell has closed."""
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
    """Report a command that was typed wrong; ``visar`` without a command prints its help."""
    message = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(message)
        return 0
    context = getattr(error, "ctx", None)
    return _fail(message if context is None else f"{message} (see {context.command_path} -h)", 2)


def _missing_package(error: ModuleNotFoundError) -> str:
    """Return the message about a package that is not installed."""
    package = (error.name or "").partition(".")[0]
    if package in ("", "visar"):
        raise error  # a mistake of ours
    return f"This needs the package {package}, which isn't installed: pip install {package}"


def _refused(error: OSError) -> str:
    """Return the message about something that the operating system refused."""
    if error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    with contextlib.suppress(OSError, ValueError):
        # Otherwise Python tries to write the rest when it ends, and prints a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return f"Can't write the output: {error.strerror or error}"
