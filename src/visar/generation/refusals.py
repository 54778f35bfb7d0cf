"""What it means when an OpenAI-compatible server refuses, and what the user can do."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any

from visar.generation.endpoint import KEY_VARIABLE, Endpoint
from visar.generation.event_stream import reason_in

_BAD_REQUEST = {400, 422}
_TOO_LONG = re.compile(
    r"context[ _-]?(length|size|window)"
    r"|(exceed|larger|longer|too long|too many).{0,80}\b(context|tokens)"
    r"|(prompt|input|request) (is |was )?too (long|large)",
    re.IGNORECASE | re.DOTALL,
)
_NO_MODEL = re.compile(
    r"model\b.{0,200}(not found|does not exist|not exist|not loaded|unknown)"
    r"|(unknown|invalid|no such) model",
    re.IGNORECASE | re.DOTALL,
)
_IMAGES = re.compile(r"\bimages?\b|image_url|image input|vision|multi-?modal", re.IGNORECASE)
# What a server that cannot hold a model to a schema may call it.
_SCHEMA = re.compile(r"json_schema|structured output|guided|grammar", re.IGNORECASE)
_MODELS_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Refusal:
    """A server's answer that is no reply. Its words may hold the key: they are quoted redacted."""

    status: int
    body: Any
    headers: Mapping[str, str]

    @property
    def reason(self) -> str:
        return reason_in(self.body)

    @property
    def everything_said(self) -> str:
        return self.body if isinstance(self.body, str) else json.dumps(self.body)

    def is_passing(self, *, with_images: bool) -> bool:
        """Whether it may be otherwise in a moment."""
        if self.status == 429:
            return "insufficient_quota" not in self.everything_said
        if self.status == 500 and with_images and _IMAGES.search(self.reason):
            return False
        return self.status == 408 or (self.status >= 500 and self.status not in (501, 505))

    def is_too_long(self) -> bool:
        if self.status == 413:
            return True
        return self.status < 429 and bool(_TOO_LONG.search(self.everything_said))

    def is_model_missing(self) -> bool:
        return self.status == 404 or (
            self.status in _BAD_REQUEST and bool(_NO_MODEL.search(self.reason))
        )

    def names(self, parameter: str) -> bool:
        """Whether it is about a parameter of the request that the server does not know."""
        if self.status not in _BAD_REQUEST | {501} or self.is_too_long():
            return False
        said = self.everything_said
        if parameter == "response_format" and _SCHEMA.search(said):
            return True
        return bool(re.search(rf"\b{parameter}\b", said))

    def seconds_to_wait(self) -> float | None:
        """What the server asks for."""
        asked = self.headers.get("Retry-After", "").strip()
        with suppress(ValueError):
            return max(0.0, float(asked))
        with suppress(ValueError):
            when = parsedate_to_datetime(asked)
            when = when if when.tzinfo else when.replace(tzinfo=UTC)
            return max(0.0, (when - datetime.now(UTC)).total_seconds())
        return None


def explain(
    refusal: Refusal, endpoint: Endpoint, model: str, *, with_images: bool, offered: Sequence[str]
) -> str:
    """What a refusal means for the user; the words continue "MODEL at ADDRESS …"."""
    said = f"({refusal.status}: {endpoint.quoted(refusal.reason)})"
    if 300 <= refusal.status < 400:
        target = endpoint.quoted(refusal.headers.get("Location", "elsewhere"))
        return (
            f"sends on to {target}, where pages and key are not taken unasked: "
            "give that address as the server's if you trust it"
        )
    if refusal.status in (401, 403):
        return _about_key(endpoint, said)
    if refusal.is_too_long():
        return (
            f"cannot take so much at once {said}: lower --max-k or --send-megapixels, or serve the "
            "model with a longer context"
        )
    if refusal.is_model_missing():
        return _about_model(endpoint, model, said, offered)
    if refusal.status == 429:
        return _about_rate(refusal, said)
    if with_images and _IMAGES.search(refusal.reason):
        return (
            f"does not take these page images {said}: lower --max-k if they are too many, or use "
            f"openai-text:{model}, which is given their text"
        )
    if refusal.status >= 500:
        return f"fails {said}: its own log may say why"
    return f"refuses the request {said}"


def _about_key(endpoint: Endpoint, said: str) -> str:
    if endpoint.key is None:
        return f"wants a key {said}: set {KEY_VARIABLE} in the environment"
    return f"does not accept the key {said}: check {KEY_VARIABLE} in the environment"


def _about_model(endpoint: Endpoint, model: str, said: str, offered: Sequence[str]) -> str:
    if offered and model not in offered:
        names = [endpoint.quoted(name) for name in offered[:_MODELS_SHOWN]]
        more = len(offered) - len(names)
        listed = ", ".join(names) + (f" and {more} more" if more > 0 else "")
        return f"is not there {said}: the server offers {listed}"
    if not endpoint.base_url.endswith("/v1"):
        return f"is not there {said}: most servers' addresses end in /v1"
    return f"is not there {said}: check the model's name and the server's address"


def _about_rate(refusal: Refusal, said: str) -> str:
    if "insufficient_quota" in refusal.everything_said:
        return f"has no quota left for this key {said}: see your account there"
    seconds = refusal.seconds_to_wait()
    when = f"in {seconds:.0f} s" if seconds and isfinite(seconds) else "later"
    return f"is asked too often {said}: try again {when}"
