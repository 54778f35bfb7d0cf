"""Options that several commands share, and opening the library they refer to."""

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
from visar.cli.help import ANSWER, DOCUMENTS, LIMITS, MODELS, OUTPUT, READING, SEARCH

if TYPE_CHECKING:
    from visar.documents import ReadOptions
    from visar.generation.generator import Generator
    from visar.index import Index
    from visar.library import AskOptions, Library, SearchOptions

LOCAL_OPTIONS = (
    *("base_url", "device", "image", "ocr", "ocr_engine", "ray", "reader", "storage_option"),
    *("max_pages", "max_megabytes", "max_megapixels", "seconds_per_page"),
    *("send_megapixels", "send_tokens"),
)
"""Options that only work with a local index."""


def option(flag: str, text: str, panel: str | None = None, **more: Any) -> Any:
    """Return an option with its help; the name of its value follows the flag: ``--k N``.

    ``panel`` is the section of the help; by default the one of common options.
    """
    name, _, metavar = flag.partition(" ")
    return typer.Option(name, metavar=metavar or None, help=text, rich_help_panel=panel, **more)


IndexLocation = Annotated[
    str | None,
    option(
        "--index LOCATION",
        "Your index: a folder, or s3://bucket/prefix.",
        DOCUMENTS,
        envvar="VISAR_INDEX",
    ),
]
StorageOptions = Annotated[
    list[str] | None,
    option(
        "--storage-option KEY=VALUE",
        "Object storage option: aws_region=eu-west-1. Repeatable. [env var: VISAR_STORAGE_OPTIONS]",
        DOCUMENTS,
    ),
]
ServerAddress = Annotated[
    str | None,
    option(
        "--server URL",
        "Use this `visar serve` instead of a local index.",
        DOCUMENTS,
        envvar="VISAR_SERVER",
    ),
]
RayAddress = Annotated[
    str | None,
    option("--ray ADDRESS", "Work on a Ray cluster: HOST:PORT of its head, auto or local.", MODELS),
]
Json = Annotated[bool, option("--json", "Print the result as JSON.", OUTPUT)]
Quiet = Annotated[bool, option("--quiet", "Hide progress.", OUTPUT)]
EncoderName = Annotated[
    str,
    option(
        "--encoder NAME",
        "Encoder; see `visar encoders`.",
        MODELS,
        envvar="VISAR_ENCODER",
        autocompletion=completion.encoders,
    ),
]
DeviceChoice = Annotated[
    Literal["auto", "cpu", "cuda", "mps"],
    option(
        "--device NAME",
        "Device: auto, cpu, cuda or mps.",
        MODELS,
        envvar="VISAR_DEVICE",
    ),
]
GeneratorName = Annotated[
    str,
    option(
        "--generator NAME",
        "Generator that writes the answer; see `visar generators`.",
        envvar="VISAR_GENERATOR",
        autocompletion=completion.generators,
    ),
]
ReaderName = Annotated[
    str,
    option(
        "--reader NAME",
        "Model that orders quotes, or none.",
        MODELS,
        envvar="VISAR_READER",
        autocompletion=completion.readers,
    ),
]
BaseUrl = Annotated[
    str | None,
    option(
        "--base-url URL",
        "Server for openai:MODEL: http://HOST:PORT/v1.",
        MODELS,
        envvar="OPENAI_BASE_URL",
    ),
]
SendMegapixels = Annotated[
    float,
    option(
        "--send-megapixels N", "Maximum page images per prompt, in megapixels.", ANSWER, min=0.01
    ),
]
SendTokens = Annotated[
    int, option("--send-tokens N", "Maximum page text per prompt, in tokens.", ANSWER, min=1)
]
Password = Annotated[
    str | None,
    option("--password TEXT", "Password for encrypted PDFs.", READING, envvar="VISAR_PASSWORD"),
]
OcrChoice = Annotated[
    Literal["auto", "always", "never"],
    option("--ocr WHEN", "OCR: auto (where text is missing), always or never.", READING),
]
OcrEngineChoice = Annotated[
    Literal["rapidocr", "tesseract"],
    option("--ocr-engine NAME", "OCR engine: rapidocr or tesseract.", READING),
]
MaxPages = Annotated[int, option("--max-pages N", "Maximum pages per document.", LIMITS, min=1)]
MaxMegabytes = Annotated[
    int, option("--max-megabytes N", "Maximum file size in megabytes.", LIMITS, min=1)
]
Documents = Annotated[
    list[str] | None,
    option(
        "--doc NAME",
        "Only search this document, by name or id. Repeatable.",
        autocompletion=completion.documents,
    ),
]
Collection = Annotated[
    str | None, option("--collection NAME", "Only documents in this collection.", DOCUMENTS)
]
Where = Annotated[
    str | None,
    option(
        "--where FILTER",
        "Only documents whose metadata matches, such as 'year >= 2020'.",
        DOCUMENTS,
    ),
]
Exact = Annotated[
    bool,
    option("--exact", "Compare the question with every page of a large index. Slower.", SEARCH),
]
MethodName = Annotated[
    str,
    option(
        "--method NAME",
        "Method that chooses pages: visar, calibrated, top-k, single-vector, largest-gap, "
        "score-cluster, visar-approx, or module:function.",
        SEARCH,
        autocompletion=completion.methods,
    ),
]
K = Annotated[int | None, option("--k N", "Number of pages for `--method top-k`.", SEARCH, min=1)]
MaxK = Annotated[
    int | None,
    option("--max-k N", "Maximum number of pages. Answers use at most 10 by default.", min=1),
]
Neighbors = Annotated[
    int,
    option("--neighbors N", "Also include N pages on either side of each page.", SEARCH, min=0),
]


