"""``visar serve``."""

from __future__ import annotations

import contextlib
import signal
import webbrowser
from typing import Annotated

import typer
from rich.text import Text

from visar.cli import completion
from visar.cli.options import BaseUrl, DeviceChoice, IndexLocation
from visar.cli.output import errors
from visar.errors import InvalidOption

PORT = 8764
MAX_QUESTION = 4_000

Encoders = Annotated[
    list[str] | None,
    typer.Option(
        "--encoder",
        autocompletion=completion.encoders,
        help="An encoder that requests may choose; the first is the default. [default: embedded]",
        show_default=False,
    ),
]
Generators = Annotated[
    list[str] | None,
    typer.Option(
        "--generator",
        autocompletion=completion.generators,
        help="What requests may let write answers; the first is the default. [default: extractive]",
        show_default=False,
    ),
]
Host = Annotated[str, typer.Option(help="Off loopback, VISAR_TOKEN must be set.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")]
Open = Annotated[bool, typer.Option("--open", help="Open the page in a browser.")]
RequestsPerMinute = Annotated[
    int, typer.Option(min=1, help="Of one client address; more are turned away.")
]
MaxQuestions = Annotated[int, typer.Option(min=1, help="Answered at once; more are turned away.")]
MaxQuestionLength = Annotated[
    int, typer.Option(min=1, max=MAX_QUESTION, help="In characters; longer ones are refused.")
]


def serve(
    *,
    index: IndexLocation = None,
    encoder: Encoders = None,
    generator: Generators = None,
    base_url: BaseUrl = None,
    device: DeviceChoice = "auto",
    host: Host = "127.0.0.1",
    port: Port = PORT,
    open_page: Open = False,
    requests_per_minute: RequestsPerMinute = 600,
    max_questions: MaxQuestions = 8,
    max_question_length: MaxQuestionLength = MAX_QUESTION,
) -> None:
    """Serve the index: a page to ask in, and an HTTP API. Ctrl-C ends it."""
    from visar.index import Index
    from visar.network import own_token
    from visar.server import Settings, create_app
    from visar.serving import http_server, listen

    token = own_token()
    # A supervisor's way to end it is the same as a person's, also before it answers.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        contextlib.suppress(KeyboardInterrupt),
        listen(host, port, token=token) as socket,
        Index.open(index, device=device) as library,
    ):
        settings = Settings(
            token=token,
            encoders=_names([library.encoder(one).name for one in encoder], encoder)
            if encoder
            else {"embedded": "embedded"},
            generators=_names(
                [library.generator(one, base_url=base_url).name for one in generator], generator
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

        http_server(create_app(library, settings), announce).run(sockets=[socket])


def _names(names: list[str], given: list[str]) -> dict[str, str]:
    """What requests call models by: their own names, never an address or a folder."""
    found = dict(zip(names, given, strict=True))
    if len(found) < len(given):
        raise InvalidOption(f"Two of {', '.join(given)} have the same name.")
    return found
