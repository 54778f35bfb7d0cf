"""Options that several commands share, and the library that they name."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_type_hints

import typer

from visar.cli import completion
from visar.cli.help import ADVANCED

if TYPE_CHECKING:
    from visar.documents import ReadOptions
    from visar.generation.protocol import Generator
    from visar.index import Index
    from visar.library import AskOptions, Library, SearchOptions

LOCAL_OPTIONS = (
    *("base_url", "device", "image", "ocr", "ocr_engine", "ray", "reader", "storage_option"),
    *("max_pages", "max_megabytes", "max_megapixels", "seconds_per_page"),
    *("send_megapixels", "send_tokens"),
)
"""Options that only a local index can honor."""


def option(flag: str, text: str, **more: Any) -> Any:
    """Return an option with its help; the name of its value follows the flag: ``--k N``."""
    name, _, metavar = flag.partition(" ")
    return typer.Option(name, metavar=metavar or None, help=text, **more)


advanced = functools.partial(option, rich_help_panel=ADVANCED)

IndexLocation = Annotated[
    str | None,
    option(
        "--index LOCATION",
        "Your index: a folder, or an address such as s3://bucket/prefix.",
        envvar="VISAR_INDEX",
    ),
]
StorageOptions = Annotated[
    list[str] | None,
    advanced(
        "--storage-option KEY=VALUE",
        "Option for object storage, such as aws_region=eu-west-1. Repeatable. "
        "[env var: VISAR_STORAGE_OPTIONS]",
    ),
]
ServerAddress = Annotated[
    str | None,
    option(
        "--server URL",
        "Use a running `visar serve` instead of a local index.",
        envvar="VISAR_SERVER",
    ),
]
RayAddress = Annotated[
    str | None,
    advanced("--ray ADDRESS", "Work on a Ray cluster: HOST:PORT of its head, auto, or local."),
]
Json = Annotated[bool, option("--json", "Print the result as JSON.")]
Quiet = Annotated[bool, advanced("--quiet", "Hide progress.")]
EncoderName = Annotated[
    str,
    option(
        "--encoder NAME",
        "Encoder: a name from `visar encoders`, a checkpoint, a URL or module:Class.",
        envvar="VISAR_ENCODER",
        autocompletion=completion.encoders,
    ),
]
DeviceChoice = Annotated[
    Literal["auto", "cpu", "cuda", "mps"],
    advanced("--device", "Device that models run on.", envvar="VISAR_DEVICE"),
]
GeneratorName = Annotated[
    str,
    option(
        "--generator NAME",
        "Generator that writes the answer: a name from `visar generators`, or a checkpoint.",
        envvar="VISAR_GENERATOR",
        autocompletion=completion.generators,
    ),
]
ReaderName = Annotated[
    str,
    advanced(
        "--reader NAME",
        "Model that re-reads passages; `none` turns it off.",
        envvar="VISAR_READER",
        autocompletion=completion.readers,
    ),
]
BaseUrl = Annotated[
    str | None,
    advanced(
        "--base-url URL",
        "Server of openai:MODEL, such as http://localhost:8000/v1.",
        envvar="OPENAI_BASE_URL",
    ),
]
SendMegapixels = Annotated[
    float,
    advanced(
        "--send-megapixels N",
        "Maximum size of all page images sent to a generator; larger ones are scaled down.",
        min=0.01,
    ),
]
SendTokens = Annotated[
    int,
    advanced(
        "--send-tokens N",
        "Maximum number of tokens of page text sent to a generator that reads text.",
        min=1,
    ),
]
Password = Annotated[
    str | None, advanced("--password TEXT", "Password for encrypted PDFs.", envvar="VISAR_PASSWORD")
]
OcrChoice = Annotated[
    Literal["auto", "always", "never"],
    advanced("--ocr", "When to use OCR; auto means where a page's text is missing or broken."),
]
OcrEngineChoice = Annotated[
    Literal["rapidocr", "tesseract"], advanced("--ocr-engine", "OCR engine.")
]
Documents = Annotated[
    list[str] | None,
    option(
        "--doc NAME",
        "Only search this document, by name or id. Repeatable.",
        autocompletion=completion.documents,
    ),
]
Collection = Annotated[str | None, option("--collection NAME", "Only search this collection.")]
Where = Annotated[
    str | None,
    advanced(
        "--where FILTER",
        "Only documents whose metadata match: 'year >= 2020 and kind = \"report\"'.",
    ),
]
Exact = Annotated[
    bool, advanced("--exact", "Compare every page of a large index with the question. Slower.")
]
MethodName = Annotated[
    str,
    advanced(
        "--method NAME",
        "Method that chooses pages: visar, calibrated, top-k, single-vector, largest-gap, "
        "score-cluster, visar-approx, or module:function.",
        autocompletion=completion.methods,
    ),
]
K = Annotated[int | None, advanced("--k N", "Number of pages for top-k.", min=1)]
MaxK = Annotated[
    int | None,
    option("--max-k N", "Maximum number of pages. Answers take at most 10 by default.", min=1),
]
Neighbors = Annotated[
    int,
    advanced(
        "--neighbors N", "Also include N pages on either side, for tables that span pages.", min=0
    ),
]


@dataclass(frozen=True, kw_only=True)
class IndexOptions:
    """The local index that a command works on.

    A command takes these options by a parameter of this class, or of a subclass; see
    `with_options`.
    """

    index: IndexLocation = None
    sources: Mapping[str, str] = field(default_factory=dict)
    """Where the value of each option comes from, as Click names it."""

    @property
    def url(self) -> str | None:
        """URL of the server to use; None for a local index."""
        return None

    def open_index(self, *, create: bool = False) -> Index:
        """Open the local index."""
        from visar.index import Index

        return Index.open(self.index, create=create)

    def was_typed(self, name: str) -> bool:
        """Return whether an option was typed, and isn't a default or set in the environment."""
        return self.sources.get(name) == "COMMANDLINE"

    def was_given(self, name: str) -> bool:
        """Return whether an option was typed, or set in the environment."""
        return self.sources.get(name) in ("COMMANDLINE", "ENVIRONMENT")

    def model(self, name: str) -> str | None:
        """Return the encoder or generator to use; None for the server's own.

        Defaults and the configuration file are about this machine, not about the server.
        """
        return getattr(self, name) if self.url is None or self.was_given(name) else None


