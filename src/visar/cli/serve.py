"""``visar serve``, and ``visar tokens``: access tokens for the HTTP API."""

from __future__ import annotations

import contextlib
import signal
import webbrowser
from collections.abc import Iterator
from ipaddress import ip_network
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from visar.access import AccessTokens
from visar.cli import completion
from visar.cli.help import LIMITS, MODELS, NETWORK, App
from visar.cli.options import (
    BaseUrl,
    DeviceChoice,
    IndexLocation,
    Json,
    MaxMegabytes,
    MaxPages,
    OcrChoice,
    ReaderName,
    option,
    with_options,
)
from visar.cli.output import console, moment, note, plain_table, print_json, say, served_url
from visar.documents import Limits, ReadOptions
from visar.errors import InvalidOption
from visar.results import AccessKind, AccessToken
from visar.serialization import to_plain
from visar.server import Settings

if TYPE_CHECKING:
    from visar.index import Index

PORT = 8764
_DEFAULTS = Settings()
_OPTIONS = _DEFAULTS.options

Encoders = Annotated[
    list[str] | None,
    option(
        "--encoder NAME",
        "Encoder to offer; the first is the default. Repeatable. [default: embedded]",
        MODELS,
        autocompletion=completion.encoders,
        show_default=False,
    ),
]
Generators = Annotated[
    list[str] | None,
    option(
        "--generator NAME",
        "Generator to offer; the first is the default. Repeatable. [default: those in your "
        "settings, and extractive]",
        MODELS,
        autocompletion=completion.generators,
        show_default=False,
    ),
]
FindModels = Annotated[
    bool,
    option(
        "--find-models", "Also offer local models of Ollama, LM Studio, vLLM, llama.cpp.", MODELS
    ),
]
Host = Annotated[
    str, option("--host ADDRESS", "Address to listen on. If it isn't local, clients need a token.")
]
Port = Annotated[int, option("--port N", "Port; 0 picks a free one.", min=0, max=65535)]
Proxies = Annotated[
    str | None,
    option(
        "--proxy ADDRESSES",
        "Reverse proxies to trust, separated by commas, such as 10.0.0.0/8.",
        NETWORK,
    ),
]
Open = Annotated[bool, option("--open", "Open the page in a browser.")]
Workers = Annotated[
    int,
    option(
        "--workers N",
        "Documents added in parallel. From 2 on, one worker is for short jobs.",
        LIMITS,
        min=1,
    ),
]
MaxWaiting = Annotated[
    int, option("--max-waiting N", "Maximum waiting jobs; more uploads get 429.", LIMITS, min=1)
]
SecondsPerDocument = Annotated[
    float, option("--seconds-per-document N", "Maximum time to add a document.", LIMITS, min=1)
]
RequestsPerMinute = Annotated[
    int,
    option("--requests-per-minute N", "Maximum requests per client; more get 429.", LIMITS, min=1),
]
MaxQuestions = Annotated[
    int, option("--max-questions N", "Maximum concurrent questions; more get 429.", LIMITS, min=1)
]
MaxQuestionLength = Annotated[
    int,
    option(
        "--max-question-length N",
        "Maximum length of a question in characters.",
        LIMITS,
        min=1,
        max=_DEFAULTS.max_question_length,
    ),
]


def serve(
    *,
    index: IndexLocation = None,
    encoder: Encoders = None,
    generator: Generators = None,
    find_models: FindModels = False,
    base_url: BaseUrl = None,
    device: DeviceChoice = "auto",
    reader: ReaderName = "auto",
    host: Host = "127.0.0.1",
    port: Port = PORT,
    proxy: Proxies = None,
    open_page: Open = False,
    ocr: OcrChoice = _OPTIONS.ocr,
    workers: Workers = _DEFAULTS.workers,
    max_waiting: MaxWaiting = _DEFAULTS.max_waiting,
    max_megabytes: MaxMegabytes = _OPTIONS.limits.max_bytes // 1_000_000,
    max_pages: MaxPages = _OPTIONS.limits.max_pages,
    seconds_per_document: SecondsPerDocument = _OPTIONS.limits.seconds_per_document,
    requests_per_minute: RequestsPerMinute = _DEFAULTS.requests_per_minute,
    max_questions: MaxQuestions = _DEFAULTS.max_questions,
    max_question_length: MaxQuestionLength = _DEFAULTS.max_question_length,
) -> None:
    """Serve the web page and the HTTP API. Press Ctrl-C to stop."""
    from visar.index import Index
    from visar.network import is_loopback, own_token
    from visar.server import create_app
    from visar.serving import http_server, listen

    _check_proxies(proxy)
    token = own_token()
    # SIGTERM stops it like Ctrl-C, even before it accepts requests.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        contextlib.suppress(KeyboardInterrupt),
        Index.open(index, device=device, reader=reader) as library,
        listen(host, port, token=token, has_stored=bool(library.tokens.all())) as socket,
    ):
        settings = Settings(
            token=token,
            needs_token=not is_loopback(host),
            encoders=_names([library.encoder(one).name for one in encoder], encoder)
            if encoder
            else {"embedded": "embedded"},
            generators=offered_generators(library, generator, base_url, find_models=find_models),
            base_url=base_url,
            options=ReadOptions(
                ocr=ocr,
                limits=Limits(
                    max_bytes=max_megabytes * 1_000_000,
                    max_pages=max_pages,
                    seconds_per_document=seconds_per_document,
                ),
            ),
            workers=workers,
            max_waiting=max_waiting,
            requests_per_minute=requests_per_minute,
            max_questions=max_questions,
            max_question_length=max_question_length,
        )
        library.preload(next(iter(settings.encoders.values())))

        def announce() -> None:
            address = served_url(host, socket)
            note(f"ViSAR serves {library.location} at {address}")
            if open_page:
                webbrowser.open(address)

        app = create_app(library, settings)
        http_server(app, announce, proxies=proxy).run(sockets=[socket])


