"""The models that one process shares."""

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
    """Encoders and generators, each made once. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slots: dict[Hashable, _Slot] = {}

    def get(self, key: Hashable, make: Callable[[], Model]) -> Model:
        """Return the model of a key, made when it is first asked for.

        Making one may ask a model hub: only threads that want the same model wait for it.
        """
        with self._lock:
            slot = self._slots.setdefault(key, _Slot())
        with slot.lock:
            if slot.model is None:
                slot.model = make()
            model: Model = slot.model
            return model

    def release(self) -> None:
        """Free the memory of all loaded models; the next use loads them again."""
        with self._lock:
            models = [slot.model for slot in self._slots.values()]
        for model in models:
            if isinstance(model, Releasable):
                model.release()
