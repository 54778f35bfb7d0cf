"""``visar explain``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from visar.cli.asking import (
    Documents,
    Question,
    documents_asked,
    print_written,
    split_question,
    write_file,
    write_heat,
    write_png,
)
from visar.cli.options import (
    Collection,
    DeviceChoice,
    EncoderName,
    Exact,
    IndexLocation,
    Json,
    K,
    MaxK,
    MethodName,
    Password,
    Quiet,
    Where,
    open_index,
)
from visar.cli.output import console, print_json
from visar.cli.progress import waiting
from visar.documents import ReadOptions
from visar.explain.explanation import Explanation
from visar.retrieval.methods import METHODS

Out = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="FILE", help="Write a report there: one HTML file, which needs no network."
    ),
]
Pictures = Annotated[
    Path | None,
    typer.Option(
        "--png",
        metavar="DIR",
        help="Write single pictures there: pages with heat, activity, similarity and cost.",
    ),
]


def explain(
    words: Question,
    *,
    out: Out = None,
    pictures: Pictures = None,
    documents: Documents = None,
    collection: Collection = None,
    where: Where = None,
    exact: Exact = False,
    method: MethodName = "visar",
    k: K = None,
    max_k: MaxK = None,
    encoder: EncoderName = "embedded",
    device: DeviceChoice = "auto",
    password: Password = None,
    index: IndexLocation = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Show why these pages, and why so many: here, as a report, or as pictures."""
    files, question = split_question(words)
    options = ReadOptions(password=password)
    library = open_index(index, create=bool(files), device=device, options=options)
    from visar.cli.answers import print_answer, print_pages
    from visar.explain.pictures import activity_picture, cost_picture, similarity_picture
    from visar.explain.report import html_report

    asked = documents_asked(library, files, documents, encoder, quiet=quiet)
    written = []
    with waiting("explaining", quiet=quiet):
        answer = library.ask(
            question,
            documents=asked,
            collection=collection,
            where=where,
            exact=exact,
            encoder=encoder,
            method=method,
            k=k,
            max_k=max_k,
        )
        found = answer.search
        explanation = library.explain(found)
        if out is not None:
            written.append(write_file(out, html_report(library, answer, explanation).encode()))
        if pictures is not None:
            written += [
                write_png(pictures / "activity.png", activity_picture(found, explanation)),
                write_png(pictures / "similarity.png", similarity_picture(found, explanation)),
                write_png(pictures / "cost.png", cost_picture(explanation)),
                *write_heat(library, found, pictures),
            ]
    if as_json:
        print_json({"answer": answer, "explanation": explanation, "written": written})
        return
    print_answer(answer)
    print_pages(found, why=True)
    _print_reasons(explanation)
    print_written(written)


def _print_reasons(explanation: Explanation) -> None:
    """The words that counted, and what other methods would take."""
    if explanation.words:
        ordered = sorted(explanation.words, key=lambda word: -word.influence)
        shares = ", ".join(f"{word.text} {word.influence:.0%}" for word in ordered)
        console.print(Text(f"  words by influence: {shares}", "dim"), soft_wrap=True)
    cuts = ", ".join(f"{METHODS[name].label} {k}" for name, k in explanation.cuts.items())
    console.print(Text(f"  pages by method: {cuts}", "dim"), soft_wrap=True)
