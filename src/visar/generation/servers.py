"""Language models that servers on this machine offer: Ollama, LM Studio, vLLM, llama.cpp."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from visar.text import clean_line

if TYPE_CHECKING:
    import httpx2

USUAL_ADDRESSES = (
    "http://127.0.0.1:11434/v1",  # Ollama
    "http://127.0.0.1:1234/v1",  # LM Studio
    "http://127.0.0.1:8000/v1",  # vLLM
    "http://127.0.0.1:8080/v1",  # llama.cpp
)
# They are on this machine: who has not answered by then is something else, or busy.
_SECONDS_TO_ANSWER = 2.0
_MOST_MODELS = 20
_MOST_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model behind an OpenAI-compatible server."""

    name: str
    base_url: str
    sees_images: bool
    """Whether its server says so; False if it does not tell."""

    @property
    def generator(self) -> str:
        """The name that ``--generator`` takes."""
        return f"{'openai' if self.sees_images else 'openai-text'}:{self.name}"


def find_served_models(addresses: Iterable[str] = USUAL_ADDRESSES) -> list[ServedModel]:
    """Return the chat models of the servers that answer at some addresses.

    Those that see images come first. A server that refuses, says nothing for two seconds, or talks
    of something else has none.
    """
    with ThreadPoolExecutor() as pool:
        found = [model for models in pool.map(_models_at, addresses) for model in models]
    return sorted(found, key=lambda model: not model.sees_images)


def _models_at(base_url: str) -> list[ServedModel]:
    import httpx2

    base_url = base_url.rstrip("/")
    # A proxy for the world outside does not reach a server in here.
    with httpx2.Client(timeout=_SECONDS_TO_ANSWER, trust_env=False) as client:
        listed = _asked(client, "GET", f"{base_url}/models").get("data")
        entries = listed[:_MOST_MODELS] if isinstance(listed, list) else []
        names = [entry.get("id") for entry in entries if isinstance(entry, dict)]
        found = []
        for name in names:
            if not isinstance(name, str) or name != clean_line(name) or not name:
                continue
            able = _abilities(client, base_url, name)
            if not able or "completion" in able:
                found.append(ServedModel(name, base_url, "vision" in able))
        return found


def _abilities(client: httpx2.Client, base_url: str, model: str) -> list[Any]:
    """Return what a model can do as Ollama tells it; other servers do not know the question."""
    parts = urlsplit(base_url)
    address = f"{parts.scheme}://{parts.netloc}/api/show"
    able = _asked(client, "POST", address, json={"model": model}).get("capabilities")
    return able if isinstance(able, list) else []


def _asked(client: httpx2.Client, method: str, url: str, **options: Any) -> dict[str, Any]:
    """Return the JSON object that is at an address; an empty one if there is none."""
    import json

    import httpx2

    received = bytearray()
    try:
        with client.stream(method, url, **options) as response:
            if response.status_code != 200:
                return {}
            for part in response.iter_raw():
                received += part
                if len(received) > _MOST_BYTES:
                    return {}
        said = json.loads(received)
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
