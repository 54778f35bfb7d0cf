"""Readers: models that score how well passages answer a question.

The name of a reader is in `available_readers`, an entry point of the group ``visar.readers`` of
another package, or ``module:attribute``.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from visar.errors import InvalidOption, ReaderError, install_hint
from visar.models.hub import hub_file
from visar.models.protocols import State
from visar.plugins import entry_points, failing_as, is_object_name, make, package_of, unknown_name
from visar.quotes.cross_encoder import (
    HUB_MODEL,
    CrossEncoder,
    hub_files,
    package_files,
    package_folder,
)

GROUP = "visar.readers"
"""Entry point group of other packages: a class or function that returns a reader."""
BUILT_IN = "ms-marco-minilm"
AUTO = "auto"
"""The built-in reader if its model is installed, otherwise none."""
NONE = "none"


class Reader(Protocol):
    """A model that scores how well passages answer a question. Threads share one object."""

    @property
    def name(self) -> str:
        """Name in results."""

    def read(self, question: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the relevance of each text: any finite number, higher is better."""


@dataclass(frozen=True, slots=True)
class PublishedReader:
    """A cross-encoder on the Hugging Face Hub."""

    repository: str
    description: str
    size: str


PUBLISHED = {
    "ms-marco-minilm-l12": PublishedReader(
        "cross-encoder/ms-marco-MiniLM-L12-v2",
        "ms-marco-MiniLM-L12-v2 from the hub",
        "33 M parameters, 34 MB",
    ),
    "ms-marco-minilm-l6": PublishedReader(
        "cross-encoder/ms-marco-MiniLM-L6-v2",
        "ms-marco-MiniLM-L6-v2 from the hub, with half the layers",
        "23 M parameters, 23 MB",
    ),
}


@dataclass(frozen=True, slots=True)
class ReaderInfo:
    """Description of a reader for people who choose one."""

    name: str
    description: str
    size: str
    """Parameters and download size as text; empty for readers of other packages."""
    install: str | None
    """Command that installs what is missing; None if nothing is."""
    state: State
    reads: Literal["text"] = "text"


def available_readers() -> list[ReaderInfo]:
    """Return every reader, default first, other packages' last, without importing any."""
    here = package_folder() is not None
    return [
        ReaderInfo(
            BUILT_IN,
            "ms-marco-MiniLM-L-12-v2 from a package: offline, any CPU",
            "33 M parameters, 34 MB, installed" if here else "33 M parameters, 73 MB",
            None if here else install_hint("reader"),
            "ready" if here else "missing",
        ),
        *(
            ReaderInfo(name, one.description, one.size, None, _state(one.repository))
            for name, one in PUBLISHED.items()
        ),
        *(
            ReaderInfo(name, f"{point.value} from {package_of(point)}", "", None, "ready")
            for name, point in entry_points(GROUP).items()
            if name != BUILT_IN and name not in PUBLISHED
        ),
    ]


def _state(repository: str) -> State:
    here = hub_file(repository, HUB_MODEL, None, local_only=True) is not None
    return "ready" if here else "downloads"


def default_reader() -> Reader | None:
    """Return the built-in reader, or None if its model isn't installed; nothing is imported."""
    return None if package_folder() is None else _cross_encoder(BUILT_IN)


def choose_reader(reader: str | Reader, *, device: str = "auto") -> Reader | None:
    """Return the reader for a setting, or None for "none".

    "auto" is the built-in reader if it is installed. For other values, see `get_reader`.
    """
    if reader == NONE:
        return None
    return default_reader() if reader == AUTO else get_reader(reader, device=device)


def get_reader(reader: str | Reader, *, device: str = "auto") -> Reader:
    """Return a reader by name; a reader is returned unchanged. Models are loaded on first use.

    A name is that of `available_readers`, an entry point of the group ``visar.readers``, or
    ``module:attribute``: a class or function that returns a reader. ``device`` is passed to readers
    of other packages that accept it; ours run on the CPU. Raises InvalidOption if the name is
    unknown, and ReaderError if the reader can't be created, or its package isn't installed.
    """
    if not isinstance(reader, str):
        return reader
    if reader == BUILT_IN:
        package_files()  # raises an error that says what to install
        return _cross_encoder(reader)
    if reader in PUBLISHED:
        return _cross_encoder(reader)
    factory = entry_points(GROUP).get(reader) or (reader if is_object_name(reader) else None)
    if factory is None:
        known = [BUILT_IN, *PUBLISHED, *entry_points(GROUP), AUTO, NONE]
        raise unknown_name("reader", reader, known, " You can also use module:attribute.")
    result: Reader = make(factory, "reader", reader, device, ReaderError)
    if isinstance(result, type) or not (hasattr(result, "read") and hasattr(result, "name")):
        raise InvalidOption(
            f"{reader} returned {result!r:.80}, which isn't a reader. Use a class or function that "
            "returns an object with the members of visar.quotes.reader.Reader."
        )
    return result


@functools.cache
def _cross_encoder(name: str) -> CrossEncoder:
    """Return the process-wide reader of a name, so that all indexes share its model."""
    if name == BUILT_IN:
        return CrossEncoder(name, package_files)
    return CrossEncoder(name, functools.partial(hub_files, PUBLISHED[name].repository))


def relevance(reader: Reader, question: str, texts: Sequence[str]) -> NDArray[np.float32]:
    """Return a reader's scores of texts, validated: other packages can return anything.

    Raises ReaderError if the reader fails, or doesn't return a finite number for each text.
    """
    if not texts:
        return np.zeros(0, np.float32)
    with failing_as(ReaderError, f"The reader {reader.name} failed"):
        numbers = np.asarray(reader.read(question, texts), np.float32)
    if numbers.shape != (len(texts),) or not np.isfinite(numbers).all():
        raise ReaderError(
            f"The reader {reader.name} returned numbers of shape {numbers.shape} for {len(texts)} "
            "texts, or numbers that aren't finite. Use another reader with --reader, or none."
        )
    return numbers
