"""The interface of generators: a prompt of texts and page images in, text out."""

from __future__ import annotations

import contextvars
import hashlib
import queue
import threading
from collections import abc
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

from visar.errors import GenerationError, VisarError

if TYPE_CHECKING:
    from PIL.Image import Image

Whole = TypeVar("Whole")
Shown = TypeVar("Shown")
Reads: TypeAlias = Literal["images", "text"]
"""Form in which a generator reads pages."""
OnText: TypeAlias = Callable[[str], None]
"""Callback for each piece of a text as it is written."""


def ignore_text(piece: str) -> None:
    """Ignore a piece of a text."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The input of a generator."""

    system: str
    """System message: the instructions."""
    parts: tuple[str | Image, ...]
    """Texts and page images, in order."""
    as_in_paper: bool = False
    """Whether a local model runs with the settings of the paper's program: its decoding, its tiles,
    and the order of text and images in the model's chat template."""

    @property
    def images(self) -> tuple[Image, ...]:
        return tuple(part for part in self.parts if not isinstance(part, str))

    @property
    def pixels(self) -> int:
        return sum(image.width * image.height for image in self.images)

    @property
    def digest(self) -> str:
        """SHA-256 of every text and pixel, in order."""
        digest = hashlib.sha256(b"as in the paper\n" if self.as_in_paper else b"")
        for part in (self.system, *self.parts):
            if isinstance(part, str):
                # Damaged documents can contain lone surrogates.
                kind, content = "text", part.encode("utf-8", "surrogatepass")
            else:
                kind, content = f"{part.mode} {part.width}x{part.height}", part.tobytes()
            digest.update(f"{kind} {len(content)}\n".encode())
            digest.update(content)
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Reply:
    """The output of a generator."""

    text: str
    model: str
    """Exact name of the model: a checkpoint's fingerprint, or the name that the server reports."""
    input_tokens: int | None = None
    """None if the generator doesn't report it."""
    output_tokens: int | None = None
    complete: bool = True
    """False if the reply was cut at ``max_tokens`` or interrupted."""
    interrupted: bool = False
    """Whether the connection was lost before the end of the reply."""


Pieces: TypeAlias = abc.Generator[str, None, Reply]
"""Iterator that yields the pieces of a reply as they are written and returns the whole reply."""


@runtime_checkable
class Generator(Protocol):
    """A language model that replies to prompts.

    Threads share one object: it does its own locking where the model needs it.
    """

    @property
    def name(self) -> str:
        """Name that users choose it by."""

    @property
    def reads(self) -> Reads:
        """Form of the pages in prompts: images or text."""

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text, or an upper estimate without a tokenizer."""

    def generate(
        self,
        prompt: Prompt,
        *,
        max_tokens: int,
        choices: Sequence[str] = (),
        on_text: OnText = ignore_text,
    ) -> Reply:
        """Write a reply; the same prompt always gets the same reply.

        Parameters
        ----------
        prompt
            Has page images only if ``reads`` is "images".
        max_tokens
            Maximum number of tokens of the reply.
        choices
            Limits the reply to the JSON object ``{"choice": …}`` with one of them.
        on_text
            Called with each piece of the reply. An exception that it raises stops the reply.

        Raises
        ------
        GenerationError
            No reply was possible; the message says why, and what to do.
        """


@runtime_checkable
class StreamingGenerator(Generator, Protocol):
    """A generator that streams replies without an extra thread."""

    def stream(self, prompt: Prompt, *, max_tokens: int, choices: Sequence[str] = ()) -> Pieces:
        """Yield the pieces that ``generate`` passes to ``on_text``, and return its reply.

        Closing the iterator stops the reply.
        """


@runtime_checkable
class BatchGenerator(Generator, Protocol):
    """A generator that replies to several prompts at a time."""

    def generate_batch(
        self, prompts: Sequence[Prompt], *, max_tokens: int, choices: Sequence[str] = ()
    ) -> Sequence[Reply | Exception]:
        """Return the replies that ``generate`` would write; a prompt that fails has its error."""


def generate_each(
    generator: Generator, prompts: Sequence[Prompt], *, max_tokens: int, choices: Sequence[str] = ()
) -> list[Reply | VisarError]:
    """Return the reply to each prompt, generated in batches if the generator supports it.

    A prompt that fails has its error in place of a reply, whatever the generator raised.
    """
    replies: Sequence[Reply | Exception]
    if isinstance(generator, BatchGenerator) and len(prompts) > 1:
        try:
            replies = generator.generate_batch(prompts, max_tokens=max_tokens, choices=choices)
        except Exception as error:  # a generator of another package can raise anything
            replies = [error] * len(prompts)
    else:
        replies = generate_in_turn(generator, prompts, max_tokens=max_tokens, choices=choices)
    return [
        reply if isinstance(reply, (Reply, VisarError)) else _as_failure(generator, reply)
        for reply in replies
    ]


def generate_in_turn(
    generator: Generator, prompts: Sequence[Prompt], *, max_tokens: int, choices: Sequence[str] = ()
) -> list[Reply | Exception]:
    """Return the replies to prompts, one by one; a prompt that fails has its error."""
    replies: list[Reply | Exception] = []
    for prompt in prompts:
        try:
            replies.append(generator.generate(prompt, max_tokens=max_tokens, choices=choices))
        except Exception as error:
            replies.append(error)
    return replies


def _as_failure(generator: Generator, error: Exception) -> GenerationError:
    failure = GenerationError(f"{generator.name} failed: {type(error).__name__}: {error}.")
    failure.__cause__ = error
    return failure


def read_pieces(pieces: abc.Generator[str, None, Whole], on_text: OnText) -> Whole:
    """Call ``on_text`` with each piece of a text, and return the iterator's return value."""
    with closing(pieces):
        while True:
            try:
                piece = next(pieces)
            except StopIteration as end:
                return cast("Whole", end.value)
            on_text(piece)


def change_pieces(
    pieces: abc.Generator[str, None, Whole], change: Callable[[str], Shown]
) -> abc.Generator[Shown, None, Whole]:
    """Yield ``change(piece)`` of each piece unless it is empty, and return what ``pieces`` does."""
    with closing(pieces):
        while True:
            try:
                piece = next(pieces)
            except StopIteration as end:
                return cast("Whole", end.value)
            if shown := change(piece):
                yield shown


class _Stopped(BaseException):
    """Exception in a generator's thread when nobody reads its reply anymore."""


def stream_reply(generator: Generator, prompt: Prompt, *, max_tokens: int) -> Pieces:
    """Yield the pieces of a generator's reply as they are written, and return the reply.

    A generator without ``stream`` runs in a thread. Closing the iterator stops it at its next
    piece.
    """
    if isinstance(generator, StreamingGenerator):
        return (yield from generator.stream(prompt, max_tokens=max_tokens))
    pieces: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    result: Future[Reply] = Future()
    stopped = threading.Event()

    def pass_on(piece: str) -> None:
        if stopped.is_set():
            raise _Stopped
        pieces.put(piece)

    def work() -> None:
        try:
            result.set_result(generator.generate(prompt, max_tokens=max_tokens, on_text=pass_on))
        except BaseException as error:  # raised again in the thread that reads the pieces
            result.set_exception(error)
        pieces.put(None)

    threading.Thread(target=contextvars.copy_context().run, args=(work,)).start()
    any_piece = False
    try:
        while (piece := pieces.get()) is not None:
            any_piece = True
            yield piece
    finally:
        stopped.set()
    reply = result.result()
    if not any_piece:  # a generator need not call on_text
        yield reply.text
    return reply
