"""Fake generators with replies chosen by the test."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from visar.generation.generator import OnText, Prompt, Reply, ignore_text


@dataclass
class Grader:
    """A generator that reads the case from the prompt and chooses by a rule."""

    rule: Callable[[dict[str, Any]], str]
    name: str = "grader"
    reads: Literal["images", "text"] = "text"
    prompts: list[Prompt] = field(default_factory=list)

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def generate(
        self,
        prompt: Prompt,
        *,
        max_tokens: int,
        choices: Sequence[str] = (),
        on_text: OnText = ignore_text,
    ) -> Reply:
        self.prompts.append(prompt)
        (text,) = prompt.parts
        assert isinstance(text, str)
        (case,) = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        choice = self.rule(case)
        assert choice in choices
        reply = json.dumps({"choice": choice})
        on_text(reply)
        used = self.count_tokens(prompt.system) + self.count_tokens(text)
        return Reply(reply, f"{self.name}@1", used, min(max_tokens, 5), complete=True)


@dataclass
class Says:
    """A generator with a constant reply that records its prompts."""

    text: str
    name: str = "says"
    is_held_to_choices: bool = False
    reads: Literal["images", "text"] = "text"
    prompts: list[Prompt] = field(default_factory=list)

    def count_tokens(self, text: str) -> int:
        return len(text)

    def generate(
        self,
        prompt: Prompt,
        *,
        max_tokens: int,
        choices: Sequence[str] = (),
        on_text: OnText = ignore_text,
    ) -> Reply:
        assert prompt.system
        assert bool(choices) is self.is_held_to_choices
        self.prompts.append(prompt)
        on_text(self.text)
        return Reply(self.text, f"{self.name}@1", 100, min(max_tokens, 9))


def same_text(case: dict[str, Any]) -> str:
    return "correct" if case["answer"] in case["references"] else "incorrect"
