"""Plugins: entry points of installed packages, and ``module:attribute`` names."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visar.errors import InvalidOption, VisarError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_OBJECT_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")


@cache
def entry_points(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group, such as ``visar.encoders``, without importing them."""
    from importlib import metadata

    return {point.name: point for point in metadata.entry_points(group=group)}


def is_object_name(name: str) -> bool:
    """Return whether a name has the form ``module:attribute``.

    >>> is_object_name("my_package.encoders:Tiny"), is_object_name("http://127.0.0.1:80")
    (True, False)
    """
    return _OBJECT_NAME.fullmatch(name) is not None


def load(name: str | EntryPoint) -> Any:
    """Import the object of an entry point or of a ``module:attribute`` name.

    A module can be in the current folder, which is added to ``sys.path``, so that the name also
    works in processes started by ``multiprocessing``. Raises InvalidOption if the module or the
    attribute doesn't exist, or the import fails.
    """
    text = name if isinstance(name, str) else name.value
    module, _, attribute = text.partition(":")
    foreign = isinstance(name, str) and not name.startswith("visar.")
    if foreign and (folder := str(Path.cwd())) not in sys.path:
        sys.path.append(folder)
    advice = ". Write module:attribute, with a module that is installed or in the current folder."
    with failing_as(InvalidOption, f"Can't import {text}", advice):
        return reduce(getattr, attribute.split("."), importlib.import_module(module))


@contextmanager
def failing_as(failure: type[VisarError], subject: str, end: str = "") -> Iterator[None]:
    """Convert any error of a plugin to ``failure``; VisarErrors aren't converted.

    ``subject`` begins the message, and ``end`` ends it.
    """
    try:
        yield
    except VisarError:
        raise
    except Exception as error:
        raise failure(f"{subject}: {type(error).__name__}: {error}{end}") from error


def make(
    factory: str | EntryPoint, kind: str, name: str, device: str, failure: type[VisarError]
) -> Any:
    """Create an encoder or a generator; pass ``device`` if the factory accepts it.

    Raises ``failure`` if the call fails, and InvalidOption if the module can't be imported.
    """
    function = load(factory)
    with failing_as(failure, f"Can't create the {kind} {name!r}"):
        return function(device=device) if accepts_device(function) else function()


def accepts_device(function: Callable[..., object]) -> bool:
    """Return whether a callable accepts the argument ``device``."""
    import inspect

    try:
        inspect.signature(function).bind_partial(device="auto")
    except (TypeError, ValueError):  # ValueError: some built-in callables have no signature
        return False
    return True


def package_of(point: EntryPoint) -> str:
    """Return the name and version of the package of an entry point."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else "another package"


def unknown_name(kind: str, name: str, known: Iterable[str], hint: str = "") -> InvalidOption:
    """Return the error for an unknown name, with the closest known name.

    >>> print(unknown_name("method", "vizar", ["visar", "top-k"]))
    There is no method 'vizar': did you mean visar? Known: visar, top-k.
    """
    from difflib import get_close_matches

    names = list(known)
    near = get_close_matches(name, names, n=1)
    question = f": did you mean {near[0]}?" if near else "."
    return InvalidOption(f"There is no {kind} {name!r}{question} Known: {', '.join(names)}.{hint}")
