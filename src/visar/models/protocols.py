"""Optional protocols of encoders and generators: downloads, memory, readiness."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias, runtime_checkable

State: TypeAlias = Literal["ready", "downloads", "missing"]
"""Whether a model has all it needs, downloads its weights when first used, or lacks packages."""


@runtime_checkable
class Downloadable(Protocol):
    """A model whose weights may have to be downloaded before its first use."""

    def fetch(self) -> None:
        """Download what is not on this machine yet; load nothing."""
        ...


@runtime_checkable
class Identified(Protocol):
    """A model that knows the checkpoint it was made from."""

    @property
    def identity(self) -> str:
        """``REPOSITORY@COMMIT``, with the beginning of its base model's; for a folder, a hash."""
        ...


@runtime_checkable
class Loadable(Protocol):
    """A model that loads quickly, and can do so while something else is prepared."""

    def load(self) -> None:
        """Load the weights now rather than with the first use."""
        ...


@runtime_checkable
class Releasable(Protocol):
    """A model whose memory can be given back."""

    def release(self) -> None:
        """Free the memory of the weights; the next use loads them again."""
        ...


def identity_of(model: object) -> str:
    """Return the checkpoint a model was made from; its version or name if it does not tell."""
    if isinstance(model, Identified):
        return model.identity
    return str(getattr(model, "version", getattr(model, "name", "")))
