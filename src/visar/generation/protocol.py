"""What every generator does: a prompt of texts and page images in, text out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from PIL.Image import Image

OnText: TypeAlias = Callable[[str], None]
"""Called with each piece of the reply as it is written."""


def unheard(piece: str) -> None:
    """Take a piece of a reply and tell nobody."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a generator is told: who it is, then texts and images in their order."""

    system: str
    parts: tuple[str | Image, ...]

    @property
    def images(self) -> tuple[Image, ...]:
        return tuple(part for part in self.parts if not isinstance(part, str))

    @property
    def pixels(self) -> int:
        return sum(image.width * image.height for image in self.images)

    @property
    def digest(self) -> str:
        """Tells prompts apart: the sha256 of every text and every pixel, in order."""
        digest = hashlib.sha256()
        for part in (self.system, *self.parts):
            if isinstance(part, str):
                kind, content = "text", part.encode()
            else:
                kind, content = f"{part.mode} {part.width}x{part.height}", part.tobytes()
            digest.update(f"{kind} {len(content)}\n".encode())
            digest.update(content)
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Reply:
    """What a generator wrote."""

    text: str
    model: str
    """What wrote it, as exactly as is known: a checkpoint's fingerprint, a server's model."""
    input_tokens: int | None
    """None where the generator does not tell."""
    output_tokens: int | None
    complete: bool
    """Whether it came to an end by itself, and not at the limit."""


class Generator(Protocol):
    """Writes a reply to a prompt. It has no tools: whatever it writes is text to be shown."""

    name: str
    """What the user types to choose it."""
    reads: Literal["images", "text"]
    """Which side of a page it is given."""

    def count_tokens(self, text: str) -> int:
        """How many tokens a text takes; where the tokenizer is out of reach, an upper estimate."""
        ...

    def generate(
        self,
        prompt: Prompt,
        *,
        max_tokens: int,
        choices: Sequence[str] = (),
        on_text: OnText = unheard,
    ) -> Reply:
        """Write a reply of at most ``max_tokens``, always the same one to the same prompt.

        With ``choices`` the reply is the JSON object ``{"choice": …}`` with one of them, enforced
        while it is written. Interrupting (Ctrl-C) ends the work at once.
        """
        ...
