"""The program ``visar``: its commands, and what happens when one fails.

Only the module of the command that was typed is imported: the others are known by name and help,
so that ``visar --help`` and ``visar list`` do not wait for what they do not use.
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

# Each command: its name, where it is, and the first line of its help.
COMMANDS = (
    ("demo", "demo:demo", "Ask a sample report three questions. Your own index isn't used."),
    (
        "ask",
        "asking:ask",
        "Ask a question about files, or about what is in the index. Files are remembered.",
    ),
    ("search", "asking:search", "Find the pages a question needs, without an answer."),
    (
        "explain",
        "explain:explain",
        "Show why these pages, and why so many: here, as a report, or as pictures.",
    ),
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
    ("serve", "serve:serve", "Serve the index: a page to ask in, and an HTTP API. Ctrl-C ends it."),
    (
        "mcp",
        "mcp:mcp",
        "Let assistants such as Claude use the index, over the Model Context Protocol.",
    ),
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
    (
        "setup",
        "setup:setup",
        "Choose an encoder and a language model for this machine, download them, and set them.",
    ),
    ("doctor", "doctor:doctor", "Show what is installed, what can run here, and what is missing."),
    (
        "completion",
        "completion:completion",
        "Write the script with which a shell completes commands, options and names.",
    ),
    (
        "generators",
        "generators:generators",
        "List what can write answers, what it needs, and whether it can run here.",
    ),
)
GROUPS = (
    ("config", "config:app", "Show the settings that commands begin with, or change them."),
    ("encoders", "encoders:app", "List the encoders, or run one as a service."),
    ("eval", "evaluation:app", "Evaluate on a benchmark, and report it as the paper does."),
)
ALL = "all"
ASKING = ("ask", "search", "explain")
"""Commands that encode a question."""
UNSET = ("config", "setup", "eval")
"""Commands without the user's settings: those change them, and a run has its own options alone."""
_INTERRUPTED = 130
# Typer brings its own copy of Click from some version on, and shows no more of it than this.
_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]


def make_app(wanted: str | None) -> typer.Typer:
    """Return the program with one command loaded, or with `ALL` of them."""
    app = typer.Typer(
        name="visar",
        help="Ask long documents questions: ViSAR finds the pages that matter, however many "
        "they are.",
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
        app.command(name, help=None if loaded else text)(command)
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


def _load(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f"visar.cli.{module}"), name)


def _load_command(place: str) -> Callable[..., None]:
    from visar.cli.options import with_storage_options

    return with_storage_options(_load(place))


def _unloaded() -> None:
    """Stand for a command that was not typed: never called."""


def run() -> None:
    """Run the program; a person's mistake gets one line and exit code 2, never a traceback."""
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
    except _USAGE_ERROR as error:
        code = _fail(_usage(error), 2)
    except typer.Abort:
        code = 1
    except OSError as error:
        code = _fail(_refused(error), 1)
    if code == _INTERRUPTED:  # what Typer makes of Ctrl-C
        raise KeyboardInterrupt
    sys.exit(code or 0)


def _uses_embedded(typed: str | None, words: list[str], settings: dict[str, str]) -> bool:
    """Tell whether a command is going to encode a question with the embedded encoder."""
    otherwise = ("--encoder", "--server", "--help", "-h")
    return (
        typed in ASKING
        and not any(word.startswith(otherwise) for word in words)
        and not any(variable in os.environ for variable in ("VISAR_ENCODER", "VISAR_SERVER"))
        and "encoder" not in settings
    )


def _begin_to_load_embedded() -> None:
    """Let the embedded model load while the command is imported."""
    from visar.encoders.embedded import EmbeddedEncoder
    from visar.models.loading import load_ahead

    encoder = EmbeddedEncoder()
    # What loading needs is imported by this thread, the only one that Ctrl-C interrupts.
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
    """Let no character, and no stream that the shell has closed, stop what is said."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _fail(message: str, code: int) -> int:
    """Say what went wrong, if there is anything to say and anyone to hear it."""
    if message:
        with contextlib.suppress(OSError):
            from visar.cli.output import complain

            complain(message)
    return code


def _usage(error: Any) -> str:
    """What was typed wrong. Empty if nothing was typed: the help has been shown."""
    message = error.format_message()
    context = getattr(error, "ctx", None)
    if not message or context is None:
        return str(message)
    return f"{message} (see {context.command_path} -h)"


def _refused(error: OSError) -> str:
    """What the operating system refused."""
    if error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    with contextlib.suppress(OSError, ValueError):
        # Else Python tries once more at its end to write what is left, and complains at length.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return f"the output cannot be written: {error.strerror or error}"