@dataclass(frozen=True, kw_only=True)
class LibraryOptions(IndexOptions):
    """The library that a command works on: a local index, or one behind a server."""

    server: ServerAddress = None

    @property
    def url(self) -> str | None:
        """URL of the server to use; None for a local index."""
        if self.was_typed("index") and not self.was_typed("server"):
            return None  # --index wins over VISAR_SERVER
        return self.server or None

    def open_library(self, *, create: bool = False) -> Library:
        """Open the library.

        Raises
        ------
        InvalidOption
            If the library is behind a server, and an option was given that only a local index can
            honor.
        """
        if self.url is None:
            return self.open_index(create=create)
        from visar.errors import InvalidOption

        if self.was_typed("index"):
            raise InvalidOption("--index and --server exclude each other: leave one out.")
        for name in LOCAL_OPTIONS:
            # OPENAI_BASE_URL may be set for other programs.
            if self.was_typed(name) or (self.was_given(name) and name != "base_url"):
                raise InvalidOption(
                    f"--{name.replace('_', '-')} only works with a local index, not with --server."
                )
        from visar.client import Client

        return Client(self.url)


@dataclass(frozen=True, kw_only=True)
class ReadingOptions(IndexOptions):
    """Options of commands that add documents."""

    encoder: EncoderName = "embedded"
    device: DeviceChoice = "auto"
    password: Password = None
    ocr: OcrChoice = "auto"
    ocr_engine: OcrEngineChoice = "rapidocr"
    quiet: Quiet = False

    def read_options(self) -> ReadOptions:
        """Return how documents are read."""
        from visar.documents import ReadOptions

        return ReadOptions(password=self.password, ocr=self.ocr, ocr_engine=self.ocr_engine)

    def index_options(self) -> dict[str, Any]:
        """Return the keyword arguments of `visar.Index.open`."""
        return {"device": self.device, "options": self.read_options()}

    def open_index(self, *, create: bool = False) -> Index:
        """Open the local index, and download the encoder if it isn't here yet."""
        from visar.index import Index

        index = Index.open(self.index, create=create, **self.index_options())
        fetch_model(index.encoder(self.encoder), quiet=self.quiet)
        return index


@dataclass(frozen=True, kw_only=True)
class QuestionOptions(ReadingOptions, LibraryOptions):
    """Options of commands that search for pages."""

    documents: Documents = None
    collection: Collection = None
    where: Where = None
    exact: Exact = False
    method: MethodName = "visar"
    k: K = None
    max_k: MaxK = None
    neighbors: Neighbors = 0
    reader: ReaderName = "auto"

    def index_options(self) -> dict[str, Any]:
        """Return the keyword arguments of `visar.Index.open`."""
        return {**super().index_options(), "reader": self.reader}

    def open_index(self, *, create: bool = False) -> Index:
        """Open the local index, download its models, and begin to load the reader."""
        from visar.models.loading import load_ahead

        index = super().open_index(create=create)
        if (reader := index.reader()) is not None:
            fetch_model(reader, quiet=self.quiet)
            load_ahead(reader)
        return index

    def search_options(self) -> SearchOptions:
        """Return the options of `visar.Library.search`.

        Raises
        ------
        InvalidOption
            If this machine, which is to search, doesn't have the method.
        """
        from visar.library import SearchOptions

        if self.url is None:
            from visar.retrieval.methods import get_method

            get_method(self.method)  # before documents are read for nothing
        chosen = {name: getattr(self, name) for name in SearchOptions.__annotations__}
        return cast("SearchOptions", chosen | {"encoder": self.model("encoder")})


