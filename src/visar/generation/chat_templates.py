"""Prompts rendered with a model's chat template, safe from marks in the text of pages.

A page or a question can hold the marks by which a model tells turns and images apart. They are
broken before the template is applied, and the result is checked to have the template's marks and no
other.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from visar.errors import CheckpointError, GenerationError
from visar.generation.protocol import Prompt
from visar.text import encodable

# Texts with which a template is tried out; no template holds them.
_SYSTEM, _BEFORE, _AFTER = "sys1tried", "bef2tried", "aft3tried"
_REPLY = "rep4tried"

Part = str | None
"""A part of a message: a text, or None for the next image."""


class ChatTemplate:
    """The chat template of a checkpoint.

    ``renderer`` is its processor, or its tokenizer if it reads text alone. Raises CheckpointError
    if there is no template, or images cannot be put where they belong.
    """

    def __init__(self, name: str, renderer: Any, *, with_images: bool) -> None:
        self._name = name
        self._renderer = renderer
        self._with_images = with_images
        self._tokenizer = getattr(renderer, "tokenizer", renderer)
        self._marks = _Marks(self._tokenizer, renderer)
        self._refuse_without_template()
        self._has_system = self._keeps_system()
        self._has_order = not with_images or self._keeps_order()

    def render(self, prompt: Prompt) -> str:
        """Return the chat up to the place where the model's reply begins.

        Raises GenerationError if a text of the prompt would be taken for a mark even after
        breaking.
        """
        parts = _merged(prompt)
        turn = functools.partial(self._chat, in_template_order=prompt.as_in_paper)
        rendered = turn(
            self._marks.broken(prompt.system),
            [None if part is None else self._marks.broken(part) for part in parts],
        )
        bare = turn(prompt.system and "x", [None if part is None else "x" for part in parts])
        if self._marks.among(rendered) != self._marks.among(bare):
            raise GenerationError(
                f"The prompt holds a text that {self._name} would take for marks of its own, and "
                "that could not be broken. Leave out the page it comes from, or choose another "
                "generator."
            )
        return rendered

    def end_of_turn(self) -> int | None:
        """Return the token with which the template ends a reply; None if it writes none."""
        turns = [self._message("user", ["x"]), self._message("assistant", [_REPLY])]
        try:
            _, _, after = self._apply(turns, reply=False).rpartition(_REPLY)
        except CheckpointError:
            return None
        tokens = tokenized(self._tokenizer, after)
        return tokens[0] if tokens and tokens[0] in self._marks.ids else None

    def _chat(self, system: str, parts: Sequence[Part], *, in_template_order: bool) -> str:
        keeps_order = self._has_order or in_template_order
        if system and not self._has_system:
            parts = _joined([system, *parts])
        turns = [self._message("user", parts, keeps_order=keeps_order)]
        if system and self._has_system:
            turns.insert(0, self._message("system", [system]))
        return self._apply(turns)

    def _message(
        self, role: str, parts: Sequence[Part], *, keeps_order: bool = True
    ) -> dict[str, Any]:
        if not self._with_images:
            return {"role": role, "content": "\n".join(part or "" for part in parts)}
        if not keeps_order:
            mark = self._renderer.image_token
            text = "\n".join(mark if part is None else part for part in parts)
            return {"role": role, "content": [{"type": "text", "text": text}]}
        contents = [
            {"type": "image"} if part is None else {"type": "text", "text": part} for part in parts
        ]
        return {"role": role, "content": contents}

    def _apply(self, turns: list[dict[str, Any]], *, reply: bool = True) -> str:
        from jinja2 import TemplateError

        try:
            return str(
                self._renderer.apply_chat_template(
                    turns, tokenize=False, add_generation_prompt=reply
                )
            )
        except TemplateError as error:
            raise CheckpointError(
                f"The chat template of {self._name} does not take the prompt: {error}"
            ) from error

    def _keeps_system(self) -> bool:
        """Whether the template shows a system message; some refuse it, some drop it."""
        turns = [self._message("system", [_SYSTEM]), self._message("user", [_BEFORE])]
        try:
            return _SYSTEM in self._apply(turns)
        except CheckpointError:
            return False

    def _keeps_order(self) -> bool:
        """Whether an image stays between its texts; some templates put all images first."""
        shown = self._apply([self._message("user", [_BEFORE, None, _AFTER])])
        between = re.search(f"{_BEFORE}(.*){_AFTER}", shown, re.DOTALL)
        kept = between is not None and bool(between[1].strip())
        if not kept and not hasattr(self._renderer, "image_token"):
            raise CheckpointError(
                f"The chat template of {self._name} puts images elsewhere than they stand, and its "
                "processor does not say how to write one. Take another model."
            )
        return kept

    def _refuse_without_template(self) -> None:
        if not getattr(self._renderer, "chat_template", None):
            raise CheckpointError(
                f"{self._name} has no chat template: it continues texts and answers no questions. "
                "Take the model that was trained to follow instructions."
            )


class _Marks:
    """The strings that a tokenizer or processor takes for something else than text."""

    def __init__(self, tokenizer: Any, processor: Any) -> None:
        self._tokenizer = tokenizer
        # Some tokenizers add runs of blanks: those are text.
        added = {
            token: str(added.content)
            for token, added in tokenizer.added_tokens_decoder.items()
            if str(added.content).strip()
        }
        self.ids = frozenset(added)
        # What a processor looks for in a text before it is tokenized, such as image_token.
        sought = {
            value
            for key, value in vars(processor).items()
            if key.endswith("_token") and isinstance(value, str) and value.strip()
        }
        longest_first = sorted(sought.union(added.values()), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def broken(self, text: str) -> str:
        """Insert a blank after the first character of each mark."""
        text = encodable(text)
        while (broken := self._pattern.sub(_break, text)) != text:
            text = broken
        return text

    def among(self, text: str) -> list[int]:
        """Return the marks that the tokenizer finds in a text, in order."""
        return [token for token in tokenized(self._tokenizer, text) if token in self.ids]


def _break(mark: re.Match[str]) -> str:
    first, rest = mark[0][:1], mark[0][1:]
    return f"{first} {rest}" if rest else " "


def tokenized(tokenizer: Any, text: str) -> list[int]:
    """Return the tokens of a text, without those that a tokenizer puts around it."""
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _merged(prompt: Prompt) -> list[Part]:
    """Join neighbouring texts: a mark must not grow where two of them meet."""
    return _joined([part if isinstance(part, str) else None for part in prompt.parts])


def _joined(parts: Sequence[Part]) -> list[Part]:
    joined: list[Part] = []
    for is_image, group in groupby(parts, lambda part: part is None):
        texts = list(group)
        joined.extend(texts if is_image else ["\n".join(str(text) for text in texts)])
    return joined
