"""Readers: models that read a question with passages and tell how well each answers it.

A reader is named by this module's table, an entry point of the group ``visar.readers`` of an
installed package, or ``module:attribute``.
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
"""Entry points of other packages: a class or function that returns a reader."""
BUILT_IN = "ms-marco-minilm"
AUTO = "auto"
"""The built-in reader if its model is installed, otherwise none."""
NONE = "none"


class Reader(Protocol):
    """A model that tells how well passages answer a question. Threads share one object."""

    @property
    def name(self) -> str:
        """Name that results carry."""
        ...

    def read(self, question: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the relevance of each text: any finite numbers, higher is better."""
        ...


@dataclass(frozen=True, slots=True)
class PublishedReader:
    """A cross-encoder at the Hugging Face hub."""

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
    """Parameters, and bytes to download; empty for another package's."""
    install: str | None
    """Command that installs what is missing; None if nothing is."""
    state: State
    reads: Literal["text"] = "text"


def available_readers() -> list[ReaderInfo]:
    """Return every reader, the default first, then those of other packages; import none."""
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
            ReaderInfo(name, f"{point.value}, of {package_of(point)}", "", None, "ready")
            for name, point in entry_points(GROUP).items()
            if name != BUILT_IN and name not in PUBLISHED
        ),
    ]


def _state(repository: str) -> State:
    here = hub_file(repository, HUB_MODEL, None, local_only=True) is not None
    return "ready" if here else "downloads"


def default_reader() -> Reader | None:
    """Return the built-in reader if its model is installed, else None; nothing is imported."""
    return None if package_folder() is None else _cross_encoder(BUILT_IN)


def choose_reader(reader: str | Reader, *, device: str = "auto") -> Reader | None:
    """Return the reader that a setting means; None if no passage is to be read again.

    "auto" means the built-in one if it is installed, and "none" means none. Otherwise see
    `get_reader`.
    """
    if reader == NONE:
        return None
    return default_reader() if reader == AUTO else get_reader(reader, device=device)


def get_reader(reader: str | Reader, *, device: str = "auto") -> Reader:
    """Return the reader of a name; its model is loaded when first used. A reader is returned as is.

    Parameters
    ----------
    reader
        A name of this module, an entry point of the group ``visar.readers``, or
        ``module:attribute``: a class or function that returns a reader.
    device
        Passed to a reader of another package that takes it. Ours run on the CPU.

    Raises
    ------
    InvalidOption
        If the name is unknown.
    ReaderError
        If it cannot be made, or its package is not installed.
    """
    if not isinstance(reader, str):
        return reader
    if reader == BUILT_IN:
        package_files()  # or the error that says what to install
        return _cross_encoder(reader)
    if reader in PUBLISHED:
        return _cross_encoder(reader)
    factory = entry_points(GROUP).get(reader) or (reader if is_object_name(reader) else None)
    if factory is None:
        known = [BUILT_IN, *PUBLISHED, *entry_points(GROUP), AUTO, NONE]
        raise unknown_name("reader", reader, known, " Or give module:attribute of your own.")
    made: Reader = make(factory, "reader", reader, device, ReaderError)
    if isinstance(made, type) or not (hasattr(made, "read") and hasattr(made, "name")):
        raise InvalidOption(
            f"{reader} returned {made!r:.80}, which isn't a reader: it must be a class or function "
            "that returns an object with the members of visar.quotes.reader.Reader."
        )
    return made


@functools.cache
def _cross_encoder(name: str) -> CrossEncoder:
    """Return the one reader of a name in this process: all indexes share its model."""
    if name == BUILT_IN:
        return CrossEncoder(name, package_files)
    return CrossEncoder(name, functools.partial(hub_files, PUBLISHED[name].repository))


def relevance(reader: Reader, question: str, texts: Sequence[str]) -> NDArray[np.float32]:
    """Return what a reader says about texts, checked: one of another package may return anything.

    Raises
    ------
    ReaderError
        If it fails, or does not return a finite number for each text.
    """
    if not texts:
        return np.zeros(0, np.float32)
    with failing_as(ReaderError, f"The reader {reader.name} failed"):
        numbers = np.asarray(reader.read(question, texts), np.float32)
    if numbers.shape != (len(texts),) or not np.isfinite(numbers).all():
        raise ReaderError(
            f"The reader {reader.name} returned numbers of shape {numbers.shape} for {len(texts)} "
            "texts, or some that aren't finite. Use another with --reader, or none."
        )
    return numbers
