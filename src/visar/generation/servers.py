"""Language models of local servers: Ollama, LM Studio, vLLM and llama.cpp."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from visar.text import clean_line

if TYPE_CHECKING:
    import httpx2

SERVERS = {
    "ollama": "http://127.0.0.1:11434/v1",
    "lmstudio": "http://127.0.0.1:1234/v1",
    "vllm": "http://127.0.0.1:8000/v1",
    "llama.cpp": "http://127.0.0.1:8080/v1",
}
"""Local model servers, and their default addresses."""
# A local server answers fast; otherwise it is busy, or something else.
_TIMEOUT = 2.0
_MAX_MODELS = 20
_MAX_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model behind an OpenAI-compatible server."""

    name: str
    base_url: str
    sees_images: bool
    """Whether the model reads images; False if the server doesn't say so."""

    @property
    def generator(self) -> str:
        """Name for ``--generator``."""
        for server, address in SERVERS.items():
            if self.base_url == address:
                return f"{server}:{self.name}"
        return f"{'openai' if self.sees_images else 'openai-text'}:{self.name}@{self.base_url}"


def find_served_models(addresses: Iterable[str] | None = None) -> list[ServedModel]:
    """Return the chat models of the servers at these addresses, by default those of `SERVERS`.

    Models that see images come first. Servers that fail, or don't answer within two seconds, are
    ignored.
    """
    with ThreadPoolExecutor() as pool:
        found = [
            model
            for models in pool.map(_models_at, addresses or SERVERS.values())
            for model in models
        ]
    return sorted(found, key=lambda model: not model.sees_images)


def sees_images(server: str, model: str) -> bool:
    """Return whether one of `SERVERS` reports that a model sees images; only Ollama does."""
    import httpx2

    with httpx2.Client(timeout=_TIMEOUT, trust_env=False) as client:
        return "vision" in _capabilities(client, SERVERS[server], model)


def _models_at(base_url: str) -> list[ServedModel]:
    import httpx2

    base_url = base_url.rstrip("/")
    # A proxy may not reach local servers.
    with httpx2.Client(timeout=_TIMEOUT, trust_env=False) as client:
        listed = _fetch_object(client, "GET", f"{base_url}/models").get("data")
        entries = listed[:_MAX_MODELS] if isinstance(listed, list) else []
        names = [entry.get("id") for entry in entries if isinstance(entry, dict)]
        found = []
        for name in names:
            if not isinstance(name, str) or name != clean_line(name) or not name:
                continue
            capabilities = _capabilities(client, base_url, name)
            if not capabilities or "completion" in capabilities:
                found.append(ServedModel(name, base_url, "vision" in capabilities))
        return found


def _capabilities(client: httpx2.Client, base_url: str, model: str) -> list[Any]:
    """Return the capabilities of a model from Ollama's API; empty for other servers."""
    parts = urlsplit(base_url)
    address = f"{parts.scheme}://{parts.netloc}/api/show"
    found = _fetch_object(client, "POST", address, json={"model": model}).get("capabilities")
    return found if isinstance(found, list) else []


def _fetch_object(client: httpx2.Client, method: str, url: str, **options: Any) -> dict[str, Any]:
    """Return the JSON object at an address; an empty one if there is none."""
    import json

    import httpx2

    received = bytearray()
    try:
        with client.stream(method, url, **options) as response:
            if response.status_code != 200:
                return {}
            for part in response.iter_raw():
                received += part
                if len(received) > _MAX_BYTES:
                    return {}
        content = json.loads(received)
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
