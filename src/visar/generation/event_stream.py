"""What an OpenAI-compatible server writes: its events, taken apart without trusting them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from visar.generation.protocol import OnText

_LINE_END = re.compile(rb"\r\n|\n|\r(?=.)", re.DOTALL)
_DONE = "[DONE]"


class StreamError(Exception):
    """A stream that cannot be used: what the server does, and its own words, not to be trusted."""

    def __init__(self, what: str, said: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.said = said


@dataclass(slots=True)
class Written:
    """What has been written so far."""

    on_text: OnText
    pieces: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    model: str | None = None
    finish_reason: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    ended: bool = False
    """Whether the server said that this was all."""
    reasoned: bool = False
    """Whether the model thought in a field of its own, which is no part of its reply."""

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def begun(self) -> bool:
        """Whether anything was written that cannot be taken back."""
        return bool(self.pieces or self.refusals or self.reasoned)

    def take_stream(self, chunks: Iterable[bytes], *, patience: float) -> None:
        """Take the events of a stream up to its end.

        Comments, which some servers send to keep a connection, do not count as saying something:
        more than ``patience`` seconds without an event are silence.
        """
        heard = time.monotonic()
        for data in _events(chunks):
            now = time.monotonic()
            if data is not None:
                heard = now
            elif now - heard > patience:
                raise StreamError(f"has said nothing for {patience:g} s")
            if data == _DONE:
                self.ended = True
                return
            if data is not None:
                self.take(_parsed(data), "delta")
        self.ended = self.finish_reason is not None

    def take_whole(self, chunks: Iterable[bytes]) -> None:
        """Take a reply that comes in one piece, from a server that does not stream."""
        self.take(_parsed(b"".join(chunks).decode("utf-8", "replace")), "message")
        self.ended = True

    def take(self, event: Any, part: str) -> None:
        """Take one event: a piece of the reply, how it ended, what it cost, or an error."""
        if not isinstance(event, dict):
            raise StreamError("sends what is no event", json.dumps(event))
        if event.get("error"):
            raise StreamError("broke off with an error", reason_in(event))
        if isinstance(event.get("model"), str):
            self.model = event["model"] or self.model
        self._take_usage(event.get("usage"))
        choices = event.get("choices")
        # The event with the usage has none.
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            self._take_choice(choices[0], part)

    def _take_choice(self, choice: dict[str, Any], part: str) -> None:
        if isinstance(choice.get("finish_reason"), str):
            self.finish_reason = choice["finish_reason"]
        said = choice.get(part)
        if not isinstance(said, dict):
            return
        if said.get("reasoning_content") or said.get("reasoning"):
            self.reasoned = True
        if isinstance(said.get("refusal"), str) and said["refusal"]:
            self.refusals.append(said["refusal"])
        text = _content(said.get("content"))
        if text:
            self.pieces.append(text)
            self.on_text(text)

    def _take_usage(self, usage: Any) -> None:
        if not isinstance(usage, dict):
            return
        read, written = usage.get("prompt_tokens"), usage.get("completion_tokens")
        if isinstance(read, int) and isinstance(written, int):
            self.input_tokens, self.output_tokens = read, written


def reason_in(body: Any) -> str:
    """What a server says went wrong; they differ in where."""
    said = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(said, dict):
        said = said.get("message") or said.get("detail") or said
    if not isinstance(said, str):
        said = json.dumps(said, ensure_ascii=False) if said else ""
    return said or "no reason given"


def _events(chunks: Iterable[bytes]) -> Iterator[str | None]:
    """The data of each event; None whenever something arrived that completes none."""
    data: list[bytes] = []
    for line in _lines(chunks):
        if line is None:
            yield None
        elif line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif not line and data:
            yield b"\n".join(data).decode("utf-8", "replace")
            data = []
    if data:
        yield b"\n".join(data).decode("utf-8", "replace")


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes | None]:
    """The lines of a stream without their ends; None after each chunk."""
    rest: list[bytes] = []
    for chunk in chunks:
        rest.append(chunk)
        if b"\n" in chunk or b"\r" in chunk:
            *lines, last = _LINE_END.split(b"".join(rest))
            rest = [last]
            yield from lines
        yield None
    yield b"".join(rest).rstrip(b"\r")


def _parsed(data: str) -> Any:
    with suppress(ValueError, RecursionError):
        return json.loads(data)
    raise StreamError("sends malformed JSON", data)


def _content(content: Any) -> str:
    """The text of a piece; some servers write it as a list of parts."""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""
