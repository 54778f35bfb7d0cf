"""``visar eval verify``: a smoke test of an encoder or a generator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from visar.cli.options import BaseUrl, DeviceChoice, Json, Quiet, fetch_model
from visar.cli.output import console, plain_table, print_json
from visar.errors import extra_needed
from visar.serialization import to_plain
from visar.text import counted

if TYPE_CHECKING:
    from visar.evaluation.verify import Verification

Model = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="Encoder or generator: a name, a checkpoint or NAME=FOLDER."
    ),
]


def verify_model(
    name: Model,
    *,
    device: DeviceChoice = "auto",
    base_url: BaseUrl = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Test a model on one page. Exits with 1 if the result differs from the expected one."""
    with extra_needed("An evaluation", "eval"):
        from visar.evaluation.manifest import Manifest
        from visar.evaluation.verify import open_model, verify

    model = open_model(name, base_url=base_url, device=device)
    fetch_model(model, quiet=quiet)
    verified = verify(model)
    manifest = Manifest()
    if as_json:
        plain = {"ok": verified.ok, "machine": manifest.machine, "packages": manifest.packages}
        print_json(to_plain(verified) | plain)
    else:
        _print_verification(verified)
    if not verified.ok:
        raise typer.Exit(1)


def _print_verification(verified: Verification) -> None:
    console.print(Text(f"{verified.kind} {verified.name} · {verified.identity}"), soft_wrap=True)
    table = plain_table("CHECK", "", "EXPECTED", "FOUND")
    for check in verified.checks:
        state = Text("ok", "green") if check.ok else Text("differs", "red")
        table.add_row(check.name, state, Text(check.expected), Text(check.found))
    console.print(table)
    differing = sum(not check.ok for check in verified.checks)
    if not differing:
        total = counted(len(verified.checks), "check")
        console.print(Text(f"{total} in {verified.seconds:.1f} s, all as expected."))
        return
    console.print(
        Text(
            f"{differing} of {counted(len(verified.checks), 'check')} differ from the expected "
            f"result. Please report the output of `visar eval verify {verified.name} --json`.",
            "yellow",
        ),
        soft_wrap=True,
    )
