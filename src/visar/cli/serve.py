"""``visar serve``."""

from __future__ import annotations

import contextlib
import signal
import webbrowser
from ipaddress import ip_network
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from visar.cli import completion
from visar.cli.options import BaseUrl, DeviceChoice, IndexLocation, ReaderName
from visar.cli.output import errors
from visar.errors import InvalidOption

if TYPE_CHECKING:
    from visar.index import Index

PORT = 8764
MAX_QUESTION = 4_000

Encoders = Annotated[
    list[str] | None,
    typer.Option(
        "--encoder",
        metavar="NAME",
        autocompletion=completion.encoders,
        help="Encoder that clients may choose; the first is the default. Repeatable. "
        "[default: embedded]",
        show_default=False,
    ),
]
Generators = Annotated[
    list[str] | None,
    typer.Option(
        "--generator",
        metavar="NAME",
        autocompletion=completion.generators,
        help="Generator that clients may choose; the first is the default. Repeatable. "
        "[default: extractive]",
        show_default=False,
    ),
]
Host = Annotated[
    str,
    typer.Option(metavar="ADDRESS", help="Address to listen on. Off loopback, set VISAR_TOKEN."),
]
Port = Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="Port; 0 picks a free one.")]
Proxies = Annotated[
    str | None,
    typer.Option(
        "--proxy",
        metavar="ADDRESS[,ADDRESS]",
        help="Reverse proxies whose X-Forwarded-For and X-Forwarded-Proto are trusted.",
    ),
]
Open = Annotated[bool, typer.Option("--open", help="Open the page in a browser.")]
RequestsPerMinute = Annotated[
    int,
    typer.Option(metavar="N", min=1, help="Maximum requests from one client; others get 429."),
]
MaxQuestions = Annotated[
    int, typer.Option(metavar="N", min=1, help="Maximum concurrent questions; others get 429.")
]
MaxQuestionLength = Annotated[
    int,
    typer.Option(
        metavar="N", min=1, max=MAX_QUESTION, help="Maximum length of a question in characters."
    ),
]


def serve(
    *,
    index: IndexLocation = None,
    encoder: Encoders = None,
    generator: Generators = None,
    base_url: BaseUrl = None,
    device: DeviceChoice = "auto",
    reader: ReaderName = "auto",
    host: Host = "127.0.0.1",
    port: Port = PORT,
    proxy: Proxies = None,
    open_page: Open = False,
    requests_per_minute: RequestsPerMinute = 600,
    max_questions: MaxQuestions = 8,
    max_question_length: MaxQuestionLength = MAX_QUESTION,
) -> None:
    """Serve the index as a web page and an HTTP API. Ctrl-C stops it."""
    from visar.index import Index
    from visar.network import own_token
    from visar.server import Settings, create_app
    from visar.serving import http_server, listen

    _check_proxies(proxy)
    token = own_token()
    # SIGTERM stops it like Ctrl-C, even before it accepts requests.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        contextlib.suppress(KeyboardInterrupt),
        listen(host, port, token=token) as socket,
        Index.open(index, device=device, reader=reader) as library,
    ):
        settings = Settings(
            token=token,
            encoders=_names([library.encoder(one).name for one in encoder], encoder)
            if encoder
            else {"embedded": "embedded"},
            generators=_names(
                [_generator_name(library, one, base_url) for one in generator], generator
            )
            if generator
            else {"extractive": "extractive"},
            base_url=base_url,
            requests_per_minute=requests_per_minute,
            max_questions=max_questions,
            max_question_length=max_question_length,
        )
        library.preload(next(iter(settings.encoders.values())))

        def announce() -> None:
            name = "localhost" if host == "127.0.0.1" else f"[{host}]" if ":" in host else host
            address = f"http://{name}:{socket.getsockname()[1]}"
            errors.print(Text(f"ViSAR serves {library.location} at {address}"), soft_wrap=True)
            if open_page:
                webbrowser.open(address)

        app = create_app(library, settings)
        http_server(app, announce, proxies=proxy).run(sockets=[socket])


def _check_proxies(proxies: str | None) -> None:
    # uvicorn silently ignores what it cannot parse.
    for proxy in [] if proxies is None else proxies.split(","):
        try:
            ip_network(proxy.strip())
        except ValueError as error:
            raise InvalidOption(
                f"--proxy {proxy}: not an IP address or network. "
                "Give addresses such as 127.0.0.1 or 10.0.0.0/8, separated by commas."
            ) from error


def _generator_name(library: Index, generator: str, base_url: str | None) -> str:
    from visar.generation import extractive
    from visar.generation.registry import is_served

    if generator == extractive.NAME:
        return generator
    # --base-url concerns served models; OPENAI_BASE_URL may be set for other programs.
    return library.generator(generator, base_url=base_url if is_served(generator) else None).name


def _names(names: list[str], given: list[str]) -> dict[str, str]:
    """Map the models' own names, which clients see, to the options, which may be local paths."""
    found = dict(zip(names, given, strict=True))
    if len(found) < len(given):
        raise InvalidOption(f"Two of {', '.join(given)} have the same name. Give one of them.")
    return found
