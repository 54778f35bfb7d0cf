"""``visar chat``: several questions about the same documents; ``visar threads``: saved chats."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.text import Text

from visar.cli.help import OUTPUT, App
from visar.cli.library import documents_to_search
from visar.cli.options import AnswerOptions, Json, LibraryOptions, option, with_options
from visar.cli.output import complain, console, moment, plain_table, print_json, say
from visar.errors import DiskFull, ReadOnlyIndex, StoreError, VisarError
from visar.text import clean_line, counted

if TYPE_CHECKING:
    from visar.library import AnswerStream, AskOptions, Library
    from visar.results import Answer, Exchange

_SHORT_ID = 8
_HELP = "Type a question, /pages for the last pages, /history for your questions, or /quit."

Files = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILE]...", help="Files or URLs to ask about. Without files: your whole index."
    ),
]
ThreadId = Annotated[
    str | None, option("--thread ID", "Continue a saved conversation; see `visar threads list`.")
]
JsonLines = Annotated[bool, option("--json", "Print each answer as a line of JSON.", OUTPUT)]


def chat(
    files: Files = None,
    *,
    options: AnswerOptions,
    thread: ThreadId = None,
    as_json: JsonLines = False,
) -> None:
    """Ask several questions in a row. Follow-ups may refer to earlier answers."""
    with options.open_library(create=bool(files)) as library:
        chosen = options.ask_options()
        chosen["documents"] = documents_to_search(library, files or [], options.documents, options)
        conversation = _Conversation(library, chosen, thread)
        for line in _lines(_HELP if not as_json else ""):
            if line == "/quit":
                break
            if line == "/history":
                for number, one in enumerate(conversation.exchanges, start=1):
                    pages = ", ".join(str(hit.page) for hit in one.answer.pages)
                    question = f"  {number:>3}  {one.question}"
                    say(Text.assemble(question, (f"  page {pages}", "dim")))
            elif line == "/pages":
                from visar.cli.answers import print_pages

                for exchange in conversation.exchanges[-1:]:
                    print_pages(exchange.answer.search)
            elif line.startswith("/"):
                complain(f"No command {line!r}. {_HELP}")
            elif line:
                _answer(conversation, line, as_json)
        if conversation.thread is not None and not as_json:
            short_id = conversation.thread[:_SHORT_ID]
            say(f"  Saved. To continue: visar chat --thread {short_id}", "dim")


class _Conversation:
    """Questions and answers, saved in the library if it can be written."""

    def __init__(self, library: Library, options: AskOptions, thread: str | None) -> None:
        self._library = library
        self._options = options
        self._is_saved = True
        self.thread: str | None = None
        self.exchanges: list[Exchange] = []
        if thread is not None:
            saved = library.thread(thread)
            self.thread, self.exchanges = saved.id, list(saved.exchanges)

    def stream(self, question: str) -> AnswerStream:
        """Answer a question in the context of earlier ones."""
        if self.thread is None and self._is_saved:
            try:
                self.thread = self._library.create_thread().id
            except (ReadOnlyIndex, DiskFull) as error:
                self._is_saved = False
                complain(f"Can't save this conversation. {error}")
        self._options["thread"] = self.thread
        return self._library.stream(question, **self._options)

    def append(self, question: str, answer: Answer) -> None:
        from visar.results import Exchange, Turn

        self.exchanges.append(Exchange(question, answer, datetime.now(UTC)))
        if self.thread is None:
            turns = [Turn(one.answer.question, one.answer.text) for one in self.exchanges]
            self._options["history"] = turns


def _answer(conversation: _Conversation, question: str, as_json: bool) -> None:
    """Answer a question. Only an unusable index ends the chat; other errors are printed."""
    from visar.cli.answers import print_answer, read_answer, warn_of_problem

    try:
        answer = read_answer(conversation.stream(question))
    except StoreError:
        raise
    except VisarError as error:
        complain(str(error))
        return
    except KeyboardInterrupt:
        complain("Stopped. Ask another question, or type /quit.")
        return
    conversation.append(question, answer)
    if as_json:
        print_json(answer, indent=None)
        sys.stdout.flush()
    else:
        _print_searched(question, answer)
        print_answer(answer)
    warn_of_problem(answer)


def _print_searched(question: str, answer: Answer) -> None:
    if answer.question != question:
        say(f"  Searched for: {answer.question}", "dim")


def _lines(hint: str) -> Iterator[str]:
    """Yield the lines that are typed; arrow keys recall earlier ones."""
    prompt = "? " if sys.stdin.isatty() else ""
    if prompt:
        console.print(Text(f"  {hint}", "dim"))
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 - input() uses it once it is there
    while True:
        try:
            yield clean_line(input(prompt))
        except EOFError:
            return
        except KeyboardInterrupt:
            # As in a shell: the line is dropped, the session stays.
            console.print()


app = App("List, export or delete saved conversations.", no_args_is_help=True)

SavedThread = Annotated[
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
    rows = (
        (one.id[:_SHORT_ID], str(one.length), moment(one.updated), Text(one.name))
        for one in threads
    )
    console.print(plain_table("ID", "QUESTIONS", "LAST", "NAME", rows=rows, numbers={"QUESTIONS"}))


@app.command("show")
@with_options
def show(thread: SavedThread, *, options: LibraryOptions, as_json: Json = False) -> None:
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
        say(f"? {exchange.question}")
        _print_searched(exchange.question, exchange.answer)
        print_answer(exchange.answer)


@app.command("export")
@with_options
def export(
    thread: SavedThread,
    *,
    options: LibraryOptions,
    kind: Format = "markdown",
    out: OutFile = None,
) -> None:
    """Export a conversation as Markdown or HTML."""
    from visar.cli.asking import save
    from visar.explain.report import thread_html, thread_markdown

    with options.open_library() as library:
        found = library.thread(thread)
        content = thread_markdown(found) if kind == "markdown" else thread_html(library, found)
    if out is None:
        typer.echo(content, nl=False)
    else:
        save(out, content.encode("utf-8", "replace"))
        say(f"Wrote {out}")


@app.command("rename")
@with_options
def rename(thread: SavedThread, name: Name, *, options: LibraryOptions) -> None:
    """Rename a conversation."""
    with options.open_library() as library:
        renamed = library.rename_thread(library.thread(thread).id, name)
    say(f"Renamed to {renamed.name}")


@app.command("delete")
@with_options
def delete(thread: SavedThread, *, options: LibraryOptions) -> None:
    """Delete a conversation."""
    with options.open_library() as library:
        found = library.thread(thread)
        library.delete_thread(found.id)
    say(f"Deleted {found.name} ({counted(found.length, 'question')})")
