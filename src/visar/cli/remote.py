"""Commands on the index of a server: ``--server URL``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from rich.padding import Padding
from rich.text import Text

from visar.cli.output import complain, console, plain_table, print_json
from visar.cli.progress import progress_shown
from visar.client import Client
from visar.errors import DocumentError
from visar.results import likelihood

SHORT_ID = 12


def ask(address: str, files: Sequence[str], question: str, *, as_json: bool, **asked: Any) -> None:
    """Print an answer of a server."""
    with Client(address) as client:
        answer = client.ask(question, **_body(client, files, asked))
    if as_json:
        print_json(answer)
        return
    console.print()
    if answer["model"] is not None:
        console.print(_indented(Text(answer["text"] or "It does not find the answer.", "bold")))
        console.print(_indented(Text(f"written by {answer['model']}", "dim")))
    else:
        if not answer["found"]:
            console.print(Text("  Nothing there matches this question well.", "bold"))
        for passage in answer["passages"]:
            quoted = Text(passage["text"])
            if passage["answer"] and answer["found"]:
                quoted.stylize("bold", *passage["answer"])
            console.print(_indented(Text.assemble(quoted, (f"  page {passage['page']}", "dim"))))
    console.print()
    _print_pages(answer["search"])


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
    added: list[dict[str, Any]] = []
    refused = 0
    with Client(address) as client:
        for path in map(Path, files):
            try:
                added.append(_add(client, path, collection, quiet=quiet))
            except (DocumentError, OSError) as error:
                refused += 1
                complain(f"{path}: {error.strerror}" if isinstance(error, OSError) else str(error))
    if as_json:
        print_json(added)
    else:
        for document in added:
            console.print(Text.assemble(("added", "green"), f"  {_short(document)}"))
    if refused:
        raise typer.Exit(1 if added else 2)


def list_documents(address: str, collection: str | None, *, as_json: bool) -> None:
    """Print the documents of a server's index, or those of a collection there."""
    with Client(address) as client:
        documents = client.documents(collection)
    if as_json:
        print_json(documents)
        return
    table = plain_table("ID", "PAGES", "NAME", numbers={"PAGES"})
    for document in documents:
        table.add_row(document["id"][:SHORT_ID], str(document["pages"]), Text(document["name"]))
    console.print(table)


def remove(address: str, document: str, *, as_json: bool) -> None:
    """Remove a document from a server's index."""
    with Client(address) as client:
        removed = client.remove(document)
    if as_json:
        print_json(removed)
    else:
        console.print(Text(f"removed  {_short(removed)}"), soft_wrap=True)


def _body(client: Client, files: Sequence[str], asked: dict[str, Any]) -> dict[str, Any]:
    """The options of a question that were given; files are added first, and asked about."""
    body = {name: value for name, value in asked.items() if value is not None}
    added = [_add(client, Path(path), quiet=False)["id"] for path in files]
    if added:
        body["documents"] = [*added, *body.get("documents", [])]
    return body


def _add(
    client: Client, path: Path, collection: str | None = None, *, quiet: bool
) -> dict[str, Any]:
    with progress_shown(quiet=quiet) as display:
        report = display.document(path)

        def show(job: dict[str, Any]) -> None:
            if job["stage"] and job["pages"]:
                report(job["stage"], job["pages_done"], job["pages"])

        return client.add(path, collection=collection, on_job=show)


def _print_pages(found: dict[str, Any]) -> None:
    several = len(found["documents"]) > 1
    for hit in found["pages"]:
        word = likelihood(hit["probability"]) or ""
        name = f"{hit['name']}: " if several else ""
        line = Text.assemble((f"  {hit['page']:>4}  ", "bold cyan"), f"{word:<9} ", name)
        console.print(line.append(hit["snippet"]), soft_wrap=True)
    console.print()
    console.print(_indented(Text(found["summary"], "dim")))


def _short(document: dict[str, Any]) -> str:
    return f"{document['id'][:SHORT_ID]}  {document['name']} · {document['pages']} pages"


def _indented(text: Text) -> Padding:
    return Padding(text, (0, 0, 0, 2), expand=False)
