"""Renders prompts with a model's chat template, safe from special tokens in the text of pages.

A page or question can contain the special tokens that separate turns and images. They are broken
up before the template is applied, and the result is checked to have only those that the template
wrote.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from visar.errors import CheckpointError, GenerationError
from visar.generation.generator import Prompt
from visar.text import encodable

# Texts for trying out a template; no template contains them.
_SYSTEM, _BEFORE, _AFTER = "sys1tried", "bef2tried", "aft3tried"
_REPLY = "rep4tried"

Part = str | None
"""Part of a message: a text, or None for the next image."""


class ChatTemplate:
    """The chat template of a checkpoint.

    ``renderer`` is the processor, or the tokenizer of a text model. Raises CheckpointError if there
    is no template, or if images can't be kept in order.
    """

    def __init__(self, name: str, renderer: Any, *, with_images: bool) -> None:
        self._name = name
        self._renderer = renderer
        self._with_images = with_images
        self._tokenizer = getattr(renderer, "tokenizer", renderer)
        self._special_tokens = _SpecialTokens(self._tokenizer, renderer)
        if not getattr(renderer, "chat_template", None):
            raise CheckpointError(
                f"{name} has no chat template: it completes text but doesn't answer questions. Use "
                "its instruction-tuned version."
            )
        self._has_system = self._keeps_system()
        self._has_order = not with_images or self._keeps_order()

    def render(self, prompt: Prompt) -> str:
        """Return the chat up to the point where the model's reply begins.

        Raises GenerationError if a text contains a special token that can't be escaped.
        """
        # Adjacent texts are joined, so that no special token can form where two of them meet.
        parts = _join_texts([one if isinstance(one, str) else None for one in prompt.parts])
        turn = functools.partial(self._chat, in_template_order=prompt.as_in_paper)
        rendered = turn(
            self._special_tokens.escape(prompt.system),
            [None if part is None else self._special_tokens.escape(part) for part in parts],
        )
        bare = turn(prompt.system and "x", [None if part is None else "x" for part in parts])
        if self._special_tokens.find(rendered) != self._special_tokens.find(bare):
            raise GenerationError(
                f"The prompt contains special tokens of {self._name} that can't be escaped. Leave "
                "out the page they come from, or use another generator."
            )
        return rendered

    def end_of_turn(self) -> int | None:
        """Return the token that ends a reply in the template; None if there is none."""
        turns = [self._message("user", ["x"]), self._message("assistant", [_REPLY])]
        try:
            _, _, after = self._apply(turns, reply=False).rpartition(_REPLY)
        except CheckpointError:
            return None
        tokens = tokenize(self._tokenizer, after)
        return tokens[0] if tokens and tokens[0] in self._special_tokens.ids else None

    def _chat(self, system: str, parts: Sequence[Part], *, in_template_order: bool) -> str:
        keeps_order = self._has_order or in_template_order
        if system and not self._has_system:
            parts = _join_texts([system, *parts])
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
            image_token = self._renderer.image_token
            text = "\n".join(image_token if part is None else part for part in parts)
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
                f"The chat template of {self._name} doesn't accept the prompt: {error}"
            ) from error

    def _keeps_system(self) -> bool:
        """Return whether the template keeps a system message: some refuse it, some drop it."""
        turns = [self._message("system", [_SYSTEM]), self._message("user", [_BEFORE])]
        try:
            return _SYSTEM in self._apply(turns)
        except CheckpointError:
            return False

    def _keeps_order(self) -> bool:
        """Return whether images stay between texts: some templates put all images first."""
        shown = self._apply([self._message("user", [_BEFORE, None, _AFTER])])
        between = re.search(f"{_BEFORE}(.*){_AFTER}", shown, re.DOTALL)
        keeps_order = between is not None and bool(between[1].strip())
        if not keeps_order and not hasattr(self._renderer, "image_token"):
            raise CheckpointError(
                f"The chat template of {self._name} moves images, and its processor has no image "
                "token. Use another model."
            )
        return keeps_order


class _SpecialTokens:
    """Special tokens: strings that a tokenizer or processor doesn't treat as text."""

    def __init__(self, tokenizer: Any, processor: Any) -> None:
        self._tokenizer = tokenizer
        # Some tokenizers add runs of spaces: those are text.
        added = {
            token: str(added.content)
            for token, added in tokenizer.added_tokens_decoder.items()
            if str(added.content).strip()
        }
        self.ids = frozenset(added)
        # Tokens that a processor replaces before tokenization, such as image_token.
        replaced = {
            value
            for key, value in vars(processor).items()
            if key.endswith("_token") and isinstance(value, str) and value.strip()
        }
        longest_first = sorted(replaced.union(added.values()), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def escape(self, text: str) -> str:
        """Insert a space after the first character of each special token."""
        text = encodable(text)
        while (escaped := self._pattern.sub(_escape_token, text)) != text:
            text = escaped
        return text

    def find(self, text: str) -> list[int]:
        """Return the special tokens that the tokenizer finds in a text, in order."""
        return [token for token in tokenize(self._tokenizer, text) if token in self.ids]


def _escape_token(token: re.Match[str]) -> str:
    first, rest = token[0][:1], token[0][1:]
    return f"{first} {rest}" if rest else " "


def tokenize(tokenizer: Any, text: str) -> list[int]:
    """Return the tokens of a text, without those that the tokenizer adds around it."""
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _join_texts(parts: Sequence[Part]) -> list[Part]:
    joined: list[Part] = []
    for is_image, group in groupby(parts, lambda part: part is None):
        texts = list(group)
        joined.extend(texts if is_image else ["\n".join(str(text) for text in texts)])
    return joined
