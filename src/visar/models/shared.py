"""Models shared within a process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from visar.models.protocols import Releasable

Model = TypeVar("Model")


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
