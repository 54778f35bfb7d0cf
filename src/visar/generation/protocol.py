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
Reads: TypeAlias = Literal["images", "text"]
"""Which side of a page a generator is given."""
OnText: TypeAlias = Callable[[str], None]
"""Called with each piece of a text as it is written."""


def ignore_text(piece: str) -> None:
    """Do nothing with a piece of a text."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The input of a generator."""

    system: str
    """The instructions."""
    parts: tuple[str | Image, ...]
    """Texts and page images, in their order."""
    as_in_paper: bool = False
    """Whether a model on this machine runs as the paper's program ran it: decoding, tiles, and the
    order of text and images that the model's own chat template has."""

    @property
    def images(self) -> tuple[Image, ...]:
        return tuple(part for part in self.parts if not isinstance(part, str))

    @property
    def pixels(self) -> int:
        return sum(image.width * image.height for image in self.images)

    @property
    def digest(self) -> str:
        """The sha256 of every text and every pixel, in order."""
        digest = hashlib.sha256(b"as in the paper\n" if self.as_in_paper else b"")
        for part in (self.system, *self.parts):
            if isinstance(part, str):
                # Damaged documents hold halves of characters.
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
    """What wrote it, as exactly as is known: a checkpoint's fingerprint, a server's model."""
    input_tokens: int | None = None
    """None if the generator does not tell."""
    output_tokens: int | None = None
    complete: bool = True
    """False if it was cut off at ``max_tokens``, or broke off."""
    interrupted: bool = False
    """Whether the connection ended before the reply did."""


Pieces: TypeAlias = abc.Generator[str, None, Reply]
"""Yields the pieces of a reply as they are written and returns the whole reply."""


@runtime_checkable
class Generator(Protocol):
    """Writes a reply to a prompt.

    One generator serves many threads: it holds a lock of its own where its model needs one.
    """

    @property
    def name(self) -> str:
        """The name by which users choose it."""
        ...

    @property
    def reads(self) -> Reads:
        """Whether prompts hold page images or page texts."""
        ...

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text; an upper estimate where the tokenizer is out of reach."""
        ...

    def generate(
        self,
        prompt: Prompt,
        *,
        max_tokens: int,
        choices: Sequence[str] = (),
        on_text: OnText = ignore_text,
    ) -> Reply:
        """Write a reply, the same one to the same prompt every time.

        Parameters
        ----------
        prompt
            Page images only if ``reads`` says so.
        max_tokens
            The most tokens of the reply.
        choices
            If given, the reply is the JSON object ``{"choice": …}`` with one of them.
        on_text
            Called with each piece of the reply. Whatever it raises ends the work.

        Raises
        ------
        GenerationError
            If there is no reply: what failed, and what to do.
        """
        ...


@runtime_checkable
class StreamingGenerator(Generator, Protocol):
    """A generator that can be read piece by piece without a thread."""

    def stream(self, prompt: Prompt, *, max_tokens: int, choices: Sequence[str] = ()) -> Pieces:
        """Yield what ``generate`` gives to ``on_text``, and return its reply.

        Closing the iterator ends the work.
        """
        ...


@runtime_checkable
class BatchGenerator(Generator, Protocol):
    """A generator whose model replies to several prompts at a time."""

    def generate_batch(
        self, prompts: Sequence[Prompt], *, max_tokens: int, choices: Sequence[str] = ()
    ) -> Sequence[Reply | Exception]:
        """Write to each prompt what ``generate`` would; in place of a reply stands its error."""
        ...


def generate_each(
    generator: Generator, prompts: Sequence[Prompt], *, max_tokens: int, choices: Sequence[str] = ()
) -> list[Reply | VisarError]:
    """Let a generator reply to each prompt, to several at a time if it can.

    In place of a reply stands the error of a prompt that has none, whatever a generator raised.
    """
    replies: Sequence[Reply | Exception]
    if isinstance(generator, BatchGenerator) and len(prompts) > 1:
        try:
            replies = generator.generate_batch(prompts, max_tokens=max_tokens, choices=choices)
        except Exception as error:  # a foreign generator can fail in any way
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
    """Let a generator reply to one prompt after the other; errors stand in place of replies."""
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
    """Call ``on_text`` with each piece of a text, and return what the iterator returns."""
    with closing(pieces):
        while True:
            try:
                piece = next(pieces)
            except StopIteration as end:
                return cast("Whole", end.value)
            on_text(piece)


class _Stopped(BaseException):
    """Raised in a generator's thread when nobody reads its reply any more."""


def stream_reply(generator: Generator, prompt: Prompt, *, max_tokens: int) -> Pieces:
    """Yield the pieces of a generator's reply as they are written, and return the reply.

    A generator without a ``stream`` of its own works in a thread. Closing the iterator ends that
    work at its next piece.
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
        except BaseException as error:  # raised again where the pieces are read
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
