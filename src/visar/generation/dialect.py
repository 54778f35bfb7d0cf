"""What a request to an OpenAI-compatible server says, for those that do not know all of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from visar.generation.choices import choice_request, choice_schema
from visar.generation.refusals import Refusal

SEED = 0
# OpenAI's newer models know only the second, most servers know the first.
LIMITS = ("max_tokens", "max_completion_tokens")
# What a reply can be had without.
_SPARE = ("stream_options", "response_format", "seed", "temperature")


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a server wants to be asked."""

    limit: str
    """The name of the parameter for the most tokens."""
    unknown: frozenset[str] = frozenset()
    """Parameters that are left out."""
    switched: bool = False
    """Whether the limit's name was changed for the request at hand."""

    def request(
        self,
        model: str,
        system: str,
        content: Sequence[dict[str, Any]],
        max_tokens: int,
        choices: Sequence[str],
    ) -> dict[str, Any]:
        """The request for a streamed reply, the same every time."""
        said = list(content)
        request: dict[str, Any] = {
            "model": model,
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0,
            "seed": SEED,
            self.limit: max_tokens,
        }
        if choices and "response_format" in self.unknown:
            said.append({"type": "text", "text": choice_request(choices)})
        elif choices:
            schema = {"name": "choice", "strict": True, "schema": choice_schema(choices)}
            request["response_format"] = {"type": "json_schema", "json_schema": schema}
        request["messages"] = [
            {"role": "system", "content": sendable(system)},
            {"role": "user", "content": _simplest(said)},
        ]
        return {name: value for name, value in request.items() if name not in self.unknown}

    def without_what_is_named(self, refusal: Refusal) -> Dialect | None:
        """How to ask instead, if a refusal names a parameter that need not be as it is."""
        if not self.switched and refusal.names(self.limit):
            (other,) = set(LIMITS) - {self.limit}
            return replace(self, limit=other, switched=True)
        for name in _SPARE:
            if name not in self.unknown and refusal.names(name):
                return replace(self, unknown=self.unknown | {name})
        return None

    def settled(self) -> Dialect:
        """The dialect for the next request, which may again change the limit's name."""
        return replace(self, switched=False)


def sendable(text: str) -> str:
    """A text without halves of characters, which damaged documents hold and UTF-8 does not."""
    return text.encode("utf-8", "replace").decode()


def _simplest(content: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Texts alone as one: servers of text models may not know lists."""
    if all(part["type"] == "text" for part in content):
        return "\n".join(part["text"] for part in content)
    return content
