"""Optional protocols of encoders and generators: downloads, memory, readiness."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias, runtime_checkable

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