def _check_proxies(proxies: str | None) -> None:
    # uvicorn silently ignores what it can't parse.
    for proxy in [] if proxies is None else proxies.split(","):
        try:
            ip_network(proxy.strip())
        except ValueError as error:
            raise InvalidOption(
                f"--proxy {proxy}: not an IP address or network. "
                "Use addresses such as 127.0.0.1 or 10.0.0.0/8, separated by commas."
            ) from error


def offered_generators(
    library: Index, names: list[str] | None, base_url: str | None, *, find_models: bool = False
) -> dict[str, str]:
    """Return the generators to offer, by the names that clients see."""
    from visar.cli.settings import named_generators
    from visar.generation import extractive
    from visar.generation.registry import find_served_models, is_served

    own_names = named_generators()
    offered: dict[str, str] = {}
    for one in (*(names or ()), *own_names):
        option = own_names.get(one, one)
        if option == extractive.NAME:
            continue
        # --base-url concerns served models; OPENAI_BASE_URL may be set for other programs.
        url = base_url if is_served(option) else None
        name = library.generator(option, base_url=url).name
        # Clients see the name of a generator, which may be a local path in the settings.
        offered.setdefault(one if one in own_names else name, option)
    if find_models:
        offered |= {one.generator: one.generator for one in find_served_models()}
    quotes_first = names is not None and names[0] == extractive.NAME
    quotes = {extractive.NAME: extractive.NAME}
    return quotes | offered if quotes_first else offered | quotes


def _names(names: list[str], options: list[str]) -> dict[str, str]:
    """Map the models' own names, which clients see, to the options, which may be local paths."""
    found = dict(zip(names, options, strict=True))
    if len(found) < len(options):
        raise InvalidOption(f"Two of {', '.join(options)} have the same name. Use one of them.")
    return found


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
        print_json(to_plain(token, public=True) | {"token": secret})
        return
    say(secret)
    note(f"Token {token.id} can {_rights(token)}. Copy it now: it is not shown again.", "dim")


@app.command("list")
@with_options
def list_tokens(*, index: IndexLocation = None, as_json: Json = False) -> None:
    """List the tokens of your index, without their secrets."""
    with _tokens(index) as tokens:
        known = tokens.all()
    if as_json:
        print_json(to_plain(known, public=True))
    elif known:
        rows = (
            (one.id, one.access, Text(one.collection or "all"), moment(one.created), Text(one.name))
            for one in known
        )
        console.print(plain_table("ID", "ACCESS", "COLLECTION", "CREATED", "NAME", rows=rows))
    else:
        console.print("No tokens yet. Create one with `visar tokens create`.")


@app.command("revoke")
@with_options
def revoke(id_: TokenId, *, index: IndexLocation = None, as_json: Json = False) -> None:
    """Revoke a token. Servers refuse it immediately."""
    with _tokens(index) as tokens:
        token = tokens.revoke(id_)
    if as_json:
        print_json(to_plain(token, public=True))
    else:
        say(f"revoked  {token.id}  {_rights(token)}")


@contextlib.contextmanager
def _tokens(index: str | None, *, create: bool = False) -> Iterator[AccessTokens]:
    from visar.store import open_store

    with contextlib.closing(open_store(index, create=create)) as store:
        yield AccessTokens(store)


def _rights(token: AccessToken) -> str:
    what = "read" if token.access == "read" else "read and change"
    return f"{what} {'everything' if token.collection is None else token.collection}"
