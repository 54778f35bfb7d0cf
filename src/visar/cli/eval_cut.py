"""``visar eval cut``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from visar.cli import completion
from visar.cli.options import Json, option
from visar.cli.output import console, plain_table, print_json
from visar.errors import extra_needed
from visar.serialization import to_plain

Predictions = Annotated[
    Path, typer.Argument(metavar="FILE", help="Predictions in mteb's JSON format.")
]
Methods = Annotated[
    list[str] | None,
    option(
        "--methods NAME",
        "Method that uses only scores. Repeatable. [default: all fast ones]",
        autocompletion=completion.methods,
    ),
]
Qrels = Annotated[
    Path | None, option("--qrels PATH", "Relevance judgments: a file, or the folder of a dataset.")
]
Grade = Annotated[int, option("--grade N", "Lowest grade that counts as relevant.", min=1)]
FixedK = Annotated[
    list[int] | None,
    option("--k N", "Number of results of top-k. Repeatable. [default: 5 and 10]", min=1),
]
Depth = Annotated[int, option("--depth N", "Choose from the best N documents.", min=1)]


def cut(
    predictions: Predictions,
    *,
    methods: Methods = None,
    qrels: Qrels = None,
    grade: Grade = 1,
    k: FixedK = None,
    depth: Depth = 100,
    as_json: Json = False,
) -> None:
    """Choose k for rankings of other programs, and compare the methods."""
    with extra_needed("An evaluation", "eval"):
        from visar.evaluation import cut as cutting

    names = [name for given in methods or () for name in given.split(",") if name]
    rows = cutting.cut(
        predictions, names, qrels=qrels, grade=grade, fixed=k or cutting.FIXED, depth=depth
    )
    if as_json:
        print_json([to_plain(row) for row in rows])
        return
    numbers = ("QUERIES", "MEAN K", "RECALL", "PRECISION", "F1", "PERFECT RECALL", "NDCG@10")
    judged = any(row.recall is not None for row in rows)
    headings = numbers if judged else numbers[:2]
    table = plain_table("METHOD", "SET", *headings, numbers=numbers)
    for row in rows:
        shares = (row.recall, row.precision, row.f1, row.perfect_recall, row.ndcg)
        cells = [f"{100 * share:.1f}" for share in shares if share is not None]
        table.add_row(row.method, row.subset, str(row.queries), f"{row.mean_k:.1f}", *cells)
    console.print(table)
