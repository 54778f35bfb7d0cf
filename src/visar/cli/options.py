"""The options that several commands share."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from visar.documents import ReadOptions
from visar.generation import extractive
from visar.generation.protocol import Generator
from visar.generation.registry import get_generator, is_served
from visar.index import Index
from visar.models.hub import downloads_shown
from visar.models.protocols import Downloadable

IndexLocation = Annotated[
    str | None,
    typer.Option(
        "--index",
        envvar="VISAR_INDEX",
        metavar="LOCATION",
        help="The folder of the index, or its address (s3://…); by default a folder of yours.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Write the result as JSON.")]
EncoderName = Annotated[
    str,
    typer.Option(
        "--encoder",
        help="One of visar encoders, a checkpoint's folder or hub name, an address, module:Class; "
        "@REVISION chooses a hub's version, +patches leaves out the instruction's vectors, +pool3 "
        "keeps a third of a page's.",
    ),
]
DeviceChoice = Annotated[
    Literal["auto", "cpu", "cuda", "mps"],
    typer.Option("--device", help="Where encoders of page images run."),
]
GeneratorName = Annotated[
    str,
    typer.Option(
        "--generator",
        envvar="VISAR_GENERATOR",
        help="What writes the answer: one of visar generators, or a checkpoint's folder or hub "
        "name. extractive quotes the pages.",
    ),
]
BaseUrl = Annotated[
    str | None,
    typer.Option(
        "--base-url",
        envvar="OPENAI_BASE_URL",
        help="Where openai:MODEL is served, such as http://localhost:8000/v1.",
        show_default=False,
    ),
]
SendMegapixels = Annotated[
    float,
    typer.Option(
        "--send-megapixels",
        help="Scale the pages that a generator is given down to so much together.",
        min=0.01,
    ),
]
SendTokens = Annotated[
    int,
    typer.Option(
        "--send-tokens",
        help="Give a generator that reads text at most so many tokens of it.",
        min=1,
    ),
]
Password = Annotated[
    str | None,
    typer.Option(envvar="VISAR_PASSWORD", help="Of an encrypted PDF.", show_default=False),
]
OcrChoice = Annotated[
    Literal["auto", "always", "never"],
    typer.Option(
        "--ocr", help="When to read pages as pictures: auto where their text is missing or broken."
    ),
]
OcrEngineChoice = Annotated[
    Literal["rapidocr", "tesseract"], typer.Option("--ocr-engine", help="What reads them.")
]
MaxPages = Annotated[int, typer.Option("--max-pages", help="Refuse longer documents.", min=1)]
MaxMegabytes = Annotated[int, typer.Option("--max-megabytes", help="Refuse larger files.", min=1)]
MaxMegapixels = Annotated[
    int,
    typer.Option(
        "--max-megapixels",
        help="Refuse larger images; larger PDF pages are drawn smaller.",
        min=1,
    ),
]
SecondsPerPage = Annotated[
    float, typer.Option("--seconds-per-page", help="Give up on a page after this long.", min=0.1)
]


def _known_method(name: str) -> str:
    """Refuse an unknown method before documents are read."""
    from visar.retrieval.methods import get_method

    get_method(name)
    return name


MethodName = Annotated[
    str,
    typer.Option(
        "--method",
        callback=_known_method,
        help="What decides how many pages: visar; calibrated, by the probabilities; or for "
        "comparison top-k, single-vector, largest-gap, score-cluster, visar-approx, or "
        "module:function.",
    ),
]
K = Annotated[
    int | None, typer.Option("--k", help="How many pages top-k takes.", min=1, show_default=False)
]
MaxK = Annotated[
    int | None, typer.Option("--max-k", help="At most so many pages.", min=1, show_default=False)
]
Neighbors = Annotated[
    int,
    typer.Option(
        "--neighbors", help="Take so many pages around each along, for tables that continue.", min=0
    ),
]


Why = Annotated[bool, typer.Option("--why", help="Show the numbers that chose the pages.")]


def open_generator(name: str, base_url: str | None, device: str) -> str | Generator:
    """The generator of that name; the default needs none."""
    if name == extractive.NAME:
        return name
    # OPENAI_BASE_URL may be set for other programs: it concerns served models alone.
    generator = get_generator(name, base_url=base_url if is_served(name) else None, device=device)
    if isinstance(generator, Downloadable):
        with downloads_shown():
            generator.fetch()
    return generator


def open_index(
    location: str | None,
    *,
    create: bool = False,
    device: str = "auto",
    options: ReadOptions | None = None,
) -> Index:
    """Open the index named by ``--index``."""
    return Index.open(location, create=create, device=device, options=options)


def fetch_encoder(library: Index, encoder: str) -> None:
    """Download what an encoder needs before other bars are shown than those of the download."""
    with downloads_shown():
        library.fetch(encoder)
