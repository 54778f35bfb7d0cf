"""Commands on the index of a server: ``--server URL``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.padding import Padding
from rich.text import Text

from visar.cli.output import complain, console, document_line, print_documents, print_json
from visar.cli.progress import progress_shown
from visar.client import Additions, Client, Job, Search
from visar.retrieval.wording import nothing_found


def ask(address: str, files: Sequence[str], question: str, *, as_json: bool, **asked: Any) -> None:
    """Print an answer of a server."""
    with Client(address) as client:
        answer = client.ask(question, **_body(client, files, asked))
    if as_json:
        print_json(answer)
        return
    console.print()
    if answer.model is not None:
        console.print(_indented(Text(answer.text or "It does not find the answer.", "bold")))
        console.print(_indented(Text(f"written by {answer.model}", "dim")))
    elif not answer.found:
        names = [document.name for document in answer.search.documents]
        console.print(_indented(Text(nothing_found(names, answer.pages[0]), "bold")))
    else:
        for passage in answer.passages:
            quoted = Text(passage.text)
            if passage.answer:
                quoted.stylize("bold", *passage.answer)
            console.print(_indented(Text.assemble(quoted, (f"  page {passage.page}", "dim"))))
    console.print()
    _print_pages(answer.search)


def search(
    address: str, files: Sequence[str], question: str, *, as_json: bool, **asked: Any
) -> None:
    """Print the pages that a server finds."""
    with Client(address) as client:
        found = client.search(question, **_body(client, files, asked))
    if as_json:
        print_json(found)
    else:
        _print_pages(found)


def add(
    address: str,
    files: Sequence[str | Path],
    *,
    collection: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Upload documents and wait until they are in the server's index."""
    with Client(address) as client:
        result = _add(client, files, collection, quiet=quiet)
    for refusal in result.refused:
        complain(refusal.reason)
    if as_json:
        print_json(result.added)
    else:
        for document in result.added:
            console.print(Text.assemble(("added", "green"), f"  {document_line(document)}"))
    if result.refused:
        raise typer.Exit(1 if result.added else 2)


def list_documents(address: str, collection: str | None, *, as_json: bool) -> None:
    """Print the documents of a server's index, or those of a collection there."""
    with Client(address) as client:
        documents = client.documents(collection)
    if as_json:
        print_json(documents)
        return
    print_documents(documents)


def remove(address: str, document: str, *, as_json: bool) -> None:
    """Remove a document from a server's index."""
    with Client(address) as client:
        removed = client.remove(document)
    if as_json:
        print_json(removed)
    else:
        console.print(Text(f"removed  {document_line(removed)}"), soft_wrap=True)


def _body(client: Client, files: Sequence[str], asked: dict[str, Any]) -> dict[str, Any]:
    """The options of a question that were given; files are added first, and asked about."""
    body = {name: value for name, value in asked.items() if value is not None}
    if not files:
        return body
    result = _add(client, files, quiet=False)
    for refusal in result.refused:
        complain(refusal.reason)
    if not result.added:
        raise typer.Exit(2)
    added = [document.id for document in result.added]
    return {**body, "documents": [*added, *body.get("documents", [])]}


def _add(
    client: Client, files: Sequence[str | Path], collection: str | None = None, *, quiet: bool
) -> Additions:
    with progress_shown(quiet=quiet) as display:
        reports: dict[str, Callable[..., None]] = {}
        told: dict[str, Job] = {}

        def show(job: Job) -> None:
            if job.stage and job.pages and job != told.get(job.id):
                told[job.id] = job
                if job.id not in reports:
                    reports[job.id] = display.document(Path(job.name))
                reports[job.id](job.stage, job.pages_done, job.pages)

        return client.add_all(files, collection=collection, on_job=show)


def _print_pages(found: Search) -> None:
    several = len(found.documents) > 1
    for hit in found.pages:
        name = f"{hit.name}: " if several else ""
        line = Text.assemble(
            (f"  {hit.page:>4}  ", "bold cyan"), f"{hit.likelihood or '':<9} ", name
        )
        console.print(line.append(hit.snippet), soft_wrap=True)
    console.print()
    console.print(_indented(Text(found.summary, "dim")))


def _indented(text: Text) -> Padding:
    return Padding(text, (0, 0, 0, 2), expand=False)
