"""The options that several commands share."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.text import Text

from visar.cli import completion
from visar.cli.output import complain, errors

if TYPE_CHECKING:
    from visar.documents import ReadOptions
    from visar.generation.protocol import Generator
    from visar.index import Index
    from visar.ingest.inputs import Input
    from visar.results import Document, Refusal

IndexLocation = Annotated[
    str | None,
    typer.Option(
        "--index",
        envvar="VISAR_INDEX",
        metavar="LOCATION",
        help="The index: a folder, or an address (s3://…).",
    ),
]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="KEY=VALUE",
        help="Of object storage, such as aws_region=eu-west-1; also VISAR_STORAGE_OPTIONS.",
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Do the work on a Ray cluster: HOST:PORT of its head, auto, or local.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Write the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Do not tell how far it is.")]
EncoderName = Annotated[
    str,
    typer.Option(
        "--encoder",
        envvar="VISAR_ENCODER",
        autocompletion=completion.encoders,
        help="One of visar encoders, a checkpoint's folder or hub name, an address, module:Class; "
        "@REVISION, +patches and +pool3 may follow.",
    ),
]
DeviceChoice = Annotated[
    Literal["auto", "cpu", "cuda", "mps"],
    typer.Option("--device", envvar="VISAR_DEVICE", help="Where encoders of page images run."),
]
GeneratorName = Annotated[
    str,
    typer.Option(
        "--generator",
        envvar="VISAR_GENERATOR",
        autocompletion=completion.generators,
        help="What writes the answer: one of visar generators, a checkpoint's folder or hub name.",
    ),
]
BaseUrl = Annotated[
    str | None,
    typer.Option(
        "--base-url",
        envvar="OPENAI_BASE_URL",
        metavar="URL",
        help="Server for openai:MODEL, such as http://localhost:8000/v1.",
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
Password = Annotated[str | None, typer.Option(envvar="VISAR_PASSWORD", help="Of an encrypted PDF.")]
OcrChoice = Annotated[
    Literal["auto", "always", "never"],
    typer.Option("--ocr", help="When to run OCR: auto where a page's text is missing or broken."),
]
OcrEngineChoice = Annotated[
    Literal["rapidocr", "tesseract"], typer.Option("--ocr-engine", help="What reads them.")
]
Collection = Annotated[
    str | None,
    typer.Option("--collection", metavar="NAME", help="The documents of this collection alone."),
]
Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="FILTER",
        help="The documents with these metadata alone: 'year >= 2020 and kind = \"report\"'.",
    ),
]
Exact = Annotated[
    bool,
    typer.Option("--exact", help="Compare every page of a large library, however long it takes."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Keep this with the documents, for --where: year=2021. Several times for several.",
    ),
]
IntoCollection = Annotated[
    str | None, typer.Option("--collection", metavar="NAME", help="Put them into this collection.")
]
MaxPages = Annotated[int, typer.Option("--max-pages", help="Refuse longer documents.", min=1)]
MaxMegabytes = Annotated[int, typer.Option("--max-megabytes", help="Refuse larger files.", min=1)]
MaxMegapixels = Annotated[
    int,
    typer.Option(
        "--max-megapixels", help="Refuse larger images; larger PDF pages are drawn smaller.", min=1
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
        autocompletion=completion.methods,
        help="What chooses pages: visar, calibrated, top-k, single-vector, largest-gap, "
        "score-cluster, visar-approx, or module:function.",
    ),
]
K = Annotated[int | None, typer.Option("--k", help="How many pages top-k takes.", min=1)]
MaxK = Annotated[int | None, typer.Option("--max-k", help="At most so many pages.", min=1)]
Neighbors = Annotated[
    int,
    typer.Option(
        "--neighbors", help="Take so many pages around each along, for tables that continue.", min=0
    ),
]


ServerAddress = Annotated[
    str | None,
    typer.Option(
        "--server",
        envvar="VISAR_SERVER",
        metavar="URL",
        help="Use the index of a visar serve there, not one of this machine.",
    ),
]
Why = Annotated[bool, typer.Option("--why", help="Show the numbers that chose the pages.")]


def with_storage_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that has ``--index`` the option ``--storage-option`` too.

    Its values go to the environment, where all stores and all processes of the command find them.
    """
    signature = inspect.signature(command, eval_str=True)
    if "index" not in signature.parameters:
        return command

    @functools.wraps(command)
    def run(*, storage_option: StorageOptions = None, **given: Any) -> None:
        if storage_option:
            from visar.store.opening import OPTIONS_VARIABLE, storage_options
            from visar.store.opening import parse_storage_options as parse

            options = storage_options(parse(storage_option))
            os.environ[OPTIONS_VARIABLE] = shlex.join(f"{k}={v}" for k, v in options.items())
        command(**given)

    option = inspect.Parameter(
        "storage_option", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=StorageOptions
    )
    parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in signature.parameters.values()]
    place = next(n for n, p in enumerate(parameters) if p.name == "index") + 1
    parameters.insert(place, option)
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def was_given(context: typer.Context, option: str) -> bool:
    """Whether an option was typed or is in the environment, and is not a default."""
    source = context.get_parameter_source(option)
    return source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT")


def open_generator(name: str, base_url: str | None, device: str) -> str | Generator:
    """The generator of that name; the default needs none."""
    from visar.generation import extractive

    if name == extractive.NAME:
        return name
    from visar.generation.registry import get_generator, is_served
    from visar.models.hub import downloads_shown
    from visar.models.protocols import Downloadable

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
    from visar.index import Index

    return Index.open(location, create=create, device=device, options=options)


def ray_messages_on_stderr() -> contextlib.AbstractContextManager[object]:
    """Send what Ray prints about its nodes where it does not mix with results."""
    return contextlib.redirect_stdout(sys.stderr)


def fetch_encoder(library: Index, encoder: str, *, quiet: bool = False) -> None:
    """Download what an encoder needs before other bars are shown than those of the download."""
    from visar.models.hub import downloads_shown

    with contextlib.nullcontext() if quiet else downloads_shown():
        library.fetch(encoder)


def add_files(
    library: Index,
    files: Iterable[str | Path],
    encoder: str,
    *,
    quiet: bool,
    added: list[Document],
    metadata: Mapping[str, Any] | None = None,
    collection: str | None = None,
    ray: str | None = None,
) -> tuple[Refusal, ...]:
    """Add files with their progress shown; name those that were refused, or are there already.

    ``added`` gets each document as soon as it is in the index: an error ends the rest.
    """
    from visar.cli.progress import progress_shown
    from visar.results import Refusal

    refused: list[Refusal] = []
    copies: list[str] = []

    def keep(item: Input, result: Document | Refusal) -> None:
        if isinstance(result, Refusal):
            refused.append(result)
            return
        added.append(result)
        if result.source != item.source:
            copies.append(f"{item.place} has the same content as {result.name}, in the index")

    fetch_encoder(library, encoder, quiet=quiet)
    try:
        with progress_shown(quiet=quiet) as display:
            progress = display.document if ray is None else display.many_documents()
            with ray_messages_on_stderr() if ray else contextlib.nullcontext():
                library.add_all(
                    files,
                    encoder=encoder,
                    progress=progress,
                    each=keep,
                    metadata=metadata,
                    collection=collection,
                    ray=ray,
                )
    finally:
        for line in copies:
            errors.print(Text(line), soft_wrap=True)
        for refusal in refused:
            complain(refusal.reason)
    return tuple(refused)
