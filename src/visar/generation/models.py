"""Encoders and generators by name, made once and shared by threads."""

from __future__ import annotations

import threading

from visar.encoders.protocol import Encoder
from visar.generation.protocol import Generator
from visar.models.devices import check_device
from visar.models.protocols import Releasable


class SharedModels:
    """The models of one device. Safe for threads."""

    def __init__(self, device: str) -> None:
        check_device(device)
        self.device = device
        self._lock = threading.Lock()
        self._encoders: dict[str, Encoder] = {}
        self._generators: dict[tuple[str, str | None], Generator] = {}

    def encoder(self, encoder: str | Encoder) -> Encoder:
        """Return the encoder of that name; an encoder is given back."""
        if not isinstance(encoder, str):
            return encoder
        from visar.encoders.registry import get_encoder

        with self._lock:
            if encoder not in self._encoders:
                self._encoders[encoder] = get_encoder(encoder, device=self.device)
            return self._encoders[encoder]

    def generator(self, generator: str | Generator, base_url: str | None) -> Generator:
        """Return the generator of that name; a generator is given back."""
        if not isinstance(generator, str):
            return generator
        from visar.generation.registry import get_generator

        key = generator, base_url
        with self._lock:
            if key not in self._generators:
                self._generators[key] = get_generator(
                    generator, base_url=base_url, device=self.device
                )
            return self._generators[key]

    def release(self) -> None:
        """Free the memory of all loaded models; the next use loads them again."""
        with self._lock:
            models = [*self._encoders.values(), *self._generators.values()]
        for model in models:
            if isinstance(model, Releasable):
                model.release()
