"""``visar threads``: saved conversations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.text import Text

from visar.cli.help import App
from visar.cli.options import Json, LibraryOptions, option, with_options
from visar.cli.output import console, plain_table, print_json
from visar.text import counted

app = App("List, export or delete saved conversations.", no_args_is_help=True)
_SHORT_ID = 8

ThreadId = Annotated[
    str,
    typer.Argument(metavar="ID", help="Id of the conversation, or the beginning of it."),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="New name.")]
Format = Annotated[
    Literal["markdown", "html"],
    option("--format NAME", "Format: markdown, or html with pictures of the cited pages."),
]
OutFile = Annotated[Path | None, option("--out FILE", "Save to this file instead of printing.")]


@app.command("list")
@with_options
def list_threads(*, options: LibraryOptions, as_json: Json = False) -> None:
    """List saved conversations, the latest first."""
    with options.open_library() as library:
        threads = library.threads()
    if as_json:
        print_json(threads)
        return
    if not threads:
        console.print("No conversations yet. Start one with `visar chat`.")
        return
    table = plain_table("ID", "QUESTIONS", "LAST", "NAME", numbers={"QUESTIONS"})
    for one in threads:
        when = one.updated.astimezone().strftime("%Y-%m-%d %H:%M")
        table.add_row(one.id[:_SHORT_ID], str(one.length), when, Text(one.name))
    console.print(table)


@app.command("show")
@with_options
def show(thread: ThreadId, *, options: LibraryOptions, as_json: Json = False) -> None:
    """Show a conversation."""
    with options.open_library() as library:
        found = library.thread(thread)
    if as_json:
        print_json(found)
        return
    from visar.cli.answers import print_answer

    console.print(Text(found.name, "bold"))
    for exchange in found.exchanges:
        console.print()
        console.print(Text(f"? {exchange.question}"), soft_wrap=True)
        if exchange.answer.question != exchange.question:
            searched = f"  Searched for: {exchange.answer.question}"
            console.print(Text(searched, "dim"), soft_wrap=True)
        print_answer(exchange.answer)


@app.command("export")
@with_options
def export(
    thread: ThreadId,
    *,
    options: LibraryOptions,
    kind: Format = "markdown",
    out: OutFile = None,
) -> None:
    """Export a conversation as Markdown or HTML."""
    from visar.cli.asking import save
    from visar.explain.conversation import thread_html, thread_markdown

    with options.open_library() as library:
        found = library.thread(thread)
        content = thread_markdown(found) if kind == "markdown" else thread_html(library, found)
    if out is None:
        typer.echo(content, nl=False)
    else:
        save(out, content.encode("utf-8", "replace"))
        console.print(Text(f"Wrote {out}"), soft_wrap=True)


@app.command("rename")
@with_options
def rename(thread: ThreadId, name: Name, *, options: LibraryOptions) -> None:
    """Rename a conversation."""
    with options.open_library() as library:
        renamed = library.rename_thread(library.thread(thread).id, name)
    console.print(Text(f"Renamed to {renamed.name}"), soft_wrap=True)


@app.command("delete")
@with_options
def delete(thread: ThreadId, *, options: LibraryOptions) -> None:
    """Delete a conversation."""
    with options.open_library() as library:
        found = library.thread(thread)
        library.delete_thread(found.id)
    questions = counted(found.length, "question")
    console.print(Text(f"Deleted {found.name} ({questions})"), soft_wrap=True)