@dataclass(frozen=True, kw_only=True)
class AnswerOptions(QuestionOptions):
    """Options of commands that answer questions."""

    generator: GeneratorName = "extractive"
    base_url: BaseUrl = None
    send_megapixels: SendMegapixels = 55.0
    send_tokens: SendTokens = 30_000

    def ask_options(self) -> AskOptions:
        """Return the options of `visar.Library.ask`; downloads a generator that isn't here yet."""
        chosen = self.search_options()
        if self.url is not None:
            return {**chosen, "generator": self.model("generator"), "budget": None}
        from visar.generation.answering import Budget

        return {
            **chosen,
            "generator": open_generator(self.generator, self.base_url, self.device),
            "budget": Budget(pixels=int(self.send_megapixels * 1e6), tokens=self.send_tokens),
        }


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of its parameters that are `IndexOptions`.

    A command that has ``--index`` also gets ``--storage-option``. Its values go to the environment,
    where all stores and all processes of the command find them.
    """
    signature = inspect.signature(command, eval_str=True)
    groups = {
        p.name: p.annotation
        for p in signature.parameters.values()
        if isinstance(p.annotation, type) and issubclass(p.annotation, IndexOptions)
    }
    parameters = [
        one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for p in signature.parameters.values()
        for one in (_parameters(p.annotation) if p.name in groups else [p])
    ]
    place = next((n for n, p in enumerate(parameters, 1) if p.name == "index"), None)
    if place is None:
        return command
    parameters.insert(place, _parameter("storage_option", StorageOptions, None))

    @functools.wraps(command)
    def run(*, context: typer.Context, storage_option: list[str] | None, **given: Any) -> None:
        if storage_option:
            _set_storage_options(storage_option)
        sources = {
            name: source.name
            for name in context.params
            if (source := context.get_parameter_source(name)) is not None
        }
        for name, group in groups.items():
            own = {p.name: given.pop(p.name) for p in _parameters(group)}
            given[name] = group(**own, sources=sources)
        command(**given)

    parameters.append(_parameter("context", typer.Context))
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def _parameters(group: type[IndexOptions]) -> list[inspect.Parameter]:
    """Return the options of a class: its own first, then those of its base classes."""
    hints = get_type_hints(group, include_extras=True)
    names = [name for base in group.__mro__ for name in inspect.get_annotations(base)]
    return [_parameter(n, hints[n], getattr(group, n)) for n in names if n != "sources"]


def _parameter(
    name: str, annotation: Any, default: Any = inspect.Parameter.empty
) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def _set_storage_options(given: list[str]) -> None:
    from visar.store.opening import OPTIONS_VARIABLE, storage_options
    from visar.store.opening import parse_storage_options as parse

    options = storage_options(parse(given))
    os.environ[OPTIONS_VARIABLE] = shlex.join(f"{k}={v}" for k, v in options.items())


def open_generator(name: str, base_url: str | None, device: str) -> str | Generator:
    """Return the generator of that name; the default needs none."""
    from visar.generation import extractive

    if name == extractive.NAME:
        return name
    from visar.generation.registry import get_generator, is_served

    # OPENAI_BASE_URL may be set for other programs: it only concerns served models.
    generator = get_generator(name, base_url=base_url if is_served(name) else None, device=device)
    fetch_model(generator)
    return generator


def fetch_model(model: object, *, quiet: bool = False) -> None:
    """Download a model that isn't here yet, before progress of other kinds is shown."""
    from visar.models.hub import downloads_shown
    from visar.models.protocols import Downloadable

    if isinstance(model, Downloadable):
        with contextlib.nullcontext() if quiet else downloads_shown():
            model.fetch()


def ray_messages_on_stderr(is_used: bool) -> contextlib.AbstractContextManager[object]:
    """Send what Ray, if it is used, prints about its nodes where it doesn't mix with results."""
    return contextlib.redirect_stdout(sys.stderr) if is_used else contextlib.nullcontext()