@dataclass(frozen=True, kw_only=True)
class IndexOptions:
    """Options of commands that use a local index.

    A command gets these options through a parameter of this class or a subclass; see
    `with_options`.
    """

    index: IndexLocation = None
    sources: Mapping[str, str] = field(default_factory=dict)
    """Source of each option's value, in Click's terms."""

    @property
    def url(self) -> str | None:
        """URL of the server to use; None for a local index."""
        return None

    def open_index(self, *, create: bool = False) -> Index:
        """Open the local index."""
        from visar.index import Index

        return Index.open(self.index, create=create)

    def was_typed(self, name: str) -> bool:
        return self.sources.get(name) == "COMMANDLINE"

    def was_given(self, name: str) -> bool:
        """Return whether an option is on the command line or in the environment."""
        return self.sources.get(name) in ("COMMANDLINE", "ENVIRONMENT")

    def model(self, name: str) -> str | None:
        """Return the encoder or generator to use; None for the default of a server.

        Defaults and the configuration file are meant for this machine, not for a server.
        """
        return getattr(self, name) if self.url is None or self.was_given(name) else None


@dataclass(frozen=True, kw_only=True)
class LibraryOptions(IndexOptions):
    """Options of commands that use a local index or a server."""

    server: ServerAddress = None

    @property
    def url(self) -> str | None:
        """URL of the server to use; None for a local index."""
        if self.was_typed("index") and not self.was_typed("server"):
            return None  # --index wins over VISAR_SERVER
        return self.server or None

    def open_library(self, *, create: bool = False) -> Library:
        """Open the library. Raises InvalidOption if an option doesn't work with a server."""
        if self.url is None:
            return self.open_index(create=create)
        from visar.errors import InvalidOption

        if self.was_typed("index"):
            raise InvalidOption("--index and --server can't be combined. Leave one out.")
        for name in LOCAL_OPTIONS:
            # OPENAI_BASE_URL may be set for other programs.
            if self.was_typed(name) or (self.was_given(name) and name != "base_url"):
                raise InvalidOption(
                    f"--{name.replace('_', '-')} doesn't work with --server, only with a local "
                    "index."
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
        from visar.documents import ReadOptions

        return ReadOptions(password=self.password, ocr=self.ocr, ocr_engine=self.ocr_engine)

    def index_options(self) -> dict[str, Any]:
        return {"device": self.device, "options": self.read_options()}

    def open_index(self, *, create: bool = False) -> Index:
        """Open the local index, and download the encoder if necessary."""
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

        Raises InvalidOption if the method doesn't exist, or doesn't take ``k``.
        """
        from visar.library import SearchOptions

        if self.url is None:
            from visar.errors import InvalidOption
            from visar.retrieval.methods import get_method

            # Check options before documents are read.
            if get_method(self.method).adaptive and self.k is not None:
                raise InvalidOption("--k only works with --method top-k. Use --max-k to cap pages.")
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
        """Return the options of `visar.Library.ask`, and download the generator if necessary."""
        chosen = cast("AskOptions", self.search_options())
        if self.url is not None:
            chosen["generator"] = self.model("generator")
            return chosen
        from visar.generation.answering import Budget

        chosen["generator"] = open_generator(self.generator, self.base_url, self.device)
        pixels = int(self.send_megapixels * 1e6)
        chosen["budget"] = Budget(pixels=pixels, tokens=self.send_tokens)
        return chosen


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Expand parameters of a command that are `IndexOptions` into options.

    Commands with ``--index`` also get ``--storage-option``, whose values are passed on in the
    environment, to all stores and processes of the command.
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
    after_index = next((n for n, p in enumerate(parameters, 1) if p.name == "index"), None)
    if after_index is None:
        return command
    parameters.insert(after_index, _parameter("storage_option", StorageOptions, None))

    @functools.wraps(command)
    def run(*, context: typer.Context, storage_option: list[str] | None, **values: Any) -> None:
        if storage_option:
            _set_storage_options(storage_option)
        sources = {
            name: source.name
            for name in context.params
            if (source := context.get_parameter_source(name)) is not None
        }
        if context.invoked_subcommand is not None:
            _refuse_options_before(f"{context.command_path} {context.invoked_subcommand}", sources)
            return
        for name, group in groups.items():
            own = {p.name: values.pop(p.name) for p in _parameters(group)}
            values[name] = group(**own, sources=sources)
        command(**values)

    parameters.append(_parameter("context", typer.Context))
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def _refuse_options_before(command: str, sources: Mapping[str, str]) -> None:
    """Raise InvalidOption if there are options before the name of a subcommand."""
    from visar.errors import InvalidOption

    for name, source in sources.items():
        if source == "COMMANDLINE":
            flag = f"--{name.replace('_', '-')}"
            raise InvalidOption(f"Put {flag} after `{command}`, if it has this option.")


def _parameters(group: type[IndexOptions]) -> list[inspect.Parameter]:
    """Return the options of a class, then those of its base classes."""
    hints = get_type_hints(group, include_extras=True)
    names = dict.fromkeys(n for base in group.__mro__ for n in inspect.get_annotations(base))
    return [_parameter(n, hints[n], getattr(group, n)) for n in names if n != "sources"]


def _parameter(
    name: str, annotation: Any, default: Any = inspect.Parameter.empty
) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def _set_storage_options(values: list[str]) -> None:
    from visar.store.store import OPTIONS_VARIABLE, storage_options
    from visar.store.store import parse_storage_options as parse

    options = storage_options(parse(values))
    os.environ[OPTIONS_VARIABLE] = shlex.join(f"{k}={v}" for k, v in options.items())


def open_generator(name: str, base_url: str | None, device: str) -> str | Generator:
    """Return the generator with this name, in the settings or in the registry."""
    from visar.cli.settings import named_generators
    from visar.generation import extractive

    name = named_generators().get(name, name)

    if name == extractive.NAME:
        return name
    from visar.generation.registry import get_generator, is_served

    # OPENAI_BASE_URL may be set for other programs: it only concerns served models.
    generator = get_generator(name, base_url=base_url if is_served(name) else None, device=device)
    fetch_model(generator)
    return generator


def fetch_model(model: object, *, quiet: bool = False) -> None:
    """Download a model if necessary, before other progress is shown."""
    from visar.models.hub import show_downloads
    from visar.models.protocols import Downloadable

    if isinstance(model, Downloadable):
        with contextlib.nullcontext() if quiet else show_downloads():
            model.fetch()


def ray_messages_on_stderr(is_used: bool) -> contextlib.AbstractContextManager[object]:
    """Redirect messages of Ray, if it is used, to stderr, away from results."""
    return contextlib.redirect_stdout(sys.stderr) if is_used else contextlib.nullcontext()
