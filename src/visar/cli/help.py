"""Help texts: options in sections, the common ones first, each in one line where it fits.

Typer has sections only with rich's help, which would import Markdown and syntax highlighting first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

DOCUMENTS = "Index and documents"
MODELS = "Models"
SEARCH = "Search"
ANSWER = "Answer"
READING = "Reading files"
NETWORK = "Network"
LIMITS = "Limits"
OUTPUT = "Output"
_SECTIONS = ("Options", DOCUMENTS, MODELS, SEARCH, ANSWER, READING, NETWORK, LIMITS, OUTPUT)
# A command with fewer options shows them in one list.
_OPTIONS_WORTH_SECTIONS = 12
_WIDEST_NAME = 26
_RANGE = re.compile(r"[\d.<=]*x[\d.<>=]*")
_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

Record: TypeAlias = tuple[str, str]
Function = TypeVar("Function", bound=Callable[..., Any])


class _Sections:
    """A command whose help shows the arguments, then the options in sections."""

    def format_options(self: Any, ctx: Any, formatter: Any) -> None:
        arguments: list[Record] = []
        options: list[Record] = []
        sections: dict[str, list[Record]] = {title: [] for title in _SECTIONS}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            record = record[0], _shorten(record[1])
            if parameter.param_type_name == "argument":
                arguments.append(record)
            else:
                options.append(record)
                sections[getattr(parameter, "rich_help_panel", None) or "Options"].append(record)
        if len(options) < _OPTIONS_WORTH_SECTIONS:
            sections = {"Options": options}
        _write_sections(formatter, {"Arguments": arguments, **sections})


class Command(_Sections, TyperCommand):
    """A command of the program."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the pieces of the usage line, without Typer's braces around arguments."""
        return [re.sub(r"^\{(.*)\}$", r"\1", piece) for piece in super().collect_usage_pieces(ctx)]


class Group(_Sections, TyperGroup):
    """A command with subcommands, which its help shows after the options."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the names of the subcommands with the first sentence of their help."""
        sections: dict[str, list[Record]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            title = command.rich_help_panel or "Commands"
            sections.setdefault(title, []).append((name, command.get_short_help_str(limit=75)))
        _write_sections(formatter, sections)


class App(typer.Typer):
    """A group of commands whose help is in this format."""

    def __init__(self, text: str, **more: Any) -> None:
        super().__init__(
            help=text, cls=Group, context_settings=_CONTEXT, rich_markup_mode=None, **more
        )

    def command(self, name: str | None = None, **more: Any) -> Callable[[Function], Function]:
        """Return a decorator that adds a command."""
        return super().command(name, cls=Command, **more)


def _shorten(text: str) -> str:
    """Return a help text with ``$NAME`` for its environment variable, and without ranges.

    >>> _shorten("Number of pages.  [env var: VISAR_K; default: 3; x>=1]")
    'Number of pages.  [$VISAR_K; default: 3]'
    """
    start, bracket, extra = text.rpartition("[")
    if not (bracket and extra.endswith("]")):
        return text
    parts = [part.replace("env var: ", "$") for part in extra[:-1].split("; ")]
    kept = [part for part in parts if part != "required" and not _RANGE.fullmatch(part)]
    return f"{start}[{'; '.join(kept)}]" if kept else start.rstrip()


def _write_sections(formatter: Any, sections: Mapping[str, Sequence[Record]]) -> None:
    names = [name for records in sections.values() for name, _ in records]
    width = max((len(name) for name in names if len(name) <= _WIDEST_NAME), default=0)
    for title, records in sections.items():
        if records:
            with formatter.section(title):
                rows = [(f"{name:<{width}}", text) for name, text in records]
                formatter.write_dl(rows, col_max=_WIDEST_NAME)
