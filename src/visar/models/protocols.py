"""Optional protocols of encoders and generators (downloads, memory, readiness), and a cache."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

Model = TypeVar("Model")

State: TypeAlias = Literal["ready", "downloads", "missing"]
"""A model is ready, downloads its weights on first use, or is missing packages."""


@runtime_checkable
class Downloadable(Protocol):
    """A model whose weights may need to be downloaded before first use."""

    def fetch(self) -> None:
        """Download missing files without loading the model."""


@runtime_checkable
class Identified(Protocol):
    """A model that knows the checkpoint it was made from."""

    @property
    def identity(self) -> str:
        """``REPOSITORY@COMMIT``, plus a short base model commit; a hash for local folders."""


@runtime_checkable
class Loadable(Protocol):
    """A model that loads quickly enough to load in the background."""

    def load(self) -> None:
        """Load the weights now instead of on first use."""


@runtime_checkable
class Releasable(Protocol):
    """A model whose memory can be freed."""

    def release(self) -> None:
        """Free the memory of the weights; the next use loads them again."""


def identity_of(model: object) -> str:
    """Return the model's checkpoint, or its version or name if it doesn't say."""
    if isinstance(model, Identified):
        return model.identity
    return str(getattr(model, "version", getattr(model, "name", "")))


@dataclass(slots=True)
class _Slot:
    lock: threading.Lock = field(default_factory=threading.Lock)
    model: Any = None


class SharedModels:
    """A thread-safe cache of encoders and generators."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slots: dict[Hashable, _Slot] = {}

    def get(self, key: Hashable, make: Callable[[], Model]) -> Model:
        """Return the model for a key, creating it on first use.

        Creating a model may contact the hub, so only threads that want the same model wait.
        """
        with self._lock:
            slot = self._slots.setdefault(key, _Slot())
        with slot.lock:
            if slot.model is None:
                slot.model = make()
            model: Model = slot.model
            return model

    def release(self) -> None:
        """Free the memory of all loaded models. They are reloaded on next use."""
        with self._lock:
            models = [slot.model for slot in self._slots.values()]
        for model in models:
            if isinstance(model, Releasable):
                model.release()
