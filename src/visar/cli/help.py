"""Help texts in which advanced options stand below the others."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

ADVANCED = "Advanced"


class Command(TyperCommand):
    """A command whose help lists advanced options in a section of their own.

    Typer does so only with rich's help, which would import Markdown and syntax highlighting first.
    """

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write a section for arguments, one for options, and one for advanced options."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": [], ADVANCED: []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                is_argument = parameter.param_type_name == "argument"
                panel = getattr(parameter, "rich_help_panel", None) or "Options"
                sections["Arguments" if is_argument else panel].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)
