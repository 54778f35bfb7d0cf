"""How a local model's tokens become a reply: streamed as text, or held to a few choices."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from visar.errors import InvalidOption
from visar.generation.protocol import OnText

# What a tokenizer gives for bytes that are no whole character yet.
_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"


class Listener:
    """Takes a model's tokens as they come and tells the text of them, in whole characters.

    In the form of transformers' streamers: ``put`` is called with the prompt, then with each
    token; ``end`` after the last.
    """

    def __init__(self, tokenizer: Any, on_text: OnText) -> None:
        self.tokens: list[int] = []
        self.text = ""
        """What was told so far."""
        self._tokenizer = tokenizer
        self._on_text = on_text
        self._saw_prompt = False

    def put(self, tokens: Any) -> None:
        if not self._saw_prompt:
            self._saw_prompt = True
            return
        self.tokens.extend(tokens.flatten().tolist())
        # The bytes to come may make another character of the last ones.
        self._tell(self._decoded().rstrip(_INCOMPLETE))

    def end(self) -> None:
        self._tell(self._decoded())

    def _decoded(self) -> str:
        return str(
            self._tokenizer.decode(
                self.tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
        )

    def _tell(self, text: str) -> None:
        piece = text[len(self.text) :]
        if piece:
            self.text += piece
            self._on_text(piece)


class Choices:
    """The replies a model is held to: ``{"choice": …}`` with one of the choices."""

    def __init__(self, choices: Sequence[str], tokenizer: Any, end: int) -> None:
        self._end = end
        self._texts: dict[tuple[int, ...], str] = {}
        self._following: dict[tuple[int, ...], list[int]] = {}
        for choice in choices:
            text = json.dumps({"choice": choice}, ensure_ascii=False)
            tokens = tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
            if end in tokens:
                raise InvalidOption(f"The choice {choice!r} holds the mark that ends a reply.")
            self._texts[tokens] = text
            for length, token in enumerate(tokens):
                self._allow(tokens[:length], token)
            self._allow(tokens, end)

    def _allow(self, before: tuple[int, ...], token: int) -> None:
        allowed = self._following.setdefault(before, [])
        if token not in allowed:
            allowed.append(token)

    @property
    def longest(self) -> int:
        """How many tokens the longest takes, with the one that ends it."""
        return 1 + max(map(len, self._texts))

    def allowed_after(self, tokens: Iterable[int]) -> list[int]:
        """Which tokens may follow those of a reply's beginning."""
        return self._following.get(tuple(tokens), [self._end])

    def text_of(self, tokens: Sequence[int]) -> str:
        """The reply that the tokens spell, as its JSON is written."""
        return self._texts[tuple(token for token in tokens if token != self._end)]
