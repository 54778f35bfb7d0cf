"""``visar eval cut``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from visar.cli import completion
from visar.cli.options import Json
from visar.cli.output import console, plain_table, print_json
from visar.errors import extra_needed
from visar.serialization import to_plain

Predictions = Annotated[
    Path, typer.Argument(help="Scores in mteb's JSON.", metavar="PREDICTIONS.json")
]
Methods = Annotated[
    list[str] | None,
    typer.Option(
        "--methods",
        autocompletion=completion.methods,
        help="A method that goes by scores. Repeatable. [default: all fast ones]",
        metavar="NAME",
    ),
]
Qrels = Annotated[
    Path | None,
    typer.Option(help="Judgments: a file, or a data set's folder.", metavar="FILE|FOLDER"),
]
Grade = Annotated[
    int, typer.Option(help="Lowest grade that counts as evidence.", metavar="N", min=1)
]
FixedK = Annotated[
    list[int] | None,
    typer.Option("--k", help="For top-k. Repeatable. [default: 5 and 10]", metavar="N", min=1),
]
Depth = Annotated[int, typer.Option(help="Choose from the best N documents.", metavar="N", min=1)]


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
    """Cut the predictions of other programs by methods that choose k, and compare them."""
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
