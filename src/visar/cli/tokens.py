"""``visar tokens``: access tokens for the HTTP API."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.text import Text

from visar.access import AccessTokens
from visar.cli.help import App
from visar.cli.options import IndexLocation, Json, option, with_options
from visar.cli.output import console, errors, plain_table, print_json
from visar.errors import InvalidOption
from visar.results import AccessKind, AccessToken
from visar.serialization import to_plain

app = App("Manage access tokens for the HTTP API.", no_args_is_help=True)

TokenId = Annotated[str, typer.Argument(metavar="ID", help="Id from `visar tokens list`.")]
ForCollection = Annotated[
    str | None,
    option("--collection NAME", "Only give access to this collection. [default: all]"),
]
Write = Annotated[
    bool | None,
    typer.Option(
        "--write/--read",
        help="Allow changes, or only reading and asking. Required.",
        show_default=False,
    ),
]
Name = Annotated[str, option("--name TEXT", "Note for your list, such as who has the token.")]


@app.command("create")
@with_options
def create(
    *,
    write: Write = None,
    collection: ForCollection = None,
    name: Name = "",
    index: IndexLocation = None,
    as_json: Json = False,
) -> None:
    """Create a token. It is shown only once."""
    if write is None:
        raise InvalidOption("No access given. Choose --read or --write.")
    with _tokens(index, create=True) as tokens:
        access: AccessKind = "write" if write else "read"
        token, secret = tokens.create(access, collection=collection, name=name)
    if as_json:
        print_json({**_shown(token), "token": secret})
        return
    console.print(Text(secret), soft_wrap=True)
    line = f"Token {token.id} can {_rights(token)}. Copy it now: it is not shown again."
    errors.print(Text(line, "dim"), soft_wrap=True)


@app.command("list")
@with_options
def list_tokens(*, index: IndexLocation = None, as_json: Json = False) -> None:
    """List the tokens of your index, without their secrets."""
    with _tokens(index) as tokens:
        known = tokens.all()
    if as_json:
        print_json([_shown(token) for token in known])
    elif known:
        table = plain_table("ID", "ACCESS", "COLLECTION", "CREATED", "NAME")
        for token in known:
            table.add_row(
                token.id,
                token.access,
                Text("all" if token.collection is None else token.collection),
                token.created.astimezone().strftime("%Y-%m-%d %H:%M"),
                Text(token.name),
            )
        console.print(table)
    else:
        console.print("No tokens yet. Create one with `visar tokens create`.")


@app.command("revoke")
@with_options
def revoke(id_: TokenId, *, index: IndexLocation = None, as_json: Json = False) -> None:
    """Revoke a token. Servers refuse it immediately."""
    with _tokens(index) as tokens:
        token = tokens.revoke(id_)
    if as_json:
        print_json(_shown(token))
    else:
        console.print(Text(f"revoked  {token.id}  {_rights(token)}"), soft_wrap=True)


@contextlib.contextmanager
def _tokens(index: str | None, *, create: bool = False) -> Iterator[AccessTokens]:
    from visar.store import open_store

    with contextlib.closing(open_store(index, create=create)) as store:
        yield AccessTokens(store)


def _shown(token: AccessToken) -> dict[str, Any]:
    shown: dict[str, Any] = to_plain(token, public=True)
    return shown


def _rights(token: AccessToken) -> str:
    what = "read" if token.access == "read" else "read and change"
    return f"{what} {'everything' if token.collection is None else token.collection}"
